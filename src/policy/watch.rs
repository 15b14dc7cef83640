//! Notices that a policy has changed on disk, by looking.
//!
//! Looking works everywhere alike: an editor that renames a new file over the old one, a Kubernetes ConfigMap whose
//! `..data` link is swapped, a network file system that sends no events; and it needs no kernel resource that may run out.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use super::load::files;

/// Rest for each file that is looked at, which takes a few microseconds.
const PAUSE_FOR_A_FILE: Duration = Duration::from_millis(2);

/// What the files of a path look like from outside, links followed. `None` for a file that cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look(Vec<(PathBuf, Option<Stamp>)>);

/// Device, inode, size, and the time of the last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

impl Look {
    fn at(path: &Path) -> Self {
        let files = files(path).map(|(files, _)| files).unwrap_or_default();
        let look = |path: PathBuf| {
            let meta = fs::metadata(&path).ok();
            (path, meta.map(|meta| (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec())))
        };
        Self(files.into_iter().map(look).collect())
    }
}

/// Looks at a policy's path now and then.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    loaded: Look,
    last: Look,
}

impl Watch {
    /// Watches `path`, from how it looks now. Make it before the policy is loaded, so that no change is missed.
    pub fn new(path: &Path) -> Self {
        let look = Look::at(path);
        Self { path: path.to_owned(), loaded: look.clone(), last: look }
    }

    /// Looks once more. `true`: it differs from what was loaded and has stopped changing since the last look, so that
    /// a file is not read while it is being written; it then counts as loaded.
    pub fn settled_change(&mut self) -> bool {
        let look = Look::at(&self.path);
        let settled = look == self.last && look != self.loaded;
        if settled {
            self.loaded = look.clone();
        }
        self.last = look;
        settled
    }

    /// How long to rest between looks, where `poll` is wanted: longer for very many files, so that looking takes about a
    /// five-hundredth of a core at most.
    pub fn pause(&self, poll: Duration) -> Duration {
        poll.max(PAUSE_FOR_A_FILE * u32::try_from(self.last.0.len()).unwrap_or(u32::MAX))
    }

    /// Counts as loaded what the last look saw, settled or not: somebody asked for it.
    pub fn load_anyway(&mut self) {
        self.loaded = self.last.clone();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Looks until a change has settled or twice nothing was new.
    fn changed(watch: &mut Watch) -> bool {
        watch.settled_change() || watch.settled_change()
    }

    #[test]
    fn a_rename_over_the_file_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("limits.yaml");
        fs::write(&file, "schema: {}").unwrap();
        let mut watch = Watch::new(&file);
        assert!(!changed(&mut watch));
        fs::write(dir.path().join("limits.yaml.swp"), "schema: {a: }").unwrap();
        fs::rename(dir.path().join("limits.yaml.swp"), &file).unwrap();
        assert!(changed(&mut watch));
        assert!(!changed(&mut watch));
    }

    #[test]
    fn very_many_files_are_looked_at_less_often() {
        let dir = tempfile::tempdir().unwrap();
        let poll = Duration::from_millis(10);
        assert_eq!(Watch::new(dir.path()).pause(poll), poll);
        (0..50).for_each(|file| fs::write(dir.path().join(format!("{file}.yaml")), "").unwrap());
        assert_eq!(Watch::new(dir.path()).pause(poll), Duration::from_millis(100));
    }

    #[test]
    fn a_swapped_data_link_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for version in ["..1", "..2"] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("a.yaml"), "schema: {}").unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/a.yaml", at("a.yaml")).unwrap();
        let mut watch = Watch::new(dir.path());
        symlink("..2", at("..new")).unwrap();
        fs::rename(at("..new"), at("..data")).unwrap();
        assert!(changed(&mut watch));
    }

    #[test]
    fn what_was_loaded_because_somebody_asked_is_no_change_later() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("limits.yaml");
        let mut watch = Watch::new(&file);
        fs::write(&file, "a").unwrap();
        assert!(!watch.settled_change());
        watch.load_anyway();
        assert!(!changed(&mut watch));
    }

    #[test]
    fn a_file_still_being_written_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("limits.yaml");
        fs::write(&file, "a").unwrap();
        let mut watch = Watch::new(&file);
        for length in 2..5 {
            fs::write(&file, "a".repeat(length)).unwrap();
            assert!(!watch.settled_change());
        }
        assert!(watch.settled_change());
    }
}
