//! Readiness that depends on the shared store, where the settings want it to.

use std::{sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic_health::server::HealthReporter;
use weir_store::{AnyStore, redis::RedisStore};

use crate::{admin::Admin, limiter::Limiter, transport::grpc::report_serving};

/// How often to look whether the store is asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What tells others whether this service is ready.
#[derive(Clone)]
pub struct Readiness {
    pub admin: Admin,
    pub health: HealthReporter,
}

impl Readiness {
    /// Says no, for before the store has answered.
    pub async fn await_store(&self) {
        self.tell(false).await;
    }

    /// Says yes when the store has answered, and from then on no whenever it is not asked, for ever.
    pub async fn follow_store(self, limiter: Arc<Limiter<AnyStore>>) {
        let Some(shared) = limiter.store().shared() else { return };
        reached(shared.redis()).await;
        let (mut told, mut looks) = (false, interval(LOOK_EVERY));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let up = shared.redis().is_up();
            if up != told {
                self.tell(up).await;
                told = up;
            }
        }
    }

    async fn tell(&self, up: bool) {
        self.admin.report_store(up);
        report_serving(&self.health, up).await;
    }

    /// Says no for good. Whatever follows the store must have ended.
    pub async fn report_draining(&self) {
        report_serving(&self.health, false).await;
        self.admin.report_draining();
    }
}

/// A store counts as asked until it fails, so before anybody asks it nothing is known.
async fn reached(store: &RedisStore) {
    while store.reach(LOOK_EVERY).await.is_err() {
        sleep(LOOK_EVERY).await;
    }
}
