//! The change log of documents in a file: one JSON line for each change, written before the change is answered.

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

/// Most recent changes that a rewritten file keeps in addition to the changes that documents need.
const KEPT: usize = MAX_LOG / 10;

/// The largest file that is read. It grows by a few hundred bytes with each change, until it is compacted.
const MAX_BYTES: u64 = 4 << 30;
const MODE: u32 = 0o600;

pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// Offset of the next line.
    end: u64,
    /// Whether a line whose write failed may be left after it.
    has_torn_line: bool,
    lines: usize,
    /// Number of lines at which it is compacted.
    max_lines: usize,
}

/// Errors of a log file.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// Path of the file.
        path: String,
        /// The I/O error.
        cause: io::Error,
    },
    /// A line is not a valid change.
    #[error("{path}, line {line}: not a change: {cause}")]
    Line {
        /// Path of the file.
        path: String,
        /// The line number, from 1.
        line: usize,
        /// The parse error.
        cause: serde_json::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Line {
    id: String,
    name: String,
    before: Option<String>,
    after: Option<String>,
    actor: String,
}

impl LogFile {
    /// Reads the changes of a file, which need not exist. A last line that lacks only its line break counts: editors
    /// drop it. An incomplete one was never answered and is ignored.
    pub(super) fn read(path: &Path) -> Result<Vec<Changed>, FileError> {
        let text = match file::read(path, MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(cause) => return Err(at(path)(cause)),
        };
        // Split as bytes, because an incomplete line may end within a character.
        let (whole, rest) = text.split_at(end_of_changes(&text));
        if !rest.is_empty() {
            let path = path.display();
            warn!(%path, bytes = rest.len(), "an incomplete last line is ignored: its change was never confirmed");
        }
        let mut changes = Vec::<Changed>::new();
        for (index, line) in whole.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let wrong = |cause| FileError::Line { path: path.display().to_string(), line: index + 1, cause };
            let previous = changes.last().map(|changed| changed.id);
            changes.push(Changed { previous, ..changed(line).map_err(wrong)? });
        }
        Ok(changes)
    }

    /// Opens the file, whose changes are `log`. A file with [`MAX_LOG`] or more is rewritten with the last [`KEPT`] and
    /// the `needed` changes.
    pub(super) fn open(path: &Path, log: &[Changed], needed: impl Fn(&&Changed) -> bool) -> Result<Self, FileError> {
        let mut lines = log.len();
        if lines >= MAX_LOG {
            let first = lines - KEPT;
            let kept = log.iter().enumerate().filter(|(index, changed)| *index >= first || needed(changed));
            let kept: Vec<_> = kept.map(|(_, changed)| line(changed)).collect();
            file::replace(path, &kept.concat()).map_err(at(path))?;
            lines = kept.len();
        }
        let file = open(path).map_err(at(path))?;
        let text = file::read(path, MAX_BYTES).map_err(at(path))?;
        let mut end = end_of_changes(&text);
        file.set_len(end as u64).map_err(at(path))?;
        if !text[..end].ends_with(b"\n") && end > 0 {
            file.write_all_at(b"\n", end as u64).and_then(|()| file.sync_data()).map_err(at(path))?;
            end += 1;
        }
        let end = end as u64;
        Ok(Self { path: path.to_owned(), file, end, has_torn_line: false, lines, max_lines: lines + MAX_LOG })
    }

    /// Rewrites the file, as [`Self::open`] does, once it has grown by [`MAX_LOG`] lines.
    pub(super) fn compact(&mut self, needed: impl Fn(&&Changed) -> bool) {
        if self.lines < self.max_lines {
            return;
        }
        match Self::read(&self.path).and_then(|log| Self::open(&self.path, &log, needed)) {
            Ok(compacted) => *self = compacted,
            Err(error) => {
                warn!(%error, "the file cannot be compacted: tried again after {MAX_LOG} further changes");
                self.max_lines += MAX_LOG;
            }
        }
    }

    /// Appends a change; it is on disk when this returns.
    pub(super) fn append(&mut self, changed: &Changed) -> io::Result<()> {
        let line = line(changed);
        if !self.is_in_place()? {
            self.put_back()?;
        }
        if self.has_torn_line {
            self.file.set_len(self.end)?;
        } else if self.file.metadata()?.len() != self.end {
            return Err(io::Error::other("another process has changed the file: restart Weir to use it"));
        }
        self.file.seek(SeekFrom::Start(self.end))?;
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        // A failed change must not be applied by a restart.
        self.has_torn_line = written.is_err() && self.file.set_len(self.end).is_err();
        written?;
        self.end += line.len() as u64;
        self.lines += 1;
        Ok(())
    }

    /// Whether the path still names the open file: it may have been removed or replaced.
    fn is_in_place(&self) -> io::Result<bool> {
        let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        match fs::metadata(&self.path) {
            Ok(there) => Ok(place(there) == place(self.file.metadata()?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Rewrites the path with the changes, which the open file still has.
    fn put_back(&mut self) -> io::Result<()> {
        let mut lines = vec![0; usize::try_from(self.end).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut lines, 0)?;
        file::replace(&self.path, &lines)?;
        self.file = open(&self.path)?;
        warn!(path = %self.path.display(), "the file was removed or replaced: it is written again");
        Ok(())
    }
}

/// Opens or creates the file, readable only by its owner: it contains keys, reasons and authors.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).read(true).write(true).mode(MODE).open(path)?;
    if file.metadata()?.permissions().mode() & !MODE & 0o777 != 0 {
        // Earlier versions made it readable by other users. Ignore the failure if another user owns the file.
        let _ = file.set_permissions(Permissions::from_mode(MODE));
    }
    file::sync_folder_of(path)?;
    Ok(file)
}

/// Returns the offset after the last change, which may lack its line break.
fn end_of_changes(text: &[u8]) -> usize {
    let lines = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    if changed(&text[lines..]).is_ok() { text.len() } else { lines }
}

/// Parses a line. Its predecessor is not in it.
fn changed(line: &[u8]) -> serde_json::Result<Changed> {
    let Line { id, name, before, after, actor } = serde_json::from_slice(line)?;
    let id = id.parse().map_err(serde::de::Error::custom)?;
    Ok(Changed { id, previous: None, name, before, after, actor })
}

fn at(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
    |cause| FileError::Io { path: path.display().to_string(), cause }
}

fn line(changed: &Changed) -> Vec<u8> {
    let Changed { id, name, before, after, actor, .. } = changed.clone();
    let line = Line { id: id.to_string(), name, before, after, actor };
    // Strings always serialize.
    let mut line = serde_json::to_vec(&line).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::{super::ChangeId, *};

    #[test]
    fn a_file_that_has_grown_is_compacted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let changed = |number: u64| Changed {
            id: ChangeId { millis: number, number: 0 },
            previous: None,
            name: "a".to_owned(),
            before: None,
            after: Some(number.to_string()),
            actor: "me".to_owned(),
        };
        let log: Vec<_> = (0..MAX_LOG as u64 - 1).map(changed).collect();
        fs::write(&path, log.iter().flat_map(line).collect::<Vec<_>>()).unwrap();
        let mut file = LogFile::open(&path, &log, |_| false).unwrap();
        file.max_lines = MAX_LOG;
        let lines = || fs::read_to_string(&path).unwrap().lines().count();
        file.compact(|_| false);
        assert_eq!(lines(), MAX_LOG - 1);
        file.append(&changed(MAX_LOG as u64)).unwrap();
        file.compact(|changed| changed.id.millis == 0);
        assert_eq!((lines(), file.lines, file.max_lines), (KEPT + 1, KEPT + 1, KEPT + 1 + MAX_LOG));
        file.append(&changed(MAX_LOG as u64 + 1)).unwrap();
        assert_eq!(LogFile::read(&path).unwrap().len(), KEPT + 2);
    }
}
