//! The plan of one request: its limits, each with the key it applies to, and the one step that decides
//! them together. Policies make plans, stores carry them out; neither knows the other.

mod charged;
mod decide;
mod dry_run;
mod limit;
#[cfg(test)]
mod tests;
mod twins;

use smallvec::SmallVec;

pub use decide::{Decisions, States, decide, decide_into};
pub(crate) use decide::{matters_for, no_room, passes, peek, put_if_room};
pub(crate) use dry_run::dry_run;
pub use limit::{Limit, Origin, identify, is_ident_of_policy};
pub use twins::firsts;
use twins::{find_twins_of_many, totals};

use crate::{
    algorithm::{OnCheck, ParamError, Params, concurrency::Concurrency},
    domain::{Ask, Charge, Key, Micros, OnStoreFailure, ask::MAX_LEVELS},
    hold::{Renewal, RequestId, Reservation},
};

/// The limits met on the way down a key, root first.
pub type Levels<'a> = SmallVec<[Level<'a>; 4]>;

/// Everything a store must know to decide one request; by default a request that meets no limit.
#[derive(Clone, Default)]
pub struct Plan<'a> {
    levels: Levels<'a>,
    /// Where levels share a state: by state, what all that use it ask for together. Else empty.
    totals: Box<[i64]>,
    /// Whether a refusal by one level keeps the others from being charged.
    pub charge: Charge,
    /// The longest wait that the caller accepts; `None`: it did not say.
    pub max_wait: Option<Micros>,
    /// Decide as always, but keep nothing: no state changes.
    pub dry_run: bool,
    /// A reservation that it makes, or whose levels it has; only of a plan that is [`Plan::reservable`].
    pub reservation: Option<Reservation<'a>>,
    /// The request's own id, if it has one.
    pub request: Option<&'a RequestId>,
    /// A renewal that is served in the same step; only of a plan that is [`Plan::is_holdable`].
    pub renewal: Option<&'a Renewal>,
    /// How to decide while the shared store is unavailable.
    pub on_store_failure: OnStoreFailure,
    /// The version of the policy that all levels come from, where the path of the deepest one tells the others; `None` where
    /// it does not, or the request brought its own.
    pub policy_version: Option<u64>,
    /// The number of the domain in its policy, where that defines it.
    pub domain: Option<u32>,
    /// Nothing of it is meant to be charged: a preview.
    pub is_preview: bool,
    /// Its answer passes, whatever is decided: the domain is in shadow.
    pub is_shadow: bool,
    /// How much later than needed a retry is told at most, as a part of the wait; by how much, the key says.
    pub retry_jitter: f64,
    /// The override that acts on it; stores do not look at it.
    pub overridden: Option<Overridden<'a>>,
}

/// What an operator's override does to a plan.
#[derive(Clone, Copy, Debug)]
pub struct Overridden<'a> {
    /// The override's id.
    pub id: &'a str,
    /// The change that it makes, as metrics name it.
    pub change: &'static str,
    /// It refuses the request, whatever the limits say; then the plan has no levels.
    pub ban: Option<Ban<'a>>,
}

/// A refusal by an operator.
#[derive(Clone, Copy, Debug)]
pub struct Ban<'a> {
    /// Why, in the operator's words.
    pub reason: &'a str,
    /// Time until it ends; `None`: when an operator ends it.
    pub ends_after: Option<Micros>,
}

/// One limit met on the way down a key.
#[derive(Clone)]
pub struct Level<'a> {
    key: &'a Key,
    /// The key under which it counts, where that is not the one asked for.
    shared: Option<Box<Key>>,
    /// How many of its segments the limit covers; above 0.
    pub depth: u8,
    /// How many segments, at most, name the place where the state lives.
    pub anchor: u8,
    /// The limit.
    pub limit: &'a Limit,
    /// The limit's parameters under a request's factor, where it has one.
    pub scaled: Option<Box<Params>>,
    /// Units asked of this level.
    pub cost: i64,
    /// The first level of the plan with the same state, where that is not this one.
    twin: Option<u16>,
}

impl<'a> Level<'a> {
    /// The first `depth` segments of `key` under `limit`.
    #[inline]
    pub fn new(key: &'a Key, depth: u8, anchor: u8, limit: &'a Limit, cost: i64) -> Self {
        Self { key, shared: None, depth, anchor, limit, scaled: None, cost, twin: None }
    }

    /// The same level where it counts under another key, of as many segments.
    #[must_use]
    pub fn counted_under(mut self, key: Key) -> Self {
        self.shared = Some(Box::new(key));
        self
    }

    /// The same level of another limit.
    #[must_use]
    pub fn of_limit(self, limit: &'a Limit) -> Self {
        Self { limit, scaled: None, ..self }
    }

