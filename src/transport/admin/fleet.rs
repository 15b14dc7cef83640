//! The replicas of one shared store: each publishes a report about itself there, every few seconds.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use prost::Message;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};
use weir_core::{
    algorithm::message::duration,
    domain::{Micros, time::SECOND},
};
use weir_store::{
    AnyStore, Failure, SharedStore,
    failure::ErrorCode,
    platform::{OsPlatform, Platform},
};
use weir_telemetry::Causes;

use crate::{
    limiter::Limiter,
    proto::{self, Replica, ReplicaReport},
    telemetry,
};

/// Interval between the reports of a replica.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Age of a report after which its replica is not listed any more.
const MAX_REPORT_AGE: Micros = 20 * SECOND;
/// Number of hot keys of each list in a report.
const HOT_KEYS: usize = 50;
/// Maximum size of a report that is read.
const MAX_REPORT_BYTES: usize = 256 << 10;

/// This replica among the replicas of its store.
pub struct ReplicaRegistry {
    limiter: Arc<Limiter<AnyStore>>,
    id: u64,
    address: String,
    started: Instant,
    degraded: Mutex<Degraded>,
}

/// Checks that were decided without the shared store.
struct Degraded {
    since: Instant,
    count: u64,
    per_second: f64,
}

impl ReplicaRegistry {
    /// Returns a replica that starts now, and serves gRPC at this address.
    pub fn new(limiter: Arc<Limiter<AnyStore>>, address: String) -> Self {
        let id = limiter.store().shared().map_or_else(|| OsPlatform.random(), SharedStore::owner);
        let degraded = Mutex::new(Degraded { since: Instant::now(), count: 0, per_second: 0.0 });
        Self { limiter, id, address, started: Instant::now(), degraded }
    }

    /// Returns the id of this replica as text.
    pub(super) fn id(&self) -> String {
        format!("{:016x}", self.id)
    }

    /// Publishes reports about this replica, until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        let (mut ticks, mut failing) = (interval(REPORT_INTERVAL), false);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if let Some(shared) = self.limiter.store().shared() {
            // Deletes the reports of replicas that were killed, which may be this one in a crash loop.
            let _ = self.others(shared).await;
        }
        loop {
            ticks.tick().await;
            self.measure();
            let Some(shared) = self.limiter.store().shared() else { continue };
            let announced = shared.redis().publish_status(&self.id(), self.report(shared).encode_to_vec()).await;
            match &announced {
                // An outage is logged elsewhere.
                Err(error) if !failing && error.error_code() == Some(ErrorCode::NoPerm) => {
                    let error = Causes(error);
                    warn!(%error, "this replica's report cannot be stored: `weir replicas` does not list it");
                }
                Err(error) => {
                    debug!(error = %Causes(error), "the other replicas do not see this report")
                }
                Ok(()) => {}
            }
            failing = announced.is_err();
        }
    }

    /// Removes this replica from the list of the others.
    pub async fn finish(&self) {
        if let Some(shared) = self.limiter.store().shared().filter(|shared| shared.redis().is_up()) {
            // A failure does not matter: the report expires soon.
            let _ = shared.redis().delete_statuses(vec![self.id().into_bytes()]).await;
        }
    }

    fn measure(&self) {
        let Some(shared) = self.limiter.store().shared() else { return };
        let (count, mut degraded) = (shared.degraded().iter().sum::<u64>(), self.degraded.lock());
        let seconds = degraded.since.elapsed().as_secs_f64();
        if seconds >= 1.0 {
            let per_second = (count - degraded.count) as f64 / seconds;
            *degraded = Degraded { since: Instant::now(), count, per_second };
        }
    }

    fn report(&self, shared: &SharedStore) -> ReplicaReport {
        let replica = Replica { answering: false, ..self.own() };
        ReplicaReport { replica: Some(replica), at_us: shared.redis().clock().now(), hot_keys: self.hot_keys() }
    }

    fn hot_keys(&self) -> Vec<proto::HotKey> {
        let hottest = self.limiter.hot_keys().map(|keys| keys.hottest(HOT_KEYS)).unwrap_or_default();
        hottest.into_iter().map(message).collect()
    }

    /// Returns the current state of this replica.
    fn own(&self) -> Replica {
        let shared = self.limiter.store().shared();
        Replica {
            id: self.id(),
            address: self.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy_hash: self.limiter.metrics().policy_hash(),
            uptime: Some(duration(self.started.elapsed().as_micros() as Micros)),
            store_healthy: shared.is_none_or(|shared| shared.redis().is_up()),
            degraded_per_second: self.degraded.lock().per_second,
            answering: true,
            samples_hot_keys: self.limiter.hot_keys().is_some(),
        }
    }

    /// Returns the reports of all replicas. The last one is the current state of this replica, and the only one while
    /// the store is unavailable.
    pub(super) async fn reports(&self) -> Vec<ReplicaReport> {
        let own = ReplicaReport { replica: Some(self.own()), at_us: 0, hot_keys: self.hot_keys() };
        let others = match self.limiter.store().shared() {
            None => Ok(Vec::new()),
            Some(shared) => self.others(shared).await,
        };
        let others = others.unwrap_or_else(|error| {
            debug!(error = %Causes(&error), "the other replicas are not known");
            Vec::new()
        });
        others.into_iter().chain([own]).collect()
    }

    async fn others(&self, shared: &SharedStore) -> Result<Vec<ReplicaReport>, Failure> {
        let (members, own) = (shared.redis().read_statuses().await?, self.id());
        let (now, mut reports, mut expired) = (shared.redis().clock().now(), Vec::new(), Vec::new());
        for (id, value) in members.into_iter().filter(|(id, _)| *id != own.as_bytes()) {
            let report = Some(&value[..]).filter(|value| value.len() <= MAX_REPORT_BYTES);
            let report = report.and_then(|value| ReplicaReport::decode(value).ok());
            match report {
                Some(report) if now - report.at_us < MAX_REPORT_AGE => reports.push(report),
                // It may be of a newer version.
                None => {}
                Some(_) => expired.push(id),
            }
        }
        // A failure does not matter: the next reader deletes them.
        let _ = shared.redis().delete_statuses(expired).await;
        Ok(reports)
    }
}

fn message(key: telemetry::HotKey) -> proto::HotKey {
    proto::HotKey {
        domain: key.domain.into(),
        key: key.segments.iter().map(|segment| segment.to_string()).collect(),
        limit_name: key.limit.into(),
        shadow: key.shadow,
        per_second: key.per_second,
        error_per_second: key.error_per_second,
        refused_per_second: key.refused_per_second,
        limit: key.decision.limit,
        remaining: key.decision.remaining,
    }
}
