//! Random policies and random stories against a model written from the specification alone: naive, slow, with exact
//! fractions, and knowing nothing of the code under test.
//!
//! `WEIR_SEED=… cargo test --test model` replays one seed; `WEIR_POLICIES=…` says how many policies to try.

#![allow(clippy::expect_used)]

mod fraction;
mod generate;
mod model;
mod rules;

use std::{panic::resume_unwind, sync::Arc, thread};

use weir_core::{
    algorithm::Bounds,
    domain::{Charge, Decision, ManualClock},
};
use weir_policy::{Policy, file};
use weir_settings::document;
use weir_store::{MemoryStore, memory::MemorySettings};

use futures_util::FutureExt;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use weir::{
    limiter::{Limiter, Request},
    telemetry::Metrics,
};

use generate::{Event, Story};
use model::{Answer, Model};

/// Policies in a run of the quick tests.
const POLICIES: u64 = 10_000;

fn from_environment(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().expect("a number"))
}

fn seed_of_the_day() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after the epoch");
    now.as_nanos() as u64
}

#[test]
fn random_policies_and_traces_match_the_model() {
    let only = from_environment("WEIR_SEED");
    let first = only.unwrap_or_else(seed_of_the_day);
    let policies = from_environment("WEIR_POLICIES").unwrap_or(if only.is_some() { 1 } else { POLICIES });
    println!("seeds {first} and the {policies} from there");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let tell = |thread: usize| {
        let (metrics, mut tally) = (Metrics::new(), Tally::default());
        for seed in (0..policies).skip(thread).step_by(threads).map(|number| first.wrapping_add(number)) {
            let story = generate::story(&mut ChaCha8Rng::seed_from_u64(seed));
            run(&story, &metrics, &mut tally).unwrap_or_else(|why| panic!("WEIR_SEED={seed}\n{why}"));
        }
        tally
    };
    let tally = thread::scope(|scope| {
        let tellers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || tell(thread))).collect();
        let tallies = tellers.into_iter().map(|teller| teller.join().unwrap_or_else(|panic| resume_unwind(panic)));
        tallies.fold(Tally::default(), Tally::and)
    });
    println!("{tally:?}");
    if only.is_none() && policies == POLICIES {
        tally.assert_that_all_was_tried();
    }
}

/// What was met, so that a generator that misses something is noticed.
#[derive(Debug, Default)]
struct Tally {
    checks: u64,
    refused: u64,
    never: u64,
    shadow_refused: u64,
    levels: [u64; 5],
    resets: u64,
    resets_of_something: u64,
    refused_factors: u64,
    independent: u64,
}

impl Tally {
    fn count(&mut self, decided: &Answer) {
        self.checks += 1;
        self.refused += u64::from(!decided.summary.decision.allowed);
        self.never += u64::from(decided.summary.decision.never);
        self.shadow_refused += u64::from(decided.levels.iter().any(|level| level.shadow && !level.decision.allowed));
        self.levels[decided.levels.len().min(4)] += 1;
    }

    fn and(self, other: Self) -> Self {
        Self {
            checks: self.checks + other.checks,
            refused: self.refused + other.refused,
            never: self.never + other.never,
            shadow_refused: self.shadow_refused + other.shadow_refused,
            levels: std::array::from_fn(|levels| self.levels[levels] + other.levels[levels]),
            resets: self.resets + other.resets,
            resets_of_something: self.resets_of_something + other.resets_of_something,
            refused_factors: self.refused_factors + other.refused_factors,
            independent: self.independent + other.independent,
        }
    }

    fn assert_that_all_was_tried(&self) {
        let Self {
            checks,
            refused,
            never,
            shadow_refused,
            levels,
            resets,
            resets_of_something,
            refused_factors,
            independent,
        } = self;
        assert!(*refused > checks / 5 && *refused < checks * 4 / 5, "{self:?}");
        let met = [never, shadow_refused, resets, resets_of_something, refused_factors, independent]
            .into_iter()
            .chain(levels);
        assert!(met.into_iter().all(|met| *met > 500), "{self:?}");
    }
}

fn compile(yaml: &str) -> Policy {
    let document = document::parse(yaml).unwrap_or_else(|problems| panic!("{problems}\n{yaml}"));
    let document = document.expect("a document");
    Policy::new([file::read(&document, &Bounds::default()).unwrap_or_else(|problems| panic!("{problems}\n{yaml}"))])
}

/// Tells the story to both, and says where they differ.
fn run(story: &Story, metrics: &Arc<Metrics>, tally: &mut Tally) -> Result<(), String> {
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::new(MemorySettings { max_keys: 100_000, ..MemorySettings::default() }, Arc::clone(&clock));
    let yamls: Vec<_> = story.policies.iter().map(generate::yaml).collect();
    let limiter = Limiter::new(store, compile(&yamls[0]), Arc::clone(metrics));
    let mut model = Model::new(&story.policies[0]);
    let mut current = 0;
    for (index, (at, event)) in story.events.iter().enumerate() {
        clock.set(*at);
        let differs = |ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
            let before = &story.events[..=index];
            Err(format!("{}\n{before:#?}\nprogram: {ours:#?}\nmodel: {theirs:#?}", yamls[current]))
        };
        match event {
            Event::Reload(to) => {
                limiter.replace_policy(compile(&yamls[*to]));
                model.policy = &story.policies[*to];
                current = *to;
            }
            Event::Reset { key, subtree } => {
                let request = Request::new("", key).expect("a key");
                let reset = limiter.reset(&request, *subtree).now_or_never();
                let existed = reset.expect("at once").expect("memory").existed;
                let expected = model.reset(key, *subtree, *at);
                tally.resets += 1;
                tally.resets_of_something += u64::from(existed);
                if expected.is_some_and(|expected| existed != expected) {
                    return differs(&existed, &expected);
                }
            }
            Event::Check(check) => {
                let mut request = Request::new("", &check.key).expect("a key");
                request.set_terms(check.cost, None, check.factor).expect("terms");
                request.charge =
                    check.independent.map(|yes| if yes { Charge::Independent } else { Charge::AllOrNothing });
                let handle = limiter.policy_handle();
                let answer = limiter.check(&handle, &request).now_or_never().expect("memory does not wait");
                let ours = answer.ok().map(|answer| Answer {
                    summary: answer.summary,
                    levels: answer.levels.iter().map(decided).collect(),
                });
                let theirs = model.check(check, *at);
                match &ours {
                    Some(decided) => tally.count(decided),
                    None => tally.refused_factors += 1,
                }
                tally.independent += u64::from(check.independent == Some(true));
                if ours != theirs {
                    return differs(&ours, &theirs);
                }
            }
        }
    }
    Ok(())
}

fn decided(level: &weir::limiter::LevelAnswer<'_>) -> model::AnswerLevel {
    let decision: Decision = level.decision;
    model::AnswerLevel { name: level.limit.name.to_string(), depth: level.depth, shadow: level.limit.shadow, decision }
}
