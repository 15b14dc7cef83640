//! The plan of one request: its limits, each with the key that it applies to, and the step that decides them
//! together. Policies make plans and stores execute them; neither depends on the other.

mod charged;
mod decide;
mod dry_run;
mod duplicates;
mod independent;
mod limit;
mod outstanding;
mod step;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use smallvec::SmallVec;

pub use decide::{decide, decide_into};
pub(crate) use dry_run::dry_run;
pub use duplicates::firsts;
use duplicates::{find_duplicates_of_many, totals};
pub use limit::{Limit, Origin, identify, is_ident_of_policy};
pub use step::{Decisions, States};
pub(crate) use step::{lasts, lifetime, passes, peek, put_if_it_fits, refuse_as_full, step};

use crate::{
    algorithm::{OnCheck, ParamError, Params, concurrency::Concurrency},
    domain::{Charge, Key, Micros, OnStoreFailure, StepInput, request::MAX_LEVELS},
    hold::{Renewal, RequestId, Reservation},
};

/// The limits on a key's path, root first.
pub type Levels<'a> = SmallVec<[Level<'a>; 4]>;

/// Everything that a store needs to decide one request. The default is a request without limits.
#[derive(Clone, Default)]
pub struct Plan<'a> {
    levels: Levels<'a>,
    /// If levels share states: for each state, at the index of its first level, the total cost of the levels that use
    /// it. Otherwise empty.
    totals: Box<[i64]>,
    /// The levels that a refused request charges.
    pub charge: Charge,
    /// The longest wait that the client accepts; `None` if it gave none.
    pub max_wait: Option<Micros>,
    /// Whether to decide as usual without storing anything.
    pub dry_run: bool,
    /// The reservation that the plan makes, or whose levels it has. The plan must be [`Plan::reservable`].
    pub reservation: Option<Reservation<'a>>,
    /// The request id, if the request has one.
    pub request: Option<&'a RequestId>,
    /// A renewal that is served in the same step; only with [`Plan::is_holdable`].
    pub renewal: Option<&'a Renewal>,
    /// The rule for decisions while the shared store is unavailable.
    pub on_store_failure: OnStoreFailure,
    /// The version of the policy that all levels come from, if the path of the deepest level determines the others.
    /// `None` if it does not, or if the request has its own limits.
    pub policy_version: Option<u64>,
    /// The number of the domain in its policy, if the policy defines it.
    pub domain: Option<u32>,
    /// Whether the request is a preview, which charges nothing.
    pub is_preview: bool,
    /// Whether the domain is in shadow mode: the answer allows the request, regardless of the
    /// decision.
    pub is_shadow: bool,
    /// Maximum jitter added to `retry_after`, as a fraction of it; the key determines how much
    /// ([`Level::jitter_fraction`]).
    pub retry_jitter: f64,
    /// The override that applies; stores ignore it.
    pub overridden: Option<Overridden<'a>>,
}

/// The effect of an operator's override on a plan.
#[derive(Clone, Copy, Debug)]
pub struct Overridden<'a> {
    /// The override's id.
    pub id: &'a str,
    /// The change, as named in metrics.
    pub change: &'static str,
    /// The ban, which refuses the request regardless of the limits. The plan then has no levels.
    pub ban: Option<Ban<'a>>,
}

/// A refusal by an operator.
#[derive(Clone, Copy, Debug)]
pub struct Ban<'a> {
    /// The operator's reason.
    pub reason: &'a str,
    /// Time until it ends; `None` if only an operator ends it.
    pub ends_after: Option<Micros>,
}

/// One limit on a key's path.
#[derive(Clone)]
pub struct Level<'a> {
    key: &'a Key,
    /// The key under which the level counts, if not the requested one.
    shared: Option<Box<Key>>,
    /// Number of the key's segments that the limit covers; above 0.
    pub depth: u8,
    /// Maximum number of leading segments that determine where the state is stored.
    pub anchor: u8,
    /// The limit.
    pub limit: &'a Limit,
    /// The limit's parameters scaled by the request's factor, if it has one.
    pub scaled: Option<Box<Params>>,
    /// Units to charge to this level.
    pub cost: i64,
    /// The first level of the plan with the same state, if not this one.
    duplicate_of: Option<u16>,
}

impl<'a> Level<'a> {
    /// Creates a level: the first `depth` segments of `key` under `limit`.
    #[inline]
    pub fn new(key: &'a Key, depth: u8, anchor: u8, limit: &'a Limit, cost: i64) -> Self {
        Self { key, shared: None, depth, anchor, limit, scaled: None, cost, duplicate_of: None }
    }

    /// Returns the level counted under another key, with as many segments.
    #[must_use]
    pub fn counted_under(mut self, key: Key) -> Self {
        self.shared = Some(Box::new(key));
        self
    }

    /// Returns the level with another limit, without the request's factor.
    #[must_use]
    pub fn of_limit(self, limit: &'a Limit) -> Self {
        Self { limit, scaled: None, ..self }
    }

