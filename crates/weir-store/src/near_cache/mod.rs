//! The near cache: recent refusals by the shared store, repeated by this replica so that a flood on a few keys does not
//! reach the store. It may refuse units that were freed elsewhere a moment ago; it never admits any.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use metrics::Counter;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use weir_core::{
    algorithm::Params,
    domain::{Charge, Clock, Decision, Micros},
    plan::{Decisions, Level, Plan},
};
use weir_settings::Time;
use weir_telemetry::Registry;

use crate::metrics::{NEAR_FULL, NEAR_HITS};

/// Number of shards with a lock each.
const SHARDS: usize = 16;

/// Settings of the near cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NearCacheSettings {
    /// Whether the near cache is used.
    pub enabled: bool,
    /// Longest time for which a refusal is cached.
    pub max_age: Time,
    /// Most cached refusals.
    pub max_entries: usize,
}

impl Default for NearCacheSettings {
    fn default() -> Self {
        Self { enabled: false, max_age: Time(50_000), max_entries: 10_000 }
    }
}

/// Recent refusals. The refusal of a plan that charges all or nothing is stored under the path of its deepest level,
/// which identifies all levels within one policy version. Refusals of levels that are charged independently are stored
/// under the name of the level's state.
pub struct NearCache<C> {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: C,
    max_age: Micros,
    max_entries_a_shard: usize,
    /// Incremented to invalidate everything cached before.
    epoch: AtomicU64,
    pub(crate) hits: Counter,
    pub(crate) full: Counter,
}

#[derive(Default)]
struct Shard {
    refusals: HashTable<Refusal>,
    /// The epoch in which all of them were cached.
    epoch: u64,
    /// Least expiry of the refusals when the shard was last found full: nothing can be dropped before.
    full_until: Micros,
}

struct Refusal {
    hash: u64,
    path: Box<[u8]>,
    terms: RequestTerms,
    decisions: Decisions,
    /// When the refusal arrived.
    cached_at: Micros,
    /// Expiry: from then on a level's decision may differ.
    until: Micros,
}

/// The terms, in addition to the key, that a request must share with the refused one.
#[derive(PartialEq)]
enum RequestTerms {
    /// Terms of a whole plan. The costs must be equal: a higher cost would be refused too, but for longer, or
    /// permanently.
    Plan {
        policy_version: u64,
        max_wait: Option<Micros>,
        /// The cost at each level.
        costs: SmallVec<[i64; 4]>,
    },
    /// Terms of a level that is charged independently.
    Level(Params),
}

/// Time and cache epoch when a plan is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    at: Micros,
    epoch: u64,
}

/// The outcome of caching refusals; for several, the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Inserted {
    /// Not a refusal that can be cached.
    Skipped,
    /// Cached.
    Cached,
    /// Not cached, because the cache was full.
    Full,
}

impl<C: Clock> NearCache<C> {
    /// Creates an empty cache. Its `clock` must be monotonic.
    pub fn new(settings: &NearCacheSettings, clock: C, registry: &Registry) -> Self {
        let shards = settings.max_entries.clamp(1, SHARDS);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            clock,
            max_age: settings.max_age.0,
            max_entries_a_shard: settings.max_entries / shards,
            epoch: AtomicU64::new(0),
            hits: registry.counter(NEAR_HITS, &[]),
            full: registry.counter(NEAR_FULL, &[]),
        }
    }

    /// Starts a look-up of a plan.
    pub fn lookup(&self) -> Lookup {
        Lookup { at: self.clock.now(), epoch: self.epoch.load(Ordering::Acquire) }
    }

    /// Returns the cached refusal of a plan.
    pub fn refusal(&self, plan: &Plan<'_>, lookup: Lookup) -> Option<Decisions> {
        self.cached(&LookupKey::of(plan, &self.hasher)?, lookup)
    }

    /// Returns the cached refusal of a level that is charged independently.
    pub fn refusal_of(&self, level: &Level<'_>, lookup: Lookup) -> Option<Decision> {
        self.cached(&LookupKey::of_level(level, &self.hasher)?, lookup)?.pop()
    }

    fn cached(&self, key: &LookupKey<'_>, lookup: Lookup) -> Option<Decisions> {
        let shard = self.shard(key).lock();
        let is_it = |refusal: &&Refusal| lookup.at < refusal.until && refusal.terms == key.terms;
        let refusal = shard.find(key).filter(is_it)?;
        (shard.epoch == lookup.epoch).then(|| aged(&refusal.decisions, lookup.at - refusal.cached_at))
    }

    /// Caches the store's decisions if they are a refusal that would be repeated.
    pub fn insert(&self, plan: &Plan<'_>, lookup: Lookup, decisions: &Decisions) -> Inserted {
        if plan.charge != Charge::Independent {
            return self
                .put(lookup, refusal_duration(plan, decisions), decisions, || LookupKey::of(plan, &self.hasher));
        }
        // Dry runs are not counted.
        let refused = plan.levels().iter().zip(decisions).filter(|(_, decision)| !decision.allowed && !plan.dry_run);
        let inserted = refused.map(|(level, decision)| {
            // The limit also counts denied requests, so any cost is refused until its window ends.
            let decisions = Decisions::from_iter([*decision]);
            self.put(lookup, decision.reset_after, &decisions, || LookupKey::of_level(level, &self.hasher))
        });
        inserted.max().unwrap_or(Inserted::Skipped)
    }

    /// Caches a refusal that would be repeated for `refusal_duration`.
    fn put<'q>(
        &self,
        lookup: Lookup,
        refusal_duration: Micros,
        decisions: &Decisions,
        key: impl FnOnce() -> Option<LookupKey<'q>>,
    ) -> Inserted {
        // Measured from the look-up, because the store may have decided at any time since.
        let now = self.clock.now();
        let until = lookup.at + refusal_duration.min(self.max_age);
        let Some(key) = (until > now).then(key).flatten() else { return Inserted::Skipped };
        let mut shard = self.shard(&key).lock();
        if lookup.epoch != self.epoch.load(Ordering::Acquire).max(shard.epoch) {
            return Inserted::Skipped;
        }
        if shard.epoch < lookup.epoch {
            *shard = Shard { epoch: lookup.epoch, ..Shard::default() };
        }
        if shard.find(&key).is_none() && !shard.free_place(self.max_entries_a_shard, now) {
            return Inserted::Full;
        }
        shard.put(Refusal {
            hash: key.hash,
            path: key.path.into(),
            terms: key.terms,
            decisions: decisions.clone(),
            cached_at: now,
            until,
        });
        Inserted::Cached
    }

    /// Invalidates all cached refusals, and the refusals of look-ups in progress.
    pub(crate) fn forget_all(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn shard(&self, key: &LookupKey<'_>) -> &Mutex<Shard> {
        // The low bits select the bucket in the shard's table.
        &self.shards[(key.hash >> 32) as usize % self.shards.len()]
    }
}

