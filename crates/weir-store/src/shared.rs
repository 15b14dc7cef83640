//! The shared store and its fallback during outages.

mod near_cache;

use std::{
    collections::{BTreeSet, HashMap},
    future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use metrics::Counter;
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::{
    Failure, MemoryStore, Remote, ResetDone, Store, StoreSettings, SystemClock, Verdict,
    lease::{Leases, RenewingCheck, Uncovered},
    metrics::{ERRORS, STORE},
    near_cache::NearCache,
    outage_charges::OutageCharges,
    redis::{RedisStore, Refusal, Undecided, is_undone, settings::RedisSettings},
};
use weir_core::{
    domain::{Charge, Decision, Key, Micros, OnStoreFailure, time::SECOND},
    hold::{Grant, Idempotency, Renewal, ReservationStep},
    plan::{Level, Plan},
};
use weir_telemetry::{
    Causes, LogLimit, Registry, Render,
    request::{self, StoreCall},
};

/// Time after which a client should retry when the store is unavailable: an estimate.
const RETRY_WHEN_DOWN: Micros = SECOND;
/// Longest wait at shutdown to return leased units, and for outstanding outage charges while the store is healthy.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(2);
/// Polling interval of that wait.
const SHUTDOWN_CHARGE_POLL: Duration = Duration::from_millis(10);

/// The store that replicas share, with a local fallback.
pub struct SharedStore {
    /// Declared before `redis`, because its task must be aborted before the store is dropped.
    outage: Option<(Arc<OutageCharges>, AbortOnDropHandle<()>)>,
    redis: RedisStore,
    local: MemoryStore<SystemClock>,
    near_cache: Option<NearCache<SystemClock>>,
    leases: Leases,
    registry: Arc<Registry>,
    /// Requests that the shared store did not answer, by kind: each kind starts with its first.
    errors: Mutex<HashMap<&'static str, Counter>>,
    warnings: LogLimit,
    /// Checks that the shared store did not answer, by `on_store_failure`.
    degraded: [AtomicU64; OnStoreFailure::ALL.len()],
}

impl SharedStore {
    /// Combines `redis`, the fallback `local` for policies that choose it, and the near cache if it is enabled.
    pub fn new(
        redis: RedisStore,
        local: MemoryStore<SystemClock>,
        settings: &StoreSettings,
        registry: Arc<Registry>,
    ) -> Self {
        let StoreSettings { near_cache, redis: RedisSettings { charge_after_outage, .. }, .. } = settings;
        let near_cache =
            near_cache.enabled.then(|| NearCache::new(near_cache, SystemClock::of(&*redis.platform), &registry));
        let outage = charge_after_outage.enabled.then(|| {
            let charges = Arc::new(OutageCharges::new(
                charge_after_outage,
                SystemClock::of(&*redis.platform),
                redis.platform.random(),
            ));
            registry.add(Arc::clone(&charges) as Arc<dyn Render>);
            (Arc::clone(&charges), redis.charge_outages(charges))
        });
        let leases = Leases::new(&redis, &registry);
        let (errors, warnings, degraded) = Default::default();
        Self { outage, redis, local, near_cache, leases, registry, errors, warnings, degraded }
    }

    /// Decides a plan from the leased units of its key, if they suffice.
    #[inline]
    pub fn leased(&self, plan: &Plan<'_>) -> Option<Verdict> {
        self.leases.decide(plan)
    }

    /// Returns the owner id of this replica's leases.
    pub fn owner(&self) -> u64 {
        self.leases.owner()
    }

    /// Returns the store that replicas share.
    pub fn redis(&self) -> &RedisStore {
        &self.redis
    }

    /// Returns the local fallback. Its counts last until they expire.
    pub fn local(&self) -> &MemoryStore<SystemClock> {
        &self.local
    }

    /// Returns the number of checks that the shared store did not answer, in the order of [`OnStoreFailure::ALL`].
    pub fn degraded(&self) -> [u64; OnStoreFailure::ALL.len()] {
        self.degraded.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the units admitted without the shared store, if they are charged to it afterwards.
    pub fn outage_charges(&self) -> Option<&OutageCharges> {
        self.outage.as_ref().map(|(charges, _)| &**charges)
    }

    /// Returns leased units and waits for the outstanding outage charges while the shared store is healthy, both
    /// together at most two seconds, and discards the rest. Call it once no more decisions are made.
    pub async fn shut_down(&self) {
        let deadline = tokio::time::Instant::now() + SHUTDOWN_WAIT;
        self.leases.close(deadline).await;
        let Some(charges) = self.outage_charges() else { return };
        while charges.keys() > 0 && self.redis.is_up() && tokio::time::Instant::now() < deadline {
            sleep(SHUTDOWN_CHARGE_POLL).await;
        }
        let (units, in_flight) = charges.give_all_up();
        if units + in_flight > 0 {
            warn!(
                units,
                in_flight,
                "the store is not charged for units that were admitted during its outage: the service ends before it"
            );
        }
    }

    /// Counts a failure, and logs it unless it is overload or the circuit breaker is open.
    fn count(&self, failure: &Failure) {
        let counter = |kind: &&'static str| self.registry.counter(ERRORS, &[("store", STORE), ("kind", kind)]);
        self.errors.lock().entry(failure.kind()).or_insert_with_key(counter).increment(1);
        // The circuit breaker logged when it opened.
        let is_logged = !failure.is_overload() && !matches!(failure, Failure::BreakerOpen(_));
        if is_logged && self.warnings.allows(Instant::now()) {
            warn!(
                request_id = request::request_id(),
                trace_id = request::trace_id(),
                error = %Causes(failure),
                "the shared store did not answer a request; such warnings come once a second at most"
            );
        }
    }

    fn fall_back(&self, plan: &Plan<'_>, Undecided { failure, fates, refusal }: Undecided) -> Result<Verdict, Failure> {
        if let Some(refusal) = refusal
            && matches!(plan.on_store_failure, OnStoreFailure::Local | OnStoreFailure::Allow)
        {
            return self.complete(plan, *refusal, Undecided { failure, fates, refusal: None });
        }
        if plan.renewal.is_some() {
            // Only the shared store can grant holds.
            let mut check = plan.clone();
            check.renewal = None;
            return self.fall_back(&check, Undecided { failure, fates, refusal: None });
        }
        match plan.reservation.map(|reservation| reservation.step) {
            None => {}
            // An unavailable store cannot hold units, so this is decided as a check.
            Some(ReservationStep::Reserve { .. }) => {
                let mut check = plan.clone();
                check.reservation = None;
                return self.fall_back(&check, Undecided { failure, fates, refusal: None });
            }
            // Settling is idempotent, so the client can retry.
            Some(_) => return Err(failure),
        }
        self.degraded[plan.on_store_failure as usize].fetch_add(1, Ordering::Relaxed);
        let degraded = |decisions| Verdict { decisions, degraded: true, at: self.local.now(), ..Verdict::default() };
        let verdict = match plan.on_store_failure {
            OnStoreFailure::Local => Verdict { degraded: true, ..self.local.verdict(plan) },
            OnStoreFailure::Allow => degraded(plan.levels().iter().map(unseen).collect()),
            OnStoreFailure::Deny => return Ok(degraded(plan.levels().iter().map(refused).collect())),
            OnStoreFailure::Error => return Err(failure),
        };
        if let Some(charges) = self.outage_charges()
            && verdict.idempotency == Idempotency::First
        {
            charges.record(plan, &verdict.decisions, &fates);
        }
        Ok(verdict)
    }

    /// Completes a refusal by some levels. The other levels charge nothing, as if they had been undone. Levels that a
    /// refusal elsewhere does not undo are decided by the fallback, but not for a request with an id: its record would
    /// take their decision for the decision of all levels.
    fn complete(&self, plan: &Plan<'_>, refusal: Refusal, undecided: Undecided) -> Result<Verdict, Failure> {
        let Refusal { mut verdict, undecided: levels } = refusal;
        verdict.degraded = true;
        levels.iter().for_each(|index| verdict.decisions[*index] = unseen(&plan.levels()[*index]));
        let is_apart = plan.charge == Charge::Independent && plan.reservation.is_none() && plan.request.is_none();
        let is_decided = |index: &usize| is_apart && levels.contains(index) && !is_undone(plan, *index);
        let apart: Vec<usize> = (0..plan.levels().len()).filter(is_decided).collect();
        if apart.is_empty() {
            self.degraded[plan.on_store_failure as usize].fetch_add(1, Ordering::Relaxed);
            return Ok(verdict);
        }
        let rest = plan.only(|index| apart.contains(&index));
        let fates = apart.iter().map(|index| undecided.fates[*index]).collect();
        let decided = self.fall_back(&rest, Undecided { fates, ..undecided })?;
        apart.iter().zip(decided.decisions).for_each(|(index, decision)| verdict.decisions[*index] = decision);
        Ok(verdict)
    }

    /// Asks the shared store, or falls back. `renewal` is served in the same step.
    async fn ask(&self, plan: &Plan<'_>, renewal: Option<&Renewal>) -> Result<Verdict, Failure> {
        let call = StoreCall::start();
        let decided = match renewal {
            None => self.redis.verdict(plan).await,
            Some(renewal) => self.redis.verdict_and_grant(plan, renewal).await,
        };
        call.end(decided.is_err());
        decided.or_else(|undecided| {
            self.count(&undecided.failure);
            if matches!(undecided.failure, Failure::Corrupt(_)) {
                // One of them is to be reset. Keys are in no line above this level.
                let paths: BTreeSet<_> = plan.levels().iter().map(Level::anchor_path).collect();
                let paths: Vec<_> = paths.iter().map(|path| path.escape_ascii().to_string()).collect();
                debug!(request_id = request::request_id(), hashes = paths.join(" "), "a stored state is corrupt");
            }
            if undecided.failure.is_overload() { Err(undecided.failure) } else { self.fall_back(plan, undecided) }
        })
    }

    /// Decides a plan whose lease has too few units.
    async fn decide_short_lease(&self, plan: &Plan<'_>, pending: RenewingCheck) -> Result<Verdict, Failure> {
        let mut verdict = self.ask(plan, pending.renewal.as_ref()).await?;
        if !verdict.degraded {
            pending.decided(&mut verdict);
        }
        Ok(verdict)
    }

    /// Deletes states, both here and in the shared store; see [`Store::reset`].
    ///
    /// # Errors
    /// [`Failure`] when it is unknown whether the shared store carried it out.
    pub async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, Failure> {
        // Otherwise counts of an earlier outage would return in the next one.
        self.local.reset_now(key, anchor, subtree);
        if let Some(charges) = self.outage_charges() {
            charges.reset(key.prefix(key.depth()), subtree);
        }
        let call = StoreCall::start();
        let done = self.redis.reset(key, anchor, subtree).await;
        call.end(done.is_err());
        if let Some(near) = &self.near_cache {
            near.forget_all();
        }
        done.inspect_err(|failure| self.count(failure))
    }
}

impl SharedStore {
    /// Serves a renewal of a hold; see [`Store::renew`]. It has no fallback.
    ///
    /// # Errors
    /// [`Failure`] when the shared store did not serve it.
    pub async fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Grant, Failure> {
        self.redis.renew(plan, renewal).await.inspect_err(|failure| self.count(failure))
    }
}

impl Remote for SharedStore {
    fn verdict<'a>(&'a self, plan: &'a Plan<'_>) -> BoxFuture<'a, Result<Verdict, Failure>> {
        // A separate future for each case keeps the most frequent one small.
        match (self.leases.decide_uncovered(&self.redis, plan), &self.near_cache) {
            (Uncovered::Refused(verdict), _) => Box::pin(future::ready(Ok(verdict))),
            (Uncovered::Ask(pending), _) => Box::pin(self.decide_short_lease(plan, pending)),
            (Uncovered::NotLeased, Some(near)) if plan.renewal.is_none() => {
                Box::pin(self.decide_with_near_cache(near, plan))
            }
            (Uncovered::NotLeased, _) => Box::pin(self.ask(plan, None)),
        }
    }
}

/// Previews a level as if its key were new: it passes with the whole limit remaining.
fn unseen(level: &Level<'_>) -> Decision {
    level.params().step(None, &level.peek()).0
}

/// Returns a level's decision without its state: a refusal, except for refunds and shadow limits, which pass.
fn refused(level: &Level<'_>) -> Decision {
    let unseen = unseen(level);
    if level.limit.shadow || level.cost < 0 {
        return unseen;
    }
    let next_after = Some(RETRY_WHEN_DOWN);
    Decision { next_after, ..Decision::refuse(unseen.limit, 0, Some(RETRY_WHEN_DOWN), 0) }
}
