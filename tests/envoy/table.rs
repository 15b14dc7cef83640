//! A table of test cases: a file, and the answer to each request.

use std::sync::Arc;

use weir_core::domain::{ManualClock, Micros, Unit};
use weir_policy::Policy;
use weir_store::Store;

use weir::{
    limiter::{Descriptor, DescriptorAnswers, DescriptorLimit, DescriptorsRequest, Limiter, Request},
    telemetry::Metrics,
};

use crate::{beyond, hits, lookup, over_limit, statuses};

/// A time at which windows of every unit begin: 15,330 days, a multiple of 365, 30 and 7.
pub const START: Micros = 15_330 * 86_400_000_000;

/// All tables: each a file, and test cases on it. A line `= name` begins a test case.
///
/// Each other line of a test case is `seconds | request | answer`. A request is a list of descriptors, separated by `;`.
/// A descriptor is `key=value, key=value`, followed by its hits unless 1 (`*5`), or a limit override (`limit 3/minute`).
/// The prefix `@name` sets a domain other than `d`, `quota!` enables quota mode. An answer is `pass` or `refuse`, and a
/// status for each descriptor: `OK` or `OVER`, then the limit (`name:10/minute`; `-` for none), the units left, and the
/// seconds until its reset.
///
/// A line may also be `seconds | check a/b *2 | passed 3 left`: a native check and its answer.
const TABLES: [&str; 13] = [
    lookup::VALUES,
    lookup::NESTED,
    lookup::WHITELIST,
    lookup::SHARED,
    hits::TEN,
    hits::UNITS,
    statuses::SOFT,
    statuses::REPLACES,
    beyond::MORE,
    beyond::ALL,
    beyond::NATIVE,
    beyond::NATIVE_ALL,
    over_limit::TABLE,
];

/// A test case.
pub struct Case {
    name: &'static str,
    file: &'static str,
    pub lines: &'static str,
}

/// Returns the test cases of all tables.
pub fn all_cases() -> Vec<Case> {
    TABLES.into_iter().flat_map(cases).collect()
}

fn cases(table: &'static str) -> impl Iterator<Item = Case> {
    let mut parts = table.split("\n= ");
    let file = parts.next().unwrap_or_default();
    parts.map(move |case| {
        let (name, lines) = case.split_once('\n').expect("lines");
        Case { name, file, lines }
    })
}

/// Loads a policy from files.
pub fn policy(files: &[&str]) -> Policy {
    let dir = tempfile::tempdir().expect("a directory");
    for (number, text) in files.iter().enumerate() {
        std::fs::write(dir.path().join(format!("{number}.yaml")), text).expect("written");
    }
    let loaded = weir_policy::load(dir.path(), &weir_policy::Rules::default());
    loaded.unwrap_or_else(|problems| panic!("{problems}\n{files:?}")).policy
}

impl Case {
    /// Runs the test case on a store with the time of `clock`. Returns the lines with differing answers, each with the
    /// actual one.
    pub async fn tell<S: Store>(&self, clock: &ManualClock, store: S) -> Vec<String> {
        let mut otherwise = Vec::new();
        let Self { name, file, lines } = self;
        let limiter = Limiter::new(store, policy(&[file]), Metrics::new());
        for line in lines.lines() {
            let parts: Vec<_> = line.split('|').map(str::trim).collect();
            let [at, request, expected] = parts[..] else { panic!("{name}: {line}") };
            let at: f64 = at.parse().expect("seconds");
            clock.set(START + (at * 1e6).round() as Micros);
            let answer = match request.strip_prefix("check ") {
                Some(check) => self.check(&limiter, check).await,
                None => ask(&limiter, request).await,
            };
            if answer != expected {
                otherwise.push(format!("{name}: {line}\n  {answer}"));
            }
        }
        otherwise
    }

