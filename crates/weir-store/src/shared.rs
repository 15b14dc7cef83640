//! The shared store with what answers while it does not.

mod near;

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::{
    Failure, MemoryStore, Remote, ResetDone, Store, StoreError, StoreSettings, SystemClock, Verdict,
    lease::{Leases, PendingCheck, Unpaid},
    metrics::{ERRORS, STORE},
    outage_charges::OutageCharges,
    redis::{RedisStore, Undecided, settings::RedisSettings},
};
use near::Near;
use weir_core::{
    domain::{Decision, Key, Micros, OnStoreFailure, time::SECOND},
    hold::{Grant, Renewal, Repeat, Step},
    plan::{Level, Plan},
};
use weir_telemetry::{LogLimit, Registry, Render, request};

/// When to come back to a store that is not asked. An estimate.
const RETRY_WHEN_DOWN: Micros = SECOND;
/// How long a store that answers may take at the end to be charged for what it does not know yet, and how often to look.
const LAST_CHARGES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(10));

/// A store that replicas share, and this replica's own for when it fails.
pub struct SharedStore {
    /// Before the store, so that it is dropped before.
    outage: Option<(Arc<OutageCharges>, AbortOnDropHandle<()>)>,
    redis: RedisStore,
    local: MemoryStore<SystemClock>,
    near: Option<Near>,
    leases: Leases,
    registry: Arc<Registry>,
    warnings: LogLimit,
    /// Checks that this store did not answer, by the rule of their domain.
    degraded: [AtomicU64; OnStoreFailure::ALL.len()],
}

impl SharedStore {
    /// `redis`, and `local` for those whose policy wants it while that fails; before both a near cache if these settings
    /// want one.
    pub fn new(
        redis: RedisStore,
        local: MemoryStore<SystemClock>,
        settings: &StoreSettings,
        registry: Arc<Registry>,
    ) -> Self {
        let StoreSettings { near_cache, redis: RedisSettings { charge_after_outage, .. }, .. } = settings;
        let near = near_cache.enabled.then(|| Near::new(near_cache, SystemClock::of(&*redis.machine), &registry));
        let outage = charge_after_outage.enabled.then(|| {
            let charges = Arc::new(OutageCharges::new(
                charge_after_outage,
                SystemClock::of(&*redis.machine),
                redis.machine.random(),
            ));
            registry.add(Arc::clone(&charges) as Arc<dyn Render>);
            (Arc::clone(&charges), redis.charge_afterwards(charges))
        });
        let leases = Leases::new(&redis, &registry);
        let (warnings, degraded) = Default::default();
        Self { outage, redis, local, near, leases, registry, warnings, degraded }
    }

    /// Decides a plan from what is leased of its key, if that is enough.
    #[inline]
    pub fn leased(&self, plan: &Plan<'_>) -> Option<Verdict> {
        self.leases.decide(plan)
    }

    /// The owner of what this replica leases.
    pub fn owner(&self) -> u64 {
        self.leases.owner()
    }

    /// The store that replicas share.
    pub fn redis(&self) -> &RedisStore {
        &self.redis
    }

    /// This replica's own. It keeps what it counted until that expires.
    pub fn local(&self) -> &MemoryStore<SystemClock> {
        &self.local
    }

