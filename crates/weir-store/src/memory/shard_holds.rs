//! The holds on a shard's states, and the records of reservations and request ids. Most shards have none.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::weight;
use crate::ResetDone;
use weir_core::{
    domain::{Micros, key::END, time::SECOND},
    hold::{Ledger, Record},
};

/// Least interval between two full sweeps, and the time added for each ledger and record, in microseconds: sweeping
/// takes less than a hundredth of the time.
const SWEEP_EVERY: (Micros, Micros) = (SECOND, 10);

/// Ledgers by the name of their state, and records by anchor path and record name.
#[derive(Default)]
pub(super) struct ShardHolds {
    ledgers: HashMap<Box<[u8]>, Kept, RandomState>,
    records: HashMap<Box<[u8]>, Recorded, RandomState>,
    /// Number of the records that are answers.
    answers: usize,
    /// Capacity used by all ledgers and records.
    weight: usize,
    next_sweep: Micros,
}

/// A ledger, and how long its units matter: they may count as spent at their deadline, and matter as long as that charge.
#[derive(Default)]
struct Kept {
    ledger: Ledger,
    expires: Micros,
    weight: u32,
}

/// A record, with the length of the anchor path in its key.
struct Recorded {
    record: Record,
    anchor_end: u16,
    weight: u32,
}

/// Returns the time until which a ledger is kept whose units matter until `expires`.
pub(super) fn lasts_until(ledger: &Ledger, expires: Micros) -> Micros {
    expires.max(ledger.last_deadline())
}

impl Recorded {
    fn is_answer(&self) -> bool {
        matches!(self.record, Record::Answered { .. })
    }
}

impl ShardHolds {
    /// Returns the ledger of a state, given the two parts of its name.
    pub(super) fn ledger(&self, path: &[u8], ident: &[u8]) -> Option<&Ledger> {
        if self.ledgers.is_empty() {
            return None;
        }
        self.ledgers.get(&joined(path, ident)[..]).map(|kept| &kept.ledger)
    }

    /// Takes a ledger out, leaving an empty one until it is put back.
    pub(super) fn take_ledger(&mut self, path: &[u8], ident: &[u8]) -> Ledger {
        self.ledgers.get_mut(&joined(path, ident)[..]).map(|kept| std::mem::take(&mut kept.ledger)).unwrap_or_default()
    }

    /// Puts a ledger back, or removes its entry if it has no holds.
    pub(super) fn put_ledger(&mut self, path: &[u8], ident: &[u8], mut ledger: Ledger) {
        let name = joined(path, ident);
        if ledger.holds().is_empty() {
            self.weight -= self.ledgers.remove(&name[..]).map_or(0, |kept| kept.weight as usize);
            return;
        }
        ledger.shrink();
        let weight = weight(name.len() + size_of_val(ledger.holds()));
        self.weight += weight as usize;
        match self.ledgers.get_mut(&name[..]) {
            Some(kept) => {
                self.weight -= kept.weight as usize;
                (kept.ledger, kept.weight) = (ledger, weight);
            }
            None => drop(self.ledgers.insert(name[..].into(), Kept { ledger, expires: Micros::MIN, weight })),
        }
    }

    /// Extends the expiry of a ledger, if there is one, to at least `expires`.
    pub(super) fn keep_ledger(&mut self, path: &[u8], ident: &[u8], expires: Micros) {
        if let Some(kept) = self.ledgers.get_mut(&joined(path, ident)[..]) {
            kept.expires = kept.expires.max(expires);
        }
    }

    pub(super) fn record(&self, anchor_path: &[u8], name: &[u8]) -> Option<&Record> {
        self.records.get(&joined(anchor_path, name)[..]).map(|recorded| &recorded.record)
    }

    pub(super) fn put_record(&mut self, anchor_path: &[u8], name: &[u8], record: Record) {
        let key = joined(anchor_path, name);
        let weight = weight(key.len() + allocated_bytes(&record));
        let recorded = Recorded { record, anchor_end: anchor_path.len() as u16, weight };
        self.answers += usize::from(recorded.is_answer());
        let before = self.records.insert(key[..].into(), recorded);
        self.answers -= usize::from(before.as_ref().is_some_and(Recorded::is_answer));
        self.weight = self.weight + weight as usize - before.map_or(0, |before| before.weight as usize);
    }