    async fn check<S: Store>(&self, limiter: &Limiter<S>, check: &str) -> String {
        let (key, cost) = with_hits(check);
        let segments: Vec<_> = key.split('/').collect();
        let mut request = Request::new("d", &segments).expect("a key");
        request.set_terms(cost, None, 1.0).expect("terms");
        let handle = limiter.policy();
        let answer = limiter.check(&handle, &request).await.expect("an answer");
        let verdict = if answer.summary.decision.allowed { "passed" } else { "refused" };
        match answer.summary.binding {
            Some(_) => format!("{verdict} {} left", answer.summary.decision.remaining),
            None => verdict.to_owned(),
        }
    }
}

pub async fn ask<S: Store>(limiter: &Limiter<S>, request: &str) -> String {
    let (quota_mode, request) = match request.strip_prefix("quota!") {
        Some(rest) => (true, rest.trim()),
        None => (false, request),
    };
    let (domain, descriptors) = match request.strip_prefix('@') {
        Some(rest) => rest.split_once(' ').expect("a domain and descriptors"),
        None => ("d", request),
    };
    let descriptors = descriptors.split(';').map(descriptor).collect();
    let request = DescriptorsRequest { domain: domain.to_owned(), descriptors };
    let handle = limiter.policy();
    let resolved = request.resolve(&handle.policy).expect("not too many");
    let mut statuses = limiter.check_descriptors(&handle, &resolved).outcome(&handle).await.expect("an answer");
    assert_eq!(statuses.statuses.len(), request.descriptors.len());
    assert!(!statuses.degraded);
    statuses.quota_mode |= quota_mode;
    shown(&statuses)
}

fn with_hits(text: &str) -> (&str, i64) {
    match text.rsplit_once(" *") {
        Some((rest, hits)) => (rest.trim(), hits.trim().parse().expect("hits")),
        None => (text.trim(), 1),
    }
}

fn descriptor(text: &str) -> Descriptor {
    let (text, hits) = with_hits(text);
    let (entries, over) = match text.split_once("limit ") {
        Some((entries, limit)) => {
            let (number, unit) = limit.trim().split_once('/').expect("number and unit");
            let unit = Unit::named(unit).expect("a unit");
            (entries, Some(DescriptorLimit { requests_per_unit: number.parse().expect("a number"), unit }))
        }
        None => (text, None),
    };
    let entries = entries.trim().split(", ").filter(|entry| !entry.is_empty());
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').expect("key=value");
        (key.to_owned(), value.to_owned())
    };
    Descriptor { entries: entries.map(entry).collect(), hits, over }
}

fn shown(statuses: &DescriptorAnswers<'_>) -> String {
    let status = |status: &weir::limiter::DescriptorAnswer<'_>| {
        let code = if status.over { "OVER" } else { "OK" };
        match (status.unlimited, &status.displayed) {
            (true, None) => format!("{code} unlimited"),
            (true, Some(_)) => panic!("unlimited, and yet a limit"),
            (false, None) => format!("{code} -"),
            (false, Some(shown)) => {
                let name = if shown.name.is_empty() { String::new() } else { format!("{}:", shown.name) };
                let unit = shown.unit.map_or("?", Unit::name);
                let seconds = (shown.until_reset + 999_999) / 1_000_000;
                let (limit, left) = (shown.requests_per_unit, shown.remaining);
                format!("{code} {name}{limit}/{unit} {left} {seconds}s")
            }
        }
    };
    let all: Vec<_> = statuses.statuses.iter().map(status).collect();
    format!("{} {}", if statuses.allowed() { "pass" } else { "refuse" }, all.join("; "))
}

/// Runs all test cases on stores of a kind, each with a clock of its own.
pub async fn tell_all<S: Store>(mut store: impl FnMut(usize, Arc<ManualClock>) -> S) {
    let mut otherwise = Vec::new();
    for (number, case) in all_cases().iter().enumerate() {
        let clock = Arc::new(ManualClock::new(START));
        otherwise.extend(case.tell(&clock, store(number, Arc::clone(&clock))).await);
    }
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n"));
}
