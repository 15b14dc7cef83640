//! The near cache: refusals that this replica has just received and need not ask for again, so that a flood on a few keys
//! does not reach the shared store. It can refuse what was freed elsewhere a moment ago; it never admits anything.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    hash::BuildHasher,
    sync::atomic::{AtomicU64, Ordering},
};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use weir_core::{
    algorithm::Params,
    domain::{Charge, Clock, Decision, Micros},
    plan::{Decisions, Level, Plan},
};
use weir_settings::Time;

/// Parts of the cache that do not wait for each other.
const SHARDS: usize = 16;

/// Whether refusals are remembered, how long, and how many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NearCacheSettings {
    /// Whether any are.
    pub enabled: bool,
    /// The longest that one is.
    pub max_age: Time,
    /// Most of them.
    pub max_entries: usize,
}

impl Default for NearCacheSettings {
    fn default() -> Self {
        Self { enabled: false, max_age: Time(50_000), max_entries: 10_000 }
    }
}

/// Refusals of a short while ago. Of a request that charges all or nothing it belongs to the path of the deepest level: within
/// one version of a policy that names all levels. Where each level is charged for itself, it belongs to the level's state.
pub struct NearCache<C> {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: C,
    max_age: Micros,
    max_entries_a_shard: usize,
    /// Counts what makes all that was learned before worthless.
    epoch: AtomicU64,
}

#[derive(Default)]
struct Shard {
    refusals: HashTable<Refusal>,
    /// When all of them were learned.
    epoch: u64,
    /// Until then a full shard holds nothing that has expired.
    full_until: Micros,
}

struct Refusal {
    hash: u64,
    path: Box<[u8]>,
    terms: Terms,
    decisions: Decisions,
    /// When they came.
    learned: Micros,
    /// From then on a level may decide otherwise.
    until: Micros,
}

/// What else a request must have in common with one that was refused.
#[derive(PartialEq)]
enum Terms {
    /// Of a whole plan. A dearer one would be refused as well, but for longer, or permanently.
    Plan {
        policy_version: u64,
        max_wait: Option<Micros>,
        /// The cost asked of each level.
        costs: SmallVec<[i64; 4]>,
    },
    /// Of a level that is charged for itself.
    Level(Params),
}

/// When a plan is asked for, and what has been forgotten by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    at: Micros,
    epoch: u64,
}

/// The outcome of learning a refusal; of several, the last of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Learned {
    /// It is nothing to remember.
    Passed,
    /// It is remembered.
    Kept,
    /// The cache was full.
    Full,
}

impl<C: Clock> NearCache<C> {
    /// An empty cache whose time is that of `clock`, which does not step back.
    pub fn new(settings: &NearCacheSettings, clock: C) -> Self {
        let shards = settings.max_entries.clamp(1, SHARDS);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            clock,
            max_age: settings.max_age.0,
            max_entries_a_shard: settings.max_entries / shards,
            epoch: AtomicU64::new(0),
        }
    }

    /// A plan is asked for now.
    pub fn lookup(&self) -> Lookup {
        Lookup { at: self.clock.now(), epoch: self.epoch.load(Ordering::Acquire) }
    }

    /// The refusal of a plan, if it is known.
    pub fn refusal(&self, plan: &Plan<'_>, lookup: Lookup) -> Option<Decisions> {
        self.known(&Question::of(plan, &self.hasher)?, lookup)
    }

    /// The refusal of a level that is charged for itself, if it is known.
    pub fn refusal_of(&self, level: &Level<'_>, lookup: Lookup) -> Option<Decision> {
        self.known(&Question::of_level(level, &self.hasher)?, lookup)?.pop()
    }

    fn known(&self, question: &Question<'_>, lookup: Lookup) -> Option<Decisions> {
        let shard = self.shard(question).lock();
        let is_it = |refusal: &&Refusal| lookup.at < refusal.until && refusal.terms == question.terms;
        let refusal = shard.find(question).filter(is_it)?;
        (shard.epoch == lookup.epoch).then(|| aged(&refusal.decisions, lookup.at - refusal.learned))
    }

    /// Remembers the store's decisions, if they are a refusal that would be repeated.
    pub fn learn(&self, plan: &Plan<'_>, lookup: Lookup, decisions: &Decisions) -> Learned {
        if plan.charge != Charge::Independent {
            return self.put(lookup, refused_for(plan, decisions), decisions, || Question::of(plan, &self.hasher));
        }
        // A dry run has counted nothing.
        let refused = plan.levels().iter().zip(decisions).filter(|(_, decision)| !decision.allowed && !plan.dry_run);
        let learned = refused.map(|(level, decision)| {
            // What is denied is counted too, so it is over its limit until its window ends, whatever it costs.
            let decisions = Decisions::from_iter([*decision]);
            self.put(lookup, decision.reset_after, &decisions, || Question::of_level(level, &self.hasher))
        });
        learned.max().unwrap_or(Learned::Passed)
    }

    /// Remembers a refusal that would be repeated for so long.
    fn put<'q>(
        &self,
        lookup: Lookup,
        refused_for: Micros,
        decisions: &Decisions,
        question: impl FnOnce() -> Option<Question<'q>>,
    ) -> Learned {
        // The store decided no earlier than it was asked.
        let now = self.clock.now();
        let until = lookup.at + refused_for.min(self.max_age);
        let Some(question) = (until > now).then(question).flatten() else { return Learned::Passed };
        let mut shard = self.shard(&question).lock();
        if lookup.epoch != self.epoch.load(Ordering::Acquire).max(shard.epoch) {
            return Learned::Passed;
        }
        if shard.epoch < lookup.epoch {
            *shard = Shard { epoch: lookup.epoch, ..Shard::default() };
        }
        if shard.find(&question).is_none() && !shard.make_room(self.max_entries_a_shard, now) {
            return Learned::Full;
        }
        shard.put(Refusal {
            hash: question.hash,
            path: question.path.into(),
            terms: question.terms,
            decisions: decisions.clone(),
            learned: now,
            until,
        });
        Learned::Kept
    }

    /// From now on nothing is known, nor will be what is being asked.
    pub(crate) fn forget_all(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    fn shard(&self, question: &Question<'_>) -> &Mutex<Shard> {
        // The low bits choose within a shard's table.
        &self.shards[(question.hash >> 32) as usize % self.shards.len()]
    }
}

