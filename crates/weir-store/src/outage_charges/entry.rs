//! Outage charges of one level.

use smallvec::SmallVec;

use weir_core::{
    algorithm::{Params, State},
    domain::{Micros, StepInput},
    plan::Level,
};

use crate::{
    memory::WEIGHT_BYTES,
    redis::{rule_of, work},
};

/// The units that one level admitted. Its name consists of the key, the limit's ident and the encoded rule for the
/// script.
pub(super) struct Entry {
    anchor_end: usize,
    path_end: usize,
    ident_end: usize,
    /// Whether it is a policy's limit.
    pub is_of_policy: bool,
    params: Params,
    phase: Micros,
    /// Capacity used, in keys: a state may have a mark for each unit, and a name may be long.
    pub size: usize,
    /// Units admitted and not refunded.
    pub units: u64,
    /// The local state, from which follows how many of the units still count.
    state: Option<State>,
}

pub(super) fn name_of(level: &Level<'_>) -> SmallVec<[u8; 256]> {
    let mut name = SmallVec::from_slice(level.path());
    name.extend_from_slice(level.limit.ident());
    name.extend_from_slice(&rule_of(level));
    name
}

impl Entry {
    /// Creates an entry without units for the level with this name.
    pub(super) fn new(level: &Level<'_>, name: &[u8]) -> Self {
        let path_end = level.path().len();
        // All admitted units count, even if the limit lets keys start empty.
        let params = level.params().starting_full().unwrap_or_else(|| level.params().clone());
        Self {
            anchor_end: level.anchor_path().len(),
            path_end,
            ident_end: path_end + level.limit.ident().len(),
            is_of_policy: level.limit.is_of_policy(),
            size: work(&params) as usize + name.len() / WEIGHT_BYTES,
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

    pub(super) fn state_name<'n>(&self, name: &'n [u8]) -> &'n [u8] {
        &name[..self.ident_end]
    }

    /// Adds admitted units and subtracts refunded ones. Returns how many of the refunded units had been admitted here.
    pub(super) fn admit(&mut self, units: u64, back: u64, now: Micros) -> u64 {
        self.units = self.units.saturating_add(units);
        let next = if back > 0 {
            let input = StepInput { now, cost: -(back as i64), max_wait: None, phase: self.phase };
            self.params.step(self.state.as_ref(), &input).1
        } else {
            self.params.charge_what_fits(self.state.as_ref(), units, now, self.phase).1
        };
        self.state = next.or(self.state.take());
        let returned = back.min(self.units);
        self.units -= returned;
        returned
    }

    /// Adds the units of an earlier entry.
    pub(super) fn join(&mut self, before: Self, now: Micros) {
        let counting = before.counting(now);
        self.admit(counting, 0, now);
        self.units = self.units.saturating_add(before.units - counting);
    }

    /// Returns the units that still count.
    pub(super) fn counting(&self, now: Micros) -> u64 {
        self.units.min(self.params.spent(self.state.as_ref(), now, self.phase))
    }
}

/// Units of a level in flight to the store.
pub(crate) struct Due {
    pub(super) name: Box<[u8]>,
    pub(super) entry: Entry,
    pub(super) units: u64,
    /// The shard's reset counter when the units were taken.
    pub(super) resets: u64,
}

impl Due {
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Returns the anchor, which selects the Redis key.
    pub(crate) fn anchor(&self) -> &[u8] {
        self.entry.anchor(&self.name)
    }

    /// Returns the hash field of the state.
    pub(crate) fn field(&self) -> &[u8] {
        &self.name[self.entry.anchor_end..self.entry.ident_end]
    }

    /// Returns the encoded rule for the script.
    pub(crate) fn rule(&self) -> &[u8] {
        &self.name[self.entry.ident_end..]
    }

    pub(crate) fn params(&self) -> &Params {
        &self.entry.params
    }

    /// Returns the offset of the key's windows.
    pub(crate) fn phase(&self) -> Micros {
        self.entry.phase
    }
}
