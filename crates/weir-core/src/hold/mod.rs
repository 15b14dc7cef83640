//! Holds: units charged to every level of a key for one owner, until a deadline, and settled by how many were really spent.
//!
//! A **lease** is a hold of a replica or of a client: what it holds it spends without asking the store. A **[reservation](Reservation)** is
//! one of a caller that learns only afterwards how much it uses. There are two state machines, both without I/O, time being
//! a parameter:
//!
//! * the **authority** ([`renew`]), in the store's one step: it keeps a [`Ledger`] of holds for each level, grants, settles,
//!   and burns what its owner has not renewed by the deadline;
//! * the **holder** ([`Holder`]), in the owner: it decides when to ask for how much. What it holds lies in a [`Balance`], from
//!   which any thread spends without a lock.
//!
//! **The invariant.** A level's state has only what is settled. What is outstanding is charged on top of it at the moment of
//! each decision ([`Algorithm::charge`]). So the authority judges as if every unit had been spent no sooner than it really
//! was, and units not spent yet as if they were spent now. A later charge counts for at least as long, hence
//! whoever spends a held unit finds the limit as the authority granted it: what is admitted obeys the limit itself, over any
//! window ([`Held`] tells how exactly). No clock of one machine is compared with that of another: the owner counts its time
//! from before it asked, and stops [`DRIFT_PPM`] earlier than the authority.
//!
//! [`Algorithm::charge`]: crate::algorithm::Algorithm::charge
//! [`Held`]: crate::algorithm::Held

mod authority;
mod balance;
mod client;
mod demand;
mod holder;
mod ledger;
mod offer;
mod repeat;
mod reservation;
#[cfg(test)]
mod tests;

pub use authority::{Ledgers, expire, renew};
pub use balance::{Balance, Spend};
pub use client::{ClientLease, LeaseAnswer, LeaseRequest, OnCheck};
pub use holder::{Holder, OnShortage, Terms};
pub use ledger::{Hold, Ledger, Outstanding};
pub use offer::Offer;
pub use repeat::{Repeat, RequestId, decide_held};
pub use reservation::{OnExpiry, Outcome, RESERVATION_ID_BYTES, Record, Reservation, Reservations, Step};

use crate::domain::{Micros, time::SECOND};

/// The authority in Lua, for a store's script, behind the algorithms' shared code: a level's step under what is outstanding
/// (`hold_step`), and a renewal (`hold_renew`).
pub const LUA: &str = include_str!("hold.lua");

/// Most holds of one level; beyond that none is granted. Each holder's share would be small anyway.
pub const MAX_HOLDS: usize = 128;
/// Longest time until the deadline of a hold.
pub const MAX_TTL: Micros = 60 * SECOND;
/// How far the clocks of a holder and the authority may differ in rate, in millionths. What a machine's clock is slewed by
/// is at most 500.
pub const DRIFT_PPM: i64 = 10_000;
/// How long a holder refuses by itself, at most, although units may have come back.
pub const HOLD_OFF_MAX: Micros = 10_000;

/// A hold, for its life: chosen by its owner, new each time that the owner starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldId {
    /// Drawn by the owner when it started, so that it is not taken for its predecessor.
    pub owner: u64,
    /// The owner's own number for it.
    pub number: u64,
}

/// What an owner tells the authority: it settles, gives back and asks anew in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renewal {
    /// The hold.
    pub id: HoldId,
    /// Rises with each renewal of this hold. One that comes twice counts once, one that is overtaken not at all.
    pub sequence: u64,
    /// Units spent since the hold began.
    pub spent: u64,
    /// Units not spent that the owner keeps. All others that it was granted it gives back, also those of which it never
    /// heard.
    pub kept: u64,
    /// Units that it would like in addition.
    pub want: u64,
    /// How long the hold is to last from now on; at most [`MAX_TTL`].
    pub ttl: Micros,
}

/// The authority's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The renewal that it answers.
    pub sequence: u64,
    /// Units granted in addition to those that were kept.
    pub units: u64,
    /// Units that were free afterwards.
    pub free: u64,
    /// Whether what was kept is still held. Where it is not, the deadline has passed, and it must not be spent.
    pub is_kept: bool,
    /// The level stands above its limit, which was lowered: what is held is to be given back.
    pub is_recalled: bool,
    /// Refused, and no other holder has units: for how long another request of at least this cost would be refused too. Else 0.
    pub refused_for: Micros,
    /// The units that it has moved.
    pub settled: Settled,
}

/// The units that a renewal has moved. One that comes twice moves them once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settled {
    /// Units granted, as in [`Grant::units`].
    pub granted: u64,
    /// Units spent since the renewal before, which are charged now.
    pub spent: u64,
    /// Units given back.
    pub returned: u64,
    /// Units that the owner would have kept, and whose deadline has passed: they were charged then.
    pub burnt: u64,
}
