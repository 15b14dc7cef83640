//! Detection of changed files by polling.
//!
//! Polling works everywhere in the same way: with an editor that renames a new file over the old one, a Kubernetes
//! volume whose `..data` link is swapped, and a network file system that sends no events; and it needs no kernel
//! resource that may run out.

use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc, time::Duration};

/// Minimum pause per polled file. Polling one takes a few microseconds.
const PAUSE_FOR_A_FILE: Duration = Duration::from_millis(2);

/// The metadata of files, links followed. `None` for a file that is not accessible.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

/// Device, inode, size, and change time in seconds and nanoseconds; a change of the mode alone also counts.
type Stamp = (u64, u64, u64, i64, i64);

impl Stamps {
    fn at(files: Vec<PathBuf>) -> Self {
        let stamp = |path: PathBuf| {
            let meta = fs::metadata(&path).ok();
            (path, meta.map(|meta| (meta.dev(), meta.ino(), meta.size(), meta.ctime(), meta.ctime_nsec())))
        };
        Self(files.into_iter().map(stamp).collect())
    }
}

/// Polls files for changes. A clone continues from the same state on its own.
#[derive(Clone)]
pub struct FileWatch {
    files: Arc<dyn Fn() -> Vec<PathBuf> + Send + Sync>,
    loaded: Stamps,
    last: Stamps,
}

impl FileWatch {
    /// Watches the files that `files` returns at each poll, starting from their current state. Create it before loading
    /// them, so that no change is missed.
    pub fn new(files: impl Fn() -> Vec<PathBuf> + Send + Sync + 'static) -> Self {
        let seen = Stamps::at(files());
        Self { files: Arc::new(files), loaded: seen.clone(), last: seen }
    }

    /// Polls the files. `true`: they differ from the loaded state and have not changed since the last poll, so that a
    /// file is not read while it is being written; they then count as loaded.
    pub fn settled_change(&mut self) -> bool {
        let seen = Stamps::at((self.files)());
        let settled = seen == self.last && seen != self.loaded;
        if settled {
            self.loaded = seen.clone();
        }
        self.last = seen;
        settled
    }

    /// Returns the time between polls: `poll`, or longer for very many files, so that polling takes about 0.2 % of a
    /// core at most.
    pub fn pause(&self, poll: Duration) -> Duration {
        poll.max(PAUSE_FOR_A_FILE * u32::try_from(self.last.0.len()).unwrap_or(u32::MAX))
    }

    /// Marks the files as loaded in the state last seen, settled or not: for a reload on request.
    pub fn load_anyway(&mut self) {
        self.loaded = self.last.clone();
    }
}
