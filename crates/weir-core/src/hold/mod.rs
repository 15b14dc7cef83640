//! Holds: units charged to every level of a key for one owner until a deadline, and settled by how many were actually
//! spent.
//!
//! A **lease** is a hold of a replica or of a client, which spends its units without asking the store. A
//! **[reservation](Reservation)** is a hold of a client that learns only afterwards how much it uses. There are two
//! state machines, both without I/O, with time as a parameter:
//!
//! * the **authority** ([`renew`]), in the store's one step: it keeps a [`Ledger`] of holds for each level, grants
//!   and settles units, and burns those that the owner has not renewed by the deadline;
//! * the **holder** ([`Holder`]), in the owner: it decides when to request how many units. The granted units are in a
//!   [`Balance`], from which any thread spends without a lock.
//!
//! **The invariant.** A level's state contains only settled units. Outstanding units are charged on top of it at the
//! moment of each decision ([`Algorithm::charge`]). So the authority judges as if every unit had been spent no sooner
//! than it really was, and units not spent yet as if they were spent now. A later charge counts for at least as long,
//! so a held unit is spent under the limit as the authority granted it: the admitted requests obey
//! the limit itself, over any window ([`HoldAccuracy`] defines how exactly). Clocks of different
//! machines are never compared: the owner measures its time from before it sent the request, and
//! stops [`DRIFT_PPM`] earlier than the authority.
//!
//! [`Algorithm::charge`]: crate::algorithm::Algorithm::charge
//! [`HoldAccuracy`]: crate::algorithm::HoldAccuracy

mod authority;
mod balance;
mod client;
mod demand;
mod holder;
mod idempotency;
mod ledger;
mod offer;
mod reservation;
#[cfg(test)]
mod tests;

pub use authority::{Ledgers, expire, renew};
pub use balance::{Balance, Spend};
pub use client::{CheckAction, ClientLease, LeaseAnswer, LeaseRequest};
pub use holder::{Holder, LeaseTerms, OnShortage};
pub use idempotency::{Idempotency, RequestId, decide_with_holds, levels_digest};
pub use ledger::{Hold, Ledger, Outstanding};
pub use offer::Offer;
pub use reservation::{OnExpiry, Outcome, RESERVATION_ID_BYTES, Record, Reservation, ReservationStep, Reservations};

use crate::domain::{Micros, time::SECOND};

/// The authority in Lua, for a store's script, to be placed after the algorithms' shared code: a level's step with
/// outstanding units (`hold_step`), and a renewal (`hold_renew`).
pub const LUA: &str = include_str!("hold.lua");

/// Maximum number of holds of one level; beyond that none is granted. Each holder's share would be small anyway.
pub const MAX_HOLDS: usize = 128;
/// Maximum number of leases of a level that has others below it, beside those that the key itself has already, so that a
/// hot key may have many holders: every check below it reads them all, and every renewal writes them.
pub const MAX_LEASES_ABOVE: usize = 16;
/// Longest time until the deadline of a hold.
pub const MAX_TTL: Micros = 60 * SECOND;
/// Maximum difference in rate between the clocks of a holder and the authority, in millionths. A machine's clock is
/// slewed by at most 500.
pub const DRIFT_PPM: i64 = 10_000;
/// Longest time for which a holder refuses on its own, although units may have refilled.
pub const HOLD_OFF_MAX: Micros = 10_000;

/// The identity of a hold for its life, chosen by its owner and new each time that the owner starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldId {
    /// Random number drawn when the owner starts, so that it is not mistaken for its predecessor.
    pub owner: u64,
    /// The owner's own number for the hold.
    pub number: u64,
}

/// A renewal, by which an owner settles, returns and requests units in one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The hold.
    pub id: HoldId,
    /// Increases with each renewal of this hold. A repeated one counts once, a stale one not at all.
    pub sequence: u64,
    /// Units spent since the hold started.
    pub spent: u64,
    /// Unspent units that the owner keeps. It returns all other granted units, including grants
    /// whose answer was lost.
    pub kept: u64,
    /// Units wanted in addition.
    pub want: u64,
    /// Time from now to the new deadline; at most [`MAX_TTL`].
    pub ttl: Micros,
}

/// The authority's answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The sequence number of the renewal.
    pub sequence: u64,
    /// Units granted in addition to the kept ones.
    pub units: u64,
    /// Units that were still free afterwards.
    pub free: u64,
    /// Whether the kept units are still held. If not, they must not be spent: the deadline has passed, or the renewal is
    /// stale or keeps more than was left.
    pub is_kept: bool,
    /// Whether the units must be returned: the level is above its limit, which was lowered.
    pub is_recalled: bool,
    /// If refused while no other holder has units: for how long another request of at least this cost would be
    /// refused too. Otherwise 0.
    pub refused_for: Micros,
    /// The units that the renewal has moved.
    pub settled: RenewalTotals,
}

impl Grant {
    /// Whether nothing was granted although units are free: too many others hold some of a level.
    pub fn is_full(&self, renewal: &Renewal) -> bool {
        renewal.want > 0 && self.units == 0 && self.free > 0
    }
}

/// The units that a renewal has moved. A repeated one moves them once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RenewalTotals {
    /// Units granted, as in [`Grant::units`].
    pub granted: u64,
    /// Units spent since the previous renewal, which are charged now.
    pub spent: u64,
    /// Units returned.
    pub returned: u64,
    /// Units that the owner wanted to keep, and whose deadline has passed: they were charged then.
    pub burnt: u64,
}
