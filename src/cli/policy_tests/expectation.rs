//! The expected answer of a check.

use weir_core::domain::time::format_duration;

use crate::cli::render::RenderedDecision;

/// The members of `says`.
pub(super) const NAMES: &[&str] = &["allowed", "by", "remaining", "retry_after", "reset_after", "wait"];

#[derive(Debug)]
pub(super) struct Expectation {
    /// One of [`NAMES`].
    pub name: &'static str,
    /// The expected value, as it is printed.
    pub expected: String,
}

impl Expectation {
    /// Describes the actual and the expected value, if they differ.
    pub(super) fn mismatch(&self, answer: &RenderedDecision) -> Option<String> {
        let Self { name, expected } = self;
        let decision = &answer.summary.decision;
        let by = answer.binding_name();
        let actual = match *name {
            "allowed" => verdict(decision.allowed).to_owned(),
            "by" => by.unwrap_or("no limit").to_owned(),
            "remaining" => decision.remaining.to_string(),
            "retry_after" => decision.retry_after.map_or_else(|| "none".to_owned(), format_duration),
            "reset_after" => format_duration(decision.reset_after),
            _ => format_duration(decision.wait),
        };
        if actual == *expected {
            return None;
        }
        Some(match (*name, by) {
            ("allowed", Some(by)) if !decision.allowed => format!("{actual} by {by}, must be {expected}"),
            ("allowed", _) => format!("{actual}, must be {expected}"),
            _ => format!("{name} is {actual}, must be {expected}"),
        })
    }
}

/// Formats a verdict.
pub(super) fn verdict(allowed: bool) -> &'static str {
    if allowed { "allowed" } else { "refused" }
}
