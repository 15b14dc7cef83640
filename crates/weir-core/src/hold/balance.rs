//! The units that a holder may spend, shared by all threads.

use std::sync::atomic::{
    AtomicI64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::domain::Micros;

/// Units that may be spent until a deadline. Spending takes no lock and allocates nothing. Times
/// are of the holder's monotonic clock.
#[derive(Debug)]
pub struct Balance {
    units: AtomicI64,
    deadline: AtomicI64,
    /// Number of units below which a renewal is due.
    low: AtomicI64,
    /// Time from which a renewal is due.
    renew_at: AtomicI64,
}

/// The outcome of [`Balance::spend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spend {
    /// Spent.
    Spent,
    /// Spent, and the holder must be notified ([`Holder::low`](super::Holder::low)).
    Low,
    /// Not enough units: the holder must decide ([`Holder::short`](super::Holder::short)).
    Short,
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            units: AtomicI64::new(0),
            deadline: AtomicI64::new(Micros::MIN),
            low: AtomicI64::new(i64::MIN),
            renew_at: AtomicI64::new(Micros::MAX),
        }
    }
}

impl Balance {
    /// Spends `cost` units, above 0, at `now`. A thread that is delayed between reading its clock and this call may
    /// spend units that are burnt meanwhile: they were charged then, too early by the delay.
    #[inline]
    pub fn spend(&self, cost: i64, now: Micros) -> Spend {
        if cost <= 0 || self.is_over(now) {
            return Spend::Short;
        }
        let paid = self.units.fetch_update(Relaxed, Relaxed, |units| (units >= cost).then(|| units - cost));
        match paid {
            Err(_) => Spend::Short,
            Ok(before) if before - cost < self.low.load(Relaxed) || self.is_due(now) => Spend::Low,
            Ok(_) => Spend::Spent,
        }
    }

    /// Returns the units left.
    pub fn units(&self) -> u64 {
        self.units.load(Relaxed).unsigned_abs()
    }

    /// Removes all units and returns their number.
    pub(super) fn empty(&self) -> u64 {
        self.units.swap(0, Relaxed).unsigned_abs()
    }

    /// Removes all units above `kept` and returns their number.
    pub(super) fn take_above(&self, kept: u64) -> u64 {
        let kept = i64::try_from(kept).unwrap_or(i64::MAX);
        let units = self.units.fetch_min(kept, Relaxed);
        (units - kept).max(0).unsigned_abs()
    }

    /// Adds units, and sets the deadline of all of them.
    pub(super) fn fill(&self, units: u64, deadline: Micros) {
        // A thread that sees the new deadline also sees that burnt units were removed before.
        self.deadline.store(deadline, Release);
        self.units.fetch_add(units as i64, Relaxed);
    }

    /// Whether the deadline has passed.
    pub(super) fn is_over(&self, now: Micros) -> bool {
        now >= self.deadline.load(Acquire)
    }

    /// Whether a renewal is due.
    pub fn is_due(&self, now: Micros) -> bool {
        now >= self.renew_at.load(Relaxed)
    }

    /// Sets when to return [`Spend::Low`].
    pub(super) fn watch(&self, low: u64, renew_at: Micros) {
        self.low.store(low as i64, Relaxed);
        self.renew_at.store(renew_at, Relaxed);
    }

    /// Disables [`Spend::Low`].
    pub(super) fn unwatch(&self) {
        self.low.store(i64::MIN, Relaxed);
        self.renew_at.store(Micros::MAX, Relaxed);
    }
}

#[cfg(test)]
impl Clone for Balance {
    fn clone(&self) -> Self {
        let copy = |number: &AtomicI64| AtomicI64::new(number.load(Relaxed));
        Self {
            units: copy(&self.units),
            deadline: copy(&self.deadline),
            low: copy(&self.low),
            renew_at: copy(&self.renew_at),
        }
    }
}
