//! Divides limits among the buckets of all streams.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::Notify,
    task::coop::consume_budget,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tracing::{debug, info, warn};
use weir_core::{
    domain::{Micros, key::domain_label, time::SECOND},
    quota::{Divider, Load, QuotaTiming, Usage},
};
use weir_store::Store;

use super::{
    authority::{Renewing, hold_ttl},
    settings::{QuotaDomain, RlqsSettings},
    state::{Full, HOLDERS_OF_A_BUCKET, QuotaState},
    wire::{self, Action},
};
use crate::{
    limiter::{Limiter, quota::QuotaPath},
    telemetry::{RlqsMetrics, RlqsRejections},
};

/// Interval at which due levels are divided and renewed.
const TICK: Duration = Duration::from_millis(100);
/// Interval at which unused buckets and levels are removed, in ticks.
const SWEEP_EVERY: u64 = 100;
/// Maximum number of renewals in flight.
const MAX_RENEWING: usize = 64;
/// TTL of the last assignments of streams that are ended. It lasts until their Envoys report to another replica, which
/// they do every five seconds.
pub const FINAL_TTL_SECONDS: u64 = 7;
/// Time limit for returning all units.
const GIVING_BACK: Duration = Duration::from_secs(2);

/// Divides the limits of some domains among the Envoys that report.
pub struct Quotas<S> {
    limiter: Arc<Limiter<S>>,
    domains: Vec<QuotaDomain>,
    timing: QuotaTiming,
    max_buckets: usize,
    mode: QuotaMode,
    start: Instant,
    state: Mutex<QuotaState>,
    joined: Notify,
    added: Notify,
    metrics: RlqsMetrics,
    rejections: Arc<RlqsRejections>,
}

/// Why a bucket, or a further holder of one, is not kept.
enum NotKept {
    /// Its id is malformed or not UTF-8, so no answer can name it.
    Unnamed,
    /// Without a policy the domains are unknown: an Envoy keeps its assignment, or uses its default without one.
    Awaited,
    /// It is too large, but has no limit.
    Unlimited,
    /// It is too large.
    Large,
    /// Too many are kept.
    Full,
}

impl From<Full> for NotKept {
    fn from(Full: Full) -> Self {
        Self::Full
    }
}

/// How limits are divided.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuotaMode {
    /// Whether other replicas hold parts of the same limits.
    pub is_shared: bool,
    /// Whether a limit is divided although a full store in memory has no room for it (`store.when_full: allow`).
    pub passes_when_full: bool,
    /// Whether every bucket is allowed everything (`envoy.shadow_mode`).
    pub is_shadow: bool,
}

impl<S: Store> Quotas<S> {
    /// Returns quotas for the domains in `settings`.
    pub fn new(limiter: Arc<Limiter<S>>, settings: &RlqsSettings, mode: QuotaMode) -> Arc<Self> {
        let rejections = Arc::new(RlqsRejections::new(limiter.metrics().registry()));
        let mut timing = settings.timing();
        if mode.is_shared {
            // Rates that other Envoys still use are held in the store, even before they report here.
            timing.reports = timing.lag;
        }
        let names = settings.domains.iter().map(|domain| domain_label(&domain.domain));
        let metrics = RlqsMetrics::new(limiter.metrics().registry(), names);
        let state = QuotaState::new(Divider::new(timing), settings.domains.len(), settings.max_buckets, rand::random());
        Arc::new(Self {
            limiter,
            domains: settings.domains.clone(),
            timing,
            max_buckets: settings.max_buckets,
            mode,
            start: Instant::now(),
            state: Mutex::new(state),
            joined: Notify::new(),
            added: Notify::new(),
            metrics,
            rejections,
        })
    }

    /// Returns the number of a domain whose limits are divided.
    pub fn domain(&self, name: &str) -> Option<usize> {
        self.domains.iter().position(|domain| domain.domain == name)
    }

    /// Returns the time of the divider: the time since the start.
    pub fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    /// Returns the TTL of an assignment, in seconds.
    pub fn ttl_seconds(&self) -> u64 {
        (self.timing.ttl / SECOND).unsigned_abs()
    }

