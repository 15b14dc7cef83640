//! Readiness. It fails while the first policy is awaited, unless the settings say otherwise, and while a store that the
//! settings require is unhealthy. A store that has not answered since the start, and is not required, is only reported.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{field::display, info, warn};
use weir_store::{AnyStore, redis::RedisStore};
use weir_telemetry::Causes;

use crate::{limiter::Limiter, monitoring::HealthAndMetrics, transport::grpc::ServingReporter};

/// Interval between polls of the circuit breaker, and between attempts to reach the store after the start.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between probes of a required store, since a replica may get no checks that would show its health.
const REACH_INTERVAL: Duration = Duration::from_secs(1);

const NEVER_ANSWERED: &str = "the shared store has not answered since the start\n";
const DOWN: &str = "the store does not answer\n";

/// Reports the readiness of this service.
#[derive(Clone)]
pub(super) struct Readiness {
    /// `/readyz`.
    pub monitoring: HealthAndMetrics,
    /// The health service of gRPC, which says the same.
    pub health: ServingReporter,
    /// Whether readiness fails while the store is unhealthy.
    pub requires_store: bool,
    /// Locked while it is reported, so that the last report is of the latest state.
    pub state: Arc<tokio::sync::Mutex<State>>,
}

#[derive(Default)]
pub(super) struct State {
    is_draining: bool,
    awaits_policy: bool,
    /// The problem of the shared store, as a line of text.
    store: Option<&'static str>,
}

impl State {
    /// Whether this service is ready, and the body of `/readyz`.
    fn readiness(&self, requires_store: bool) -> (bool, &'static str) {
        match self {
            Self { is_draining: true, .. } => (false, "draining\n"),
            Self { awaits_policy: true, .. } => (false, "the control plane has not sent a policy\n"),
            Self { store: Some(problem), .. } => (!requires_store, problem),
            Self { .. } => (true, "ready\n"),
        }
    }
}

impl Readiness {
    /// Reports that the store has not answered yet: it may be misconfigured (host name, password, certificate), and
    /// meanwhile decisions are made without it.
    pub(super) async fn await_store(&self) {
        self.change(|state| state.store = Some(NEVER_ANSWERED)).await;
    }

    /// Waits until the store has answered once and reports that; from then on reports the health of a required store.
    /// `timeout` bounds each probe.
    pub(super) async fn follow_store(self, limiter: Arc<Limiter<AnyStore>>, timeout: Duration) {
        let Some(shared) = limiter.store().shared() else { return };
        reached(shared.redis(), timeout).await;
        self.change(|state| state.store = None).await;
        if !self.requires_store {
            return;
        }
        // Concurrently with the reports, since a probe may take as long as a connection attempt.
        let failure = Mutex::new(None);
        let ask = async {
            loop {
                sleep(REACH_INTERVAL).await;
                let reached = shared.redis().reach(timeout).await;
                *failure.lock() = reached.err();
            }
        };
        let report = async {
            let (mut reported, mut polls) = (true, interval(POLL_INTERVAL));
            polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                polls.tick().await;
                let up = failure.lock().is_none() && shared.redis().is_up();
                if up != reported {
                    // Without a check, nothing else says it.
                    if up {
                        info!("the required store answers: ready");
                    } else {
                        let error = failure.lock().as_ref().map(|failure| display(Causes(failure).to_string()));
                        warn!(error, "the required store is not usable: not ready");
                    }
                    self.change(|state| state.store = (!up).then_some(DOWN)).await;
                    reported = up;
                }
            }
        };
        tokio::join!(ask, report);
    }

    /// Reports whether a policy is awaited; while it is, this service is not ready.
    pub(super) async fn report_awaited_policy(&self, is_awaited: bool) {
        self.change(|state| state.awaits_policy = is_awaited).await;
    }

    /// Fails readiness permanently.
    pub(super) async fn report_draining(&self) {
        self.change(|state| state.is_draining = true).await;
    }

    /// Changes the state and reports it.
    async fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().await;
        change(&mut state);
        let (is_ready, body) = state.readiness(self.requires_store);
        self.monitoring.report(is_ready, body);
        self.health.report(is_ready).await;
    }
}

/// Waits until the store has answered. A store counts as healthy until it fails, so its health is unknown before the
/// first request.
async fn reached(store: &RedisStore, timeout: Duration) {
    while store.reach(timeout).await.is_err() {
        sleep(POLL_INTERVAL).await;
    }
}