    /// Evicts the answer that expires first of `count` answers. Returns `false` if there is none.
    pub(super) fn evict_answer(&mut self, count: usize) -> bool {
        let answers = self.records.iter().filter(|(_, recorded)| recorded.is_answer()).take(count.min(self.answers));
        let first = answers.min_by_key(|(_, recorded)| recorded.record.expires()).map(|(key, _)| key.clone());
        let Some(evicted) = first.and_then(|key| self.records.remove(&key)) else { return false };
        self.answers -= 1;
        self.weight -= evicted.weight as usize;
        shrink(&mut self.records);
        true
    }

    /// Drops expired holds on the states of exactly the key `path`, and with `subtree` of those below it; otherwise
    /// they would be charged to the states after the reset. Returns whether any of them still counted.
    pub(super) fn forget_expired(&mut self, path: &[u8], subtree: bool, now: Micros) -> ResetDone {
        let (mut done, mut freed) = (ResetDone::default(), 0);
        self.ledgers.retain(|name, kept| {
            let is_own = match name.strip_prefix(path).and_then(<[u8]>::first) {
                Some(&END) => true,
                Some(_) if subtree => false,
                _ => return true,
            };
            let counted = kept.ledger.forget_expired(now) && kept.expires > now;
            done.removed |= counted;
            done.existed |= counted && is_own;
            let is_empty = kept.ledger.holds().is_empty();
            freed += if is_empty { kept.weight as usize } else { 0 };
            !is_empty
        });
        self.weight -= freed;
        done
    }

    /// Returns the earliest time at which a sweep drops anything.
    pub(super) fn next_sweep(&self) -> Micros {
        self.next_sweep
    }

    /// Drops expired ledgers and records, at most once a second. Returns how many.
    pub(super) fn sweep(&mut self, now: Micros) -> usize {
        if now < self.next_sweep {
            return 0;
        }
        let (before, mut freed) = (self.len(), 0);
        self.next_sweep = now + SWEEP_EVERY.0 + SWEEP_EVERY.1 * before as Micros;
        let mut stays = |expires: Micros, weight: u32| {
            freed += if expires > now { 0 } else { weight as usize };
            expires > now
        };
        self.ledgers.retain(|_, kept| stays(lasts_until(&kept.ledger, kept.expires), kept.weight));
        self.records.retain(|_, recorded| stays(recorded.record.expires(), recorded.weight));
        self.answers = self.records.values().filter(|recorded| recorded.is_answer()).count();
        self.weight -= freed;
        shrink(&mut self.ledgers);
        shrink(&mut self.records);
        before - self.len()
    }

    /// Returns the capacity that they use.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    pub(super) fn len(&self) -> usize {
        self.ledgers.len() + self.records.len()
    }

    /// Returns the number of the records that are answers.
    pub(super) fn answers(&self) -> usize {
        self.answers
    }

    /// Returns the number of entries that fit its memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.ledgers.capacity() + self.records.capacity()
    }

    /// Iterates over the ledgers, with the names of their states and the time until which their units matter.
    pub(super) fn ledgers(&self) -> impl Iterator<Item = (&[u8], &Ledger, Micros)> {
        self.ledgers.iter().map(|(name, kept)| (&name[..], &kept.ledger, kept.expires))
    }

    /// Iterates over the records, with anchor path and name.
    pub(super) fn records(&self) -> impl Iterator<Item = (&[u8], &[u8], &Record)> {
        self.records.iter().map(|(key, recorded)| {
            let (anchor_path, name) = key.split_at(recorded.anchor_end.into());
            (anchor_path, name, &recorded.record)
        })
    }
}

/// Frees the memory of many removed entries.
fn shrink<T>(entries: &mut HashMap<Box<[u8]>, T, RandomState>) {
    if entries.len() < entries.capacity() / 4 {
        entries.shrink_to(2 * entries.len());
    }
}

/// Returns the heap bytes of a record.
fn allocated_bytes(record: &Record) -> usize {
    match record {
        Record::Open { levels, .. } => levels.iter().map(|name| size_of_val(name) + name.len()).sum(),
        Record::Answered { decisions, .. } => size_of_val(&decisions[..]),
        Record::Settled { .. } => 0,
    }
}

/// Builds a key of these maps for look-ups.
fn joined(path: &[u8], rest: &[u8]) -> SmallVec<[u8; 128]> {
    let mut joined = SmallVec::from_slice(path);
    joined.extend_from_slice(rest);
    joined
}