    /// A level of `limit` whose state lives where this one's does, and which asks for a unit.
    #[must_use]
    pub fn beside<'l>(&self, limit: &'l Limit) -> Level<'l>
    where
        'a: 'l,
    {
        let beside = Level::new(self.key, self.depth.min(self.anchor), self.anchor, limit, 1);
        Level { shared: self.shared.clone(), ..beside }
    }

    /// The same level under a request's factor; `None` where 0 lifts it.
    ///
    /// # Errors
    /// [`ParamError`] when the parameters leave their bounds.
    pub fn under_factor(mut self, factor: f64) -> Result<Option<Self>, ParamError> {
        if factor == 0.0 {
            return Ok(None);
        }
        if factor != 1.0 {
            self.scaled = Some(Box::new(self.limit.params_under(factor)?));
        }
        Ok(Some(self))
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        self.scaled.as_deref().unwrap_or(&self.limit.params)
    }

    /// The encoded key that the state is about.
    #[inline]
    pub fn path(&self) -> &[u8] {
        self.key().prefix(self.depth.into())
    }

    /// The encoded key by which the state's place is found.
    #[inline]
    pub fn anchor_path(&self) -> &[u8] {
        self.key().prefix(self.depth.min(self.anchor).into())
    }

    #[inline]
    fn key(&self) -> &Key {
        self.shared.as_deref().unwrap_or(self.key)
    }

    /// The name of the state among all: the encoded key, and what tells the limit from others.
    pub fn state_name(&self) -> Vec<u8> {
        [self.path(), self.limit.ident()].concat()
    }

    /// Whether that is its state's name.
    pub(crate) fn is_state(&self, name: &[u8]) -> bool {
        name.strip_prefix(self.path()) == Some(self.limit.ident())
    }

    /// A plan without cost, at time 0.
    pub fn peek(&self) -> Ask {
        Ask { now: 0, cost: 0, max_wait: None, phase: 0 }
    }

    /// What a reservation of so many units holds of it: of a concurrency limit a slot.
    pub(crate) fn held_units(&self, units: u64) -> u64 {
        if self.limit.params.as_concurrency().is_some() { units.min(1) } else { units }
    }

    fn same_state(&self, other: &Self) -> bool {
        self.depth == other.depth && self.limit.ident() == other.limit.ident() && self.path() == other.path()
    }

    /// Where this key's windows begin: the same on every replica and in every run.
    pub fn phase(&self) -> Micros {
        let word = |period: Micros| hash([self.path(), self.limit.ident()]) % period.unsigned_abs();
        self.params().phase_period().map_or(0, |period| word(period) as Micros)
    }

    /// A part of one, from 0 to below 1, by the whole key that is asked for: the same on every replica and in every run.
    pub fn spread(&self) -> f64 {
        (hash([self.key.prefix(self.key.depth())]) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The same on every machine.
fn hash<const N: usize>(parts: [&[u8]; N]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    let mut word = [0; 8];
    hasher.finalize_xof().fill(&mut word);
    u64::from_le_bytes(word)
}

impl<'a> Plan<'a> {
    /// A plan over `levels`, root first; at most 65,536 of them.
    #[inline]
    pub fn new(levels: Levels<'a>, charge: Charge, max_wait: Option<Micros>) -> Self {
        let mut plan = Self { levels, charge, max_wait, ..Self::default() };
        plan.find_twins();
        plan
    }

    /// Changes the levels where they are, since to move them takes as long as a part of the decision.
    #[inline]
    pub fn change_levels<T>(&mut self, change: impl FnOnce(&mut Levels<'a>) -> T) -> T {
        let changed = change(&mut self.levels);
        self.find_twins();
        changed
    }

    #[inline]
    fn find_twins(&mut self) {
        let levels = &mut self.levels;
        let mut twins = false;
        if levels.len() > MAX_LEVELS {
            twins = find_twins_of_many(levels);
        } else {
            for index in 1..levels.len() {
                let twin = levels[..index].iter().position(|before| before.same_state(&levels[index]));
                levels[index].twin = twin.map(|first| first as u16);
                twins |= twin.is_some();
            }
        }
        self.totals = if twins { totals(levels) } else { Box::default() };
    }

    /// The same plan of these levels alone, by their position.
    #[must_use]
    pub fn only(&self, keep: impl Fn(usize) -> bool) -> Self {
        let kept = self.levels.iter().enumerate().filter(|(index, _)| keep(*index));
        let levels = kept.map(|(_, level)| Level { twin: None, ..level.clone() }).collect();
        let Self { levels, totals, .. } = Self::new(levels, self.charge, self.max_wait);
        Self { levels, totals, ..self.clone() }
    }

    /// Leaves out what a domain says of its own limits alone: its shadow mode and the jitter of retries.
    pub fn enforce_as_written(&mut self) {
        (self.is_shadow, self.retry_jitter) = (false, 0.0);
    }

    /// The encoded key that says where its records are, if it may have any, of its reservation and its id: that of the key asked for,
    /// whichever of its limits are lifted, gone or new.
    pub fn record_path(&self) -> Option<&'a [u8]> {
        let level = self.levels.last().filter(|_| self.reservation.is_some() || self.request.is_some())?;
        Some(level.key.prefix(level.key.depth().min(level.anchor.into())))
    }

    /// The levels, root first.
    pub fn levels(&self) -> &[Level<'a>] {
        &self.levels
    }

    /// Whether units may be held of it ([`crate::hold`]): of all its levels, as many of each, which charge all or nothing by
    /// the policy's own parameters. A dry run is not: the store is asked.
    pub fn is_holdable(&self) -> bool {
        self.charges_alike() && self.levels.iter().all(|level| level.limit.leasable().is_ok())
    }

    /// Whether all its levels are charged with as much, by the policy's own parameters, or none.
    fn charges_alike(&self) -> bool {
        let is_alike = |level: &Level<'_>| level.scaled.is_none() && level.cost == self.levels[0].cost;
        self.charge == Charge::AllOrNothing
            && !self.dry_run
            && self.reservation.is_none()
            && self.request.is_none()
            && !self.levels.is_empty()
            && !self.has_twins()
            && self.levels.iter().all(is_alike)
    }

    /// Whether its cost can be reserved on all levels: else why not, in words that follow "cannot be reserved: ".
    ///
    /// # Errors
    /// The reason, and the level that has it, if it is one level's.
    pub fn reservable(&self) -> Result<(), (Option<usize>, &'static str)> {
        if self.charge != Charge::AllOrNothing {
            return Err((None, "its levels are charged independently"));
        }
        if self.has_twins() {
            return Err((None, "two of its levels share a state"));
        }
        for (index, level) in self.levels.iter().enumerate() {
            if level.scaled.is_some() {
                return Err((Some(index), "the request has a factor of its own"));
            }
            if level.cost < 0 || level.cost != self.levels[0].cost {
                return Err((Some(index), "its cost is negative, or another one than that of the other levels"));
            }
            level.limit.params.holdable().map_err(|reason| (Some(index), reason))?;
        }
        Ok(())
    }

    /// How long a reservation of it lasts at most: as long as requested, and as long as slots are held of the
    /// concurrency limits that count; without either, of those in shadow mode. `None`: none of these says.
    pub fn reservation_ttl(&self, requested: Option<Micros>) -> Option<Micros> {
        let slots = |shadow: bool| {
            let limits = self.levels.iter().map(|level| level.limit).filter(move |limit| limit.shadow == shadow);
            limits.filter_map(|limit| limit.params.as_concurrency()).map(Concurrency::ttl)
        };
        slots(false).chain(requested).min().or_else(|| slots(true).min())
    }

    /// The first of its limits, if it has any, that refuses checks, which take no slot of it; see [`OnCheck`]. A limit in
    /// shadow mode refuses nothing, and a preview or a refund takes no slot anyway.
    #[inline]
    pub fn refuses_checks(&self) -> Option<&Limit> {
        let is_one = |level: &&Level<'_>| {
            let refuses = level.limit.params.as_concurrency().is_some_and(|it| it.on_check() == OnCheck::Refuse);
            refuses && !level.limit.shadow && level.cost > 0 && !self.is_shadow && !self.dry_run
        };
        self.levels.iter().find(is_one).map(|level| level.limit)
    }

    /// For how long units of it may be leased; `None` where a level may not be leased, or where the path of the deepest
    /// level does not tell all levels. One that comes with a renewal is not leased anew.
    #[inline]
    pub fn lease_ttl(&self) -> Option<Micros> {
        self.policy_version.filter(|_| self.renewal.is_none())?;
        let ttls = self.levels.iter().map(|level| level.limit.leased_for());
        let shortest = ttls.min_by_key(|ttl| ttl.unwrap_or_default()).flatten();
        shortest.filter(|_| self.charges_alike())
    }

    /// Whether any two levels share a state.
    fn has_twins(&self) -> bool {
        !self.totals.is_empty()
    }

    /// The level whose state `index` uses: itself, or the first of those that share one.
    pub fn state_of(&self, index: usize) -> usize {
        self.levels[index].twin.map_or(index, usize::from)
    }

    fn ask(&self, index: usize, cost: i64, now: Micros) -> Ask {
        Ask { now, cost, max_wait: self.max_wait, phase: self.levels[index].phase() }
    }

    /// The total cost of all levels on the state of `index`.
    fn total_cost(&self, index: usize) -> i64 {
        if self.has_twins() { self.totals[self.state_of(index)] } else { self.levels[index].cost }
    }
}
