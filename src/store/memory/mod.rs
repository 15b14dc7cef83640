//! States in this process: sharded by anchor, every plan decided under its shards' locks, without waiting for anything
//! else.

mod horizon;
mod locate;
mod name;
mod row;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{ResetDone, Store, StoreError, Verdict};
use crate::{
    algorithm::State,
    domain::{Clock, Key, Micros},
    plan::{Decisions, Plan, States, decide},
};
use horizon::Horizon;
use locate::{Place, hash, places};
use name::Name;
use shard::Shard;

/// States a shard is planned to hold: few enough that to look at all of them takes microseconds, and as many as its table
/// takes before it doubles to over 3,584.
const STATES_A_SHARD: usize = 3_300;
/// States looked at for expiry while a shard is locked for it.
const SWEEP_SLICE: usize = 1_024;
/// Shards that a plan finding the store full looks at for expired states, where it cannot look at all.
const SHARDS_SEEN_WHEN_FULL: usize = 256;
/// Shards up to which it can look at all: those of a store for eight million states.
const ALL_SHARDS_SEEN: usize = 4_096;
/// Of how many of them it sweeps a slice. Those in which nothing can have expired do not count.
const SHARDS_SWEPT_WHEN_FULL: usize = 16;
/// States looked at for expiry after each decision that added some.
const SWEEP_STEP: usize = 2;

/// What a memory store is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// Most states: one for each limit and actual key. What comes beyond is refused, and nothing live is forgotten.
    pub max_keys: usize,
}

impl Default for MemorySettings {
    /// A million states, about 100 MB.
    fn default() -> Self {
        Self { max_keys: 1_000_000 }
    }
}

/// A store in this process.
pub struct MemoryStore<C> {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: C,
    max_keys: usize,
    keys: AtomicUsize,
    lacked_room: AtomicUsize,
    expired: AtomicUsize,
    next_swept: AtomicUsize,
    horizon: Horizon,
}

/// What a memory store has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// States held now, those that have expired but were not met since included.
    pub keys: usize,
    /// Plans that lacked room for a new state.
    pub lacked_room: usize,
    /// States dropped because they had expired.
    pub expired: usize,
}

