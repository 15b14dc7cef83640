//! States in this process: sharded by anchor, every plan decided under its shards' locks, without waiting for anything
//! else.

mod full;
mod held;
mod horizon;
mod locate;
mod name;
mod row;
mod scan;
mod shard;
pub mod snapshot;
#[cfg(test)]
mod tests;
mod view;

use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{Decide, ResetDone, Store, StoreError, Verdict};
pub use full::WhenFull;
use horizon::Horizon;
use locate::hash;
use name::Name;
use shard::Shard;
use snapshot::Parts;
use view::View;
use weir_core::{
    algorithm::State,
    domain::{Clock, Key, Micros},
    hold::{self, Grant, Ledger, Record, Renewal, Reservations, decide_held},
    plan::{Decisions, Limit, Plan, decide_into, is_ident_of_policy},
};

/// States a shard is planned to hold: few enough that to look at all of them takes microseconds, and as many as its table
/// takes before it doubles to over 3,584.
const STATES_A_SHARD: usize = 3_300;
/// States looked at for expiry while a shard is locked for it.
const SWEEP_SLICE: usize = 1_024;

/// A state takes a place of [`MemorySettings::max_keys`], and a further one for each so many bytes of its name, and of the
/// marks that the limit of a request may have: what clients choose.
pub const PLACE_BYTES: usize = 256;

/// Bytes of a mark.
const WORD_BYTES: usize = 8;

/// The places of something with so many bytes that clients choose.
pub fn places(bytes: usize) -> u32 {
    1 + (bytes / PLACE_BYTES) as u32
}

/// Bytes of the marks that a limit of a request may have.
#[inline]
fn brought_bytes(limit: &Limit) -> usize {
    if limit.is_of_policy() { 0 } else { limit.params.marks_max() as usize * WORD_BYTES }
}

/// The settings of a memory store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// Most states: one for each limit and actual key. One whose name is long, or whose limit a request brought and may have
    /// many marks, counts as several ([`PLACE_BYTES`]).
    pub max_keys: usize,
    /// The rule for requests beyond that.
    pub when_full: WhenFull,
}

impl Default for MemorySettings {
    /// A million states, about 100 MB; requests for more are refused.
    fn default() -> Self {
        Self { max_keys: 1_000_000, when_full: WhenFull::default() }
    }
}

/// A store in this process.
pub struct MemoryStore<C> {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: C,
    settings: MemorySettings,
    keys: AtomicUsize,
    lacked_room: AtomicUsize,
    expired: AtomicUsize,
    evicted: AtomicUsize,
    left_out: AtomicUsize,
    next_swept: AtomicUsize,
    next_evicted: AtomicUsize,
    horizon: Horizon,
}

/// The counters of a memory store since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// States held now, those that have expired but were not met since included, large ones as in
    /// [`MemorySettings::max_keys`].
    pub keys: usize,
    /// Plans that lacked room for a new state.
    pub lacked_room: usize,
    /// States dropped because they had expired.
    pub expired: usize,
    /// States dropped although they still meant something, to make room for others ([`WhenFull::Evict`]).
    pub evicted: usize,
    /// States of a snapshot that did not fit.
    pub left_out: usize,
}

#[cold]
fn decide_with_held<C: Clock>(plan: &Plan<'_>, view: &mut View<'_, '_, C>, verdict: &mut Verdict) {
    let (decisions, outcome, repeat) = decide_held(plan, view, verdict.at);
    (verdict.decisions, verdict.reservation, verdict.repeat) = (decisions, outcome.map(Box::new), repeat);
}

#[cold]
fn decide_and_renew<C: Clock>(plan: &Plan<'_>, view: &mut View<'_, '_, C>, renewal: &Renewal, verdict: &mut Verdict) {
    view.will_hold();
    let levels: SmallVec<[usize; 4]> = (0..plan.levels().len()).collect();
    // A lease begins where there is room for what is held of each level; what was held is settled in any case.
    let want = if renewal.want == 0 || view.make_room(&levels) { renewal.want } else { 0 };
    let (decisions, grant) = hold::renew(plan, view, verdict.at, &Renewal { want, ..*renewal });
    (verdict.decisions, verdict.grant) = (decisions, Some(Box::new(grant)));
}

