//! Reservations: holds of clients that learn only afterwards how much they use.
//!
//! Their units are in the ledgers of the levels, like a lease's, but all that end at one moment
//! share an entry: the number of open reservations does not slow down checks. Each of them is
//! settled by its own [`Record`].

use super::{
    Hold, HoldId, Ledger, Ledgers, MAX_HOLDS,
    authority::{charged, put, remember},
};
use crate::{
    algorithm::Spent,
    domain::{Decision, Micros, request::RESERVATION_TTL, time::SECOND},
    plan::{self, Decisions, Plan, dry_run, passes, peek, put_if_it_fits, refuse_as_full, step},
};

/// Number of random bytes at the start of a reservation's name.
pub const RESERVATION_ID_BYTES: usize = 16;
/// Time for which a settlement can be repeated.
const REPEATABLE_FOR: Micros = 60 * SECOND;
/// Maximum number of deadlines of the reservations of one level; the other holds are for leases.
const MAX_RESERVED: usize = MAX_HOLDS / 2;

/// A request about one reservation, together with its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// Its name in the store: [`RESERVATION_ID_BYTES`] that cannot be guessed, and the client, so that no other
    /// client finds it.
    pub name: &'a [u8],
    /// The requested step.
    pub step: ReservationStep,
}

/// The steps in the life of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationStep {
    /// Decides the plan, and holds its cost on all levels that pass.
    Reserve {
        /// Maximum time until it expires, within [`RESERVATION_TTL`].
        ttl: Micros,
        /// The treatment of its units at expiry.
        on_expiry: OnExpiry,
    },
    /// Charges the units used, even if they are more than reserved, and refunds the rest.
    Commit {
        /// The units used.
        actual: u64,
    },
    /// Refunds all units.
    Cancel,
    /// Moves the deadline to at most `ttl` from now.
    Extend {
        /// Within [`RESERVATION_TTL`].
        ttl: Micros,
    },
}

impl ReservationStep {
    /// Whether it charges again each time that it is requested.
    pub fn is_new(self) -> bool {
        matches!(self, Self::Reserve { .. })
    }
}

/// The treatment of the units of a reservation that is not settled in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnExpiry {
    /// They count as used, at that moment.
    #[default]
    Keep,
    /// They are refunded.
    Release,
}

/// The result of a request about a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Units are held.
    Reserved {
        /// Time until it expires: at least 15/16 of the time requested.
        expires_after: Micros,
    },
    /// The plan was refused.
    Refused,
    /// Settled, now or earlier: the first settlement counts.
    Settled {
        /// The units charged.
        actual: u64,
        /// The part of these units that was not reserved.
        overage: u64,
        /// Whether an earlier request settled it.
        before: bool,
    },
    /// Still held.
    Extended {
        /// Time until it expires.
        expires_after: Micros,
    },
    /// The reservation does not exist: it was never made, or has expired.
    Unknown,
}

/// A record that a store keeps of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An open reservation.
    Open {
        /// The treatment of its units at the deadline.
        on_expiry: OnExpiry,
        /// The deadline, by the authority's clock.
        deadline: Micros,
        /// Units held on each of these levels.
        units: u64,
        /// The names of the levels: the encoded key and the limit's ident.
        levels: Vec<Box<[u8]>>,
    },
    /// A settled reservation.
    Settled {
        /// The units charged.
        actual: u64,
        /// The part of these units that was not reserved.
        overage: u64,
        /// Expiry of the record.
        until: Micros,
    },
    /// A request with an id.
    Answered {
        /// A fingerprint that distinguishes it from other requests with that id.
        fingerprint: [u8; 8],
        /// The [digest](super::levels_digest) of its levels.
        levels: [u8; 8],
        /// Whether it passed.
        has_passed: bool,
        /// The decisions of its levels.
        decisions: Box<[Decision]>,
        /// Whether it made a reservation.
        is_reserved: bool,
        /// Expiry of the record.
        until: Micros,
    },
}

impl Record {
    /// Returns how long the reservation still holds its units; 0 if it is settled.
    pub(super) fn left(&self, now: Micros) -> Micros {
        if let Self::Open { deadline, .. } = self { deadline - now } else { 0 }
    }

    /// Returns the expiry of the record.
    pub fn expires(&self) -> Micros {
        match self {
            Self::Open { deadline, .. } => *deadline,
            Self::Settled { until, .. } | Self::Answered { until, .. } => *until,
        }
    }
}

impl HoldId {
    /// Returns the id of all reservations of one kind and deadline. Owners draw theirs at random from all 64 bits.
    fn of_reservations(on_expiry: OnExpiry) -> Self {
        Self { owner: on_expiry as u64, number: u64::MAX }
    }

