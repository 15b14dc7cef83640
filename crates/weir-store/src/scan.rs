//! Which states are stored, page by page: nothing is decided, charged or changed.
//!
//! A page begins where its [cursor](Page::next) says, which holds all that is known of the scan, so any replica may continue it.
//! While nothing is written every state is told exactly once. One that lives from the first page to the last is told at least
//! once, whatever else is written meanwhile.

use thiserror::Error;

use crate::StoreError;

/// Most states of a page.
pub const MAX_PAGE: usize = 1_000;

/// What to scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// How the names of the states begin: a [`Key::prefix`](weir_core::domain::Key::prefix); empty: all.
    pub beginning: Vec<u8>,
    /// The anchor path at which all of them live, if there is one alone; it begins `beginning`.
    pub anchor_path: Option<Vec<u8>>,
    /// About how many states make a page, at most [`MAX_PAGE`]. A shared store tells a hash to its end, so it may be a few more.
    pub count: usize,
}

/// Some of the states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// May be none, although others follow: a page ends after so much work, too.
    pub states: Vec<Stored>,
    /// Where the next page begins; `None`: that was the last.
    pub next: Option<Vec<u8>>,
}

/// A state that is stored. It may have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name: the encoded key and what tells its limit from others.
    pub name: Vec<u8>,
    /// Units of it may be held.
    pub may_be_held: bool,
}

/// Why there is no page.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The cursor is none of this scan.
    #[error("the cursor is not one of this scan")]
    Cursor,
    /// The store cannot tell.
    #[error(transparent)]
    Store(#[from] StoreError),
}