    /// How many checks it did not answer, by the rule of their domain: see [`OnStoreFailure::ALL`].
    pub fn degraded(&self) -> [u64; OnStoreFailure::ALL.len()] {
        self.degraded.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Units that were admitted without the shared store, if they are charged to it afterwards.
    pub fn outage_charges(&self) -> Option<&OutageCharges> {
        self.outage.as_ref().map(|(charges, _)| &**charges)
    }

    /// Gives back what is leased, has the shared store charged for what was admitted without it, if it answers, and gives up
    /// the rest. To be called when nothing is decided any more.
    pub async fn finish(&self) {
        self.leases.close(&self.redis.io.tasks.handle).await;
        let Some(charges) = self.outage_charges() else { return };
        let since = tokio::time::Instant::now();
        while charges.keys() > 0 && self.redis.is_up() && since.elapsed() < LAST_CHARGES.0 {
            sleep(LAST_CHARGES.1).await;
        }
        let units = charges.give_all_up();
        if units > 0 {
            warn!(
                units,
                "the store is not charged for units that were admitted during its outage: the service ends before it"
            );
        }
    }

    /// The failure, counted.
    fn counted(&self, error: StoreError) -> Result<Failure, StoreError> {
        let (StoreError::Unavailable(failure) | StoreError::Overloaded(failure)) = &error;
        self.registry.counter(ERRORS, &[("store", STORE), ("kind", failure.kind())]).increment(1);
        let StoreError::Unavailable(failure) = error else { return Err(error) };
        // The circuit breaker has logged that it is open.
        if !matches!(failure, Failure::BreakerOpen(_)) && self.warnings.allows(Instant::now()) {
            warn!(
                request_id = request::request_id(),
                trace_id = request::trace_id(),
                error = &failure as &dyn std::error::Error,
                "the shared store did not answer a request; such warnings come once a second at most"
            );
        }
        Ok(failure)
    }

    fn instead(&self, plan: &Plan<'_>, Undecided { failure, fates }: Undecided) -> Result<Verdict, StoreError> {
        if plan.renewal.is_some() {
            // What is held is held of the store alone.
            let mut check = plan.clone();
            check.renewal = None;
            return self.instead(&check, Undecided { failure, fates });
        }
        match plan.reservation.map(|reservation| reservation.step) {
            None => {}
            // Nothing is held of a store that is not asked: as a check.
            Some(Step::Reserve { .. }) => {
                let mut check = plan.clone();
                check.reservation = None;
                return self.instead(&check, Undecided { failure, fates });
            }
            // It may be repeated.
            Some(_) => return Err(StoreError::Unavailable(failure)),
        }
        self.degraded[plan.on_store_failure as usize].fetch_add(1, Ordering::Relaxed);
        let degraded = |decisions| Verdict { decisions, degraded: true, at: self.local.now(), ..Verdict::default() };
        let verdict = match plan.on_store_failure {
            OnStoreFailure::Local => Verdict { degraded: true, ..self.local.verdict(plan) },
            OnStoreFailure::Allow => degraded(plan.levels().iter().map(unseen).collect()),
            OnStoreFailure::Deny => return Ok(degraded(plan.levels().iter().map(refused).collect())),
            OnStoreFailure::Error => return Err(StoreError::Unavailable(failure)),
        };
        if let Some(charges) = self.outage_charges()
            && verdict.repeat == Repeat::First
        {
            charges.record(plan, &verdict.decisions, &fates);
        }
        Ok(verdict)
    }

    /// The store's answer to a plan, or what is answered instead; and what it granted to the renewal, if it was served.
    async fn ask(&self, plan: &Plan<'_>, renewal: Option<&Renewal>) -> (Result<Verdict, StoreError>, Option<Grant>) {
        let at = request::store_call_began();
        let decided = match renewal {
            None => self.redis.verdict(plan).await.map(|verdict| (verdict, None)),
            Some(renewal) => {
                self.redis.verdict_and_grant(plan, renewal).await.map(|(verdict, grant)| (verdict, Some(grant)))
            }
        };
        request::store_call_ended(at, decided.is_err());
        match decided {
            Ok((verdict, grant)) => (Ok(verdict), grant),
            Err(Undecided { failure, fates }) => {
                let counted = self.counted(failure.into());
                (counted.and_then(|failure| self.instead(plan, Undecided { failure, fates })), None)
            }
        }
    }

    /// Decides a plan whose lease has not enough for it.
    async fn ask_short(&self, plan: &Plan<'_>, pending: PendingCheck) -> Result<Verdict, StoreError> {
        let (verdict, grant) = self.ask(plan, pending.renewal.as_ref()).await;
        if let Ok(verdict @ Verdict { degraded: false, .. }) = &verdict {
            pending.decided(verdict, grant);
        }
        verdict
    }

    /// Forgets states, here and in the store that replicas share; see [`Store::reset`].
    ///
    /// # Errors
    /// [`StoreError`] when that store cannot tell.
    pub async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, StoreError> {
        // Counts made here while the shared store failed would come back at its next failure.
        self.local.reset_now(key, anchor, subtree);
        if let Some(charges) = self.outage_charges() {
            charges.reset(key.prefix(key.depth()), subtree);
        }
        let at = request::store_call_began();
        let done = self.redis.reset(key, anchor, subtree).await;
        request::store_call_ended(at, done.is_err());
        if let Some(near) = &self.near {
            near.forget_all();
        }
        match done {
            Ok(done) => Ok(done),
            Err(error) => Err(StoreError::Unavailable(self.counted(error)?)),
        }
    }
}

impl SharedStore {
    /// Serves a renewal of units held; see [`Store::renew`]. Nothing stands in for a store that does not answer.
    ///
    /// # Errors
    /// [`StoreError`] when that store did not serve it.
    pub async fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Grant, StoreError> {
        match self.redis.renew(plan, renewal).await {
            Ok(grant) => Ok(grant),
            Err(error) => Err(StoreError::Unavailable(self.counted(error)?)),
        }
    }
}

impl Remote for SharedStore {
    fn verdict<'a>(&'a self, plan: &'a Plan<'_>) -> BoxFuture<'a, Result<Verdict, StoreError>> {
        // Each kind is a future of its own, so that the usual one has no room for the others.
        match (self.leases.unpaid(&self.redis, plan), &self.near) {
            (Unpaid::Refused(verdict), _) => Box::pin(future::ready(Ok(verdict))),
            (Unpaid::Ask(pending), _) => Box::pin(self.ask_short(plan, pending)),
            (Unpaid::NotLeased, Some(near)) if plan.renewal.is_none() => Box::pin(self.ask_unless_near(near, plan)),
            (Unpaid::NotLeased, _) => Box::pin(async { self.ask(plan, None).await.0 }),
        }
    }
}

/// A level's decision on a peek at an unknown key: it passes, and the whole limit is left.
fn unseen(level: &Level<'_>) -> Decision {
    level.params().step(None, &level.peek()).0
}

/// A refusal without knowing anything. Refunds pass, and so does what only watches.
fn refused(level: &Level<'_>) -> Decision {
    let unseen = unseen(level);
    if level.limit.shadow || level.cost < 0 {
        return unseen;
    }
    let next_after = Some(RETRY_WHEN_DOWN);
    Decision { next_after, ..Decision::refuse(unseen.limit, 0, Some(RETRY_WHEN_DOWN), 0) }
}
