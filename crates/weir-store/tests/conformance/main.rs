//! The same random stories, told to every store, give the same decisions and leave the same states, microsecond for
//! microsecond: with limits of every algorithm on nested keys, peeks, refunds, dry runs, waits, resets, limits that change, and a
//! clock that steps back.
//!
//! `WEIR_SEED=… cargo test --test conformance` replays one story; `WEIR_STORIES=…` says how many each store hears.

#![allow(clippy::expect_used)]

mod afterwards;
mod author;
mod draw;
mod holds;
mod layout;
mod memory;
mod redis;
mod scene;
mod tally;
mod together;
mod told;
mod twins;

use std::fmt::Debug;

use weir_core::domain::Micros;

use author::{Author, Line, Plot};
use memory::InMemory;
use redis::OnRedis;
use tally::Tally;
use told::{Reference, Told};

use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

/// Lines of a story.
const LINES: usize = 60;

fn from_environment(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().expect("a number"))
}

fn seed_of_the_day() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after the epoch");
    now.as_nanos() as u64
}

/// Tells `usual` stories, or as many as the environment asks for, to the reference and to a store.
async fn tell_stories(usual: u64, plot: Plot, store: &mut impl Told) {
    let only = from_environment("WEIR_SEED");
    let first = only.unwrap_or_else(seed_of_the_day);
    let stories = from_environment("WEIR_STORIES").unwrap_or(if only.is_some() { 1 } else { usual });
    println!("seeds {first} and the {stories} from there");
    let mut tally = Tally::default();
    for seed in (0..stories).map(|number| first.wrapping_add(number)) {
        tell(seed, plot, &mut Reference::default(), store, &mut tally).await;
    }
    println!("{tally:#?}");
    if only.is_none() && stories >= usual {
        tally.assert_that_all_was_tried(stories, plot);
    }
}

/// Tells one story, and fails where the two differ.
async fn tell(seed: u64, plot: Plot, one: &mut impl Told, other: &mut impl Told, tally: &mut Tally) {
    one.forget().await;
    other.forget().await;
    let names = [one.name(), other.name()];
    let mut author = Author::new(seed, plot);
    let mut told: Vec<(Micros, String)> = Vec::new();
    for number in 0..LINES {
        let (now, line) = author.line();
        told.push((now, format!("{line:?}")));
        tally.turn(now, &line);
        // What has been told before is shown as far as it is likely to matter; the seed gives it all.
        let differ = |what: &str, ours: &dyn Debug, theirs: &dyn Debug, author: &Author| {
            let before: Vec<_> = told.iter().map(|(now, line)| format!("{now} {line}")).collect();
            panic!(
                "WEIR_SEED={seed}, line {number}: {what} differ\n{:#?}\n{}\n{}: {ours:#?}\n{}: {theirs:#?}",
                author.scene,
                before[before.len().saturating_sub(8)..].join("\n"),
                names[0],
                names[1]
            )
        };
        match &line {
            Line::Change(_) => {}
            Line::Reset { key, subtree } => {
                let anchor = author.scene.anchor;
                let ours = one.reset(&key.key, anchor, *subtree, now).await;
                let theirs = other.reset(&key.key, anchor, *subtree, now).await;
                tally.count_reset(ours.existed);
                // A scan also counts what has expired.
                if ours.existed != theirs.existed || ours.removed != theirs.removed && !theirs.scanned {
                    differ("answers to a reset", &ours, &theirs, &author);
                }
            }
            Line::Check(check) => {
                let Some(plan) = author.scene.plan(check) else { continue };
                let ours = one.decide(&plan, now).await;
                let theirs = other.decide(&plan, now).await;
                tally.count(&author.scene, check, &plan, &ours);
                drop(plan);
                if ours != theirs {
                    differ("decisions", &ours, &theirs, &author);
                }
                author.hear(check, &ours);
            }
        }
        if let (Some(ours), Some(theirs)) = (one.states(now).await, other.states(now).await)
            && ours != theirs
        {
            differ("states", &ours, &theirs, &author);
        }
    }
}

#[tokio::test]
async fn memory_matches_the_reference_store() {
    tell_stories(2_000, Plot::ANY, &mut InMemory::new()).await;
}

#[tokio::test]
async fn redis_matches_the_reference_store() {
    let server = Server::start(Options::socket());
    tell_stories(200, Plot::ANY, &mut OnRedis::new("Redis", &server.url(), vec![&server])).await;
}

#[tokio::test]
async fn a_cluster_matches_the_reference_store() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let masters = cluster.nodes.iter().collect();
    tell_stories(200, Plot::ANY, &mut OnRedis::new("a Cluster", &cluster.url(), masters)).await;
}
