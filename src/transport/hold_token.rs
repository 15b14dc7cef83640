//! The hold token: the text that names a client's reservation, in the field `hold`.
//!
//! It contains everything that is needed to find the reservation, so replicas keep no record of it: random bytes, which
//! cannot be guessed, and the check, from which the same plan is built again. The reservation's name is derived from
//! both, so a modified token names no reservation.

use data_encoding::BASE64URL_NOPAD;
use prost::Message;
use weir_core::hold::RESERVATION_ID_BYTES;

use super::{digest::sha256, message::CheckMessage};
use crate::limiter::Invalid;

/// Version of the format. As the first byte it makes every token start with `A`, so that none looks like a command-line
/// flag.
const VERSION: u8 = 1;
/// Maximum length of the text, in bytes: more than the longest valid check needs.
pub const MAX_BYTES: usize = 1 << 16;

/// Whether the store holds units for a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldTokenKind {
    /// Units are held in the store.
    Units = 0,
    /// No units are held: the check met no limit.
    Nothing = 1,
    /// No units are held: the shared store did not answer the check.
    Degraded = 2,
}

/// A decoded hold token.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldToken {
    /// Whether the store holds units.
    pub kind: HoldTokenKind,
    /// Random bytes, or derived from the client's `request_id`.
    id: [u8; RESERVATION_ID_BYTES],
    /// The encoded `CheckRequest`, from which the plan is built.
    check: Vec<u8>,
}

impl HoldToken {
    /// Returns a new token for this check.
    pub fn new(check: &CheckMessage<'_>) -> Self {
        let own = check.to_check_request().encode_to_vec();
        let id = match check.request_id {
            "" => rand::random(),
            // A repeated request names the reservation of the first one.
            id => sha256([id.as_bytes(), &own]),
        };
        Self { kind: HoldTokenKind::Units, id, check: own }
    }

    /// Decodes the check of the reservation.
    ///
    /// # Errors
    /// [`Invalid`] if it cannot be decoded.
    pub fn check(&self) -> Result<CheckMessage<'_>, Invalid> {
        CheckMessage::read(&self.check).map_err(|_| malformed())
    }

    /// Returns the reservation's name in the store, which is unique to its check and its client.
    pub fn name(&self, client: Option<&str>) -> Vec<u8> {
        let own: [u8; RESERVATION_ID_BYTES] = sha256([&self.id[..], &self.check]);
        [&own[..], client.unwrap_or_default().as_bytes()].concat()
    }

    /// Encodes the token as text.
    pub fn encode(&self) -> String {
        BASE64URL_NOPAD.encode(&[&[VERSION, self.kind as u8], &self.id[..], &self.check].concat())
    }

    /// Decodes the text.
    ///
    /// # Errors
    /// [`Invalid`] if it is not a hold token.
    pub fn decode(text: &str) -> Result<Self, Invalid> {
        let bytes = if text.len() <= MAX_BYTES { BASE64URL_NOPAD.decode(text.as_bytes()).ok() } else { None };
        bytes.as_deref().and_then(Self::parse).ok_or_else(malformed)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let [VERSION, kind, rest @ ..] = bytes else { return None };
        let kind = [HoldTokenKind::Units, HoldTokenKind::Nothing, HoldTokenKind::Degraded]
            .into_iter()
            .find(|known| *known as u8 == *kind)?;
        let (id, check) = rest.split_first_chunk()?;
        Some(Self { kind, id: *id, check: check.to_vec() })
    }
}

/// Returns the error for a text that is not a hold token.
pub fn malformed() -> Invalid {
    Invalid::field_error("hold", "not a hold that Reserve returned")
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use proptest::prelude::*;

    use super::*;
    use crate::proto::CheckRequest;
    use crate::proto::{Limit, LimitSpec};

    fn longest_check() -> CheckRequest {
        let limit = Limit { name: "n".repeat(256), depth: 32, shadow: true, algorithm: None };
        CheckRequest {
            domain: "d".repeat(1_024),
            key: vec!["k".repeat(1_024); 32],
            limit_spec: Some(LimitSpec { limits: vec![limit; 16], charge: 2 }),
            cost: Some(1 << 32),
            factor: Some(0.1),
            ..CheckRequest::default()
        }
    }

    #[test]
    fn the_longest_check_fits() {
        let check = longest_check();
        for kind in [HoldTokenKind::Units, HoldTokenKind::Nothing, HoldTokenKind::Degraded] {
            let token = HoldToken { kind, ..HoldToken::new(&(&check).into()) };
            let text = token.encode();
            assert!(text.starts_with('A') && text.len() < MAX_BYTES - 4_096, "{} bytes", text.len());
            let read = HoldToken::decode(&text).unwrap();
            assert_eq!(read, token);
            assert_eq!(read.check().unwrap(), (&check).into());
        }
    }

    #[test]
    fn two_tokens_checks_and_clients_have_different_names() {
        let check = CheckRequest { key: vec!["a".to_owned()], ..CheckRequest::default() };
        let [one, other] = [(); 2].map(|()| HoldToken::new(&(&check).into()));
        let changed = HoldToken { check: [&one.check[..], b"\x12\x01b"].concat(), ..one.clone() };
        let mut names: Vec<_> = [&one, &other, &changed].map(|token| token.name(Some("shop"))).into();
        names.extend([one.name(None), one.name(Some("shoe"))]);
        assert_eq!(names[0], HoldToken::decode(&one.encode()).unwrap().name(Some("shop")));
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{index}");
        }
    }

    #[test]
    fn ids_and_names_stay_the_same_across_versions() {
        let check = CheckRequest { key: vec!["a".to_owned()], request_id: "r".to_owned(), ..CheckRequest::default() };
        let token = HoldToken::new(&(&check).into());
        assert_eq!(HEXLOWER.encode(&token.id), "79ee895a75dcbdda61140fae15c1de48");
        assert_eq!(HEXLOWER.encode(&token.name(Some("shop"))), "a6b6c992c9af548a1b5dbb78ab0817c273686f70");
    }

    proptest! {
        #[test]
        fn any_text_is_the_one_token_that_it_encodes_or_none(text in "A[AQgw][A-P][a-zA-Z0-9_-]{15,60}|.{0,20}") {
            match HoldToken::decode(&text) {
                Ok(token) => prop_assert_eq!(token.encode(), text),
                Err(invalid) => prop_assert_eq!(invalid.field(""), "hold"),
            }
        }
    }
}
