//! Cursors of the operators' API: opaque texts, each valid for one request only.

use data_encoding::BASE64URL_NOPAD;

use crate::{
    limiter::Invalid,
    proto::ListKeysRequest,
    transport::digest::{delimited, sha256},
};

/// Version of the format. As the first byte it makes every cursor start with `A`, so that none looks like a
/// command-line flag.
const VERSION: u8 = 2;
/// Maximum length of the text, in bytes: more than the longest cursor needs.
const MAX_BYTES: usize = 1 << 18;
/// Length of the checksum, in bytes.
const SEAL_BYTES: usize = 8;

/// Encodes the position of a scan as text. `scope` distinguishes the scans of this store from scans of others.
pub(super) fn write(request: &ListKeysRequest, scope: &str, cursor: &[u8]) -> String {
    BASE64URL_NOPAD.encode(&[&[VERSION], &seal(request, scope, cursor)[..], cursor].concat())
}

/// Decodes the text; `None` if it is empty.
///
/// # Errors
/// [`Invalid`] for a cursor of another request, or a modified one.
pub(super) fn read(request: &ListKeysRequest, scope: &str) -> Result<Option<Vec<u8>>, Invalid> {
    if request.cursor.is_empty() {
        return Ok(None);
    }
    let bytes = Some(&request.cursor).filter(|text| text.len() <= MAX_BYTES);
    let bytes = bytes.and_then(|text| BASE64URL_NOPAD.decode(text.as_bytes()).ok());
    let cursor = bytes.as_deref().and_then(|bytes| {
        let (seal, cursor) = bytes.strip_prefix(&[VERSION])?.split_first_chunk()?;
        (*seal == self::seal(request, scope, cursor)).then(|| cursor.to_vec())
    });
    let malformed = || {
        let message =
            "not a cursor of this request; with `store.url: memory` a restart also ends it: begin without one";
        Invalid::field_error("cursor", message)
    };
    cursor.map(Some).ok_or_else(malformed)
}

/// Returns the checksum, which ties a cursor to its request. It is not secret: a client that may list keys may list
/// all.
fn seal(request: &ListKeysRequest, scope: &str, cursor: &[u8]) -> [u8; SEAL_BYTES] {
    let ListKeysRequest { domain, prefix, all_domains, .. } = request;
    let all: &[u8] = if *all_domains { b"all" } else { b"one" };
    let texts = prefix.iter().chain([domain]).map(String::as_bytes).chain([scope.as_bytes(), all, cursor]);
    sha256(texts.map(delimited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_of_its_request_alone_and_cannot_be_changed() {
        let request = |prefix: &[&str], domain: &str, all_domains| ListKeysRequest {
            domain: domain.to_owned(),
            prefix: prefix.iter().map(|segment| (*segment).to_owned()).collect(),
            all_domains,
            ..Default::default()
        };
        let own = request(&["a", "b"], "d", false);
        let text = write(&own, "s", b"place");
        let given = |request: &ListKeysRequest, text: &str, scope| {
            read(&ListKeysRequest { cursor: text.to_owned(), ..request.clone() }, scope)
        };
        assert!(text.starts_with('A'));
        assert_eq!(given(&own, &text, "s").unwrap().as_deref(), Some(&b"place"[..]));
        assert_eq!(
            given(&ListKeysRequest { page_size: 9, ..own.clone() }, &text, "s").unwrap().as_deref(),
            Some(&b"place"[..])
        );
        assert_eq!(given(&own, "", "s").unwrap(), None);
        for other in [
            request(&["a"], "d", false),
            request(&["ab"], "d", false),
            request(&["a", "b"], "", false),
            request(&[], "", true),
        ] {
            assert!(given(&other, &text, "s").is_err(), "{other:?}");
        }
        assert!(given(&own, &text, "t").is_err());
        for at in 0..text.len() {
            let changed =
                format!("{}{}{}", &text[..at], if &text[at..=at] == "x" { "y" } else { "x" }, &text[at + 1..]);
            assert!(given(&own, &changed, "s").is_err() && given(&own, &text[..at], "s").is_err() == (at > 0), "{at}");
        }
        assert!(given(&own, &"A".repeat(MAX_BYTES + 1), "s").is_err());
    }
}
