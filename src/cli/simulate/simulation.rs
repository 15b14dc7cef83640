//! Replays a trace against one policy.

use std::{
    io::{self, Write},
    sync::Arc,
};

use serde::Serialize;
use serde_json::json;
use weir_core::{
    algorithm::Bounds,
    domain::{ManualClock, Micros},
};
use weir_policy::Policy;
use weir_store::Store;
use weir_telemetry::Causes;

use super::{
    replay::ReplayTarget,
    timestamps::at_text,
    trace::{CheckLine, Line, ResetLine},
};
use crate::{
    cli::{out::print_to, render::RenderedDecision},
    limiter::{CheckError, Limiter, totals::PolicyTotals},
    telemetry::Metrics,
    transport::status::Rejected,
};

/// The output of a simulation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Print {
    /// Every decision.
    Decisions,
    /// Every decision, with the number and key of the line, for lines that are not those of a trace.
    DecisionsOfKeys,
    /// The totals of each limit.
    Summary { json: bool },
}

/// One policy against which a trace is replayed, with its totals so far.
pub(super) struct Simulation<S> {
    limiter: Limiter<S>,
    clock: Arc<ManualClock>,
    bounds: Bounds,
    print: Print,
    totals: PolicyTotals,
    /// Number of lines that could not be decided, and the number of the first one.
    invalid: Option<(u64, u64)>,
}

/// A decided line.
#[derive(Serialize)]
struct CheckRecord<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    at_us: Micros,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a [String]>,
    #[serde(flatten)]
    decided: RenderedDecision,
}

impl<S: Store> Simulation<S> {
    /// Creates a simulation of `policy`, whose time in `store` is that of `clock`.
    pub(super) fn new(store: S, clock: Arc<ManualClock>, policy: Policy, bounds: Bounds, print: Print) -> Self {
        let totals = PolicyTotals::new(&policy);
        let limiter = Limiter::new(store, policy, Metrics::new());
        Self { limiter, clock, bounds, print, totals, invalid: None }
    }

    async fn check(
        &mut self,
        number: u64,
        line: &CheckLine,
        out: &mut dyn Write,
    ) -> Result<io::Result<()>, CheckError> {
        let request = line.request(&self.bounds)?;
        let handle = self.limiter.policy();
        let answer = self.limiter.check(&handle, &request).await?;
        if let Print::Summary { .. } = self.print {
            self.totals.count(line.at_us, &request, &answer);
            return Ok(Ok(()));
        }
        let (number, key) = match self.print {
            Print::DecisionsOfKeys => (Some(number), Some(&line.key[..])),
            _ => (None, None),
        };
        Ok(print_json(
            out,
            &CheckRecord { line: number, at_us: line.at_us, key, decided: RenderedDecision::from(&answer) },
        ))
    }

    async fn reset(&mut self, line: &ResetLine, out: &mut dyn Write) -> Result<io::Result<()>, CheckError> {
        let existed = self.limiter.reset(&line.request()?, line.subtree).await?.existed;
        Ok(self.unless_summary(out, &json!({ "at_us": line.at_us, "reset": true, "existed": existed })))
    }

    fn unless_summary(&self, out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
        if let Print::Summary { .. } = self.print { Ok(()) } else { print_json(out, value) }
    }

    fn print_summary(&self, json: bool, out: &mut dyn Write) -> io::Result<()> {
        let did = self.totals.by_name();
        if did.is_empty() && !json {
            writeln!(out, "no limit applies to any line")?;
        }
        for ((domain, limit), totals) in did {
            if json {
                print_json(out, &json!({ "domain": domain, "limit": limit, "did": totals }))?;
                continue;
            }
            let domain = if domain.is_empty() { String::new() } else { format!("{domain}: ") };
            let first = totals.first_refusal_us.map(|at| format!(", the first {}", at_text(at))).unwrap_or_default();
            writeln!(out, "{domain}{limit}: {} allowed, {} refused{first}", totals.allowed, totals.refused)?;
        }
        match self.invalid {
            Some((lines, first)) if json => print_json(out, &json!({ "invalid": lines, "first_line": first })),
            Some((lines, first)) => writeln!(out, "not valid: {lines}, the first in line {first}"),
            None => Ok(()),
        }
    }
}

impl<S: Store> ReplayTarget for Simulation<S> {
    async fn replay(&mut self, number: u64, line: Line, out: &mut dyn Write) -> io::Result<Option<String>> {
        let at = line.at_us();
        self.clock.set(at);
        let outcome = match &line {
            Line::Check(line) => self.check(number, line, out).await,
            Line::Reset(line) => self.reset(line, out).await,
        };
        let error = match outcome {
            Ok(said) => return said.map(|()| None),
            Err(error) => error,
        };
        // A line has its limits directly, not in a `limit_spec` as a message does.
        let (field, failed) = match &error {
            CheckError::Invalid(invalid) => (Some(invalid.field("")), None),
            CheckError::Store(_) => (None, Some(Causes(&error).to_string())),
            _ => (None, None),
        };
        if failed.is_none() {
            self.invalid.get_or_insert((0, number)).0 += 1;
        }
        let rejected = Rejected::from(error);
        let mut said = json!({ "at_us": at, "error": rejected.message, "field": field.unwrap_or(rejected.field) });
        if let (Print::DecisionsOfKeys, Line::Check(line)) = (self.print, line) {
            (said["line"], said["key"]) = (json!(number), json!(line.key));
        }
        self.unless_summary(out, &said)?;
        Ok(failed)
    }

    fn conclude(&self, out: &mut dyn Write) -> io::Result<u8> {
        if let Print::Summary { json } = self.print {
            self.print_summary(json, out)?;
        }
        Ok(0)
    }
}

/// Prints a line of JSON.
pub(super) fn print_json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    print_to(out, serde_json::to_string(value)?)
}
