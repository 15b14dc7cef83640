//! The policies of the benches: one limit per key, or the published nested pair.

// No bench uses all of it.
#![allow(dead_code)]

use std::{fmt, fs};

use weir_core::domain::Key;
use weir_policy::{Policy, Rules};

/// The limits of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `user/*`: gcra 15 30 60.
    One,
    /// `user/*`: gcra 15 30 60, and `user/*/trade`: gcra 5 10 15.
    Nested,
}

impl Shape {
    /// Returns the number of limits of a key.
    pub fn levels(self) -> usize {
        match self {
            Self::One => 1,
            Self::Nested => 2,
        }
    }

    /// Makes the policy, with periods `longer` times the published ones and `headroom` more units of
    /// burst.
    pub fn policy(self, longer: u64, headroom: u64) -> Policy {
        let limit = |burst, count, seconds| format!("[{}, {count}, {}]", burst + headroom, seconds * longer);
        let (user, trade) = (limit(15, 30, 60), limit(5, 10, 15));
        let mut text = format!("schema: {{ user: {{ children: {{ '*': {{ limits: {user}");
        if self == Self::Nested {
            text.push_str(&format!(", children: {{ trade: {{ limits: {trade} }} }}"));
        }
        text.push_str(" } } } }");
        weir_policy::parse(&text, &Rules::default()).expect("a policy")
    }

    /// Returns the segments of a user's key: 24 bytes, and `trade` in the nested shape.
    pub fn segments(self, user: usize) -> Vec<String> {
        let mut segments = vec!["user".to_owned(), format!("{user:020}")];
        if self == Self::Nested {
            segments.push("trade".to_owned());
        }
        segments
    }

    /// Returns a user's key.
    pub fn key(self, user: usize) -> Key {
        Key::new("", &self.segments(user)).expect("two or three short segments")
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "one level",
            Self::Nested => "nested pair",
        })
    }
}

/// Returns a line of this process's `/proc/self/status`, in bytes.
pub fn resident(line: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let text = status.lines().find_map(|text| text.strip_prefix(line)).expect("the line");
    let kilobytes: usize = text.trim().trim_end_matches(" kB").parse().expect("a number");
    kilobytes * 1024
}