impl<C: Clock> MemoryStore<C> {
    /// An empty store on `clock`.
    pub fn new(settings: MemorySettings, clock: C) -> Self {
        let shards = settings.max_keys.div_ceil(STATES_A_SHARD).clamp(64, 65_536);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            clock,
            max_keys: settings.max_keys,
            keys: AtomicUsize::new(0),
            lacked_room: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
            next_swept: AtomicUsize::new(0),
            horizon: Horizon::default(),
        }
    }

    /// What it has counted.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.keys.load(Ordering::Relaxed),
            lacked_room: self.lacked_room.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
        }
    }

    /// Drops the expired states of the next `shards` shards, a slice at a time, so that no lock is held for more than
    /// microseconds. Called now and then, so that keys nobody asks for any more give their memory back.
    pub fn sweep(&self, shards: usize) {
        let now = self.clock.now();
        for _ in 0..shards.min(self.shards.len()) {
            let index = self.next_swept.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            // Twice around: the first round learns what the second can rely on.
            let slices = 2 * (self.shards[index].lock().len() / SWEEP_SLICE + 1);
            for _ in 0..slices {
                let mut shard = self.shards[index].lock();
                self.dropped(shard.sweep(SWEEP_SLICE, now));
                if shard.next_expiry() > now {
                    break;
                }
            }
        }
    }

    /// How many shards there are, for [`MemoryStore::sweep`].
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Decides a plan now.
    pub fn decide_now(&self, plan: &Plan<'_>) -> Decisions {
        let mut view = View {
            store: self,
            plan,
            guards: SmallVec::new(),
            found: SmallVec::new(),
            added: 0,
            lacked_room: false,
            now: 0,
        };
        view.lock();
        let now = self.clock.now();
        view.now = now;
        view.find();
        let missing = view.found.iter().filter(|found| found.slot.is_none()).count();
        if missing > 0 && self.keys.load(Ordering::Relaxed) + missing > self.max_keys {
            self.sweep_when_full(&mut view.guards, missing, now);
            view.find();
        }
        let decisions = decide(plan, &mut view, now);
        view.finish();
        decisions
    }

    /// Forgets states; see [`Store::reset`].
    pub fn reset_now(&self, key: &Key, anchor: u8, subtree: bool) -> bool {
        let depth = key.depth();
        let own = hash(&self.hasher, key.prefix(depth.min(usize::from(anchor))));
        let own_shard = locate::shard_of(own, self.shards.len());
        // What is below a key above the anchor has anchors of its own, in any shard.
        let everywhere = subtree && depth < usize::from(anchor);
        let mut existed = false;
        for (index, shard) in self.shards.iter().enumerate() {
            if everywhere || index == own_shard {
                let (removed, live) = shard.lock().reset(key.prefix(depth), subtree, self.clock.now());
                self.keys.fetch_sub(removed, Ordering::Relaxed);
                existed |= live;
            }
        }
        existed
    }

    fn dropped(&self, states: usize) {
        if states > 0 {
            self.keys.fetch_sub(states, Ordering::Relaxed);
            self.expired.fetch_add(states, Ordering::Relaxed);
        }
    }

    /// Looks for expired states before room is asked for: in the shards at hand, then in others that nobody holds.
    fn sweep_when_full(&self, guards: &mut [(usize, MutexGuard<'_, Shard>)], missing: usize, now: Micros) {
        if self.horizon.is_beyond(now) {
            return;
        }
        let raise = self.horizon.start_look();
        let mut next = Micros::MAX;
        for (_, shard) in guards.iter_mut() {
            self.dropped(shard.sweep(SWEEP_SLICE, now));
            next = next.min(shard.next_expiry());
        }
        let (mut sweeps, mut seen) = (SHARDS_SWEPT_WHEN_FULL, guards.len());
        let shards = self.shards.len();
        let looks = if shards <= ALL_SHARDS_SEEN { shards } else { SHARDS_SEEN_WHEN_FULL };
        let start = self.next_swept.load(Ordering::Relaxed);
        for look in 0..looks {
            if sweeps == 0 || self.keys.load(Ordering::Relaxed) + missing <= self.max_keys {
                break;
            }
            self.next_swept.fetch_add(1, Ordering::Relaxed);
            let Some(mut shard) = self.shards[(start + look) % shards].try_lock() else { continue };
            seen += 1;
            if shard.next_expiry() <= now {
                self.dropped(shard.sweep(SWEEP_SLICE, now));
                sweeps -= 1;
            }
            next = next.min(shard.next_expiry());
        }
        if let Some(raise) = raise
            && seen == shards
        {
            raise.to(next);
        }
    }

    /// Takes room for `count` more states, or none at all.
    fn take_room(&self, count: usize) -> bool {
        let room = |keys: usize| Some(keys + count).filter(|keys| *keys <= self.max_keys);
        self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn decide(&self, plan: &Plan<'_>) -> Result<Verdict, StoreError> {
        Ok(Verdict { decisions: self.decide_now(plan), degraded: false })
    }

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, StoreError> {
        Ok(ResetDone { existed: self.reset_now(key, anchor, subtree), scanned: false })
    }

    fn decides_at_once(&self) -> bool {
        true
    }
}

/// The states of one plan, their shards locked.
struct View<'s, 'p, C> {
    store: &'s MemoryStore<C>,
    plan: &'s Plan<'p>,
    guards: SmallVec<[(usize, MutexGuard<'s, Shard>); 2]>,
    found: SmallVec<[Found; 4]>,
    added: usize,
    lacked_room: bool,
    now: Micros,
}

/// Where a level's state is: its place, which guard holds that, and which slot once there is one.
struct Found {
    place: Place,
    guard: usize,
    slot: Option<usize>,
}

impl<C: Clock> View<'_, '_, C> {
    /// Locks the shards of the plan, each once, in the order in which all plans lock.
    fn lock(&mut self) {
        for place in places(self.plan, &self.store.hasher, self.store.shards.len()) {
            self.found.push(Found { place, guard: 0, slot: None });
        }
        let mut next = self.found.iter().map(|found| found.place.shard).min();
        while let Some(shard) = next {
            let here = self.found.iter_mut().filter(|found| found.place.shard == shard);
            here.for_each(|found| found.guard = self.guards.len());
            self.guards.push((shard, self.store.shards[shard].lock()));
            next = self.found.iter().map(|found| found.place.shard).filter(|other| *other > shard).min();
        }
    }

    fn find(&mut self) {
        for (level, found) in self.plan.levels().iter().zip(&mut self.found) {
            let shard = &self.guards[found.guard].1;
            found.slot = shard.find(found.place.state, level.path(), level.limit.ident());
        }
    }

    /// Looks at a few states of the shards that grew, so that growth pays for clearing up.
    fn finish(&mut self) {
        if self.lacked_room {
            self.store.lacked_room.fetch_add(1, Ordering::Relaxed);
        }
        if self.added > 0 && self.store.clock.is_monotonic() {
            for (_, shard) in &mut self.guards {
                self.store.dropped(shard.sweep(SWEEP_STEP * self.added, self.now));
            }
        }
    }
}

impl<C: Clock> States for View<'_, '_, C> {
    fn get(&self, index: usize) -> Option<&State> {
        let found = &self.found[index];
        found.slot.map(|slot| self.guards[found.guard].1.state(slot))
    }

    fn reserve(&mut self, count: usize) -> bool {
        let room = self.store.take_room(count);
        self.lacked_room |= !room;
        room
    }

    fn put(&mut self, index: usize, state: State, reset_after: Micros) {
        let found = &mut self.found[index];
        let shard = &mut self.guards[found.guard].1;
        let expires = self.now + reset_after;
        self.store.horizon.expects(expires);
        if let Some(slot) = found.slot {
            shard.replace(slot, state, expires);
        } else {
            let level = &self.plan.levels()[index];
            let name = Name::new(level.path(), level.limit.ident());
            found.slot = Some(shard.insert(found.place.state, name, state, expires));
            self.added += 1;
        }
    }
}
