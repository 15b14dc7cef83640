//! Units that were admitted without the shared store, until they are charged to it: summed by level, at most so many levels.
//!
//! Each level has a state of its own here, charged with what it admits. So what comes back during the outage is not charged
//! afterwards, nor is more than the level holds.

mod entry;
mod metrics;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, hash_map::Entry as Place},
    hash::BuildHasher,
    ops::Range,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use weir_core::{
    domain::{Clock, Decision},
    plan::{Level, Plan},
};

pub(crate) use entry::Due;
use entry::{Entry, name_of};
pub use metrics::Outcome;

use crate::redis::Fate;

/// Parts that do not wait for each other.
const SHARDS: usize = 16;

/// Whether units that were admitted without the shared store are charged to it afterwards, and of how many levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutageChargesSettings {
    /// Whether they are.
    pub enabled: bool,
    /// Most levels, each a limit and an actual key, whose units wait.
    pub max_keys: usize,
}

impl Default for OutageChargesSettings {
    fn default() -> Self {
        Self { enabled: true, max_keys: 100_000 }
    }
}

/// Units by level.
pub struct OutageCharges {
    shards: [Mutex<Shard>; SHARDS],
    hasher: FixedState,
    clock: Box<dyn Clock>,
    max_keys: usize,
    /// Levels whose units wait or are on their way, each counted by its size.
    keys: AtomicUsize,
    arrived: Notify,
    outcomes: [AtomicU64; Outcome::ALL.len()],
}

struct Shard {
    entries: HashMap<Box<[u8]>, Entry, FixedState>,
    /// Resets so far, of whatever keys.
    resets: u64,
}

impl OutageCharges {
    /// None yet. What comes back meanwhile is told by `clock`; in which order units are charged, by `seed`.
    pub fn new(settings: &OutageChargesSettings, clock: impl Clock + 'static, seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let shard = |_| Mutex::new(Shard { entries: HashMap::with_hasher(hasher.clone()), resets: 0 });
        Self {
            shards: std::array::from_fn(shard),
            hasher,
            clock: Box::new(clock),
            max_keys: settings.max_keys,
            keys: AtomicUsize::new(0),
            arrived: Notify::new(),
            outcomes: Default::default(),
        }
    }

    /// Levels whose units are not charged yet; larger states count as several.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Units with this outcome so far.
    pub fn units(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    /// Notes what a plan has charged by decisions that were made without the store, `fates` being what the store has done.
    pub fn record(&self, plan: &Plan<'_>, decisions: &[Decision], fates: &[Fate]) {
        if plan.is_preview || plan.dry_run {
            return;
        }
        for (index, (units, fate)) in plan.charged(decisions).zip(fates).enumerate() {
            let level = &plan.levels()[index];
            match fate {
                Fate::Charged => {}
                Fate::Unknown => self.count(Outcome::Unknown, units),
                Fate::NotCharged if units > 0 || level.cost < 0 => self.add(level, units),
                Fate::NotCharged => {}
            }
        }
    }

    fn add(&self, level: &Level<'_>, units: u64) {
        let (name, now) = (name_of(level), self.clock.now());
        let mut shard = self.shards[self.shard_of(&name)].lock();
        if let Some(entry) = shard.entries.get_mut(&*name) {
            let back = if units == 0 { level.cost.unsigned_abs() } else { 0 };
            return self.count(Outcome::Returned, entry.admit(units, back, now));
        }
        if units == 0 {
            return;
        }
        let mut entry = Entry::new(level, &name);
        let size = entry.size;
        let takes = |keys: usize| (keys + size <= self.max_keys).then_some(keys + size);
        let Ok(before) = self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, takes) else {
            return self.count(Outcome::Full, units);
        };
        entry.admit(units, 0, now);
        shard.entries.insert(name.as_slice().into(), entry);
        drop(shard);
        if before == 0 {
            self.arrived.notify_one();
        }
    }

    fn shard_of(&self, name: &[u8]) -> usize {
        self.hasher.hash_one(name) as usize % SHARDS
    }

    /// Waits until units wait. For one task.
    pub(crate) async fn wait(&self) {
        while self.keys() == 0 {
            self.arrived.notified().await;
        }
    }

