//! Watching of policy files.

use std::path::Path;

use super::load::files;
use weir_settings::FileWatch;

/// Makes a watch on the files of the policy at `path`.
pub fn watch(path: &Path) -> FileWatch {
    let path = path.to_owned();
    FileWatch::new(move || files(&path).map(|(files, _)| files).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    /// Polls until a change has settled; false if two polls find nothing.
    fn changed(watch: &mut FileWatch) -> bool {
        watch.settled_change() || watch.settled_change()
    }

    #[test]
    fn a_rename_over_the_file_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("limits.yaml");
        fs::write(&file, "schema: {}").unwrap();
        let mut watch = super::watch(&file);
        assert!(!changed(&mut watch));
        fs::write(dir.path().join("limits.yaml.swp"), "schema: {a: }").unwrap();
        fs::rename(dir.path().join("limits.yaml.swp"), &file).unwrap();
        assert!(changed(&mut watch));
        assert!(!changed(&mut watch));
    }

    #[test]
    fn many_files_are_polled_less_often() {
        let dir = tempfile::tempdir().unwrap();
        let poll = Duration::from_millis(10);
        assert_eq!(watch(dir.path()).pause(poll), poll);
        (0..50).for_each(|file| fs::write(dir.path().join(format!("{file}.yaml")), "").unwrap());
        assert_eq!(watch(dir.path()).pause(poll), Duration::from_millis(100));
    }

    #[test]
    fn an_explicit_reload_is_not_reported_as_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("limits.yaml");
        let mut watch = super::watch(&file);
        fs::write(&file, "a").unwrap();
        assert!(!watch.settled_change());
        watch.load_anyway();
        assert!(!changed(&mut watch));
    }

    #[test]
    fn a_file_still_being_written_is_not_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("limits.yaml");
        fs::write(&file, "a").unwrap();
        let mut watch = super::watch(&file);
        for length in 2..5 {
            fs::write(&file, "a".repeat(length)).unwrap();
            assert!(!watch.settled_change());
        }
        assert!(watch.settled_change());
    }
}
