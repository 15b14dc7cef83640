//! Leases: units of hot keys that this replica holds in the shared store and spends without asking it
//! ([`weir_core::hold`]).

mod entry;
mod hot_key_filter;
mod metrics;
mod renewals;

use std::{
    hash::BuildHasher as _,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use equivalent::Equivalent;
use foldhash::fast::FixedState;
use futures_util::StreamExt;
use papaya::HashMap;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use self::{entry::Lease, hot_key_filter::HotKeyFilter, metrics::LeaseMetrics};
use super::{
    SystemClock, Verdict,
    memory::weight,
    redis::{Io, RedisStore},
};
use weir_core::{
    domain::{Clock as _, Micros},
    hold::{HoldId, OnShortage, Renewal, Spend},
    plan::Plan,
};
use weir_telemetry::Registry;

/// Most leased keys; long paths count as several ([`weight`]). Checks of other keys go to the store.
pub const MAX_LEASES: usize = 65_536;

/// The leases of this replica.
pub struct Leases {
    shared: Arc<Shared>,
    hot_keys: HotKeyFilter,
    hasher: FixedState,
    /// Random id of this process, so that its holds differ from those of other replicas and of its predecessor.
    owner: u64,
    numbers: AtomicU64,
    renewals: AbortOnDropHandle<()>,
}

/// State shared with the background renewals.
struct Shared {
    table: HashMap<Name, Arc<Lease>, FixedState>,
    /// Capacity used by the leases in the table and those about to be added.
    weight: AtomicUsize,
    /// The newest policy version among the checks seen. Leases under older ones are not renewed, because a renewal
    /// is granted units under the limits of its own policy.
    policy_version: AtomicU64,
    /// Locked while many leases are closed: one list of them at a time.
    closing: Mutex<()>,
    clock: SystemClock,
    metrics: LeaseMetrics,
    io: Io,
}

impl Shared {
    /// Records the policy version of a check, on the path of every check that the store decides.
    fn see(&self, policy_version: u64) {
        if self.policy_version.load(Ordering::Relaxed) < policy_version {
            self.policy_version.fetch_max(policy_version, Ordering::Relaxed);
        }
    }
}

/// The key of a lease: the path of the deepest level, which identifies all levels within one policy version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    policy_version: u64,
    path: Box<[u8]>,
}

impl Name {
    fn weight(&self) -> usize {
        weight(self.path.len()) as usize
    }
}

/// A borrowed [`Name`] for look-ups. It has the same fields in the same order, so that both have the same hash.
#[derive(Hash)]
struct NameRef<'a> {
    policy_version: u64,
    path: &'a [u8],
}

impl<'a> NameRef<'a> {
    fn of(plan: &'a Plan<'_>) -> Option<Self> {
        Some(Self { policy_version: plan.policy_version?, path: plan.levels().last()?.path() })
    }
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.policy_version == name.policy_version && *self.path == *name.path
    }
}

/// A check of a leased key, in flight to the store. It may renew the lease.
pub struct RenewingCheck {
    shared: Arc<Shared>,
    lease: Arc<Lease>,
    cost: i64,
    sent: Micros,
    /// The renewal that the store serves in the same step.
    pub renewal: Option<Renewal>,
}

impl Drop for RenewingCheck {
    /// Without a reply the renewal is lost, also if the client has cancelled the check.
    fn drop(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            self.shared.metrics.lost();
            self.lease.lost(&renewal);
        }
    }
}

/// The ways to decide a check that its lease cannot cover.
#[expect(clippy::large_enum_variant, reason = "a box would be allocated for each refusal")]
pub enum Uncovered {
    /// Refused by this replica: the store refused the key shortly before, or granted fewer units than requested because
    /// few were left.
    Refused(Verdict),
    /// Sent to the store, with the lease informed of the reply.
    Ask(RenewingCheck),
    /// Sent to the store: the key has no lease or one that is closed, the cost is above its limit, or the check is a
    /// preview or a refund.
    NotLeased,
}

impl RenewingCheck {
    /// Handles the store's reply, and takes the grant of its renewal.
    pub fn decided(mut self, verdict: &mut Verdict) {
        let now = self.shared.clock.now();
        match (self.renewal, verdict.grant.take()) {
            (Some(renewal), Some(grant)) => {
                self.renewal = None;
                let burnt = self.lease.renewed(&verdict.decisions, &grant, (self.sent, now), is_refused(verdict));
                self.shared.metrics.renewed(&renewal, &grant, burnt);
            }
            _ => self.lease.decided(self.cost, self.sent, verdict, now),
        }
    }
}

impl Leases {
    /// Creates an empty table for leases from this store, and starts the background renewals.
    pub fn new(redis: &RedisStore, registry: &Registry) -> Self {
        let hasher = FixedState::with_seed(redis.platform.random());
        let shared = Arc::new(Shared {
            table: HashMap::with_hasher(hasher.clone()),
            weight: AtomicUsize::new(0),
            policy_version: AtomicU64::new(0),
            closing: Mutex::default(),
            clock: SystemClock::of(&*redis.platform),
            metrics: LeaseMetrics::new(registry),
            io: redis.io.clone(),
        });
        let renewals = redis.io.tasks.spawn(renewals::run(Arc::clone(&shared)));
        Self {
            shared,
            hot_keys: HotKeyFilter::default(),
            hasher,
            owner: redis.platform.random(),
            numbers: AtomicU64::new(0),
            renewals: AbortOnDropHandle::new(renewals),
        }
    }