    /// Whether it is the id of reservations.
    pub fn is_of_reservations(self) -> bool {
        [OnExpiry::Keep, OnExpiry::Release].map(Self::of_reservations).contains(&self)
    }

    /// Whether its units are refunded at expiry.
    pub(super) fn is_released(self) -> bool {
        self == Self::of_reservations(OnExpiry::Release)
    }
}

impl Ledger {
    fn reserved(&self, on_expiry: OnExpiry, deadline: Micros) -> Option<usize> {
        let id = HoldId::of_reservations(on_expiry);
        self.holds.iter().position(|hold| hold.id == id && hold.deadline == deadline)
    }

    fn fits(&self, on_expiry: OnExpiry, deadline: Micros) -> bool {
        let own = self.holds.iter().filter(|hold| hold.id.is_of_reservations()).count();
        let has_capacity = self.holds.len() < MAX_HOLDS && own < MAX_RESERVED;
        has_capacity || self.reserved(on_expiry, deadline).is_some()
    }

    fn reserve(&mut self, on_expiry: OnExpiry, deadline: Micros, units: u64) {
        match self.reserved(on_expiry, deadline) {
            Some(index) => self.holds[index].units += units,
            None => {
                let id = HoldId::of_reservations(on_expiry);
                self.holds.push(Hold { id, sequence: 0, spent: 0, units, granted: 0, deadline });
            }
        }
    }

    fn settle_reserved(&mut self, on_expiry: OnExpiry, deadline: Micros, units: u64) {
        if let Some(index) = self.reserved(on_expiry, deadline) {
            self.holds[index].units = self.holds[index].units.saturating_sub(units);
            if self.holds[index].units == 0 {
                self.holds.swap_remove(index);
            }
        }
    }
}

/// Ledgers, and records of requests.
pub trait Reservations: Ledgers {
    /// Returns the record of this name, even if it has expired.
    fn record(&self, name: &[u8]) -> Option<Record>;

    /// Makes space for a new record: of a reservation on these levels, with their ledgers, or of an
    /// answer (`None`). `false` if there is no space.
    fn reserve_record(&mut self, held: Option<&[usize]>) -> bool;

    /// Stores a record until it expires. Space for a new one must have been made.
    fn put_record(&mut self, name: &[u8], record: Record);
}

/// Decides a plan, or executes its reservation step. Expired holds must have been settled before.
pub(super) fn decide(plan: &Plan<'_>, states: &mut impl Reservations, now: Micros) -> (Decisions, Option<Outcome>) {
    let Some(reservation) = plan.reservation else { return (plan::decide(plan, states, now), None) };
    let Reservation { name, step } = reservation;
    if let ReservationStep::Reserve { ttl, on_expiry } = step {
        let (decisions, outcome) = reserve(plan, states, now, name, deadline(ttl, now), on_expiry);
        return (decisions, Some(outcome));
    }
    let outcome = match (states.record(name).filter(|record| record.expires() > now), step) {
        (None, _) | (Some(Record::Settled { .. }), ReservationStep::Extend { .. }) => Outcome::Unknown,
        (Some(Record::Settled { actual, overage, .. }), _) => Outcome::Settled { actual, overage, before: true },
        (Some(open), ReservationStep::Extend { ttl }) => extend(plan, states, now, name, open, deadline(ttl, now)),
        (Some(open), ReservationStep::Commit { actual }) => settle(plan, states, now, name, &open, actual),
        (Some(open), _) => settle(plan, states, now, name, &open, 0),
    };
    let decisions = (0..plan.levels().len()).map(|index| peek(plan, states, index, now)).collect();
    (decisions, Some(outcome))
}

/// Returns the deadline, rounded down by up to 1/16 of the TTL, so that reservations with the same deadline share a
/// ledger entry.
fn deadline(ttl: Micros, now: Micros) -> Micros {
    let ttl = ttl.clamp(*RESERVATION_TTL.start(), *RESERVATION_TTL.end());
    // A power of two between 1/32 and 1/16 of the TTL.
    let grid = 1 << (ttl.ilog2() - 4);
    (now + ttl) / grid * grid
}

/// Returns the record of a reservation that is open, or was settled shortly before.
pub(super) fn made(states: &impl Reservations, name: &[u8], now: Micros) -> Option<Record> {
    let is_made = |record: &Record| matches!(record, Record::Open { .. } | Record::Settled { .. });
    states.record(name).filter(|record| is_made(record) && record.expires() > now)
}