impl<C: Clock> MemoryStore<C> {
    /// An empty store on `clock`.
    pub fn new(settings: MemorySettings, clock: C) -> Self {
        let shards = settings.max_keys.div_ceil(STATES_A_SHARD).clamp(64, 65_536);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            clock,
            settings,
            keys: AtomicUsize::new(0),
            lacked_room: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
            evicted: AtomicUsize::new(0),
            left_out: AtomicUsize::new(0),
            next_swept: AtomicUsize::new(0),
            next_evicted: AtomicUsize::new(0),
            horizon: Horizon::default(),
        }
    }

    /// Its counters.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.keys.load(Ordering::Relaxed),
            lacked_room: self.lacked_room.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
        }
    }

    /// Drops the expired states of the next `shards` shards, a slice at a time, so that no lock is held for more than
    /// microseconds. Called now and then, so that keys that are no longer requested give their memory back.
    pub fn sweep(&self, shards: usize) {
        let now = self.clock.now();
        for _ in 0..shards.min(self.shards.len()) {
            let index = self.next_swept.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            // Twice around: the first round learns what the second can rely on.
            let slices = 2 * (self.shards[index].lock().len() / SWEEP_SLICE + 1);
            for _ in 0..slices {
                let mut shard = self.shards[index].lock();
                self.sweep_shard(&mut shard, SWEEP_SLICE, now);
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
    #[inline]
    pub fn decide_now(&self, plan: &Plan<'_>) -> Decisions {
        self.verdict(plan).decisions
    }

    /// Decides a plan now; the verdict says when that was.
    #[inline]
    pub fn verdict(&self, plan: &Plan<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        self.decide_into(plan, &mut verdict);
        verdict
    }

    fn decide_into(&self, plan: &Plan<'_>, verdict: &mut Verdict) {
        let mut view = View::new(self, plan);
        view.lock();
        verdict.at = view.read_states();
        if let Some(renewal) = plan.renewal {
            decide_and_renew(plan, &mut view, renewal, verdict);
        } else if view.look_for_holds() {
            decide_with_held(plan, &mut view, verdict);
        } else {
            decide_into(&mut verdict.decisions, plan, &mut view, verdict.at);
        }
        view.finish();
    }

    /// Serves a renewal now; see [`Store::renew`].
    pub fn renew_now(&self, plan: &Plan<'_>, renewal: &Renewal) -> Grant {
        let mut view = View::new(self, plan);
        view.lock();
        let now = view.read_states();
        view.will_hold();
        let (_, grant) = hold::renew(plan, &mut view, now, renewal);
        view.finish();
        grant
    }

    /// This store's clock.
    pub fn clock(&self) -> C
    where
        C: Clone,
    {
        self.clock.clone()
    }

    /// The present, by this store's clock.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Forgets states; see [`Store::reset`].
    pub fn reset_now(&self, key: &Key, anchor: u8, subtree: bool) -> ResetDone {
        let depth = key.depth();
        let own = hash(&self.hasher, key.prefix(depth.min(usize::from(anchor))));
        let own_shard = locate::shard_of(own, self.shards.len());
        // Keys below one above the anchor have anchors of their own, in any shard.
        let everywhere = subtree && depth < usize::from(anchor);
        let mut done = ResetDone::default();
        for (index, shard) in self.shards.iter().enumerate() {
            if everywhere || index == own_shard {
                let mut shard = shard.lock();
                let now = self.clock.now();
                let found = self.change(&mut shard, 0, |shard| shard.reset(key.prefix(depth), subtree, now));
                done.existed |= found.existed;
                done.removed |= found.removed;
            }
        }
        done
    }

    /// Puts back a state of a snapshot, of so many words. Of two with one name the one that expires later counts. `false`: the
    /// store is full.
    fn put_back(&self, parts: &Parts<'_>, state: State, words: usize, expires: Micros) -> bool {
        let Parts { path, anchor_end, ident } = *parts;
        let brought = if is_ident_of_policy(ident) { 0 } else { words * WORD_BYTES };
        let location = locate::locate(&self.hasher, path, anchor_end, ident, self.shards.len());
        let mut shard = self.shards[location.shard].lock();
        match shard.find(location.state, path, ident) {
            Some(slot) if shard.expires(slot) > expires => return true,
            Some(slot) => {
                shard.replace(slot, state, expires);
                self.change(&mut shard, 0, |shard| shard.resize(slot, brought));
            }
            None if self.take_room(1) => {
                let name = Name::new(path, ident);
                self.change(&mut shard, 1, |shard| shard.insert(location.state, name, state, expires, brought));
            }
            None => return false,
        }
        self.horizon.expects(expires);
        true
    }

    /// Puts back what is held of a state of a snapshot. `false`: the store is full.
    fn put_back_ledger(&self, parts: &Parts<'_>, ledger: Ledger, expires: Micros) -> bool {
        let Parts { path, anchor_end, ident } = *parts;
        let location = locate::locate(&self.hasher, path, anchor_end, ident, self.shards.len());
        let mut shard = self.shards[location.shard].lock();
        let is_room = self.take_room(1);
        if is_room {
            self.change(&mut shard, 1, |shard| {
                let held = shard.held_mut();
                held.put_ledger(path, ident, ledger);
                held.keep_ledger(path, ident, expires);
            });
            self.horizon.expects(expires);
        }
        is_room
    }

    /// Puts back a record of a snapshot. `false`: the store is full.
    fn put_back_record(&self, anchor_path: &[u8], name: &[u8], record: Record) -> bool {
        let mut shard = self.shards[locate::shard_of(hash(&self.hasher, anchor_path), self.shards.len())].lock();
        let is_room = self.take_room(1);
        if is_room {
            self.horizon.expects(record.expires());
            self.change(&mut shard, 1, |shard| shard.held_mut().put_record(anchor_path, name, record));
        }
        is_room
    }

    /// Looks at so many states of a shard, and drops those that have expired.
    fn sweep_shard(&self, shard: &mut Shard, count: usize, now: Micros) {
        let dropped = self.change(shard, 0, |shard| shard.sweep(count, now));
        if dropped > 0 {
            self.expired.fetch_add(dropped, Ordering::Relaxed);
        }
    }

    /// Changes a shard, and counts the places that it takes then, of which so many were taken before. What it takes beyond them
    /// is not asked for: a plan may take more than there are by its own long names, and the next one finds none.
    #[inline]
    fn change<T>(&self, shard: &mut Shard, taken: usize, change: impl FnOnce(&mut Shard) -> T) -> T {
        let before = shard.places() + taken;
        let done = change(shard);
        let after = shard.places();
        if after > before {
            self.keys.fetch_add(after - before, Ordering::Relaxed);
        } else if after < before {
            self.keys.fetch_sub(before - after, Ordering::Relaxed);
        }
        done
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    #[inline]
    fn decide<'s, 'v>(&'s self, plan: &Plan<'_>, verdict: &'v mut Verdict) -> Decide<'s, 'v> {
        self.decide_into(plan, verdict);
        Decide::Ready(verdict)
    }

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, StoreError> {
        Ok(self.reset_now(key, anchor, subtree))
    }

    async fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Grant, StoreError> {
        Ok(self.renew_now(plan, renewal))
    }
}