    /// Returns the owner id of all its leases.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Decides a plan from the lease of its key. It takes no lock and allocates nothing unless a renewal is due.
    #[inline]
    pub fn decide(&self, plan: &Plan<'_>) -> Option<Verdict> {
        plan.lease_ttl()?;
        self.spend(plan)
    }

    fn spend(&self, plan: &Plan<'_>) -> Option<Verdict> {
        let name = NameRef::of(plan)?;
        let table = self.shared.table.pin();
        let lease = table.get(&name)?;
        let (cost, now) = (plan.levels()[0].cost, self.shared.clock.now());
        match lease.spend(cost, now) {
            Spend::Short => return None,
            Spend::Spent => {}
            Spend::Low => {
                if let Some(renewal) = lease.renewal_if_low(now) {
                    self.shared.send(Arc::clone(lease), renewal, now);
                }
            }
        }
        self.shared.metrics.spent(cost.unsigned_abs());
        Some(lease.allowed(now))
    }

    /// Chooses how to decide a plan that [`Self::decide`] did not.
    pub fn decide_uncovered(&self, redis: &RedisStore, plan: &Plan<'_>) -> Uncovered {
        let Some(name) = NameRef::of(plan) else { return Uncovered::NotLeased };
        // Also if the plan cannot be leased: the policy may have turned leases off.
        self.shared.see(name.policy_version);
        let Some(ttl) = plan.lease_ttl() else { return Uncovered::NotLeased };
        let (cost, now) = (plan.levels()[0].cost, self.shared.clock.now());
        if cost <= 0 {
            return Uncovered::NotLeased;
        }
        let found = self.shared.table.pin().get(&name).cloned();
        let Some(lease) = found.or_else(|| self.add(redis, plan, (&name, ttl), now)) else {
            return Uncovered::NotLeased;
        };
        // The check may never pass, which only the store can decide.
        if lease.is_beyond_limit(cost) {
            return Uncovered::NotLeased;
        }
        match lease.on_shortage(cost, now) {
            None => Uncovered::NotLeased,
            Some(OnShortage::Refuse { retry_after }) => {
                self.shared.metrics.refused();
                Uncovered::Refused(lease.refused(now, retry_after))
            }
            Some(OnShortage::Store(renewal)) => {
                Uncovered::Ask(RenewingCheck { shared: Arc::clone(&self.shared), lease, cost, sent: now, renewal })
            }
        }
    }

    /// Creates a lease if the key is hot.
    fn add(
        &self,
        redis: &RedisStore,
        plan: &Plan<'_>,
        (name, ttl): (&NameRef<'_>, Micros),
        now: Micros,
    ) -> Option<Arc<Lease>> {
        let hash = self.hasher.hash_one(name);
        if !self.hot_keys.is_hot(hash, now) || !redis.decides_in_one_step(plan) {
            return None;
        }
        let name = Name { policy_version: name.policy_version, path: name.path.into() };
        let (taken, own) = (&self.shared.weight, name.weight());
        if taken.fetch_add(own, Ordering::Relaxed) + own > MAX_LEASES {
            taken.fetch_sub(own, Ordering::Relaxed);
            self.shared.metrics.full();
            return None;
        }
        let id = HoldId { owner: self.owner, number: self.numbers.fetch_add(1, Ordering::Relaxed) };
        let lease = Arc::new(Lease::new(id, plan, redis.renewal_plan(plan), ttl, now));
        let table = self.shared.table.pin();
        let kept = table.get_or_insert(name, Arc::clone(&lease));
        if !Arc::ptr_eq(kept, &lease) {
            taken.fetch_sub(own, Ordering::Relaxed);
        }
        Some(Arc::clone(kept))
    }

    /// Gives all leased units back, and logs how many are not given back by the deadline. Call it once no more checks
    /// arrive.
    pub async fn close(&self, deadline: Instant) {
        self.renewals.abort();
        let leases: Vec<_> = self.shared.table.pin().values().map(Arc::clone).collect();
        let (mut left, mut units) = (leases.len(), leases.iter().map(|lease| lease.unsettled()).sum::<u64>());
        if let Ok(_turn) = timeout_at(deadline, self.shared.closing.lock()).await {
            let mut closings = pin!(self.shared.closings(leases));
            while let Ok(Some(returned)) = timeout_at(deadline, closings.next()).await {
                left -= usize::from(returned.is_some());
                units = units.saturating_sub(returned.unwrap_or_default());
            }
        }
        if left > 0 {
            warn!(leases = left, units, "leased units may count as spent: the store did not take them back in time");
        }
    }
}

/// Whether a level refuses; none of them is a shadow.
fn is_refused(verdict: &Verdict) -> bool {
    verdict.decisions.iter().any(|decision| !decision.allowed)
}
