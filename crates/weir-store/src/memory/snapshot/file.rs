//! The snapshot file: written to a temporary file and renamed, so that the path always has a complete snapshot.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, ErrorKind},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::write::write;
use crate::MemoryStore;
use weir_core::domain::Clock;
use weir_settings::file::sync_folder_of;

/// Suffix of a file that is being written.
const TEMPORARY: &str = ".tmp";

/// The outcome of writing a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The number of states.
    pub states: u64,
    /// The file's length in bytes.
    pub bytes: u64,
}

/// Writes a store's states to a file that only its owner can read. The previous file stays until all is on disk. Blocks
/// on disk I/O.
///
/// # Errors
/// The I/O error; the previous file is then unchanged.
pub fn save<C: Clock>(store: &MemoryStore<C>, path: &Path) -> io::Result<Saved> {
    let beside = temporary(path);
    let saved = save_beside(store, path, &beside);
    if saved.is_err() {
        // Ignored: the first error is the cause.
        let _ = fs::remove_file(&beside);
    }
    saved
}

fn save_beside<C: Clock>(store: &MemoryStore<C>, path: &Path, beside: &Path) -> io::Result<Saved> {
    let file = create(beside)?;
    let (states, bytes) = write(store, &file)?;
    file.sync_all()?;
    fs::rename(beside, path)?;
    sync_folder_of(path)?;
    Ok(Saved { states, bytes })
}

/// Checks that a snapshot can be written at `path`, by creating and removing a file beside it.
///
/// # Errors
/// The I/O error.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let beside = temporary(path);
    create(&beside)?;
    fs::remove_file(beside)
}

/// Returns a random path beside `path`, so that no two writers share a file.
fn temporary(path: &Path) -> PathBuf {
    with_suffix(path, &format!(".{:016x}{TEMPORARY}", RandomState::new().hash_one(())))
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Renames an unusable file out of the way, replacing an earlier one. Returns the new path; `None`: there is no file.
///
/// # Errors
/// The I/O error.
pub fn set_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let aside = with_suffix(path, ".rejected");
    Ok(absent_is_fine(fs::rename(path, &aside))?.map(|()| aside))
}

/// Whether a file name is that of a temporary file for the snapshot at `path`.
pub(super) fn is_temporary(name: &OsStr, path: &Path) -> bool {
    let (Some(name), Some(own)) = (name.to_str(), path.file_name().and_then(OsStr::to_str)) else { return false };
    let between = name.strip_prefix(own).and_then(|rest| rest.strip_suffix(TEMPORARY));
    // Earlier versions used one name without a number.
    between.is_some_and(|number| {
        let digits = number.strip_prefix('.').unwrap_or_default();
        number.is_empty() || digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or(OsStr::new("snapshot")).to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

fn absent_is_fine<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
