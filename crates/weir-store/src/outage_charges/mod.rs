//! Outage charges: units admitted without the shared store, summed by level until they are charged to it, for a bounded
//! number of levels.
//!
//! Each level has a local state, which is charged with the admitted units. Units that become free again during the
//! outage are therefore not charged afterwards, nor are more than the limit holds.

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
pub use metrics::ChargeOutcome;

use crate::redis::Fate;

/// Number of shards with a lock each.
const SHARDS: usize = 16;

/// Settings of outage charges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutageChargesSettings {
    /// Whether units admitted during an outage are charged afterwards.
    pub enabled: bool,
    /// Most pending levels, each a limit and an actual key.
    pub max_keys: usize,
}

impl Default for OutageChargesSettings {
    fn default() -> Self {
        Self { enabled: true, max_keys: 100_000 }
    }
}

/// Pending units by level.
pub struct OutageCharges {
    shards: [Mutex<Shard>; SHARDS],
    hasher: FixedState,
    clock: Box<dyn Clock>,
    max_keys: usize,
    /// Pending levels and those in flight, each counted by its size.
    keys: AtomicUsize,
    /// Units in flight to the store; `None` once all units are given up.
    in_flight: Mutex<Option<u64>>,
    arrived: Notify,
    outcomes: [AtomicU64; ChargeOutcome::ALL.len()],
}

struct Shard {
    entries: HashMap<Box<[u8]>, Entry, FixedState>,
    /// Number of resets so far, of any keys.
    resets: u64,
}

impl OutageCharges {
    /// Creates an empty set. `clock` determines which units still count; `seed` determines the order of charges.
    pub fn new(settings: &OutageChargesSettings, clock: impl Clock + 'static, seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let shard = |_| Mutex::new(Shard { entries: HashMap::with_hasher(hasher.clone()), resets: 0 });
        Self {
            shards: std::array::from_fn(shard),
            hasher,
            clock: Box::new(clock),
            max_keys: settings.max_keys,
            keys: AtomicUsize::new(0),
            in_flight: Mutex::new(Some(0)),
            arrived: Notify::new(),
            outcomes: Default::default(),
        }
    }