    /// Returns a level of `limit`, with cost 1, whose state is stored together with this one's.
    #[must_use]
    pub fn beside<'l>(&self, limit: &'l Limit) -> Level<'l>
    where
        'a: 'l,
    {
        let beside = Level::new(self.key, self.depth.min(self.anchor), self.anchor, limit, 1);
        Level { shared: self.shared.clone(), ..beside }
    }

    /// Returns the level scaled by a request's factor; `None` if 0 lifts it.
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

    /// Returns the effective parameters.
    pub fn params(&self) -> &Params {
        self.scaled.as_deref().unwrap_or(&self.limit.params)
    }

    /// Returns the parameters without the request's factor, under which units are held, with at least the reach of those
    /// with it.
    pub fn base(&self) -> Cow<'_, Params> {
        match &self.scaled {
            None => Cow::Borrowed(&self.limit.params),
            Some(scaled) => Cow::Owned(self.limit.params.clone().reaching(scaled)),
        }
    }

    /// Returns the encoded key that the state belongs to.
    #[inline]
    pub fn path(&self) -> &[u8] {
        self.key().prefix(self.depth.into())
    }

    /// Returns the encoded key that determines where the state is stored.
    #[inline]
    pub fn anchor_path(&self) -> &[u8] {
        self.key().prefix(self.depth.min(self.anchor).into())
    }

    #[inline]
    fn key(&self) -> &Key {
        self.shared.as_deref().unwrap_or(self.key)
    }

    /// Returns the unique name of the state: the encoded key and the limit's ident.
    pub fn state_name(&self) -> Vec<u8> {
        [self.path(), self.limit.ident()].concat()
    }

    /// Whether `name` is the name of its state.
    pub(crate) fn is_state(&self, name: &[u8]) -> bool {
        name.strip_prefix(self.path()) == Some(self.limit.ident())
    }

    /// Returns a preview at time 0.
    pub fn peek(&self) -> StepInput {
        StepInput { now: 0, cost: 0, max_wait: None, phase: 0 }
    }

    /// Returns the units that a reservation of `units` holds of this level: at most one slot of a concurrency limit.
    pub(crate) fn held_units(&self, units: u64) -> u64 {
        if self.limit.params.as_concurrency().is_some() { units.min(1) } else { units }
    }

    fn same_state(&self, other: &Self) -> bool {
        self.depth == other.depth && self.limit.ident() == other.limit.ident() && self.path() == other.path()
    }

    /// Returns the offset of the windows of this key, the same on every replica and in every run.
    pub fn phase(&self) -> Micros {
        let word = |period: Micros| hash([self.path(), self.limit.ident()]) % period.unsigned_abs();
        self.params().phase_period().map_or(0, |period| word(period) as Micros)
    }

    /// Returns a hash of the whole requested key, from 0 to below 1, the same on every replica and in every run.
    pub fn jitter_fraction(&self) -> f64 {
        (hash([self.key.prefix(self.key.depth())]) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the same hash on every machine.
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
    /// Creates a plan over `levels`, root first; at most 65,536 of them.
    #[inline]
    pub fn new(levels: Levels<'a>, charge: Charge, max_wait: Option<Micros>) -> Self {
        let mut plan = Self { levels, charge, max_wait, ..Self::default() };
        plan.find_duplicates();
        plan
    }

    /// Changes the levels in place: moving them would take a noticeable part of the time of a decision.
    #[inline]
    pub fn change_levels<T>(&mut self, change: impl FnOnce(&mut Levels<'a>) -> T) -> T {
        let changed = change(&mut self.levels);
        self.find_duplicates();
        changed
    }

    #[inline]
    fn find_duplicates(&mut self) {
        let levels = &mut self.levels;
        let mut duplicates = false;
        if levels.len() > MAX_LEVELS {
            duplicates = find_duplicates_of_many(levels);
        } else {
            for index in 1..levels.len() {
                let duplicate_of = levels[..index].iter().position(|before| before.same_state(&levels[index]));
                levels[index].duplicate_of = duplicate_of.map(|first| first as u16);
                duplicates |= duplicate_of.is_some();
            }
        }
        self.totals = if duplicates { totals(levels) } else { Box::default() };
    }

    /// Returns the plan with only the levels whose positions `keep` accepts.
    #[must_use]
    pub fn only(&self, keep: impl Fn(usize) -> bool) -> Self {
        let kept = self.levels.iter().enumerate().filter(|(index, _)| keep(*index));
        let levels = kept.map(|(_, level)| Level { duplicate_of: None, ..level.clone() }).collect();
        let Self { levels, totals, .. } = Self::new(levels, self.charge, self.max_wait);
        Self { levels, totals, ..self.clone() }
    }

    /// Disables the settings that a domain has for its own limits alone: its shadow mode and the jitter of retries.
    pub fn enforce_as_written(&mut self) {
        (self.is_shadow, self.retry_jitter) = (false, 0.0);
    }

    /// Returns the encoded key that determines where the records of its reservation and its request id are stored, if
    /// it can have any. It is a prefix of the requested key, whichever of its limits are lifted, removed or new.
    pub fn record_path(&self) -> Option<&'a [u8]> {
        let level = self.levels.last().filter(|_| self.reservation.is_some() || self.request.is_some())?;
        Some(level.key.prefix(level.key.depth().min(level.anchor.into())))
    }

    /// Returns the levels, root first.
    pub fn levels(&self) -> &[Level<'a>] {
        &self.levels
    }

    /// Whether units may be held of it ([`crate::hold`]): the same number on all levels, which charge all or nothing
    /// by the policy's own parameters. False for a dry run, which the store must decide.
    pub fn is_holdable(&self) -> bool {
        self.charges_alike() && self.levels.iter().all(|level| level.limit.leasable().is_ok())
    }

    /// Whether all its levels are charged the same cost by the policy's own parameters, or none is.
    fn charges_alike(&self) -> bool {
        let is_alike = |level: &Level<'_>| level.scaled.is_none() && level.cost == self.levels[0].cost;
        self.charge == Charge::AllOrNothing
            && !self.dry_run
            && self.reservation.is_none()
            && self.request.is_none()
            && !self.levels.is_empty()
            && !self.has_duplicates()
            && self.levels.iter().all(is_alike)
    }

    /// Checks that its cost can be reserved on all levels. The reason in the error completes "cannot be reserved: ".
    ///
    /// # Errors
    /// The reason, and the level that has it, if it is one level's.
    pub fn reservable(&self) -> Result<(), (Option<usize>, &'static str)> {
        if self.charge != Charge::AllOrNothing {
            return Err((None, "its levels are charged independently"));
        }
        if self.has_duplicates() {
            return Err((None, "two of its levels share a state"));
        }
        for (index, level) in self.levels.iter().enumerate() {
            if level.scaled.is_some() {
                return Err((Some(index), "the request has its own factor"));
            }
            if level.cost < 0 || level.cost != self.levels[0].cost {
                return Err((Some(index), "its cost is negative, or differs from the cost of the other levels"));
            }
            level.limit.params.holdable().map_err(|reason| (Some(index), reason))?;
        }
        Ok(())
    }

    /// Returns the maximum TTL of a reservation: the shortest of the requested TTL and the slot TTLs of concurrency
    /// limits not in shadow mode. Without any of these, the shortest slot TTL of those in shadow mode, if any.
    pub fn reservation_ttl(&self, requested: Option<Micros>) -> Option<Micros> {
        let slots = |shadow: bool| {
            let limits = self.levels.iter().map(|level| level.limit).filter(move |limit| limit.shadow == shadow);
            limits.filter_map(|limit| limit.params.as_concurrency()).map(Concurrency::ttl)
        };
        slots(false).chain(requested).min().or_else(|| slots(true).min())
    }

    /// Returns the first of its concurrency limits that refuses checks, since these take no slot; see [`OnCheck`]. A
    /// limit in shadow mode refuses nothing, and previews, dry runs and refunds take no slot anyway.
    #[inline]
    pub fn refuses_checks(&self) -> Option<&Limit> {
        let is_one = |level: &&Level<'_>| {
            let refuses = level.limit.params.as_concurrency().is_some_and(|it| it.on_check() == OnCheck::Refuse);
            refuses && !level.limit.shadow && level.cost > 0 && !self.is_shadow && !self.dry_run
        };
        self.levels.iter().find(is_one).map(|level| level.limit)
    }

    /// Returns the TTL of leases of its units; `None` if a level cannot be leased, or if the path of the deepest
    /// level does not determine all levels. A plan with a renewal gets no new lease.
    #[inline]
    pub fn lease_ttl(&self) -> Option<Micros> {
        self.policy_version.filter(|_| self.renewal.is_none())?;
        let ttls = self.levels.iter().map(|level| level.limit.leased_for());
        let shortest = ttls.min_by_key(|ttl| ttl.unwrap_or_default()).flatten();
        shortest.filter(|_| self.charges_alike())
    }

    /// Whether any two levels share a state.
    fn has_duplicates(&self) -> bool {
        !self.totals.is_empty()
    }

    /// Returns the level whose state the level `index` uses: itself, or the first of those that share the state.
    pub fn state_of(&self, index: usize) -> usize {
        self.levels[index].duplicate_of.map_or(index, usize::from)
    }

    fn step_input(&self, index: usize, cost: i64, now: Micros) -> StepInput {
        StepInput { now, cost, max_wait: self.max_wait, phase: self.levels[index].phase() }
    }

    /// Returns the total cost of all levels that share the state of the level `index`.
    pub fn total_cost(&self, index: usize) -> i64 {
        if self.has_duplicates() { self.totals[self.state_of(index)] } else { self.levels[index].cost }
    }
}
