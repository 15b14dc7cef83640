//! A story in virtual time, told to a store.

use std::{
    collections::BTreeMap,
    fmt::Display,
    io::{self, Write},
    pin::pin,
    sync::Arc,
};

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Failure,
    lines::Lines,
    render::{Decided, shown},
    trace::{CheckLine, Line, ResetLine},
};
use crate::{
    algorithm::Bounds,
    domain::{ManualClock, Micros},
    limiter::{CheckError, Limiter},
    policy::Policy,
    store::{Store, StoreError},
    telemetry::Metrics,
    transport::status::Refused,
};

/// A story, and what it has done so far.
pub struct Story<S> {
    limiter: Limiter<S>,
    clock: Arc<ManualClock>,
    bounds: Bounds,
    tallies: BTreeMap<(String, String), Tally>,
    /// How many lines could not be decided, and the number of the first.
    invalid: Option<(u64, u64)>,
}

/// What one limit did in the whole story.
#[derive(Default, Serialize)]
struct Tally {
    allowed: u64,
    refused: u64,
    first_refusal_us: Option<Micros>,
}

/// A decided line.
#[derive(Serialize)]
struct Told {
    at_us: Micros,
    #[serde(flatten)]
    decided: Decided,
}

/// How a story came to its end.
pub enum End {
    /// It was told to its last line.
    Told,
    /// Something ended it between two lines, for which this is the exit code.
    Broken(u8),
}

impl<S: Store> Story<S> {
    /// A story of `policy`, whose time in `store` is that of `clock`.
    pub fn new(store: S, clock: Arc<ManualClock>, policy: Policy, bounds: Bounds) -> Self {
        let limiter = Limiter::new(store, policy, Metrics::new());
        Self { limiter, clock, bounds, tallies: BTreeMap::new(), invalid: None }
    }

    /// The store.
    pub fn store(&self) -> &S {
        self.limiter.store()
    }

    /// Tells all lines, or those until `broken` is done.
    ///
    /// # Errors
    /// A line that is no trace, or one that the store has no answer to: its number and why.
    pub async fn tell(
        &mut self,
        mut lines: Lines,
        out: &mut dyn Write,
        broken: impl Future<Output = u8>,
    ) -> Result<End, Failure> {
        let (mut broken, mut number) = (pin!(broken), 0);
        loop {
            let line = tokio::select! {
                biased;
                code = &mut broken => return Ok(End::Broken(code)),
                line = lines.next() => line,
            };
            number += 1;
            let at_line = |error: &dyn Display| Failure(format!("line {number}: {error}"));
            let Some(line) = line else { return Ok(End::Told) };
            let line = line.map_err(|error| at_line(&error))?;
            if !line.text.trim().is_empty() {
                let (told, failed) =
                    self.tell_line(Line::parse(&line.text).map_err(|error| at_line(&error))?, number).await;
                writeln!(out, "{told}")?;
                if let Some(failure) = failed {
                    return Err(at_line(&failure));
                }
            }
            // Whoever writes a line and waits for its answer gets it.
            if line.is_last_so_far {
                out.flush()?;
            }
        }
    }

    /// The answer to a line, and why the story cannot go on, if so.
    async fn tell_line(&mut self, line: Line, number: u64) -> (Value, Option<String>) {
        let at = line.at_us();
        self.clock.set(at);
        let told = match line {
            Line::Check(line) => self.check(line).await,
            Line::Reset(line) => self.reset(line).await,
        };
        let error = match told {
            Ok(told) => return (told, None),
            Err(error) => error,
        };
        // A line holds its limits itself, not in a limit_spec as a message does.
        let (field, failed) = match &error {
            CheckError::Invalid(invalid) => (Some(invalid.field("")), None),
            CheckError::Store(error) => (None, Some(in_full(error))),
            _ => (None, None),
        };
        if failed.is_none() {
            self.invalid.get_or_insert((0, number)).0 += 1;
        }
        let told = Refused::from(error);
        (json!({ "at_us": at, "error": told.message, "field": field.unwrap_or(told.field) }), failed)
    }

    async fn check(&mut self, line: CheckLine) -> Result<Value, CheckError> {
        let at = line.at_us;
        let request = line.request(&self.bounds)?;
        let snapshot = self.limiter.snapshot();
        let answer = self.limiter.check(&snapshot, &request).await?;
        for level in &answer.levels {
            let tally = self.tallies.entry((request.domain.clone(), level.limit.name.to_string())).or_default();
            if level.decision.allowed {
                tally.allowed += 1;
            } else {
                tally.refused += 1;
                tally.first_refusal_us.get_or_insert(at);
            }
        }
        Ok(json!(Told { at_us: at, decided: Decided::from(&answer) }))
    }

    async fn reset(&self, line: ResetLine) -> Result<Value, CheckError> {
        let (at, subtree) = (line.at_us, line.subtree);
        let existed = self.limiter.reset(&line.request()?, subtree).await?.existed;
        Ok(json!({ "at_us": at, "reset": true, "existed": existed }))
    }

    /// Prints what each limit did.
    pub fn print_summary(&self, json: bool, out: &mut impl Write) -> io::Result<()> {
        for ((domain, limit), tally) in &self.tallies {
            if json {
                writeln!(out, "{}", json!({ "domain": domain, "limit": limit, "did": tally }))?;
                continue;
            }
            let domain = if domain.is_empty() { String::new() } else { format!("{domain}: ") };
            let first = tally.first_refusal_us.map(|at| format!(", the first at {}", shown(at))).unwrap_or_default();
            writeln!(out, "{domain}{limit}: {} allowed, {} refused{first}", tally.allowed, tally.refused)?;
        }
        match self.invalid {
            Some((lines, first)) if json => writeln!(out, "{}", json!({ "invalid": lines, "first_line": first }))?,
            Some((lines, first)) => writeln!(out, "not valid: {lines}, the first in line {first}")?,
            None => {}
        }
        Ok(())
    }
}

/// Why a store has no answer, with the cause.
pub fn in_full(error: &StoreError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
