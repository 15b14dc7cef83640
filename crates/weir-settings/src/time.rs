//! Durations in settings.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_core::domain::{
    Micros,
    time::{SECOND, format_duration, parse_duration},
};

/// A duration as files and flags write it: `10s`, `250ms`, or whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "Text")]
pub struct Time(pub Micros);

/// A text, or a number where a file has only digits.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Text(String),
    Number(u64),
}

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

impl TryFrom<Text> for Time {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
        let text = match text {
            Text::Text(text) => text,
            Text::Number(number) => number.to_string(),
        };
        parse_duration(&text).map(Self)
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        format_duration(time.0)
    }
}
