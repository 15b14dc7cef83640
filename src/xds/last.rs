//! The last accepted response in a file, for starts while the control plane is unreachable.

use std::{
    io::{self, ErrorKind},
    path::Path,
};

use prost::Message;
use weir_policy::TextHash;
use weir_settings::file;

use super::DiscoveryResponse;

/// Maximum size of the file: the largest response, and the line before it.
const MAX_BYTES: u64 = (64 << 20) + 64;

/// Writes a response to the file. Blocks the thread.
///
/// # Errors
/// The error of the operating system; the file is then unchanged.
pub fn keep(path: &Path, response: &DiscoveryResponse) -> io::Result<()> {
    let message = response.encode_to_vec();
    let mut contents = head(&message).into_bytes();
    contents.extend(message);
    file::replace(path, &contents)
}

/// Reads the response in the file; `None` if there is no file. Blocks the thread.
///
/// # Errors
/// The error of the operating system, or that the file is damaged.
pub fn load(path: &Path) -> io::Result<Option<DiscoveryResponse>> {
    let contents = match file::read(path, MAX_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        contents => contents?,
    };
    let damaged = || io::Error::other("the file is damaged");
    let end = contents.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)? + 1;
    let (found, message) = contents.split_at(end);
    if found != head(message).as_bytes() {
        return Err(damaged());
    }
    DiscoveryResponse::decode(message).map(Some).map_err(|_| damaged())
}

/// Returns the first line: the format, and a hash of the rest.
fn head(message: &[u8]) -> String {
    let mut hash = TextHash::default();
    hash.add(message);
    format!("weir-xds-1 {}\n", hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_stored_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last");
        assert!(load(&path).unwrap().is_none());
        let response = DiscoveryResponse { version_info: "7".to_owned(), ..DiscoveryResponse::default() };
        keep(&path, &response).unwrap();
        keep(&path, &response).unwrap();
        assert_eq!(load(&path).unwrap(), Some(response));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let whole = std::fs::read(&path).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[1..], b"", b"weir-xds-1 \n"] {
            std::fs::write(&path, damaged).unwrap();
            assert!(load(&path).is_err());
        }
    }
}
