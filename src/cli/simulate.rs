//! `weir simulate`

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::{
    CommandResult, Failure, block_on,
    out::Out,
    render::{Decided, shown},
    trace::{CheckLine, Line, ResetLine},
};
use crate::{
    algorithm::Bounds,
    domain::{ManualClock, Micros, time::parse_duration},
    limiter::{CheckError, Limiter},
    policy::{self, Policy},
    store::{MemoryStore, StoreUrl, memory::MemorySettings},
    telemetry::Metrics,
    transport::status::Refused,
};

/// Run a story through a policy in virtual time
///
/// The trace has one JSON object a line: {"at_us":0,"key":["user","alex","trade"]}, with domain, cost, max_wait_us, factor,
/// limits (as a policy writes them, with a depth) and charge where needed; or {"at_us":9,"reset":["user","alex"],
/// "subtree":true}. One line comes out for each. A line that is no trace ends it with its number and exit code 2.
#[derive(Args)]
pub struct Simulate {
    /// The policy: a YAML file or a directory of them
    #[arg(long, value_name = "PATH")]
    limits: Option<PathBuf>,
    /// Where counts live: memory
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// The trace, or - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    trace: PathBuf,
    /// The longest period that is allowed, as in the setting max_period
    #[arg(long, value_name = "TIME", default_value = "31d")]
    max_period: String,
    /// Print what each limit allowed and refused instead of every decision
    #[arg(long)]
    summary: bool,
    /// With --summary: print JSON
    #[arg(long, requires = "summary")]
    json: bool,
}

/// Most states of a story: beyond what memory holds, so that no refusal is the store's.
const MAX_KEYS: usize = 1 << 32;

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

struct Story {
    limiter: Limiter<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
    bounds: Bounds,
    tallies: BTreeMap<(String, String), Tally>,
    /// How many lines could not be decided, and the number of the first.
    invalid: Option<(u64, u64)>,
}

impl Simulate {
    pub fn run(self) -> CommandResult {
        if self.store.parse::<StoreUrl>().map_err(Failure)? != StoreUrl::Memory {
            return Err("weir simulate keeps its counts in memory".into());
        }
        let bounds = Bounds { max_period: parse_duration(&self.max_period).map_err(Failure)? };
        let policy = match &self.limits {
            Some(path) => policy::load(path, &bounds)?.policy,
            None => Policy::empty(),
        };
        let clock = Arc::new(ManualClock::default());
        let store =
            MemoryStore::new(MemorySettings { max_keys: MAX_KEYS, ..MemorySettings::default() }, Arc::clone(&clock));
        let limiter = Limiter::new(store, policy, Metrics::new());
        let mut story = Story { limiter, clock, bounds, tallies: BTreeMap::new(), invalid: None };
        let trace: Box<dyn Read> = if self.trace.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&self.trace).map_err(|error| format!("{}: {error}", self.trace.display()))?)
        };
        let mut out = BufWriter::new(Out::new());
        let lines: &mut dyn Write = if self.summary { &mut io::sink() } else { &mut out };
        let told = block_on(story.tell(BufReader::new(trace), lines));
        if told.is_ok() && self.summary {
            story.print_summary(self.json, &mut out)?;
        }
        out.flush()?;
        told.map(|()| ExitCode::SUCCESS)
    }
}

impl Story {
    async fn tell(&mut self, mut trace: BufReader<Box<dyn Read>>, out: &mut dyn Write) -> Result<(), Failure> {
        let mut text = String::new();
        for number in 1_u64.. {
            text.clear();
            let at_line = |error: &dyn Display| Failure(format!("line {number}: {error}"));
            if trace.read_line(&mut text).map_err(|error| at_line(&error))? == 0 {
                break;
            }
            if text.trim().is_empty() {
                continue;
            }
            let line = Line::parse(&text).map_err(|error| at_line(&error))?;
            let at = line.at_us();
            self.clock.set(at);
            let told = match line {
                Line::Check(line) => self.check(line).await,
                Line::Reset(line) => self.reset(line).await,
            };
            let told = told.unwrap_or_else(|error| {
                self.invalid.get_or_insert((0, number)).0 += 1;
                // A line holds its limits itself, not in a limit_spec as a message does.
                let field = match &error {
                    CheckError::Invalid(invalid) => Some(invalid.field("")),
                    _ => None,
                };
                let told = Refused::from(error);
                json!({ "at_us": at, "error": told.message, "field": field.unwrap_or(told.field) })
            });
            writeln!(out, "{told}")?;
            // Whoever writes a line and waits for its answer gets it.
            if trace.buffer().is_empty() {
                out.flush()?;
            }
        }
        Ok(())
    }

    async fn check(&mut self, line: CheckLine) -> Result<serde_json::Value, CheckError> {
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

    async fn reset(&self, line: ResetLine) -> Result<serde_json::Value, CheckError> {
        let (at, subtree) = (line.at_us, line.subtree);
        let existed = self.limiter.reset(&line.request()?, subtree).await?;
        Ok(json!({ "at_us": at, "reset": true, "existed": existed }))
    }

    fn print_summary(&self, json: bool, out: &mut impl Write) -> io::Result<()> {
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
