//! What a check must be answered.

use weir_core::domain::{Micros, time::format_duration};

use crate::cli::render::Decided;

/// One thing that must be said.
#[derive(Debug)]
pub(super) enum Says {
    /// Whether it passes.
    Allowed(bool),
    /// The limit that decides: the binding one.
    By(String),
    /// Units that are left.
    Remaining(u64),
    /// How long until the same request passes.
    RetryAfter(Micros),
    /// How long until the key is as if never seen.
    ResetAfter(Micros),
    /// How long a request that passes has to wait.
    Wait(Micros),
}

impl Says {
    /// What is said instead and what must be, where they differ.
    pub(super) fn differs_from(&self, answer: &Decided) -> Option<String> {
        let decision = &answer.summary.decision;
        let by = answer.binding_name();
        let time = |time: Micros| format_duration(time);
        let verdict = |allowed: bool| if allowed { "allowed" } else { "refused" };
        let (said, must) = match self {
            Self::Allowed(must) if *must == decision.allowed => return None,
            Self::Allowed(must) => {
                let by = by.filter(|_| !decision.allowed).map(|by| format!(" by {by}")).unwrap_or_default();
                return Some(format!("{}{by}, must be {}", verdict(decision.allowed), verdict(*must)));
            }
            Self::By(must) => (by.unwrap_or("no limit").to_owned(), must.clone()),
            Self::Remaining(must) => (decision.remaining.to_string(), must.to_string()),
            Self::RetryAfter(must) => (decision.retry_after.map_or_else(|| "none".to_owned(), time), time(*must)),
            Self::ResetAfter(must) => (time(decision.reset_after), time(*must)),
            Self::Wait(must) => (time(decision.wait), time(*must)),
        };
        (said != must).then(|| format!("{} is {said}, must be {must}", self.name()))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Allowed(_) => "allowed",
            Self::By(_) => "by",
            Self::Remaining(_) => "remaining",
            Self::RetryAfter(_) => "retry_after",
            Self::ResetAfter(_) => "reset_after",
            Self::Wait(_) => "wait",
        }
    }
}
