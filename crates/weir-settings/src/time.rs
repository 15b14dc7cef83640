//! Durations in settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_core::domain::{
    Micros,
    time::{SECOND, format_duration, parse_duration},
};

/// A duration as files and flags write it: `10s`, `250ms`, or whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Time(pub Micros);

impl Time {
    /// Makes a duration of whole seconds.
    pub const fn seconds(seconds: i64) -> Self {
        Self(seconds * SECOND)
    }

    /// Converts to the standard library's type.
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.0.unsigned_abs())
    }
}

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_duration(&text).map(Self)
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        format_duration(time.0)
    }
}
