//! SHA-256, whose first bytes are names, ids and checksums.

use ring::digest::{Context, SHA256};

/// Returns the first `N` bytes of the SHA-256 of these parts, one after the other.
pub(super) fn sha256<const N: usize>(parts: impl IntoIterator<Item: AsRef<[u8]>>) -> [u8; N] {
    let mut hash = Context::new(&SHA256);
    parts.into_iter().for_each(|part| hash.update(part.as_ref()));
    let hash = hash.finish();
    let mut first = [0; N];
    first.copy_from_slice(&hash.as_ref()[..N]);
    first
}

/// Returns a part with its length before it, so that no other parts have the same bytes.
pub(super) fn delimited(part: &[u8]) -> Vec<u8> {
    [&(part.len() as u64).to_le_bytes()[..], part].concat()
}
