//! Snapshot files.

use std::{fs, io::Write, path::Path};

use weir_core::{
    algorithm,
    domain::key::{domain_name, parts_end},
};
use weir_policy::tree::DEFAULT_ANCHOR;
use weir_store::memory::snapshot::{Loaded, Snapshot, SnapshotError};

use futures_util::FutureExt;
use tempfile::NamedTempFile;
use weir::limiter::Request;

use super::fixture::{self, EVERY, Memory, NOW};

/// Length of the checksum at the end of a file, in bytes.
const CHECKSUM: usize = blake3::OUT_LEN;

/// The content of a snapshot, with a valid checksum appended, is rejected or its states decide.
pub fn content(bytes: &[u8]) {
    let whole = [bytes, blake3::hash(bytes).as_bytes()].concat();
    let Ok((loaded, store)) = load(whole_file(&whole).path()) else { return };
    assert!(store.stats().keys as u64 + loaded.expired + loaded.left_out <= loaded.states, "{loaded:?}");
    let limiter = fixture::limiter(store, fixture::policy());
    let snapshot = limiter.policy();
    let keys = algorithm::rates().map(|entry| (EVERY, vec![entry.name])).chain([("", vec!["user", "alex", "trade"])]);
    for (domain, key) in keys {
        for cost in [1, 0, -1] {
            let mut request = Request::new(domain, &key).expect("a key");
            request.set_terms(cost, None, 1.0).expect("terms");
            let answer = limiter.check(&snapshot, &request).now_or_never().expect("memory does not wait");
            assert!(!answer.expect("an answer").levels.is_empty());
        }
    }
}

/// A file whose checksum does not match is rejected; a valid file is rejected once any byte has changed.
pub fn file(bytes: &[u8]) {
    let file = whole_file(bytes);
    if load(file.path()).is_err() {
        return;
    }
    let content = bytes.len() - CHECKSUM;
    assert_eq!(blake3::hash(&bytes[..content]).as_bytes(), &bytes[content..]);
    let at = usize::from(bytes[bytes.len() - 1]) * bytes.len() / 256;
    let mut damaged = bytes.to_vec();
    damaged[at] ^= 1;
    fs::write(file.path(), damaged).expect("a file");
    assert!(load(file.path()).is_err(), "byte {at} has changed");
}

fn whole_file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("room");
    file
}

fn load(path: &Path) -> Result<(Loaded, Memory), SnapshotError> {
    let snapshot = Snapshot::open(path)?.expect("the file is there");
    let store = fixture::store(snapshot.clock().max(NOW));
    let anchor_of = |domain: &[u8]| {
        assert_eq!(parts_end(domain, 1), Some(domain.len()), "{domain:?}");
        if domain == domain_name("shop") { 32 } else { DEFAULT_ANCHOR }
    };
    let loaded = snapshot.load_into(&store, anchor_of)?;
    Ok((loaded, store))
}
