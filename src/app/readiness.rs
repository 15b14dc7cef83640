//! What readiness says of the shared store. It fails where the settings want it to; otherwise it tells of a store that has
//! never answered.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic_health::server::HealthReporter;
use weir_store::{AnyStore, redis::RedisStore};

use crate::{
    admin::{Admin, StoreReport},
    limiter::Limiter,
    transport::grpc::report_serving,
};

/// How often to look whether the store is asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What `/readyz` says of the store.
const NEVER_ANSWERED: &str = "the shared store has not answered since the start\n";
const DOWN: &str = "the store does not answer\n";

/// What tells others whether this service is ready.
#[derive(Clone)]
pub struct Readiness {
    pub admin: Admin,
    pub health: HealthReporter,
    /// Whether it fails while the store does not answer.
    pub requires_store: bool,
}

impl Readiness {
    /// For before the store has answered: what never did may be configured wrongly (a name, a password, a certificate), and
    /// decisions are made without it meanwhile.
    pub async fn await_store(&self) {
        self.tell(Some(NEVER_ANSWERED)).await;
    }

    /// Tells when the store has answered once, within `patience`, and from then on, where it is required, whether it is
    /// asked.
    pub async fn follow_store(self, limiter: Arc<Limiter<AnyStore>>, patience: Duration) {
        let Some(shared) = limiter.store().shared() else { return };
        reached(shared.redis(), patience).await;
        self.tell(None).await;
        if !self.requires_store {
            return;
        }
        let (mut told, mut looks) = (true, interval(LOOK_EVERY));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let up = shared.redis().is_up();
            if up != told {
                self.tell((!up).then_some(DOWN)).await;
                told = up;
            }
        }
    }

    async fn tell(&self, problem: Option<&'static str>) {
        self.admin.report_store(StoreReport { problem, fails_readiness: self.requires_store });
        if self.requires_store {
            report_serving(&self.health, problem.is_none()).await;
        }
    }

    /// Says no for good. Whatever follows the store must have ended.
    pub async fn report_draining(&self) {
        report_serving(&self.health, false).await;
        self.admin.report_draining();
    }
}

/// A store counts as asked until it fails, so before anybody asks it nothing is known.
async fn reached(store: &RedisStore, patience: Duration) {
    while store.reach(patience).await.is_err() {
        sleep(LOOK_EVERY).await;
    }
}
