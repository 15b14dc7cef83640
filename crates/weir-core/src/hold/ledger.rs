//! The holds of one level.

use super::{HoldId, MAX_TTL, Renewal, Settled};
use crate::domain::{Micros, ask::MAX_COST};

/// Units of one level that one owner may spend until a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Whose it is.
    pub id: HoldId,
    /// The last renewal that counted.
    pub sequence: u64,
    /// Units that the owner had spent by then, all of them settled.
    pub spent: u64,
    /// Units outstanding.
    pub units: u64,
    /// Units that the last renewal was granted.
    pub granted: u64,
    /// When it is burnt, by the authority's clock: what is outstanding counts as spent then.
    pub deadline: Micros,
}

/// The holds of one level, in no order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    pub(super) holds: Vec<Hold>,
}

/// What is granted of a level and not settled yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Units.
    pub units: u64,
    /// The last deadline of them.
    pub until: Micros,
}

/// What a renewal is to a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// Of a hold that is not there: it begins, or has expired.
    New,
    /// The next one of its hold: what was spent since the last one is to be charged. What is kept was not held any more where
    /// it is more than was left.
    Next { settled: Settled, is_kept: bool },
    /// The last one again, which was granted so much. What is kept may not be held any more, as the first time.
    Again { granted: u64, is_kept: bool },
    /// One that a later one has overtaken.
    Overtaken,
}

impl Ledger {
    /// A ledger as it was read back.
    pub fn of(holds: Vec<Hold>) -> Self {
        Self { holds }
    }

    /// Its holds.
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// What is granted and not settled yet.
    pub fn outstanding(&self) -> Outstanding {
        let held = self.holds.iter().filter(|hold| hold.units > 0);
        held.fold(Outstanding::default(), |all, hold| Outstanding {
            units: all.units + hold.units,
            until: all.until.max(hold.deadline),
        })
    }

    /// Forgets the holds that have expired and would be burnt next: whether any of them counts.
    pub fn forget_expired(&mut self, now: Micros) -> bool {
        let mut counted = false;
        self.holds.retain(|hold| {
            let stays = hold.deadline > now;
            counted |= !stays && hold.units > 0 && !hold.id.is_released();
            stays
        });
        counted
    }

    /// Takes out the hold that expired first, if one has by `now`.
    pub(super) fn take_expired(&mut self, now: Micros) -> Option<Hold> {
        let index = (0..self.holds.len()).min_by_key(|index| self.holds[*index].deadline)?;
        (self.holds[index].deadline <= now).then(|| self.holds.swap_remove(index))
    }

    /// Settles a hold and gives back what its owner does not keep. It lives on, even without units, until its deadline: to
    /// know the renewal should it come again. One that has no units, and of which nothing was spent since, stays as it is unless
    /// it is granted some: so a key at its limit is not written each time that its holders ask. A renewal that comes late or
    /// twice may then be granted units, which the next one gives back.
    pub(super) fn settle(&mut self, renewal: &Renewal, now: Micros) -> Renewed {
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == renewal.id) else { return Renewed::New };
        if renewal.sequence < hold.sequence {
            return Renewed::Overtaken;
        }
        if renewal.sequence == hold.sequence {
            return Renewed::Again { granted: hold.granted, is_kept: renewal.kept + hold.granted <= hold.units };
        }
        let spent = renewal.spent.saturating_sub(hold.spent).min(MAX_COST.unsigned_abs());
        if (hold.units, spent, renewal.kept) == (0, 0, 0) {
            return Renewed::Next { settled: Settled::default(), is_kept: true };
        }
        let left = hold.units.saturating_sub(spent);
        let is_kept = renewal.kept <= left;
        let units = if is_kept { renewal.kept } else { 0 };
        let deadline = deadline(renewal, now);
        *hold = Hold { sequence: renewal.sequence, spent: renewal.spent, units, granted: 0, deadline, ..*hold };
        Renewed::Next { settled: Settled { spent, returned: left - units, ..Settled::default() }, is_kept }
    }

    /// Whether a renewal may be granted something.
    pub(super) fn has_room(&self, id: HoldId, most: usize) -> bool {
        self.holds.len() < most || self.holds.iter().any(|hold| hold.id == id)
    }

    /// How many owners share the level, the one that asks included. All reservations are one.
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

    /// Units that others hold.
    pub(super) fn outstanding_of_others(&self, id: HoldId) -> u64 {
        self.holds.iter().filter(|hold| hold.id != id).map(|hold| hold.units).sum()
    }

    /// Adds units to a hold, which has been settled or begins.
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
