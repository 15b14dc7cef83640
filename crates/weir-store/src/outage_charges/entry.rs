//! The units of one level.

use smallvec::SmallVec;

use weir_core::{
    algorithm::{Params, State},
    domain::{Ask, Micros, key::parts_end},
    plan::Level,
};

use crate::{
    memory::PLACE_BYTES,
    redis::{rule_of, work},
};

/// What one level has admitted. Its name is made of its key, the limit's ident, and what the script must know of the limit.
pub(super) struct Entry {
    anchor_end: usize,
    path_end: usize,
    ident_end: usize,
    /// The limit's name, where it is one of a policy.
    of_policy: Option<Box<str>>,
    params: Params,
    phase: Micros,
    /// How many keys it counts as: its state may hold a mark for each unit, and its name may be long.
    pub size: usize,
    /// Units admitted.
    pub units: u64,
    /// What of them counts.
    state: Option<State>,
}

/// The name of a level.
pub(super) fn name_of(level: &Level<'_>) -> SmallVec<[u8; 256]> {
    let mut name = SmallVec::from_slice(level.path());
    name.extend_from_slice(level.limit.ident());
    name.extend_from_slice(&rule_of(level));
    name
}

impl Entry {
    /// That of a level with this name.
    pub(super) fn new(level: &Level<'_>, name: &[u8]) -> Self {
        let path_end = level.path().len();
        // Any unit counts that was admitted, also of a key that starts without.
        let params = level.params().starting_full().unwrap_or_else(|| level.params().clone());
        Self {
            anchor_end: level.anchor_path().len(),
            path_end,
            ident_end: path_end + level.limit.ident().len(),
            of_policy: level.limit.is_of_policy().then(|| level.limit.name.clone()),
            size: work(&params) as usize + name.len() / PLACE_BYTES,
            params,
            phase: level.phase(),
            units: 0,
            state: None,
        }
    }

    pub(super) fn anchor<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        &name[..self.anchor_end]
    }

    pub(super) fn path<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        &name[..self.path_end]
    }

    /// The domain, the name and the ident of a policy's limit.
    pub(super) fn limit_of_policy<'n>(&'n self, name: &'n [u8]) -> Option<(&'n [u8], &'n str, &'n [u8])> {
        let domain = parts_end(name, 1)?;
        Some((&name[..domain], self.of_policy.as_deref()?, &name[self.path_end..self.ident_end]))
    }

    /// Adds units that were admitted, and takes away those that were given back: how many of the latter had been admitted here.
    pub(super) fn admit(&mut self, units: u64, back: u64, now: Micros) -> u64 {
        self.units = self.units.saturating_add(units);
        let next = if back > 0 {
            let ask = Ask { now, cost: -(back as i64), max_wait: None, phase: self.phase };
            self.params.step(self.state.as_ref(), &ask).1
        } else {
            self.params.charge_what_fits(self.state.as_ref(), units, now, self.phase).1
        };
        self.state = next.or(self.state.take());
        let returned = back.min(self.units);
        self.units -= returned;
        returned
    }

    /// Adds what was admitted before.
    pub(super) fn join(&mut self, before: Self, now: Micros) {
        let counting = before.counting(now);
        self.admit(counting, 0, now);
        self.units = self.units.saturating_add(before.units - counting);
    }

    /// Units that still count.
    pub(super) fn counting(&self, now: Micros) -> u64 {
        self.units.min(self.params.spent(self.state.as_ref(), now, self.phase))
    }
}

/// The units of a level on their way to the store.
pub(crate) struct Due {
    pub(super) name: Box<[u8]>,
    pub(super) entry: Entry,
    pub(super) units: u64,
    /// The resets before it was taken.
    pub(super) resets: u64,
}

impl Due {
    /// Units to be charged.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// What names the place where the state lives.
    pub(crate) fn anchor(&self) -> &[u8] {
        self.entry.anchor(&self.name)
    }

    /// What names the state there.
    pub(crate) fn field(&self) -> &[u8] {
        &self.name[self.entry.anchor_end..self.entry.ident_end]
    }

    /// What the script must know of the limit.
    pub(crate) fn rule(&self) -> &[u8] {
        &self.name[self.entry.ident_end..]
    }

    /// The limit's parameters.
    pub(crate) fn params(&self) -> &Params {
        &self.entry.params
    }

    /// Where the key's windows begin.
    pub(crate) fn phase(&self) -> Micros {
        self.entry.phase
    }
}
