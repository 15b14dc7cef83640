//! Paginated, read-only listing of the stored states.
//!
//! The [cursor](Page::next) holds the whole progress of a scan, so any replica can continue it. Without concurrent
//! writes, each state is listed exactly once. A state that exists from the first page to the last is listed at least
//! once despite concurrent writes.

use thiserror::Error;
use weir_core::domain::Micros;

use crate::Failure;

/// Largest page size.
pub const MAX_PAGE: usize = 1_000;

/// The kinds of entries to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Every state, with its holds.
    States,
    /// Holds: only states with held units, and reservations.
    Holds,
}

/// Parameters of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Prefix of the state names: a [`Key::prefix`](weir_core::domain::Key::prefix); empty: all.
    pub prefix: Vec<u8>,
    /// The anchor path that contains all matching states, if there is only one; a prefix of `prefix`.
    pub anchor_path: Option<Vec<u8>>,
    /// Whether to list states or holds.
    pub wanted: Wanted,
    /// Approximate number of states or reservations on a page, at most [`MAX_PAGE`]. A shared store reads each hash
    /// completely, so a page may have a few more.
    pub count: usize,
}

/// One page of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The states. May be empty before the last page, since the work for a page is bounded too.
    pub states: Vec<Stored>,
    /// The open reservations, when holds are listed.
    pub reservations: Vec<Reserved>,
    /// The cursor of the next page; `None` on the last one.
    pub next: Option<Vec<u8>>,
}

/// A stored state, which may have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name: the encoded key and the identity of its limit.
    pub name: Vec<u8>,
    /// The holds on it.
    pub holds: Vec<Hold>,
}

/// Units of a state that an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The random id of the replica or client; `None`: all clients with reservations.
    pub owner: Option<u64>,
    /// The number of units.
    pub units: u64,
    /// Time until all of them have expired.
    pub expires_after: Micros,
}

/// An open reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Its name, as in the plan that made it.
    pub name: Vec<u8>,
    /// The names of the states on which it holds units.
    pub levels: Vec<Vec<u8>>,
    /// Units held on each; one slot on a concurrency limit.
    pub units: u64,
    /// Time until they expire.
    pub expires_after: Micros,
}

impl Stored {
    /// Returns the sum of its held units.
    pub fn outstanding(&self) -> u64 {
        self.holds.iter().map(|hold| hold.units).sum()
    }
}

/// Merges holds by owner, in the order of first appearance: an owner can hold units of several keys below a level.
pub(crate) fn by_owner(holds: Vec<Hold>) -> Vec<Hold> {
    let mut owners: Vec<Hold> = Vec::new();
    for held in holds {
        match owners.iter_mut().find(|known| known.owner == held.owner) {
            Some(known) => {
                known.units += held.units;
                known.expires_after = known.expires_after.max(held.expires_after);
            }
            None => owners.push(held),
        }
    }
    owners
}

impl Reserved {
    /// Restricts the reservation to states whose names start with `prefix`; `None` if none do.
    pub(crate) fn below(mut self, prefix: &[u8]) -> Option<Self> {
        self.levels.retain(|name| name.starts_with(prefix));
        (!self.levels.is_empty()).then_some(self)
    }
}

impl Page {
    pub(crate) fn len(&self) -> usize {
        self.states.len() + self.reservations.len()
    }
}

/// Why the store did not answer with a page.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The cursor does not belong to this scan.
    #[error("the cursor is not one of this scan")]
    Cursor,
    /// The store has no answer.
    #[error(transparent)]
    Store(#[from] Failure),
}