    /// Locks and returns the state.
    pub fn lock(&self) -> MutexGuard<'_, QuotaState> {
        self.state.lock()
    }

    /// Records a stream's report of a bucket, and appends the assignment to send immediately, if any.
    pub fn report(&self, stream: u64, domain: usize, report: &wire::Report, out: &mut bytes::BytesMut) {
        let usage = report.usage();
        self.metrics.used(domain, &usage);
        let now = self.now();
        let mut state = self.lock();
        // Under one lock: a new bucket without streams would be swept before it has the report.
        let found = state.find(domain, &report.bucket).map(Ok);
        let number = found.unwrap_or_else(|| self.add(&mut state, domain, &report.bucket));
        match number.and_then(|number| Ok((number, state.report(stream, number, &usage, now)?))) {
            Ok((number, Some(action))) => wire::put_action(state.id(number), action, self.ttl_seconds(), out),
            Ok((_, None)) => self.joined.notify_one(),
            Err(not_kept) => {
                drop(state);
                if let Some(action) = self.action_without_state(domain, &not_kept, &usage) {
                    wire::put_action(&report.bucket, action, self.ttl_seconds(), out);
                }
            }
        }
    }

    /// Counts a report of a bucket that is not kept, and returns the action for it, if there is one.
    fn action_without_state(&self, domain: usize, not_kept: &NotKept, usage: &Usage) -> Option<Action> {
        let action = match not_kept {
            NotKept::Unnamed => {
                self.unreadable(
                    "the id of a bucket is not UTF-8, so no answer can name it: its requests are decided by \
                     Envoy's no_assignment_behavior",
                );
                return None;
            }
            NotKept::Awaited => return None,
            NotKept::Unlimited => Action::AllowAll,
            NotKept::Large => {
                if self.rejections.large.count() {
                    let domain = self.domains.get(domain).map(|domain| domain_label(&domain.domain));
                    warn!(domain, "buckets are denied: their ids have more than 64 entries or 4 KiB");
                }
                Action::DenyAll
            }
            NotKept::Full => {
                if self.rejections.full.count() {
                    let max_buckets = self.max_buckets;
                    let max_holders = max_buckets.saturating_mul(HOLDERS_OF_A_BUCKET);
                    warn!(
                        max_buckets,
                        max_holders, "rlqs.max_buckets reached: further buckets, or Envoys with one, get no assignment"
                    );
                }
                // Envoy may have an assignment of another replica, or use the fallback of an expired one.
                return None;
            }
        };
        // Nothing remembers when the bucket was last used. Unless Envoy drops it, its reports grow without a bound.
        Some(if usage.is_idle() { Action::Abandon } else { action })
    }

    /// Returns the number of a bucket whose id is new, or has its entries in another order.
    fn add(&self, state: &mut QuotaState, domain: usize, id: &[u8]) -> Result<u32, NotKept> {
        let entries = wire::entries(id).ok_or(NotKept::Unnamed)?;
        // The state is locked before the limits are read: `follow_policy` finds the bucket if they change.
        let path = || self.path(domain, &entries).ok_or(NotKept::Awaited);
        if wire::is_large(id, &entries) {
            return Err(if path()?.levels.is_empty() { NotKept::Unlimited } else { NotKept::Large });
        }
        let id = wire::id_of(&entries);
        if let Some(number) = state.find(domain, &id) {
            return Ok(number);
        }
        Ok(state.add(domain, id.into(), path()?, self.now())?)
    }

    /// Returns the limits of a bucket; `None` without a policy.
    fn path(&self, domain: usize, entries: &std::collections::BTreeMap<String, String>) -> Option<QuotaPath> {
        if self.mode.is_shadow {
            return Some(QuotaPath::default());
        }
        let QuotaDomain { domain, keys } = self.domains.get(domain)?;
        let entries = keys.iter().filter_map(|key| Some((key.clone(), entries.get(key)?.clone()))).collect();
        let handle = self.limiter.policy();
        if handle.policy.is_awaited() {
            return None;
        }
        self.limiter.quota_path(&handle, domain, entries)
    }

    /// Divides and renews until the future is dropped.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(self.divide(), self.renew());
    }

    async fn divide(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut number, mut version) = (0_u64, self.limiter.policy_guard().version);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.joined.notified() => {}
            }
            number += 1;
            let current = self.limiter.policy_guard().version;
            if current != version {
                version = current;
                self.follow_policy().await;
            }
            let pause = {
                let (started, mut state) = (Instant::now(), self.lock());
                state.tick(self.now());
                let held = state.levels.values().map(|it| it.held()).sum();
                self.metrics.set_totals(state.stream_count(), state.bucket_count(), held);
                // With many buckets this takes long. The pause limits it to a fifth of the time.
                4 * started.elapsed()
            };
            // New levels are renewed now.
            self.added.notify_one();
            if number.is_multiple_of(SWEEP_EVERY) {
                let removed: Vec<Renewing> = {
                    let mut state = self.lock();
                    let removed = state.sweep();
                    removed.into_iter().map(|mut held| held.renew(Load::default())).collect()
                };
                stream::iter(removed)
                    .for_each_concurrent(MAX_RENEWING, |level| level.return_units(&self.limiter, 0))
                    .await;
            }
            sleep(pause).await;
        }
    }

    /// Applies another policy to all buckets.
    async fn follow_policy(&self) {
        let buckets = self.lock().all_buckets();
        let mut changed = 0;
        for (number, domain, id) in buckets {
            // Of many buckets, yields to the other tasks of the thread.
            consume_budget().await;
            let path = wire::entries(&id).and_then(|entries| self.path(domain, &entries)).unwrap_or_default();
            changed += usize::from(self.lock().set_path(number, path, self.now()));
        }
        debug!(changed, "buckets have other limits");
    }

    async fn renew(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_lost = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.added.notified() => {}
            }
            let due = self.due();
            let lost = stream::iter(due)
                .map(|(name, renewing)| self.renew_one(name, renewing))
                .buffer_unordered(MAX_RENEWING)
                .fold(None, |lost: Option<bool>, one| async move { Some(lost.unwrap_or(false) | one) })
                .await;
            if let Some(is_lost) = lost.filter(|is_lost| *is_lost != was_lost) {
                was_lost = is_lost;
                if is_lost {
                    warn!(
                        "the store does not renew what this replica may divide: shares stay as they are, further limits follow on_store_failure"
                    );
                } else {
                    info!("the store renews what this replica may divide");
                }
            }
        }
    }

    fn due(&self) -> Vec<(Vec<u8>, Renewing)> {
        let now = self.now();
        let mut state = self.lock();
        let QuotaState { levels, divider, .. } = &mut *state;
        let due = levels.iter_mut().filter(|(_, held)| held.due <= now);
        due.map(|(name, held)| (name.clone(), held.renew(divider.load(held.id)))).collect()
    }

    /// Renews a level. Returns whether the store did not answer.
    async fn renew_one(&self, name: Vec<u8>, renewing: Renewing) -> bool {
        // A store in memory answers immediately. Of many levels, yields to the other tasks of the thread.
        consume_budget().await;
        let renewed = renewing.run(&self.limiter, self.mode, &self.timing, || self.now()).await;
        let now = self.now();
        let mut state = self.lock();
        let count = state.levels.len();
        if let Some(held) = state.levels.get_mut(&name)
            && let Some(budget) = held.renewed(&renewed, count, &self.timing, now)
        {
            let id = held.id;
            state.divider.set_budget(id, budget, now);
        }
        let is_lost = renewed.lost.is_some();
        if is_lost {
            self.metrics.lost.increment(1);
        } else {
            // Wakes the divider for holders that wait for the budget.
            self.joined.notify_one();
        }
        is_lost
    }

    /// Returns all units after the streams have ended. The store holds them for [`FINAL_TTL_SECONDS`] more, since their
    /// Envoys still use them.
    pub async fn finish(&self) {
        let levels: Vec<Renewing> = {
            let mut state = self.lock();
            state.levels.values_mut().map(|held| held.renew(Load::default())).collect()
        };
        let ttl = FINAL_TTL_SECONDS as Micros * SECOND + self.timing.lag;
        let returned =
            stream::iter(levels).for_each_concurrent(MAX_RENEWING, |level| level.return_units(&self.limiter, ttl));
        if timeout(GIVING_BACK, returned).await.is_err() {
            let seconds = hold_ttl(&self.timing) / SECOND;
            warn!(seconds, "not everything that was divided is given back; it is free when its time is over");
        }
    }

    /// Counts a message or a bucket that cannot be decoded.
    pub fn unreadable(&self, problem: &str) {
        if self.rejections.unreadable.count() {
            warn!(problem, "reports of an Envoy cannot be read");
        }
    }

    /// Returns the counters of rejected reports.
    pub fn rejections(&self) -> &Arc<RlqsRejections> {
        &self.rejections
    }
}
