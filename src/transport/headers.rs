//! The rate-limit headers. They describe only one level, the binding one.

mod style;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use smallvec::{SmallVec, smallvec};
use weir_core::domain::{Decision, Micros, time::SECOND};

pub use style::HeaderStyle;

/// Header names, in lower case, and values.
pub type Headers = SmallVec<[(&'static str, String); 4]>;

/// Maximum number of characters of a limit's name in a header. A longer name is a path pattern.
const MAX_NAME: usize = 256;

/// The ASCII characters that are percent-encoded in a string of a structured field: those that it cannot contain, and
/// the escape character `%`. Characters outside ASCII are always encoded.
const NOT_IN_STRINGS: &AsciiSet = &CONTROLS.add(b'%');

/// The level that the headers describe.
#[derive(Clone, Copy, Debug)]
pub struct Quota<'a> {
    /// The limit's name.
    pub name: &'a str,
    /// Its window, above 0.
    pub window: Micros,
    /// Its decision.
    pub decision: &'a Decision,
}

impl Quota<'_> {
    /// Returns the headers in this style.
    pub fn headers(&self, style: HeaderStyle) -> Headers {
        let Decision { limit, remaining, .. } = self.decision;
        match style {
            HeaderStyle::Off => Headers::new(),
            HeaderStyle::Draft11 => {
                let (name, window) = (string(self.name), seconds_from_1(self.window));
                // The time until the next unit, if none is left.
                let next = self.decision.next_after.map(|after| format!(";t={}", seconds_from_1(after)));
                let next = next.unwrap_or_default();
                smallvec![
                    ("ratelimit-policy", format!("{name};q={limit};w={window}")),
                    ("ratelimit", format!("{name};r={remaining}{next}")),
                ]
            }
            HeaderStyle::Ratelimit => self.three(["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]),
            HeaderStyle::XRatelimitLimit => {
                self.three(["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"])
            }
            HeaderStyle::XRatelimit => self.x_ratelimit(),
        }
    }

    /// Returns `Retry-After` in whole seconds, rounded up, at least 1. `None` unless a refused request can pass later.
    pub fn retry_after(&self) -> Option<(&'static str, String)> {
        self.decision.retry_after.map(retry_after)
    }

    /// Returns limit, remaining and reset under these names.
    fn three(&self, names: [&'static str; 3]) -> Headers {
        let Decision { limit, remaining, .. } = *self.decision;
        names.into_iter().zip([limit, remaining, self.seconds_left()].map(|number| number.to_string())).collect()
    }

    /// Returns `RateLimit-Reset` in whole seconds: after a refusal, until the request would pass (as in `Retry-After`);
    /// else until the key is full again.
    fn seconds_left(&self) -> u64 {
        self.seconds_to_retry().unwrap_or_else(|| whole_seconds(self.decision.reset_after))
    }

    fn seconds_to_retry(&self) -> Option<u64> {
        self.decision.retry_after.map(seconds_from_1)
    }

    fn x_ratelimit(&self) -> Headers {
        let mut headers: Headers = smallvec![
            ("x-ratelimit-remaining", self.decision.remaining.to_string()),
            ("x-ratelimit-clear", milliseconds(self.decision.reset_after)),
        ];
        if let Some(after) = self.decision.retry_after {
            headers.push(("x-ratelimit-reset", milliseconds(after)));
        }
        headers
    }
}

/// Returns `Retry-After` in whole seconds, rounded up, at least 1.
pub fn retry_after(after: Micros) -> (&'static str, String) {
    ("retry-after", seconds_from_1(after).to_string())
}

/// Returns whole seconds, rounded up, so that a client that waits for them is not early.
pub fn whole_seconds(micros: Micros) -> u64 {
    micros.max(0).unsigned_abs().div_ceil(SECOND.unsigned_abs())
}

/// Returns whole seconds, rounded up, at least 1.
fn seconds_from_1(micros: Micros) -> u64 {
    whole_seconds(micros).max(1)
}

/// Returns seconds with three decimals, rounded up.
fn milliseconds(micros: Micros) -> String {
    let millis = micros.max(0).unsigned_abs().div_ceil(1_000);
    format!("{}.{:03}", millis / 1_000, millis % 1_000)
}

/// Returns a string of a structured field (RFC 9651, section 3.3.3), which must be printable ASCII. Other characters
/// are percent-encoded as UTF-8, and so is `%`, so that different names stay different.
fn string(text: &str) -> String {
    let mut string = String::from("\"");
    let shown = text.char_indices().nth(MAX_NAME).map_or(text, |(end, _)| &text[..end]);
    for part in utf8_percent_encode(shown, NOT_IN_STRINGS) {
        // A part is either unchanged or percent-encoded; an encoded one contains no quote and no backslash.
        for letter in part.chars() {
            if matches!(letter, '"' | '\\') {
                string.push('\\');
            }
            string.push(letter);
        }
    }
    string + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_of(style: HeaderStyle, name: &str, window: Micros, decision: Decision) -> String {
        let quota = Quota { name, window, decision: &decision };
        let lines = quota.headers(style).into_iter().chain(quota.retry_after());
        lines.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_draft_11_style_has_two_fields() {
        let pass = Decision::pass(100, 50, 29_000_001);
        let expected = "ratelimit-policy: \"api\";q=100;w=60\nratelimit: \"api\";r=50";
        assert_eq!(headers_of(HeaderStyle::Draft11, "api", 60 * SECOND, pass), expected);
        let next_after = Some(2 * SECOND + 1);
        let empty = Decision { next_after, ..Decision::pass(100, 0, 60 * SECOND) };
        let expected = "ratelimit-policy: \"api\";q=100;w=60\nratelimit: \"api\";r=0;t=3";
        assert_eq!(headers_of(HeaderStyle::Draft11, "api", 60 * SECOND, empty), expected);
        let refuse = Decision { next_after: Some(1), ..Decision::refuse(100, 0, Some(5 * SECOND), 60 * SECOND) };
        let expected = "ratelimit-policy: \"api\";q=100;w=1\nratelimit: \"api\";r=0;t=1\nretry-after: 5";
        assert_eq!(headers_of(HeaderStyle::Draft11, "api", 1, refuse), expected);
    }

    #[test]
    fn the_ratelimit_style_has_three_fields() {
        let refuse = Decision::refuse(6, 0, Some(1_457_145), 8_957_145);
        let expected = "ratelimit-limit: 6\nratelimit-remaining: 0\nratelimit-reset: 2\nretry-after: 2";
        assert_eq!(headers_of(HeaderStyle::Ratelimit, "x", SECOND, refuse), expected);
        let full = Decision::pass(6, 6, 0);
        let expected = "ratelimit-limit: 6\nratelimit-remaining: 6\nratelimit-reset: 0";
        assert_eq!(headers_of(HeaderStyle::Ratelimit, "x", SECOND, full), expected);
        let expected = "x-ratelimit-limit: 6\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 2\nretry-after: 2";
        assert_eq!(headers_of(HeaderStyle::XRatelimitLimit, "x", SECOND, refuse), expected);
    }

    #[test]
    fn x_ratelimit_headers_have_seconds_with_three_decimals() {
        let pass = Decision::pass(10, 9, 9_876_000);
        assert_eq!(
            headers_of(HeaderStyle::XRatelimit, "x", SECOND, pass),
            "x-ratelimit-remaining: 9\nx-ratelimit-clear: 9.876"
        );
        let refuse = Decision::refuse(10, 0, Some(566_001), 12_000_000);
        let expected = "x-ratelimit-remaining: 0\nx-ratelimit-clear: 12.000\nx-ratelimit-reset: 0.567\nretry-after: 1";
        assert_eq!(headers_of(HeaderStyle::XRatelimit, "x", SECOND, refuse), expected);
    }

    #[test]
    fn a_cost_that_can_never_pass_has_no_retry_after() {
        let never = Decision::refuse(10, 4, None, 6 * SECOND);
        for (style, expected) in [
            (HeaderStyle::Off, ""),
            (HeaderStyle::Draft11, "ratelimit-policy: \"x\";q=10;w=10\nratelimit: \"x\";r=4"),
            (HeaderStyle::Ratelimit, "ratelimit-limit: 10\nratelimit-remaining: 4\nratelimit-reset: 6"),
            (HeaderStyle::XRatelimit, "x-ratelimit-remaining: 4\nx-ratelimit-clear: 6.000"),
        ] {
            assert_eq!(headers_of(style, "x", 10 * SECOND, never), expected);
        }
    }

    #[test]
    fn a_refusal_has_retry_after_in_every_style() {
        let refuse = Decision::refuse(10, 0, Some(3 * SECOND), 6 * SECOND);
        assert_eq!(headers_of(HeaderStyle::Off, "x", SECOND, refuse), "retry-after: 3");
    }

    #[test]
    fn names_are_encoded_as_structured_field_strings() {
        for (name, expected) in [
            ("user/*/trade#gcra0", r#""user/*/trade#gcra0""#),
            (r#"say "hi" \o/"#, r#""say \"hi\" \\o/""#),
            ("für%1\r\nx: y\u{7f}", r#""f%C3%BCr%251%0D%0Ax: y%7F""#),
            ("", r#""""#),
        ] {
            assert_eq!(string(name), expected);
        }
        assert_eq!(string(&"é".repeat(300)).len(), 2 + 6 * MAX_NAME);
    }
}
