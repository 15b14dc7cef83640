//! The decision of one limit.

use super::time::Micros;

/// The decision of one limit. On a refusal the numbers describe the state after it. Durations are rounded up to the
/// microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether this limit lets the request pass.
    pub allowed: bool,
    /// The most units that pass in a burst.
    pub limit: u64,
    /// The largest cost that would pass now, after this decision's charge.
    pub remaining: u64,
    /// For a refusal, the least time after which the same request passes if no other request uses the key. `None` if
    /// allowed, or if no wait helps (`never`).
    pub retry_after: Option<Micros>,
    /// If nothing is left, the least time after which a unit is left if no other request uses the key. `None` if
    /// something is left, or if no wait helps.
    pub next_after: Option<Micros>,
    /// Time until the key is exactly as if never used; 0 if it is now.
    pub reset_after: Micros,
    /// Time that the client must wait before it starts an allowed request.
    pub wait: Micros,
    /// Whether the request is refused and no wait can make its cost pass.
    pub never: bool,
}

impl Decision {
    /// Creates a decision that allows the request immediately.
    pub fn pass(limit: u64, remaining: u64, reset_after: Micros) -> Self {
        let (retry_after, next_after) = (None, None);
        Self { allowed: true, limit, remaining, retry_after, next_after, reset_after, wait: 0, never: false }
    }

    /// Creates a refusal. The request passes after `retry_after`, or never if that is `None`.
    pub fn refuse(limit: u64, remaining: u64, retry_after: Option<Micros>, reset_after: Micros) -> Self {
        let never = retry_after.is_none();
        Self { allowed: false, limit, remaining, retry_after, next_after: None, reset_after, wait: 0, never }
    }
}

/// Two messages contain a decision, in fields of the same names.
#[cfg(feature = "proto")]
macro_rules! from_message {
    ($($message:ident),+) => { $(
        impl From<&crate::proto::$message> for Decision {
            fn from(message: &crate::proto::$message) -> Self {
                let micros = |time: &prost_types::Duration| time.seconds * super::time::SECOND + Micros::from(time.nanos) / 1_000;
                Self {
                    allowed: message.allowed,
                    limit: message.limit,
                    remaining: message.remaining,
                    retry_after: message.retry_after.as_ref().map(micros),
                    next_after: message.next_after.as_ref().map(micros),
                    reset_after: message.reset_after.as_ref().map_or(0, micros),
                    wait: message.wait.as_ref().map_or(0, micros),
                    never: message.never,
                }
            }
        }
    )+ };
}
#[cfg(feature = "proto")]
from_message!(CheckResponse, LevelResult);
