//! The log of documents in a file: a change a line, as JSON, written before it is answered.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tracing::warn;
use weir_settings::file;

use super::{Changed, MAX_LOG};

/// Changes that a file which is written anew keeps of those that no document needs.
const KEPT: usize = MAX_LOG / 10;

/// The largest file that is read. It grows by some hundred bytes a change, until a start shortens it.
const MAX_BYTES: u64 = 4 << 30;
/// The permissions of the file.
const MODE: u32 = 0o600;

/// The file.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Where the next line begins. A line that was not written whole is behind it, and is overwritten.
    end: u64,
}

/// Why a log cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        cause: io::Error,
    },
    /// A line is not a change.
    #[error("{path}, line {line}: not a change: {cause}")]
    Line {
        /// The file.
        path: String,
        /// Its number.
        line: usize,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
}

/// A line.
#[derive(Serialize, Deserialize)]
struct Line {
    id: String,
    name: String,
    before: Option<String>,
    after: Option<String>,
    actor: String,
}

impl LogFile {
    /// The changes in a file, which need not exist. A last line without an end was never answered, and is left out.
    pub(super) fn read(path: &Path) -> Result<Vec<Changed>, FileError> {
        let text = match file::read(path, MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(at(path)(cause)),
        };
        // It may end within a character.
        let (whole, rest) = text.split_at(end_of_lines(&text));
        if !rest.is_empty() {
            let path = path.display();
            warn!(%path, bytes = rest.len(), "a last line that was not written whole is ignored: its change was not answered");
        }
        let mut changes = Vec::<Changed>::new();
        for (index, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let wrong = |cause| FileError::Line { path: path.display().to_string(), line: index + 1, cause };
            let Line { id, name, before, after, actor } = serde_json::from_slice(line).map_err(wrong)?;
            let id = id.parse().map_err(|error| wrong(serde::de::Error::custom(error)))?;
            let previous = changes.last().map(|changed| changed.id);
            changes.push(Changed { id, previous, name, before, after, actor });
        }
        Ok(changes)
    }

    /// Opens the file whose changes are these. One with many that are not `needed` is written anew without the oldest of them.
    pub(super) fn open(path: &Path, log: &[Changed], needed: impl Fn(&&Changed) -> bool) -> Result<Self, FileError> {
        if log.len() >= MAX_LOG {
            let first = log.len() - KEPT;
            let kept = log.iter().enumerate().filter(|(index, changed)| *index >= first || needed(changed));
            let lines: Vec<u8> = kept.flat_map(|(_, changed)| line(changed)).collect();
            file::replace(path, &lines).map_err(at(path))?;
        }
        let file = open(path).map_err(at(path))?;
        let end = end_of_lines(&file::read(path, MAX_BYTES).map_err(at(path))?) as u64;
        Ok(Self { path: path.to_owned(), file, end })
    }

    /// Writes a change, which is on the disk when this returns.
    pub(super) fn append(&mut self, changed: &Changed) -> io::Result<()> {
        let line = line(changed);
        if !self.is_in_place()? {
            self.put_back()?;
        }
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.set_len(self.end)?;
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // It was not made, so it must not come into force with a restart.
            let _ = self.file.set_len(self.end);
        }
        written?;
        self.end += line.len() as u64;
        Ok(())
    }

    /// Whether a restart would read this file: it may have been removed or replaced meanwhile.
    fn is_in_place(&self) -> io::Result<bool> {
        let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        match fs::metadata(&self.path) {
            Ok(there) => Ok(place(there) == place(self.file.metadata()?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes the changes anew to the path. The open file still has them.
    fn put_back(&mut self) -> io::Result<()> {
        let mut lines = vec![0; usize::try_from(self.end).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut lines, 0)?;
        file::replace(&self.path, &lines)?;
        self.file = open(&self.path)?;
        warn!(path = %self.path.display(), "the file was removed or replaced: it is written anew");
        Ok(())
    }
}

/// Opens the file or creates it. Only its owner can read it: it has keys, reasons and authors.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).read(true).write(true).mode(MODE).open(path)?;
    if file.metadata()?.permissions().mode() & !MODE & 0o777 != 0 {
        // An earlier version let others read it. It stays so where it is another user's.
        let _ = file.set_permissions(Permissions::from_mode(MODE));
    }
    file::sync_folder_of(path)?;
    Ok(file)
}

/// Where the last whole line ends.
fn end_of_lines(text: &[u8]) -> usize {
    text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)
}

fn at(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
    |cause| FileError::Io { path: path.display().to_string(), cause }
}

fn line(changed: &Changed) -> Vec<u8> {
    let Changed { id, name, before, after, actor, .. } = changed.clone();
    let line = Line { id: id.to_string(), name, before, after, actor };
    // Texts can always be written.
    let mut line = serde_json::to_vec(&line).unwrap_or_default();
    line.push(b'\n');
    line
}
