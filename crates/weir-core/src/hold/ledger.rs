//! The holds of one level.

use super::{HoldId, MAX_HOLDS, MAX_TTL, Renewal, RenewalTotals};
use crate::domain::{Micros, request::MAX_COST};

/// Units of one level that one owner may spend until a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The id of the hold.
    pub id: HoldId,
    /// The sequence number of the last renewal that counted.
    pub sequence: u64,
    /// Units that the owner had spent by then, all of them settled.
    pub spent: u64,
    /// Units outstanding.
    pub units: u64,
    /// Units that the last renewal was granted.
    pub granted: u64,
    /// The deadline by the authority's clock, at which outstanding units are burnt: they count as spent.
    pub deadline: Micros,
}

/// The holds of one level, in no order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub(super) holds: Vec<Hold>,
}

/// The units of a level that are granted and not settled yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Units.
    pub units: u64,
    /// Their last deadline.
    pub until: Micros,
}

/// The kind of a renewal, for a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenewalKind {
    /// The hold is not in the ledger: it starts, or has expired.
    New,
    /// The next renewal of its hold: the units spent since the last one must be charged, of which `held` were held. The
    /// kept units are no longer held if they are more than the remaining ones.
    Next { settled: RenewalTotals, held: u64, is_kept: bool },
    /// The next renewal of a hold without units, of which nothing was spent: the hold stays unchanged.
    Idle,
    /// The last renewal repeated, with the units granted then. As the first time, kept units may not be held any
    /// more.
    Repeated { granted: u64, is_kept: bool },
    /// A later renewal has overtaken it.
    Stale,
}

impl Ledger {
    /// Creates a ledger from stored holds.
    pub fn of(holds: Vec<Hold>) -> Self {
        Self { holds }
    }

    /// Frees the memory of removed holds, if it is much.
    pub fn shrink(&mut self) {
        if self.holds.len() < self.holds.capacity() / 4 {
            self.holds.shrink_to(2 * self.holds.len());
        }
    }

    /// Returns the holds.
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Returns the units that are granted and not settled yet.
    pub fn outstanding(&self) -> Outstanding {
        let held = self.holds.iter().filter(|hold| hold.units > 0);
        held.fold(Outstanding::default(), |all, hold| Outstanding {
            units: all.units + hold.units,
            until: all.until.max(hold.deadline),
        })
    }

    /// Returns the last deadline of its holds, also of those without units: stores keep it until then, so that repeated
    /// renewals are recognized. 0 without holds.
    pub fn last_deadline(&self) -> Micros {
        self.holds.iter().map(|hold| hold.deadline).max().unwrap_or(0)
    }

    /// Forgets expired holds, which would be burnt next. Returns whether any of them counts.
    pub fn forget_expired(&mut self, now: Micros) -> bool {
        let mut counted = false;
        self.holds.retain(|hold| {
            let stays = hold.deadline > now;
            counted |= !stays && hold.units > 0 && !hold.id.is_released();
            stays
        });
        counted
    }

    /// Removes and returns the hold that expired first, if any has by `now`.
    pub(super) fn take_expired(&mut self, now: Micros) -> Option<Hold> {
        let index = (0..self.holds.len()).min_by_key(|index| self.holds[*index].deadline)?;
        (self.holds[index].deadline <= now).then(|| self.holds.swap_remove(index))
    }

    /// Settles a hold and returns the units that its owner does not keep. The hold stays until its
    /// deadline even without units, to recognize a repeated renewal. A hold without units, of which
    /// none were spent since, stays unchanged unless units are granted, so that a key at its limit
    /// is not written each time its holders ask. A late or repeated renewal may then be granted
    /// units, which the next one returns.
    pub(super) fn settle(&mut self, renewal: &Renewal, now: Micros) -> RenewalKind {
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == renewal.id) else { return RenewalKind::New };
        if renewal.sequence < hold.sequence {
            return RenewalKind::Stale;
        }
        if renewal.sequence == hold.sequence {
            return RenewalKind::Repeated { granted: hold.granted, is_kept: renewal.kept + hold.granted <= hold.units };
        }
        let spent = renewal.spent.saturating_sub(hold.spent).min(MAX_COST.unsigned_abs());
        if (hold.units, spent, renewal.kept) == (0, 0, 0) {
            return RenewalKind::Idle;
        }
        let held = hold.units.min(spent);
        let left = hold.units - held;
        let is_kept = renewal.kept <= left;
        let units = if is_kept { renewal.kept } else { 0 };
        let deadline = deadline(renewal, now);
        *hold = Hold { sequence: renewal.sequence, spent: renewal.spent, units, granted: 0, deadline, ..*hold };
        RenewalKind::Next {
            settled: RenewalTotals { spent, returned: left - units, ..RenewalTotals::default() },
            held,
            is_kept,
        }
    }

    /// Whether a renewal may be granted units, in a ledger of at most `max_leases`.
    pub(super) fn has_capacity(&self, id: HoldId, max_leases: usize) -> bool {
        (self.holds.len() < MAX_HOLDS && self.leases() < max_leases) || self.holds.iter().any(|hold| hold.id == id)
    }

    /// Returns the number of holds that are leases.
    pub(super) fn leases(&self) -> usize {
        self.holds.iter().filter(|hold| !hold.id.is_of_reservations()).count()
    }

    /// Returns the number of owners that share the level, including the one of this renewal. All reservations count
    /// as one.
    pub(super) fn holders(&self, id: HoldId) -> u64 {
        let others = self.holds.iter().filter(|hold| hold.id != id && hold.units > 0);
        let (leased, reserved) =
            others.fold(
                (0, 0),
                |(leased, reserved), hold| {
                    if hold.id.is_of_reservations() { (leased, 1) } else { (leased + 1, reserved) }
                },
            );
        leased + reserved + 1
    }

    /// Returns the units of all other holds.
    pub(super) fn outstanding_of_others(&self, id: HoldId) -> u64 {
        self.holds.iter().filter(|hold| hold.id != id).map(|hold| hold.units).sum()
    }

    /// Adds units to a hold, which has been settled or starts.
    pub(super) fn grant(&mut self, renewal: &Renewal, units: u64, now: Micros) {
        match self.holds.iter_mut().find(|hold| hold.id == renewal.id) {
            Some(hold) => {
                let (sequence, spent, deadline) = (renewal.sequence, renewal.spent, deadline(renewal, now));
                *hold = Hold { sequence, spent, units: hold.units + units, granted: units, deadline, ..*hold };
            }
            None => self.holds.push(Hold {
                id: renewal.id,
                sequence: renewal.sequence,
                spent: renewal.spent,
                units,
                granted: units,
                deadline: deadline(renewal, now),
            }),
        }
    }
}

fn deadline(renewal: &Renewal, now: Micros) -> Micros {
    now + renewal.ttl.clamp(1, MAX_TTL)
}
