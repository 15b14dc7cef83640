//! A story told to two policies at once: who would be treated differently, and when.

mod difference;
mod followed;
mod report;

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use serde_json::json;

use self::{
    difference::{Counts, How, Side, Treated},
    followed::{Followed, Once},
};
use super::{
    NO,
    place::Place,
    story::say,
    tallies::{Name, Tallies},
    telling::{Listener, in_full},
    trace::{CheckLine, Line, ResetLine},
};
use crate::{
    algorithm::Bounds,
    domain::ManualClock,
    limiter::{Answer, CheckError, Limiter, Request},
    policy::Policy,
    telemetry::Metrics,
};

/// What is printed of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Print {
    pub json: bool,
    /// Every request that is treated differently, as it comes.
    pub each: bool,
    /// How many keys at the end.
    pub top: usize,
}

/// A story that two policies hear.
pub struct Comparison<S> {
    a: Party<S>,
    b: Party<S>,
    clock: Arc<ManualClock>,
    bounds: Bounds,
    print: Print,
    requests: u64,
    resets: u64,
    counts: Counts,
    followed: Followed,
}

/// One of the two.
struct Party<S> {
    /// The file its policy is from.
    name: String,
    limiter: Limiter<S>,
    tallies: Tallies,
    /// How many requests each limit treated otherwise than the other policy did.
    decided: HashMap<Name, u64>,
    allowed: u64,
    refused: u64,
    invalid: u64,
}

impl<S: Place> Party<S> {
    fn new((name, policy, place): (String, Policy, S)) -> Self {
        let (tallies, decided) = (Tallies::new(&policy), HashMap::new());
        let limiter = Limiter::new(place, policy, Metrics::new());
        Self { name, limiter, tallies, decided, allowed: 0, refused: 0, invalid: 0 }
    }

    fn count(&mut self, at: i64, request: &Request, answer: &Result<Answer<'_>, CheckError>) {
        match answer {
            Ok(answer) => {
                *if answer.summary.allowed { &mut self.allowed } else { &mut self.refused } += 1;
                self.tallies.count(at, request, answer);
            }
            Err(_) => self.invalid += 1,
        }
    }
}

impl<S: Place> Comparison<S> {
    /// The two policies, each with its file's name and a place of its own, whose time is that of `clock`.
    pub fn new([a, b]: [(String, Policy, S); 2], clock: Arc<ManualClock>, bounds: Bounds, print: Print) -> Self {
        let (counts, followed) = Default::default();
        let (a, b) = (Party::new(a), Party::new(b));
        Self { a, b, clock, bounds, print, requests: 0, resets: 0, counts, followed }
    }

    async fn check(&mut self, number: u64, line: CheckLine, out: &mut dyn Write) -> io::Result<Option<String>> {
        self.requests += 1;
        let Ok(request) = line.request(&self.bounds) else {
            (self.a.invalid, self.b.invalid) = (self.a.invalid + 1, self.b.invalid + 1);
            return Ok(None);
        };
        let (policy_a, policy_b) = (self.a.limiter.snapshot(), self.b.limiter.snapshot());
        let (answer_a, answer_b) =
            tokio::join!(self.a.limiter.check(&policy_a, &request), self.b.limiter.check(&policy_b, &request));
        let (a, b) = match (Treated::from(&answer_a), Treated::from(&answer_b)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(error), _) => return Ok(Some(format!("under A: {}", in_full(error)))),
            (_, Err(error)) => return Ok(Some(format!("under B: {}", in_full(error)))),
        };
        self.a.count(line.at_us, &request, &answer_a);
        self.b.count(line.at_us, &request, &answer_b);
        if let Some(how) = How::between(&a, &b) {
            if self.print.each {
                self.print_difference(number, &line, how, (&a, &b), out)?;
            }
            self.add(number, line, how, (&a, &b));
        }
        Ok(None)
    }

    fn add(&mut self, number: u64, line: CheckLine, how: How, (a, b): (&Treated<'_>, &Treated<'_>)) {
        self.counts.add(how);
        let (treated, party) = match how.decided_by() {
            Some(Side::A) => (Some(a), &mut self.a),
            _ => (how.decided_by().map(|_| b), &mut self.b),
        };
        let limit = treated.and_then(Treated::limit);
        if let Some(limit) = limit {
            *party.decided.entry((line.domain.clone(), limit.to_owned())).or_default() += 1;
        }
        self.followed.add((line.domain, line.key), Once { line: number, at: line.at_us, how, limit });
    }

    fn print_difference(
        &self,
        number: u64,
        line: &CheckLine,
        how: How,
        (a, b): (&Treated<'_>, &Treated<'_>),
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if self.print.json {
            let (domain, key, at) = (&line.domain, &line.key, line.at_us);
            return say(
                out,
                &json!({ "kind": "difference", "line": number, "at_us": at, "domain": domain, "key": key, "how": how,
                    "a": a, "b": b }),
            );
        }
        let key = report::key_text(&line.domain, &line.key);
        let at = super::moments::at_text(line.at_us);
        writeln!(out, "line {number}, {at}: {key}: A {}; B {}", report::treated_text(a), report::treated_text(b))
    }

    async fn reset(&mut self, line: ResetLine) -> Option<String> {
        self.resets += 1;
        let Ok(request) = line.request() else {
            (self.a.invalid, self.b.invalid) = (self.a.invalid + 1, self.b.invalid + 1);
            return None;
        };
        let (a, b) = (&self.a.limiter, &self.b.limiter);
        let done = tokio::join!(a.reset(&request, line.subtree), b.reset(&request, line.subtree));
        match done {
            (Err(CheckError::Store(error)), _) => Some(format!("under A: {}", in_full(&error))),
            (_, Err(CheckError::Store(error))) => Some(format!("under B: {}", in_full(&error))),
            _ => None,
        }
    }
}

impl<S: Place> Listener for Comparison<S> {
    type Place = S;

    async fn hear(&mut self, number: u64, line: Line, out: &mut dyn Write) -> io::Result<Option<String>> {
        self.clock.set(line.at_us());
        match line {
            Line::Check(line) => self.check(number, line, out).await,
            Line::Reset(line) => Ok(self.reset(line).await),
        }
    }

    fn conclude(&self, out: &mut dyn Write) -> io::Result<u8> {
        self.report(out)?;
        Ok(if self.counts.sum() > 0 { NO } else { 0 })
    }

    fn places(&self) -> Vec<&S> {
        vec![self.a.limiter.store(), self.b.limiter.store()]
    }
}