fn reserve(
    plan: &Plan<'_>,
    states: &mut impl Reservations,
    now: Micros,
    name: &[u8],
    deadline: Micros,
    on_expiry: OnExpiry,
) -> (Decisions, Outcome) {
    if let Some(record) = made(states, name, now) {
        // It already exists: the request is repeated.
        let decisions =
            (0..plan.levels().len()).map(|index| Decision { allowed: true, ..peek(plan, states, index, now) });
        return (decisions.collect(), Outcome::Reserved { expires_after: record.left(now) });
    }
    let mut decisions = dry_run(plan, states, now);
    if !passes(plan, &decisions) {
        // A refusal stores a state that it clamped.
        for (index, decision) in decisions.iter().enumerate().filter(|(_, decision)| !decision.allowed) {
            if let Some(state) = step(plan, states, index, plan.total_cost(index), now).1 {
                put_if_it_fits(plan, states, index, state, decision.reset_after, now);
            }
        }
        return (decisions, Outcome::Refused);
    }
    let units = plan.levels().first().map_or(0, |level| level.cost.unsigned_abs());
    let (mut holds, mut has_capacity) = (Vec::new(), true);
    for index in (0..decisions.len()).filter(|index| units > 0 && decisions[*index].allowed) {
        let ledger = states.take_ledger(index);
        let fits = ledger.fits(on_expiry, deadline);
        states.put_ledger(index, ledger);
        if fits {
            holds.push(index);
        } else if !plan.levels()[index].limit.shadow {
            has_capacity = false;
        }
    }
    if !has_capacity || !states.reserve_record(Some(&holds)) {
        decisions.iter_mut().for_each(|decision| *decision = refuse_as_full(decision));
        return (decisions, Outcome::Refused);
    }
    for index in &holds {
        let mut ledger = states.take_ledger(*index);
        ledger.reserve(on_expiry, deadline, plan.levels()[*index].held_units(units));
        states.put_ledger(*index, ledger);
        remember(plan, states, *index, now);
        decisions[*index] = peek(plan, states, *index, now);
    }
    let levels = holds.iter().map(|index| plan.levels()[*index].state_name().into()).collect();
    states.put_record(name, Record::Open { on_expiry, deadline, units, levels });
    (decisions, Outcome::Reserved { expires_after: deadline - now })
}

/// Returns the levels of a plan on which a reservation holds units, of those that the policy still has.
fn held_levels<'p>(plan: &'p Plan<'_>, levels: &'p [Box<[u8]>]) -> impl Iterator<Item = usize> + 'p {
    (0..plan.levels().len()).filter(|index| levels.iter().any(|name| plan.levels()[*index].is_state(name)))
}

fn settle(
    plan: &Plan<'_>,
    states: &mut impl Reservations,
    now: Micros,
    name: &[u8],
    record: &Record,
    actual: u64,
) -> Outcome {
    let Record::Open { on_expiry, deadline, units, levels } = record else { return Outcome::Unknown };
    for index in held_levels(plan, levels) {
        let mut ledger = states.take_ledger(index);
        ledger.settle_reserved(*on_expiry, *deadline, plan.levels()[index].held_units(*units));
        states.put_ledger(index, ledger);
        if actual > 0 {
            let spent = Spent { units: actual, held: actual.min(*units) };
            let state = charged(plan, index, states.get(index).cloned(), spent, now);
            put(plan, states, index, state, now);
        }
        remember(plan, states, index, now);
    }
    let overage = actual.saturating_sub(*units);
    states.put_record(name, Record::Settled { actual, overage, until: now + REPEATABLE_FOR });
    Outcome::Settled { actual, overage, before: false }
}

fn extend(
    plan: &Plan<'_>,
    states: &mut impl Reservations,
    now: Micros,
    name: &[u8],
    record: Record,
    until: Micros,
) -> Outcome {
    let Record::Open { on_expiry, deadline, units, mut levels } = record else { return Outcome::Unknown };
    // On a level that the policy no longer has, the hold keeps its deadline and is not part of this reservation any
    // more.
    levels.retain(|name| plan.levels().iter().any(|level| level.is_state(name)));
    let mut ledgers: Vec<_> = held_levels(plan, &levels).map(|index| (index, states.take_ledger(index))).collect();
    let units_of = |index: usize| plan.levels()[index].held_units(units);
    for (index, ledger) in &mut ledgers {
        ledger.settle_reserved(on_expiry, deadline, units_of(*index));
    }
    // If a ledger is full, the deadline stays.
    let has_capacity = units == 0 || ledgers.iter().all(|(_, ledger)| ledger.fits(on_expiry, until));
    let until = if has_capacity { until } else { deadline };
    for (index, mut ledger) in ledgers {
        if units > 0 {
            ledger.reserve(on_expiry, until, units_of(index));
        }
        states.put_ledger(index, ledger);
        remember(plan, states, index, now);
    }
    states.put_record(name, Record::Open { on_expiry, deadline: until, units, levels });
    Outcome::Extended { expires_after: until - now }
}
