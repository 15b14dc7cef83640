//! Which states are stored, page by page: nothing is decided, charged or changed.
//!
//! A page begins where its [cursor](Page::next) says, which holds all that is known of the scan, so any replica may continue it.
//! While nothing is written every state is told exactly once. One that lives from the first page to the last is told at least
//! once, whatever else is written meanwhile.

use thiserror::Error;
use weir_core::domain::Micros;

use crate::StoreError;

/// Most states of a page.
pub const MAX_PAGE: usize = 1_000;

/// What to scan for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Every state, with what is held of it.
    States,
    /// Holds: only the states of which owners hold units, and reservations.
    Holds,
}

/// What to scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// How the names of the states begin: a [`Key::prefix`](weir_core::domain::Key::prefix); empty: all.
    pub beginning: Vec<u8>,
    /// The anchor path at which all of them live, if there is one alone; it begins `beginning`.
    pub anchor_path: Option<Vec<u8>>,
    /// States, or what is held.
    pub wanted: Wanted,
    /// About how many states or reservations make a page, at most [`MAX_PAGE`]. A shared store tells a hash to its end, so it may be
    /// a few more.
    pub count: usize,
}

/// Some of the states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// May be none, although others follow: a page ends after so much work, too.
    pub states: Vec<Stored>,
    /// The reservations that are not settled, where what is held is wanted.
    pub reservations: Vec<Reserved>,
    /// Where the next page begins; `None`: that was the last.
    pub next: Option<Vec<u8>>,
}

/// A state that is stored. It may have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name: the encoded key and what tells its limit from others.
    pub name: Vec<u8>,
    /// What is held of it.
    pub holds: Vec<Held>,
}

/// Units of a state that an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number that the replica or the client has drawn for itself; `None`: all clients with reservations.
    pub owner: Option<u64>,
    /// Units.
    pub units: u64,
    /// After so long none of them is held any more.
    pub expires_after: Micros,
}

/// A reservation that is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Its name, as in the plan that made it.
    pub name: Vec<u8>,
    /// The names of the states of which it holds units.
    pub levels: Vec<Vec<u8>>,
    /// Units of each; of a concurrency limit it holds one.
    pub units: u64,
    /// After so long none of them is held any more.
    pub expires_after: Micros,
}

impl Stored {
    /// Units of it that are held.
    pub fn outstanding(&self) -> u64 {
        self.holds.iter().map(|hold| hold.units).sum()
    }
}

/// One for each owner, the first first: below a level an owner holds units of several keys.
pub(crate) fn by_owner(holds: Vec<Held>) -> Vec<Held> {
    let mut owners: Vec<Held> = Vec::new();
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
    /// The same of states whose names begin so; `None`: it holds nothing of any.
    pub(crate) fn below(mut self, beginning: &[u8]) -> Option<Self> {
        self.levels.retain(|name| name.starts_with(beginning));
        (!self.levels.is_empty()).then_some(self)
    }
}

impl Page {
    /// How many states and reservations it has.
    pub(crate) fn len(&self) -> usize {
        self.states.len() + self.reservations.len()
    }
}

/// Why the store did not answer with a page.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The cursor is none of this scan.
    #[error("the cursor is not one of this scan")]
    Cursor,
    /// The store cannot tell.
    #[error(transparent)]
    Store(#[from] StoreError),
}
