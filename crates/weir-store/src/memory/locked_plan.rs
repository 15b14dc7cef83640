//! The locked plan: the states of one plan while its shards are locked for the decision.

mod holds;

use std::{cell::Cell, hint::spin_loop, sync::atomic::Ordering};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{
    MemorySettings, MemoryStore, WhenFull,
    capacity::request_mark_bytes,
    locate::{StateLocation, hash, locate_all, shard_of},
    name::Name,
    shard::Shard,
};
use weir_core::{
    algorithm::State,
    domain::{Clock, Micros, request::MAX_LEVELS},
    hold::{Ledger, Outstanding},
    plan::{Plan, States},
};

/// States swept after a decision for each one it added.
const SWEEP_STEP: usize = 2;

/// Spins on a locked shard before the thread parks. A decision is shorter than that, and much shorter than parking and
/// waking.
const SPINS: u32 = 64;

/// The states of one plan, with their shards locked.
pub(super) struct LockedPlan<'s, 'p, C> {
    store: &'s MemoryStore<C>,
    plan: &'s Plan<'p>,
    guards: SmallVec<[(usize, MutexGuard<'s, Shard>); 2]>,
    located: SmallVec<[LocatedState; 4]>,
    /// Index of the guard whose shard has the plan's records, if it may have any.
    records: Option<usize>,
    /// Number of new states for which capacity is reserved.
    reserved: usize,
    /// Number of new ledgers and records for which capacity is reserved.
    reserved_records: usize,
    added: usize,
    /// There may be holds on the plan's states.
    is_held: bool,
    /// Whether the plan's own levels or holds lacked capacity.
    lacks_capacity: Cell<bool>,
    now: Micros,
}

/// The place of a level's state: its location, the index of its shard's guard, and its slot if it exists.
pub(super) struct LocatedState {
    pub location: StateLocation,
    pub guard: usize,
    pub slot: Option<usize>,
}

impl<'s, 'p, C: Clock> LockedPlan<'s, 'p, C> {
    /// Creates a locked plan without any locks yet.
    // Filled in place, because moving it once full takes a tenth of a decision.
    #[inline(always)]
    pub(super) fn new(store: &'s MemoryStore<C>, plan: &'s Plan<'p>) -> Self {
        let (guards, located) = (SmallVec::new(), SmallVec::new());
        Self {
            store,
            plan,
            guards,
            located,
            records: None,
            reserved: 0,
            reserved_records: 0,
            added: 0,
            is_held: false,
            lacks_capacity: Cell::new(false),
            now: 0,
        }
    }

    /// Locks the plan's shards, each once, in ascending order like all plans, which prevents deadlocks.
    pub(super) fn lock(&mut self) {
        for location in locate_all(self.plan, &self.store.hasher, self.store.shards.len()) {
            self.located.push(LocatedState { location, guard: 0, slot: None });
        }
        if self.located.len() > MAX_LEVELS {
            return self.lock_many();
        }
        let records = self.records_shard();
        // All levels with one anchor are in one shard.
        if let Some(shard) = self.located.first().map(|found| found.location.shard)
            && self.located.iter().all(|found| found.location.shard == shard)
            && records.is_none_or(|records| records == shard)
        {
            self.records = records.map(|_| 0);
            return self.guards.push((shard, lock_spinning(&self.store.shards[shard])));
        }
        let mut next = self.shards(records).min();
        while let Some(shard) = next {
            let here = self.located.iter_mut().filter(|found| found.location.shard == shard);
            here.for_each(|found| found.guard = self.guards.len());
            self.records = self.records.or_else(|| (records == Some(shard)).then_some(self.guards.len()));
            self.guards.push((shard, lock_spinning(&self.store.shards[shard])));
            next = self.shards(records).filter(|other| *other > shard).min();
        }
    }

    /// Locks the shards of a plan with more levels than one path can have, in O(n log n) time.
    #[cold]
    fn lock_many(&mut self) {
        let records = self.records_shard();
        let mut shards: Vec<_> = self.shards(records).collect();
        shards.sort_unstable();
        shards.dedup();
        self.guards.extend(shards.iter().map(|shard| (*shard, self.store.shards[*shard].lock())));
        for found in &mut self.located {
            found.guard = shards.partition_point(|shard| *shard < found.location.shard);
        }
        self.records = records.map(|records| shards.partition_point(|shard| *shard < records));
    }

    /// Looks up the states and sweeps expired ones if new states may lack capacity. Returns the time of the decision.
    pub(super) fn read_states(&mut self) -> Micros {
        self.now = self.store.clock.now();
        self.find();
        let held = if self.plan.reservation.is_some() { 1 + self.located.len() } else { 0 };
        let records = held + usize::from(self.plan.request.is_some());
        let missing = self.located.iter().filter(|found| found.slot.is_none()).count() + records;
        if missing > 0 && self.store.keys.load(Ordering::Relaxed) + missing > self.store.settings.max_keys {
            self.store.sweep_when_full(&mut self.guards, missing, self.now);
            self.find();
        }
        self.now
    }

    fn find(&mut self) {
        for (level, found) in self.plan.levels().iter().zip(&mut self.located) {
            let shard = &self.guards[found.guard].1;
            found.slot = shard.find(found.location.state, level.path(), level.limit.ident());
        }
    }

    /// Whether there are holds on the plan's states, or records to consult. For most plans there are none, and nothing
    /// more is looked up.
    #[inline]
    pub(super) fn look_for_holds(&mut self) -> bool {
        let mut levels = self.plan.levels().iter().zip(&self.located);
        let has_ledger = levels.any(|(level, found)| {
            let holds = self.guards[found.guard].1.holds();
            holds.is_some_and(|holds| holds.ledger(level.path(), level.limit.ident()).is_some())
        });
        self.is_held = has_ledger || self.plan.reservation.is_some();
        self.is_held || self.plan.request.is_some()
    }

    /// Marks the plan's states as held from now on.
    pub(super) fn will_hold(&mut self) {
        self.is_held = true;
    }

    /// Changes a shard, whose additional capacity is already reserved up to `taken`.
    #[inline]
    fn change<T>(&mut self, guard: usize, taken: usize, change: impl FnOnce(&mut Shard) -> T) -> T {
        self.store.change(&mut self.guards[guard].1, taken, change)
    }

    fn shards(&self, records: Option<usize>) -> impl Iterator<Item = usize> {
        self.located.iter().map(|found| found.location.shard).chain(records)
    }

    fn records_shard(&self) -> Option<usize> {
        self.plan.record_path().map(|path| shard_of(hash(&self.store.hasher, path), self.store.shards.len()))
    }

    /// Evicts live states until capacity for `count` more entries is reserved. On `false` they do not fit, and the
    /// capacity reserved so far is released.
    fn evict(&mut self, count: usize) -> bool {
        let mut taken = self.store.reserve_up_to(count);
        while taken < count && self.store.evict(&mut self.guards, &self.located) {
            taken += self.store.reserve_up_to(count - taken);
            // An eviction moves the last state into the freed slot.
            self.find();
        }
        if taken < count {
            self.store.keys.fetch_sub(taken, Ordering::Relaxed);
        }
        taken == count
    }

    /// Releases the capacity reserved for ledgers and records.
    pub(super) fn release_records(&mut self) {
        self.store.keys.fetch_sub(std::mem::take(&mut self.reserved_records), Ordering::Relaxed);
    }

    /// Counts the plan among those without capacity.
    pub(super) fn count_as_full(&self) {
        self.lacks_capacity.set(true);
    }

    /// Sweeps a few states of the shards that grew, so that inserts pay for cleaning up.
    pub(super) fn finish(&mut self) {
        if self.reserved_records > 0 {
            self.release_records();
        }
        if self.lacks_capacity.get() {
            self.store.capacity_misses.fetch_add(1, Ordering::Relaxed);
        }
        if self.added > 0 && self.store.clock.is_monotonic() {
            for (_, shard) in &mut self.guards {
                self.store.sweep_shard(shard, SWEEP_STEP * self.added, self.now);
            }
        }
    }
}

/// Locks a shard, spinning first.
#[inline]
fn lock_spinning(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    for _ in 0..SPINS {
        // Checked first, because a failed `try_lock` takes the cache line from the owner of the lock.
        if !shard.is_locked()
            && let Some(guard) = shard.try_lock()
        {
            return guard;
        }
        spin_loop();
    }
    shard.lock()
}

impl<C: Clock> States for LockedPlan<'_, '_, C> {
    fn get(&self, index: usize) -> Option<&State> {
        let found = &self.located[index];
        let shard = &self.guards[found.guard].1;
        found.slot.filter(|slot| shard.expires(*slot) > self.now).map(|slot| shard.state(slot))
    }

    #[inline]
    fn outstanding(&self, index: usize) -> Outstanding {
        if !self.is_held {
            return Outstanding::default();
        }
        let (level, shard) = (&self.plan.levels()[index], &self.guards[self.located[index].guard].1);
        let ledger = shard.holds().and_then(|holds| holds.ledger(level.path(), level.limit.ident()));
        ledger.map(Ledger::outstanding).unwrap_or_default()
    }

    fn has_entry(&self, index: usize) -> bool {
        self.located[index].slot.is_some()
    }

    fn has_capacity(&self, count: usize) -> bool {
        let MemorySettings { max_keys, when_full, .. } = self.store.settings;
        let has_capacity = when_full != WhenFull::Deny || self.store.keys.load(Ordering::Relaxed) + count <= max_keys;
        if !has_capacity && !self.plan.dry_run {
            self.lacks_capacity.set(true);
        }
        has_capacity
    }

    fn reserve(&mut self, count: usize) -> bool {
        let reserved = if self.store.reserve_capacity(count) {
            count
        } else {
            self.lacks_capacity.set(true);
            match self.store.settings.when_full {
                WhenFull::Allow => self.store.reserve_up_to(count),
                WhenFull::Evict => match self.evict(count) {
                    true => count,
                    false => return false,
                },
                WhenFull::Deny => return false,
            }
        };
        self.reserved += reserved;
        true
    }

    fn put(&mut self, index: usize, state: State, reset_after: Micros) {
        let found = &mut self.located[index];
        let shard = &mut self.guards[found.guard].1;
        let expires = self.now + reset_after;
        let level = &self.plan.levels()[index];
        if self.is_held && shard.holds().is_some() {
            shard.holds_mut().keep_ledger(level.path(), level.limit.ident(), expires);
        }
        let (guard, hash, mark_bytes) = (found.guard, found.location.state, request_mark_bytes(level.limit));
        if let Some(slot) = found.slot {
            shard.replace(slot, state, expires);
            if mark_bytes > 0 {
                self.change(guard, 0, |shard| shard.resize(slot, mark_bytes));
            }
        } else if self.reserved > 0 {
            self.reserved -= 1;
            let name = Name::new(level.path(), level.limit.ident());
            let slot = self.change(guard, 1, |shard| shard.insert(hash, name, state, expires, mark_bytes));
            self.located[index].slot = Some(slot);
            self.added += 1;
        }
    }
}
