//! Conformance of the stores: the same random traces give every store the same decisions and the same states, to the
//! microsecond, with limits of every algorithm on nested keys, previews, refunds, dry runs, waits, resets, changed
//! limits, and a clock that steps back.
//!
//! `WEIR_SEED=… cargo test --test conformance` replays one trace; `WEIR_TRACES=…` sets the number for each store.

#![allow(clippy::expect_used)]

mod calendar;
mod duplicates;
mod fixture;
mod full_ledgers;
mod generator;
mod holds;
mod holds_together;
mod holds_under_factors;
mod layout;
mod layout_holds;
mod limits_together;
mod lowered_limits;
mod outage_charges;
mod redis;
mod repeats;
mod resets;
mod scans;
mod store_under_test;
mod tally;
mod together;
mod uneven_holds;

use std::{fmt::Debug, sync::Arc};

use weir_core::{
    domain::Micros,
    testing::{fresh_seed, from_environment},
};

use generator::{Generator, Step, TraceOptions};
use holds::in_memory;
use redis::OnRedis;
use store_under_test::{Reference, StoreUnderTest};
use tally::Tally;

use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

/// Number of steps of a trace.
const STEPS: usize = 60;

/// Returns the seeds of `usual` traces, or those that the environment sets.
fn seeds(usual: u64) -> Vec<u64> {
    let only = from_environment("WEIR_SEED");
    let first = only.unwrap_or_else(fresh_seed);
    let traces = from_environment("WEIR_TRACES").unwrap_or(if only.is_some() { 1 } else { usual });
    println!("seeds {first} and the {traces} from there");
    (0..traces).map(|number| first.wrapping_add(number)).collect()
}

/// Runs `usual` traces, or those that the environment sets, on the reference and on a store.
async fn run_traces(usual: u64, options: TraceOptions, store: &mut impl StoreUnderTest) {
    let (seeds, mut tally) = (seeds(usual), Tally::default());
    for seed in &seeds {
        run_trace(*seed, options, &mut Reference::default(), store, &mut tally).await;
    }
    println!("{tally:#?}");
    let traces = seeds.len() as u64;
    if traces >= usual {
        tally.assert_that_all_was_tried(traces, options);
    }
}

/// Runs one trace and fails if the results differ.
async fn run_trace(
    seed: u64,
    options: TraceOptions,
    one: &mut impl StoreUnderTest,
    other: &mut impl StoreUnderTest,
    tally: &mut Tally,
) {
    one.forget().await;
    other.forget().await;
    let names = [one.name(), other.name()];
    let mut generator = Generator::new(seed, options);
    let mut steps: Vec<(Micros, String)> = Vec::new();
    for number in 0..STEPS {
        let (now, step) = generator.step();
        steps.push((now, format!("{step:?}")));
        tally.begin(now, &step);
        // Only the last steps are shown; the seed reproduces all.
        let differ = |what: &str, ours: &dyn Debug, theirs: &dyn Debug, generator: &Generator| {
            let before: Vec<_> = steps.iter().map(|(now, step)| format!("{now} {step}")).collect();
            panic!(
                "WEIR_SEED={seed}, line {number}: {what} differ\n{:#?}\n{}\n{}: {ours:#?}\n{}: {theirs:#?}",
                generator.fixture,
                before[before.len().saturating_sub(8)..].join("\n"),
                names[0],
                names[1]
            )
        };
        match &step {
            Step::Change(_) => {}
            Step::Reset { key, subtree } => {
                let anchor = generator.fixture.anchor;
                let ours = one.reset(&key.key, anchor, *subtree, now).await;
                let theirs = other.reset(&key.key, anchor, *subtree, now).await;
                tally.count_reset(ours.existed);
                // A scan also counts expired states.
                if ours.existed != theirs.existed || ours.removed != theirs.removed && !theirs.scanned {
                    differ("answers to a reset", &ours, &theirs, &generator);
                }
            }
            Step::Check(check) => {
                let Some(plan) = generator.fixture.plan(check) else { continue };
                let ours = one.decide(&plan, now).await;
                let theirs = other.decide(&plan, now).await;
                tally.count(&generator.fixture, check, &plan, &ours);
                drop(plan);
                if ours != theirs {
                    differ("decisions", &ours, &theirs, &generator);
                }
                generator.observe(check, &ours);
            }
        }
        if let (Some(ours), Some(theirs)) = (one.states(now).await, other.states(now).await)
            && ours != theirs
        {
            differ("states", &ours, &theirs, &generator);
        }
    }
}

#[tokio::test]
async fn memory_matches_the_reference_store() {
    run_traces(2_000, TraceOptions::ANY, &mut in_memory(&Arc::default())).await;
}

#[tokio::test]
async fn redis_matches_the_reference_store() {
    let server = Server::start(Options::socket());
    run_traces(200, TraceOptions::ANY, &mut OnRedis::new("Redis", &server.url(), vec![&server])).await;
}

#[tokio::test]
async fn a_cluster_matches_the_reference_store() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let masters = cluster.nodes.iter().collect();
    run_traces(200, TraceOptions::ANY, &mut OnRedis::new("a Cluster", &cluster.url(), masters)).await;
}