    /// Returns the number of levels that are not charged yet; large states count as several.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the units with this outcome so far.
    pub fn units(&self, outcome: ChargeOutcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    /// Records the units charged by decisions made without the store. `fates` are the outcomes in the store, per level.
    pub fn record(&self, plan: &Plan<'_>, decisions: &[Decision], fates: &[Fate]) {
        if plan.is_preview || plan.dry_run {
            return;
        }
        for (index, (units, fate)) in plan.charged(decisions).zip(fates).enumerate() {
            let level = &plan.levels()[index];
            match fate {
                Fate::Charged => {}
                Fate::Unknown => self.count(ChargeOutcome::Unknown, units),
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
            return self.count(ChargeOutcome::Returned, entry.admit(units, back, now));
        }
        if units == 0 {
            return;
        }
        let mut entry = Entry::new(level, &name);
        let size = entry.size;
        let takes = |keys: usize| (keys + size <= self.max_keys).then_some(keys + size);
        let Ok(before) = self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, takes) else {
            return self.count(ChargeOutcome::Full, units);
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

    /// Waits until units are pending. Supports only one waiting task.
    pub(crate) async fn wait(&self) {
        while self.keys() == 0 {
            self.arrived.notified().await;
        }
    }

    pub(crate) fn shards(&self) -> Range<usize> {
        0..SHARDS
    }

    /// Returns the names of a shard's levels whose anchors are served, after dropping all levels whose units no longer
    /// count.
    pub(crate) fn due(&self, shard: usize, is_served: impl Fn(&[u8]) -> bool) -> Vec<Box<[u8]>> {
        let now = self.clock.now();
        let mut due = Vec::new();
        self.drop_from(&mut self.shards[shard].lock(), ChargeOutcome::Drained, |name, entry| {
            let is_drained = entry.counting(now) == 0;
            if !is_drained && is_served(entry.anchor(name)) {
                due.push(name.into());
            }
            is_drained
        });
        due
    }

    /// Takes the units of a level to charge them.
    pub(crate) fn take(&self, shard: usize, name: Box<[u8]>) -> Option<Due> {
        let mut shard = self.shards[shard].lock();
        let mut in_flight = self.in_flight.lock();
        let in_flight = in_flight.as_mut()?;
        let (name, entry) = shard.entries.remove_entry(&name)?;
        *in_flight += entry.units;
        Some(Due { units: entry.counting(self.clock.now()), name, entry, resets: shard.resets })
    }

    /// Whether units that were in flight are still to be accounted for.
    fn lands(&self, due: &Due) -> bool {
        self.in_flight.lock().as_mut().map(|units| *units -= due.entry.units).is_some()
    }

    /// Records that the store charged `units`; the rest no longer counted or did not fit.
    pub(crate) fn charged(&self, due: &Due, units: u64) {
        if !self.lands(due) {
            return;
        }
        self.count(ChargeOutcome::Charged, units);
        self.count(ChargeOutcome::Drained, due.entry.units.saturating_sub(units));
        self.keys.fetch_sub(due.entry.size, Ordering::Relaxed);
    }

    /// Drops units that will not be charged, with the reason.
    pub(crate) fn give_up(&self, due: &Due, outcome: ChargeOutcome) {
        if self.lands(due) {
            self.drop_due(due, outcome);
        }
    }

    fn drop_due(&self, due: &Due, outcome: ChargeOutcome) {
        self.count(outcome, due.entry.units);
        self.keys.fetch_sub(due.entry.size, Ordering::Relaxed);
    }

    /// Puts back units that certainly were not charged, unless there was a reset since they were taken, which may have
    /// concerned them.
    pub(crate) fn put_back(&self, due: Due) {
        let mut shard = self.shards[self.shard_of(&due.name)].lock();
        if !self.lands(&due) {
            return;
        }
        if due.resets != shard.resets {
            return self.drop_due(&due, ChargeOutcome::Reset);
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

    /// Drops the units of a key, and with `subtree` also of all keys below it.
    pub(crate) fn reset(&self, path: &[u8], subtree: bool) {
        if self.keys() == 0 {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.resets += 1;
            self.drop_from(&mut shard, ChargeOutcome::Reset, |name, entry| {
                let own = entry.path(name);
                own == path || subtree && own.starts_with(path)
            });
        }
    }

    /// Drops the units of policy limits that are not effective, by the names of their states.
    pub fn retain(&self, is_in_force: impl Fn(&[u8]) -> bool) {
        self.drop_where(ChargeOutcome::Policy, |name, entry| {
            entry.is_of_policy && !is_in_force(entry.state_name(name))
        });
    }

    /// Drops all units at shutdown, also those in flight, which the store may charge. Returns the numbers of both.
    pub(crate) fn give_all_up(&self) -> (u64, u64) {
        let before = self.units(ChargeOutcome::Shutdown);
        let in_flight = self.in_flight.lock().take().unwrap_or_default();
        self.count(ChargeOutcome::Unknown, in_flight);
        self.drop_where(ChargeOutcome::Shutdown, |_, _| true);
        (self.units(ChargeOutcome::Shutdown) - before, in_flight)
    }

    fn drop_where(&self, outcome: ChargeOutcome, mut is_dropped: impl FnMut(&[u8], &Entry) -> bool) {
        self.shards.iter().for_each(|shard| self.drop_from(&mut shard.lock(), outcome, &mut is_dropped));
    }

    fn drop_from(&self, shard: &mut Shard, outcome: ChargeOutcome, mut is_dropped: impl FnMut(&[u8], &Entry) -> bool) {
        shard.entries.retain(|name, entry| {
            let is_dropped = is_dropped(name, entry);
            if is_dropped {
                self.count(outcome, entry.units);
                self.keys.fetch_sub(entry.size, Ordering::Relaxed);
            }
            !is_dropped
        });
    }

    fn count(&self, outcome: ChargeOutcome, units: u64) {
        if units > 0 {
            self.outcomes[outcome as usize].fetch_add(units, Ordering::Relaxed);
        }
    }
}