impl Shard {
    fn find(&self, key: &LookupKey<'_>) -> Option<&Refusal> {
        self.refusals.find(key.hash, |refusal| *refusal.path == *key.path)
    }

    /// Frees capacity for one more refusal, of at most `most`.
    fn free_place(&mut self, most: usize, now: Micros) -> bool {
        if self.refusals.len() < most {
            return true;
        }
        if now < self.full_until {
            return false;
        }
        self.refusals.retain(|refusal| now < refusal.until);
        self.full_until = self.refusals.iter().map(|refusal| refusal.until).min().unwrap_or(now);
        self.refusals.len() < most
    }

    fn put(&mut self, new: Refusal) {
        let same = |refusal: &Refusal| refusal.path == new.path;
        match self.refusals.find_mut(new.hash, same) {
            Some(old) => *old = new,
            None => drop(self.refusals.insert_unique(new.hash, new, |refusal| refusal.hash)),
        }
    }
}

/// The key of a look-up.
struct LookupKey<'a> {
    hash: u64,
    path: Cow<'a, [u8]>,
    terms: RequestTerms,
}

impl<'a> LookupKey<'a> {
    /// Returns `None` for plans whose refusals are not cached: a refusal may charge units, or may differ next time.
    fn of(plan: &'a Plan<'_>, hasher: &RandomState) -> Option<Self> {
        let deepest = plan.levels().iter().max_by_key(|level| level.depth)?;
        let policy_version = plan.policy_version?;
        let repeats = plan.charge == Charge::AllOrNothing
            && plan
                .levels()
                .iter()
                .all(|level| level.cost > 0 && level.scaled.is_none() && !level.params().charges_denied());
        let costs = plan.levels().iter().map(|level| level.cost).collect();
        let terms = RequestTerms::Plan { policy_version, max_wait: plan.max_wait, costs };
        repeats.then(|| Self::new(deepest.path().into(), terms, hasher))
    }

    /// Returns `None` for levels whose refusals are not cached: all except fixed windows that count denied requests,
    /// and so refuse everything until the window ends.
    fn of_level(level: &'a Level<'_>, hasher: &RandomState) -> Option<Self> {
        let params = level.params();
        let repeats = level.cost > 0 && matches!(params, Params::FixedWindow(_)) && params.charges_denied();
        repeats.then(|| Self::new(level.state_name().into(), RequestTerms::Level(params.clone()), hasher))
    }

    fn new(path: Cow<'a, [u8]>, terms: RequestTerms, hasher: &RandomState) -> Self {
        Self { hash: hasher.hash_one(&*path), path, terms }
    }
}

/// Returns the time for which all refusing levels keep refusing unless units are refunded; 0 if the request passes.
fn refusal_duration(plan: &Plan<'_>, decisions: &Decisions) -> Micros {
    if plan.levels().iter().zip(decisions).all(|(level, decision)| level.limit.shadow || decision.allowed) {
        return 0;
    }
    let refusing = decisions.iter().filter(|decision| !decision.allowed);
    refusing.map(|decision| decision.retry_after.unwrap_or(Micros::MAX / 2)).min().unwrap_or(0)
}

/// Returns the decisions as of `age` later.
fn aged(decisions: &Decisions, age: Micros) -> Decisions {
    let mut aged = decisions.clone();
    for decision in &mut aged {
        decision.retry_after = decision.retry_after.map(|retry| (retry - age).max(1));
        decision.next_after = decision.next_after.map(|next| (next - age).max(1));
        decision.reset_after = (decision.reset_after - age).max(0);
    }
    aged
}
