//! Replays a trace against two policies at once, and reports which keys are treated differently, and when.

mod difference;
mod differing_keys;
mod report;

use std::{
    collections::HashMap,
    fmt::Display,
    io::{self, Write},
    sync::Arc,
};

use serde_json::json;
use weir_core::{algorithm::Bounds, domain::ManualClock};
use weir_policy::Policy;
use weir_store::Store;
use weir_telemetry::Causes;

use self::{
    difference::{Counts, DifferenceKind, Side, Treatment},
    differing_keys::{Difference, DifferingKeys},
};
use super::{
    EXIT_NO,
    replay::ReplayTarget,
    simulation::print_json,
    trace::{CheckLine, Line, ResetLine},
};
use crate::{
    limiter::{
        Answer, CheckError, Invalid, Limiter, Request,
        totals::{Name, PolicyTotals},
    },
    telemetry::Metrics,
};

/// The output of a comparison.
#[derive(Clone, Copy, Debug)]
pub(super) struct Print {
    pub json: bool,
    /// Whether to print every request that is treated differently, as it occurs.
    pub each: bool,
    /// Number of keys in the report.
    pub top: usize,
}

/// Two policies against which one trace is replayed.
pub(super) struct Comparison<S> {
    a: Candidate<S>,
    b: Candidate<S>,
    clock: Arc<ManualClock>,
    bounds: Bounds,
    print: Print,
    requests: u64,
    resets: u64,
    counts: Counts,
    differing: DifferingKeys,
}

/// One of the two policies, and its results.
struct Candidate<S> {
    /// The file of its policy.
    name: String,
    limiter: Limiter<S>,
    totals: PolicyTotals,
    /// Number of requests that each limit treated differently from the other policy.
    decided: HashMap<Name, u64>,
    allowed: u64,
    refused: u64,
    invalid: u64,
    /// Line and error of the first request that is not valid.
    first_invalid: Option<(u64, String)>,
}

impl<S: Store> Candidate<S> {
    fn new((name, policy, store): (String, Policy, S)) -> Self {
        let (totals, decided) = (PolicyTotals::new(&policy), HashMap::new());
        let limiter = Limiter::new(store, policy, Metrics::new());
        Self { name, limiter, totals, decided, allowed: 0, refused: 0, invalid: 0, first_invalid: None }
    }

    fn count(&mut self, number: u64, line: &CheckLine, request: &Request<'_>, answer: &Result<Answer<'_>, CheckError>) {
        match answer {
            Ok(answer) => {
                *if answer.summary.decision.allowed { &mut self.allowed } else { &mut self.refused } += 1;
                self.totals.count(line.at_us, request, answer);
            }
            Err(error) => self.count_invalid(number, error),
        }
    }

    fn count_invalid(&mut self, number: u64, error: &dyn Display) {
        self.invalid += 1;
        self.first_invalid.get_or_insert_with(|| (number, error.to_string()));
    }
}

impl<S: Store> Comparison<S> {
    /// Creates the comparison of two policies, each with the name of its file and a store of its own, whose time is
    /// that of `clock`.
    pub(super) fn new([a, b]: [(String, Policy, S); 2], clock: Arc<ManualClock>, bounds: Bounds, print: Print) -> Self {
        let (counts, differing) = Default::default();
        let (a, b) = (Candidate::new(a), Candidate::new(b));
        Self { a, b, clock, bounds, print, requests: 0, resets: 0, counts, differing }
    }

    async fn check(&mut self, number: u64, line: CheckLine, out: &mut dyn Write) -> io::Result<Option<String>> {
        self.requests += 1;
        let request = match line.request(&self.bounds) {
            Ok(request) => request,
            Err(error) => {
                self.invalid_under_both(number, &error);
                return Ok(None);
            }
        };
        let (policy_a, policy_b) = (self.a.limiter.policy(), self.b.limiter.policy());
        let (answer_a, answer_b) =
            tokio::join!(self.a.limiter.check(&policy_a, &request), self.b.limiter.check(&policy_b, &request));
        let (a, b) = match (Treatment::from(&answer_a), Treatment::from(&answer_b)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(error), _) => return Ok(Some(format!("under A: {}", Causes(error)))),
            (_, Err(error)) => return Ok(Some(format!("under B: {}", Causes(error)))),
        };
        self.a.count(number, &line, &request, &answer_a);
        self.b.count(number, &line, &request, &answer_b);
        if let Some(kind) = DifferenceKind::between(&a, &b) {
            if self.print.each {
                self.print_difference(number, &line, kind, (&a, &b), out)?;
            }
            self.add(number, &line, kind, (&a, &b));
        }
        Ok(None)
    }

    fn invalid_under_both(&mut self, number: u64, error: &Invalid) {
        self.a.count_invalid(number, error);
        self.b.count_invalid(number, error);
    }

    fn add(&mut self, number: u64, line: &CheckLine, kind: DifferenceKind, (a, b): (&Treatment<'_>, &Treatment<'_>)) {
        self.counts.add(kind);
        let (treatment, side) = match kind.decided_by() {
            Some(Side::A) => (Some(a), &mut self.a),
            _ => (kind.decided_by().map(|_| b), &mut self.b),
        };
        let limit = treatment.and_then(Treatment::limit);
        if let Some(limit) = limit {
            *side.decided.entry((line.domain.clone(), limit.to_owned())).or_default() += 1;
        }
        self.differing
            .add((line.domain.clone(), line.key.clone()), Difference { line: number, at: line.at_us, kind, limit });
    }

    fn print_difference(
        &self,
        number: u64,
        line: &CheckLine,
        kind: DifferenceKind,
        (a, b): (&Treatment<'_>, &Treatment<'_>),
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if self.print.json {
            let (domain, key, at) = (&line.domain, &line.key, line.at_us);
            return print_json(
                out,
                &json!({ "kind": "difference", "line": number, "at_us": at, "domain": domain, "key": key, "how": kind,
                    "a": a, "b": b }),
            );
        }
        let key = report::key_text(&line.domain, &line.key);
        let at = super::timestamps::at_text(line.at_us);
        writeln!(out, "line {number} {at}: {key}: A {}; B {}", report::treatment_text(a), report::treatment_text(b))
    }

    async fn reset(&mut self, number: u64, line: ResetLine) -> Option<String> {
        self.resets += 1;
        let request = match line.request() {
            Ok(request) => request,
            Err(error) => {
                self.invalid_under_both(number, &error);
                return None;
            }
        };
        let (a, b) = (&self.a.limiter, &self.b.limiter);
        let done = tokio::join!(a.reset(&request, line.subtree), b.reset(&request, line.subtree));
        match done {
            (Err(error @ CheckError::Store(_)), _) => Some(format!("under A: {}", Causes(&error))),
            (_, Err(error @ CheckError::Store(_))) => Some(format!("under B: {}", Causes(&error))),
            _ => None,
        }
    }
}

impl<S: Store> ReplayTarget for Comparison<S> {
    async fn replay(&mut self, number: u64, line: Line, out: &mut dyn Write) -> io::Result<Option<String>> {
        self.clock.set(line.at_us());
        match line {
            Line::Check(line) => self.check(number, line, out).await,
            Line::Reset(line) => Ok(self.reset(number, line).await),
        }
    }

    fn conclude(&self, out: &mut dyn Write) -> io::Result<u8> {
        self.report(out)?;
        Ok(if self.counts.sum() > 0 { EXIT_NO } else { 0 })
    }
}