impl Shard {
    fn find(&self, question: &Question<'_>) -> Option<&Refusal> {
        self.refusals.find(question.hash, |refusal| *refusal.path == *question.path)
    }

    /// Room for one more of at most so many.
    fn make_room(&mut self, most: usize, now: Micros) -> bool {
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

/// What a refusal is found by.
struct Question<'a> {
    hash: u64,
    path: Cow<'a, [u8]>,
    terms: Terms,
}

impl<'a> Question<'a> {
    /// `None` for plans whose refusals are not remembered: one may charge something, or tell nothing of the next.
    fn of(plan: &'a Plan<'_>, hasher: &RandomState) -> Option<Self> {
        let deepest = plan.levels().iter().max_by_key(|level| level.depth)?;
        let policy_version = plan.policy_version?;
        let repeats = plan.charge == Charge::AllOrNothing
            && plan
                .levels()
                .iter()
                .all(|level| level.cost > 0 && level.scaled.is_none() && !level.params().charges_denied());
        let costs = plan.levels().iter().map(|level| level.cost).collect();
        let terms = Terms::Plan { policy_version, max_wait: plan.max_wait, costs };
        repeats.then(|| Self::new(deepest.path().into(), terms, hasher))
    }

    /// `None` for levels whose refusals are not remembered: all but of a window that counts what it denies, and would deny
    /// the rest of it.
    fn of_level(level: &'a Level<'_>, hasher: &RandomState) -> Option<Self> {
        let params = level.params();
        let repeats = level.cost > 0 && matches!(params, Params::FixedWindow(_)) && params.charges_denied();
        repeats.then(|| Self::new(level.state_name().into(), Terms::Level(params.clone()), hasher))
    }

    fn new(path: Cow<'a, [u8]>, terms: Terms, hasher: &RandomState) -> Self {
        Self { hash: hasher.hash_one(&*path), path, terms }
    }
}

/// How long every level that refuses goes on to do so, unless something is given back; 0 where the request passes.
fn refused_for(plan: &Plan<'_>, decisions: &Decisions) -> Micros {
    if plan.levels().iter().zip(decisions).all(|(level, decision)| level.limit.shadow || decision.allowed) {
        return 0;
    }
    let refusing = decisions.iter().filter(|decision| !decision.allowed);
    refusing.map(|decision| decision.retry_after.unwrap_or(Micros::MAX / 2)).min().unwrap_or(0)
}

/// The decisions as they are so much later.
fn aged(decisions: &Decisions, age: Micros) -> Decisions {
    let mut aged = decisions.clone();
    for decision in &mut aged {
        decision.retry_after = decision.retry_after.map(|retry| (retry - age).max(1));
        decision.next_after = decision.next_after.map(|next| (next - age).max(1));
        decision.reset_after = (decision.reset_after - age).max(0);
    }
    aged
}
