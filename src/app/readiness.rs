//! Readiness. It fails while a policy is awaited, unless the settings say otherwise, and where the settings require the shared
//! store, while that does not answer; otherwise it reports a store that has never answered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic_health::server::HealthReporter;
use weir_store::{AnyStore, redis::RedisStore};

use crate::{admin::Admin, limiter::Limiter, transport::grpc::report_serving};

/// How often to look whether the store is asked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often a required store is probed, since the replica may get no checks that would show whether it answers.
const REACH_INTERVAL: Duration = Duration::from_secs(1);

/// The body of `/readyz` about the store.
const NEVER_ANSWERED: &str = "the shared store has not answered since the start\n";
const DOWN: &str = "the store does not answer\n";

/// Reports whether this service is ready.
#[derive(Clone)]
pub(super) struct Readiness {
    pub admin: Admin,
    pub health: HealthReporter,
    /// Whether it fails while the store does not answer.
    pub requires_store: bool,
    /// Held while health is reported, so that the last report is of the last state.
    pub reporting: Arc<tokio::sync::Mutex<()>>,
}

impl Readiness {
    /// For the time before the store has answered: it may be misconfigured (a name, a password, a certificate), and decisions
    /// are made without it meanwhile.
    pub(super) async fn await_store(&self) {
        self.tell(Some(NEVER_ANSWERED)).await;
    }

    /// Reports ready when the store has answered once, or after `timeout`; from then on, where it is required, whether it is
    /// healthy.
    pub(super) async fn follow_store(self, limiter: Arc<Limiter<AnyStore>>, timeout: Duration) {
        let Some(shared) = limiter.store().shared() else { return };
        reached(shared.redis(), timeout).await;
        self.tell(None).await;
        if !self.requires_store {
            return;
        }
        // Asking may take as long as a connection may.
        let answers = AtomicBool::new(true);
        let ask = async {
            loop {
                sleep(REACH_INTERVAL).await;
                answers.store(shared.redis().reach(timeout).await.is_ok(), Relaxed);
            }
        };
        let report = async {
            let (mut reported, mut polls) = (true, interval(POLL_INTERVAL));
            polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                polls.tick().await;
                let up = answers.load(Relaxed) && shared.redis().is_up();
                if up != reported {
                    self.tell((!up).then_some(DOWN)).await;
                    reported = up;
                }
            }
        };
        tokio::join!(ask, report);
    }

    async fn tell(&self, problem: Option<&'static str>) {
        self.admin.report_store(problem);
        self.report().await;
    }

    /// Whether a policy is awaited, without which this service is not ready.
    pub(super) async fn report_awaited_policy(&self, is_awaited: bool) {
        self.admin.report_awaited_policy(is_awaited);
        self.report().await;
    }

    /// Says in the health service what `/readyz` says.
    async fn report(&self) {
        let _reporting = self.reporting.lock().await;
        report_serving(&self.health, self.admin.is_ready()).await;
    }

    /// Fails readiness for good.
    pub(super) async fn report_draining(&self) {
        self.admin.report_draining();
        self.report().await;
    }
}

/// A store counts as healthy until it fails, so its health is unknown before the first request.
async fn reached(store: &RedisStore, timeout: Duration) {
    while store.reach(timeout).await.is_err() {
        sleep(POLL_INTERVAL).await;
    }
}
