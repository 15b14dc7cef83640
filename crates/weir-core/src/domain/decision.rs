//! The decision of one limit.

use super::time::Micros;

/// One limit's answer. On a refusal it describes the state after it. Durations are rounded up to the microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether this limit lets the request pass.
    pub allowed: bool,
    /// The most units that pass at once.
    pub limit: u64,
    /// The largest cost that would pass now, after this decision's charge.
    pub remaining: u64,
    /// Refused only: the least wait after which the same request would pass if no other request used the key; `None` when
    /// allowed, or when no wait helps (`never`).
    pub retry_after: Option<Micros>,
    /// Nothing left only: the least wait after which a unit is left if no other request used the key; `None` where something
    /// is left, or no wait helps.
    pub next_after: Option<Micros>,
    /// Time until the key is exactly as if never seen; 0 when it is so now.
    pub reset_after: Micros,
    /// Allowed, but to start this much later.
    pub wait: Micros,
    /// Refused, and no wait can make this cost pass.
    pub never: bool,
}

impl Decision {
    /// The request passes at once.
    pub fn pass(limit: u64, remaining: u64, reset_after: Micros) -> Self {
        let (retry_after, next_after) = (None, None);
        Self { allowed: true, limit, remaining, retry_after, next_after, reset_after, wait: 0, never: false }
    }

    /// The request is refused; it would pass after `retry_after`, or never where that is `None`.
    pub fn refuse(limit: u64, remaining: u64, retry_after: Option<Micros>, reset_after: Micros) -> Self {
        let never = retry_after.is_none();
        Self { allowed: false, limit, remaining, retry_after, next_after: None, reset_after, wait: 0, never }
    }
}

/// Two messages tell a decision, in fields of the same names.
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