    pub(crate) fn shards(&self) -> Range<usize> {
        0..SHARDS
    }

    /// The names of levels in a shard whose anchors are served. Of the others too, those of which nothing counts any more are
    /// dropped.
    pub(crate) fn due(&self, shard: usize, is_served: impl Fn(&[u8]) -> bool) -> Vec<Box<[u8]>> {
        let now = self.clock.now();
        let mut due = Vec::new();
        self.drop_from(&mut self.shards[shard].lock(), Outcome::Drained, |name, entry| {
            let is_drained = entry.counting(now) == 0;
            if !is_drained && is_served(entry.anchor(name)) {
                due.push(name.into());
            }
            is_drained
        });
        due
    }

    /// The units of a level, to be charged now.
    pub(crate) fn take(&self, shard: usize, name: Box<[u8]>) -> Option<Due> {
        let mut shard = self.shards[shard].lock();
        let (name, entry) = shard.entries.remove_entry(&name)?;
        Some(Due { units: entry.counting(self.clock.now()), name, entry, resets: shard.resets })
    }

    /// The store has charged so many of these; the others did not count any more, or did not fit.
    pub(crate) fn charged(&self, due: &Due, units: u64) {
        self.count(Outcome::Charged, units);
        self.count(Outcome::Drained, due.entry.units.saturating_sub(units));
        self.keys.fetch_sub(due.entry.size, Ordering::Relaxed);
    }

    /// These are not charged for this reason.
    pub(crate) fn give_up(&self, due: &Due, outcome: Outcome) {
        self.count(outcome, due.entry.units);
        self.keys.fetch_sub(due.entry.size, Ordering::Relaxed);
    }

    /// These are not charged for sure, and wait again, unless there was a reset meanwhile: it may have been of them.
    pub(crate) fn put_back(&self, due: Due) {
        let mut shard = self.shards[self.shard_of(&due.name)].lock();
        if due.resets != shard.resets {
            return self.give_up(&due, Outcome::Reset);
        }
        let size = due.entry.size;
        match shard.entries.entry(due.name) {
            Place::Vacant(place) => drop(place.insert(due.entry)),
            Place::Occupied(mut place) => {
                place.get_mut().join(due.entry, self.clock.now());
                self.keys.fetch_sub(size, Ordering::Relaxed);
            }
        }
    }

    /// Forgets the units of a key, with `subtree` of all keys below it too.
    pub(crate) fn reset(&self, path: &[u8], subtree: bool) {
        if self.keys() == 0 {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.resets += 1;
            self.drop_from(&mut shard, Outcome::Reset, |name, entry| {
                let own = entry.path(name);
                own == path || subtree && own.starts_with(path)
            });
        }
    }

    /// Forgets the units of limits of policies that are not in force: by their domain, as keys begin with it, name and ident.
    pub fn retain(&self, is_in_force: impl Fn(&[u8], &str, &[u8]) -> bool) {
        self.drop_where(Outcome::Policy, |name, entry| {
            entry.limit_of_policy(name).is_some_and(|(domain, limit, ident)| !is_in_force(domain, limit, ident))
        });
    }

    /// Forgets all units, since nothing will charge them: how many there were.
    pub(crate) fn give_all_up(&self) -> u64 {
        let before = self.units(Outcome::Shutdown);
        self.drop_where(Outcome::Shutdown, |_, _| true);
        self.units(Outcome::Shutdown) - before
    }

    fn drop_where(&self, outcome: Outcome, mut is_dropped: impl FnMut(&[u8], &Entry) -> bool) {
        self.shards.iter().for_each(|shard| self.drop_from(&mut shard.lock(), outcome, &mut is_dropped));
    }

    fn drop_from(&self, shard: &mut Shard, outcome: Outcome, mut is_dropped: impl FnMut(&[u8], &Entry) -> bool) {
        shard.entries.retain(|name, entry| {
            let is_dropped = is_dropped(name, entry);
            if is_dropped {
                self.count(outcome, entry.units);
                self.keys.fetch_sub(entry.size, Ordering::Relaxed);
            }
            !is_dropped
        });
    }

    fn count(&self, outcome: Outcome, units: u64) {
        if units > 0 {
            self.outcomes[outcome as usize].fetch_add(units, Ordering::Relaxed);
        }
    }
}
