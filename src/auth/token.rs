//! Bearer tokens, which are kept only as hashes.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::{
    digest::{SHA256, SHA256_OUTPUT_LEN, digest},
    rand::{SecureRandom, SystemRandom},
};
use subtle::ConstantTimeEq;
use weir_settings::Secret;

/// The prefix of every token, by which secret scanners recognize a leaked one.
pub const PREFIX: &str = "weir_";
/// Random bytes of a token.
const RANDOM_BYTES: usize = 32;

/// SHA-256 of a token.
#[derive(Clone)]
pub struct TokenHash([u8; SHA256_OUTPUT_LEN]);

impl TokenHash {
    /// Hashes a token.
    pub fn of(token: &[u8]) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, token).as_ref());
        Self(hash)
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok().map(Self)
    }

    /// Compares both hashes in constant time.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Generates a random token.
///
/// # Errors
/// A message if the operating system has no random bytes.
pub fn random() -> Result<Secret, String> {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the system has no random bytes to give".to_owned())?;
    Ok(Secret::from(format!("{PREFIX}{}", HEXLOWER.encode(&bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_hashes_match_sha256sum() {
        let hash = TokenHash::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert!(TokenHash::parse(&text.to_uppercase()).is_some_and(|parsed| parsed.is(&hash)));
        assert!(!TokenHash::of(b"abd").is(&hash));
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('b', "g"), &text.replace("ba", "ä")] {
            assert!(TokenHash::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn random_tokens_are_unique_and_never_printed() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), PREFIX.len() + 64);
        assert_eq!(format!("{one:?}{:?}", TokenHash::of(one.reveal().as_bytes())), "******");
    }
}
