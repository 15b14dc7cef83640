//! The file: written beside its place and renamed, so that what stands there is whole at any time.

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

/// Ends the name of a file that is being written.
const TEMPORARY: &str = ".tmp";

/// The outcome of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// How many states.
    pub states: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// Writes a store's states to a file that only its owner may read. What stood there before stays until all is on disk. It
/// blocks.
///
/// # Errors
/// The system's error; then the file is as it was.
pub fn save<C: Clock>(store: &MemoryStore<C>, path: &Path) -> io::Result<Saved> {
    let beside = temporary(path);
    let saved = save_beside(store, path, &beside);
    if saved.is_err() {
        // The first error tells more than one from clearing up.
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

/// Whether a snapshot can be written at `path`: makes a file beside it, and removes it.
///
/// # Errors
/// The system's error.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    let beside = temporary(path);
    create(&beside)?;
    fs::remove_file(beside)
}

/// A path beside it, by a name of its own, so that no two writers write into one file.
fn temporary(path: &Path) -> PathBuf {
    with_suffix(path, &format!(".{:016x}{TEMPORARY}", RandomState::new().hash_one(())))
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Renames a file so that it is out of the way, over one that was set aside before; tells the new path. `None`: there is
/// no file.
///
/// # Errors
/// The system's error.
pub fn set_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let aside = with_suffix(path, ".rejected");
    Ok(absent_is_fine(fs::rename(path, &aside))?.map(|()| aside))
}

/// Whether a file of this name is one that the snapshot at `path` was being written to.
pub(super) fn is_temporary(name: &OsStr, path: &Path) -> bool {
    let (Some(name), Some(own)) = (name.to_str(), path.file_name().and_then(OsStr::to_str)) else { return false };
    let between = name.strip_prefix(own).and_then(|rest| rest.strip_suffix(TEMPORARY));
    // Without a number: of a version that had one name for all.
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
