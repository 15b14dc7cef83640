//! The holds of a locked plan: ledgers of its states, and records of reservations and requests.

use std::sync::atomic::Ordering;

use super::LockedPlan;
use crate::memory::{WhenFull, shard::Shard};
use weir_core::{
    domain::{Clock, Micros},
    hold::{Ledger, Ledgers, Record, Reservations},
};

impl<'p, C> LockedPlan<'_, 'p, C> {
    /// Returns the shard of a level, and the two parts of its state's name.
    fn place(&mut self, index: usize) -> (&mut Shard, &[u8], &[u8]) {
        let level = &self.plan.levels()[index];
        (&mut self.guards[self.located[index].guard].1, level.path(), level.limit.ident())
    }

    /// Whether a level has a ledger, which may be empty.
    fn has_ledger(&self, index: usize) -> bool {
        let (level, shard) = (&self.plan.levels()[index], &self.guards[self.located[index].guard].1);
        shard.holds().is_some_and(|holds| holds.ledger(level.path(), level.limit.ident()).is_some())
    }

    /// Reserves capacity for the ledgers that these levels do not have, and for `records` new records. `false` if there
    /// is none.
    pub(in crate::memory) fn reserve_records(&mut self, levels: impl Iterator<Item = usize>, records: usize) -> bool
    where
        C: Clock,
    {
        let count = records + levels.filter(|index| !self.has_ledger(*index)).count();
        if count > 0 && !self.store.reserve_capacity(count) {
            // With `allow`, requests that pass without capacity are not stored, so they cannot hold units either.
            if self.store.settings.when_full != WhenFull::Evict || !self.evict(count) {
                return false;
            }
            self.lacks_capacity.set(true);
        }
        self.reserved_records += count;
        true
    }

    /// Takes the capacity of one entry, if any is reserved.
    fn take_record(&mut self) -> usize {
        let taken = self.reserved_records.min(1);
        self.reserved_records -= taken;
        taken
    }

    /// Returns the location of the plan's records: the index of the shard's guard, and the anchor path.
    fn record_place(&self) -> Option<(usize, &'p [u8])> {
        Some((self.records?, self.plan.record_path()?))
    }
}

impl<C: Clock> Ledgers for LockedPlan<'_, '_, C> {
    fn take_ledger(&mut self, index: usize) -> Ledger {
        let (shard, path, ident) = self.place(index);
        if shard.holds().is_some() { shard.holds_mut().take_ledger(path, ident) } else { Ledger::default() }
    }

    fn put_ledger(&mut self, index: usize, ledger: Ledger) {
        let (level, guard) = (&self.plan.levels()[index], self.located[index].guard);
        if !ledger.holds().is_empty() || self.guards[guard].1.holds().is_some() {
            let taken = if ledger.holds().is_empty() || self.has_ledger(index) { 0 } else { self.take_record() };
            self.change(guard, taken, |shard| shard.holds_mut().put_ledger(level.path(), level.limit.ident(), ledger));
            self.added += 1;
        }
    }

    fn force_reserve(&mut self) {
        self.store.keys.fetch_add(1, Ordering::Relaxed);
        self.reserved += 1;
    }

    fn keep_ledger(&mut self, index: usize, reset_after: Micros) {
        let expires = self.now + reset_after;
        let (shard, path, ident) = self.place(index);
        if shard.holds().is_some() {
            shard.holds_mut().keep_ledger(path, ident, expires);
        }
    }
}

impl<C: Clock> Reservations for LockedPlan<'_, '_, C> {
    fn record(&self, name: &[u8]) -> Option<Record> {
        let (guard, anchor_path) = self.record_place()?;
        self.guards[guard].1.holds()?.record(anchor_path, name).cloned()
    }

    fn reserve_record(&mut self, held: Option<&[usize]>) -> bool {
        let has_capacity = self.reserve_records(held.unwrap_or_default().iter().copied(), 1);
        // A request is decided even if its answer cannot be stored for lack of capacity.
        if !has_capacity && held.is_some() {
            self.lacks_capacity.set(true);
        }
        has_capacity
    }

    fn put_record(&mut self, name: &[u8], record: Record) {
        let Some((guard, anchor_path)) = self.record_place() else { return };
        let taken = self.take_record();
        self.change(guard, taken, |shard| shard.holds_mut().put_record(anchor_path, name, record));
        self.added += 1;
    }
}
