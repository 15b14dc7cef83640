//! Snapshots: a store's states in a file, so that a restart keeps them.
//!
//! The format, little-endian:
//!
//! | part | format |
//! |---|---|
//! | magic | 8 bytes, `weirsnap` |
//! | version | u32: 1, or 2 if there are holds, or states that readers of version 1 cannot decode |
//! | clock | i64: the store's clock when the write started, in microseconds |
//! | algorithms | u8: their number; for each its name, after a u8 length |
//! | states | for each a u8, the number of its algorithm from 1; its encoded state: u16 length, then f64 each; i64: its
//! expiry, in microseconds; its name, after a u16 length |
//! | holds | only in version 2, after a u8 0: see `holds.rs` |
//! | end | u8 0; u64: number of states |
//! | checksum | 32 bytes of BLAKE3 over everything before |
//!
//! States are identified by name, so neither the order of the algorithms nor the number of shards matters. A state that
//! changes during the write may be written twice; the later expiry wins.

mod file;
mod holds;
mod lock;
mod read;
mod restore;
#[cfg(test)]
mod tests;
mod write;

use std::{io, ops::RangeInclusive, path::PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use file::{Saved, check_writable, save, set_aside};
pub use lock::SnapshotLock;
pub use read::{Loaded, Snapshot};

use weir_core::domain::{
    Micros,
    time::{DAY, SECOND},
};
use weir_settings::Time;

const MAGIC: &[u8; 8] = b"weirsnap";
/// The version without holds, which Weir 0.2 reads.
const VERSION_WITHOUT_HOLDS: u32 = 1;
/// The latest version. A file of a later one is rejected.
const VERSION: u32 = 2;
const CHECKSUM: usize = blake3::OUT_LEN;
/// Marks the end of the states, in place of an algorithm's number.
const END_OF_STATES: u8 = 0;

/// Settings of snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SnapshotSettings {
    /// Path of the file. Empty: no snapshots, so a restart loses all states.
    pub path: PathBuf,
    /// Interval between snapshots; another one is written at shutdown.
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

/// Why a file cannot be loaded. The messages follow the file's path.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// The file is not a snapshot.
    #[error("is not a snapshot")]
    Foreign,
    /// The format is of a later version.
    #[error("has the format {0}, of a later version of weir; this version reads up to {VERSION}")]
    Newer(u32),
    /// The checksum does not match.
    #[error("is damaged or was cut short: its checksum does not match")]
    Damaged,
    /// A state's algorithm is unknown.
    #[error("holds states of the algorithm `{0}`, which this version of weir does not know")]
    UnknownAlgorithm(String),
    /// The checksum matches, but the content is invalid.
    #[error("holds an invalid state, number {0}")]
    Nonsense(u64),
}
