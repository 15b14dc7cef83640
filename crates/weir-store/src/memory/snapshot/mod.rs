//! A store's states in a file, so that a restart forgets nothing.
//!
//! The form, in little endian:
//!
//! | part | what |
//! |---|---|
//! | magic | 8 bytes, `weirsnap` |
//! | version | u32: 1, or 2 where something is held |
//! | clock | i64: the store's clock when the writing began, in microseconds |
//! | algorithms | u8: how many; for each its name, a u8 for the length before it |
//! | states | for each a u8, the number of its algorithm from 1; its words, a u16 for how many, f64 each; i64: when it expires, in microseconds; its name, a u16 for the length before it |
//! | holds | only in version 2, behind a u8 0: see `held.rs` |
//! | end | u8 0; u64: how many states there are |
//! | checksum | 32 bytes of BLAKE3 over all before |
//!
//! States are told apart by name, so neither the order of the algorithms nor the shards of a store matter. While requests
//! are decided a state may be written twice; the one that expires later counts.

mod file;
mod held;
mod lock;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::{io, ops::RangeInclusive, path::PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use file::{Saved, check_writable, save, set_aside};
pub use lock::SnapshotLock;
pub(super) use read::Parts;
pub use read::{Loaded, Snapshot};

use weir_core::domain::{
    Micros,
    time::{DAY, SECOND},
};
use weir_settings::Time;

/// The first bytes of every snapshot.
const MAGIC: &[u8; 8] = b"weirsnap";
/// The version of the form without holds, and with them. Another form gets another number; a file of a later one is refused.
const VERSION_WITHOUT_HOLDS: u32 = 1;
const VERSION: u32 = 2;
/// Bytes of the checksum.
const CHECKSUM: usize = blake3::OUT_LEN;
/// Stands before the end, where the number of an algorithm would.
const END_OF_STATES: u8 = 0;

/// Where and how often snapshots are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SnapshotSettings {
    /// The file. Empty: none, and a restart forgets everything.
    pub path: PathBuf,
    /// How often it is written, beside the end of the service.
    pub every: Time,
}

impl SnapshotSettings {
    /// The bounds of `every`, in microseconds: 1 s to 1 d.
    pub const EVERY: RangeInclusive<Micros> = SECOND..=DAY;
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self { path: PathBuf::new(), every: Time::seconds(60) }
    }
}

/// Why a file cannot be loaded. Written to follow the file's path.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// Something else stands in the file.
    #[error("is not a snapshot")]
    Foreign,
    /// The form is of a later version.
    #[error("has the form {0}, of a later version of weir; this one knows those up to {VERSION}")]
    Newer(u32),
    /// The checksum does not match.
    #[error("is damaged or was cut short: its checksum does not match")]
    Damaged,
    /// A state of an algorithm that is not in the list.
    #[error("holds states of the algorithm `{0}`, which this version of weir does not know")]
    UnknownAlgorithm(String),
    /// The checksum matches, and yet the content makes no sense.
    #[error("holds an invalid state, number {0}")]
    Nonsense(u64),
}
