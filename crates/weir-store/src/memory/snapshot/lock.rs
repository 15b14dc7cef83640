//! Exclusive access to a snapshot: two processes with one path would overwrite each other's counts.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use super::file::{is_temporary, with_suffix};
use weir_settings::file::folder_of;

/// Held by the process that loads and writes the snapshot at a path. The operating system releases it when the process
/// ends for any reason.
#[derive(Debug)]
pub struct SnapshotLock {
    _file: File,
}

impl SnapshotLock {
    /// Takes the lock of the snapshot at `path`, on a lock file beside it, which is never removed. Returns `None` if
    /// another process holds it. Removes temporary files of a process that was killed while writing.
    ///
    /// # Errors
    /// The I/O error.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(with_suffix(path, ".lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        for entry in fs::read_dir(folder_of(path))?.filter_map(Result::ok) {
            if is_temporary(&entry.file_name(), path) {
                // A leftover only takes disk space.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(Some(Self { _file: file }))
    }
}
