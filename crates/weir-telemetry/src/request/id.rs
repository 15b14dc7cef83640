//! Request ids in logs and responses.

use std::fmt;

/// Maximum length of an id from a client, in bytes.
const MAX_BYTES: usize = 128;

/// The id of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(Box<str>);

impl RequestId {
    /// Accepts the id of a client; `None` if it is empty, too long, or has other than visible ASCII characters without
    /// quotes and backslashes.
    pub fn given(bytes: &[u8]) -> Option<Self> {
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'`' | b'\\');
        if bytes.is_empty() || bytes.len() > MAX_BYTES || !bytes.iter().all(is_plain) {
            return None;
        }
        std::str::from_utf8(bytes).ok().map(|text| Self(text.into()))
    }

    /// Makes a random id of 128 bits.
    pub(crate) fn make() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into())
    }

    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_ids_of_clients_are_accepted() {
        let long = "x".repeat(MAX_BYTES);
        for id in ["a", "6f1d2c3e-9a0b-4c5d-8e7f-001122334455", "a/b+c=d_~{}", &long] {
            assert_eq!(RequestId::given(id.as_bytes()).as_ref().map(RequestId::as_str), Some(id));
        }
        for id in ["", "a b", "a\"b", "a'b", "a`b", "a\\b", "a\nb", "\u{7f}", "é", &format!("{long}x")] {
            assert_eq!(RequestId::given(id.as_bytes()), None, "{id}");
        }
        assert_eq!(RequestId::given(&[0xff]), None);
    }

    #[test]
    fn generated_ids_are_unique_and_valid() {
        let (one, other) = (RequestId::make(), RequestId::make());
        assert!(one != other && RequestId::given(one.as_str().as_bytes()) == Some(one));
    }
}
