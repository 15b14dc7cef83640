//! Random policies and random traces, compared with a reference model that is written from the specification alone:
//! naive, slow, with exact fractions, and sharing no code with the implementation.
//!
//! `WEIR_SEED=… cargo test --test model` replays one seed; `WEIR_POLICIES=…` sets the number of policies.

#![allow(clippy::expect_used)]

mod fraction;
mod generate;
mod model;
mod rules;

use std::{collections::BTreeMap, panic::resume_unwind, sync::Arc, thread};

use weir_core::{
    algorithm::Bounds,
    domain::{Charge, Decision, ManualClock},
    testing::{Random, fresh_seed, from_environment},
};
use weir_policy::{Policy, file};
use weir_settings::document;
use weir_store::{MemoryStore, memory::MemorySettings};

use futures_util::FutureExt;
use weir::{
    limiter::{Limiter, Request},
    telemetry::Metrics,
};

use generate::{Event, Story};
use model::{Answer, Model};

/// Number of policies in a default run.
const POLICIES: u64 = 10_000;

#[test]
fn random_policies_and_traces_match_the_model() {
    let only = from_environment("WEIR_SEED");
    let first = only.unwrap_or_else(fresh_seed);
    let policies = from_environment("WEIR_POLICIES").unwrap_or(if only.is_some() { 1 } else { POLICIES });
    println!("seeds {first} and the {policies} from there");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let tell = |thread: usize| {
        let (metrics, mut tally) = (Metrics::new(), Tally::default());
        for seed in (0..policies).skip(thread).step_by(threads).map(|number| first.wrapping_add(number)) {
            let story = generate::story(&mut Random::new(seed));
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

/// Names of the cases by number of levels in a check.
const LEVELS: [&str; 5] = ["no level", "1 level", "2 levels", "3 levels", "4 levels or more"];

/// Number of occurrences of each case, to detect a generator that misses one.
#[derive(Debug, Default)]
struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    fn met(&mut self, what: &'static str, it_is: bool) {
        *self.0.entry(what).or_default() += u64::from(it_is);
    }

    fn count(&mut self, decided: &Answer) {
        self.met("checks", true);
        self.met("refused", !decided.summary.decision.allowed);
        self.met("never", decided.summary.decision.never);
        self.met("shadow refused", decided.levels.iter().any(|level| level.shadow && !level.decision.allowed));
        self.met(LEVELS[decided.levels.len().min(4)], true);
    }

    fn and(mut self, other: Self) -> Self {
        other.0.into_iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
        self
    }

    fn assert_that_all_was_tried(&self) {
        let count = |what| self.0.get(what).copied().unwrap_or_default();
        let (checks, refused) = (count("checks"), count("refused"));
        assert!(refused > checks / 5 && refused < checks * 4 / 5, "{self:?}");
        let met = ["never", "shadow refused", "resets", "resets of something", "refused factors", "independent"];
        assert!(met.into_iter().chain(LEVELS).all(|what| count(what) > 500), "{self:?}");
    }
}

fn compile(yaml: &str) -> Policy {
    let document = document::parse(yaml).unwrap_or_else(|problems| panic!("{problems}\n{yaml}"));
    let document = document.expect("a document");
    Policy::new([file::read(&document, &Bounds::default()).unwrap_or_else(|problems| panic!("{problems}\n{yaml}"))])
}

/// Replays the trace on both, and returns the first difference.
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
                tally.met("resets", true);
                tally.met("resets of something", existed);
                if expected.is_some_and(|expected| existed != expected) {
                    return differs(&existed, &expected);
                }
            }
            Event::Check(check) => {
                let mut request = Request::new("", &check.key).expect("a key");
                request.set_terms(check.cost, None, check.factor).expect("terms");
                request.charge =
                    check.independent.map(|yes| if yes { Charge::Independent } else { Charge::AllOrNothing });
                let handle = limiter.policy();
                let answer = limiter.check(&handle, &request).now_or_never().expect("memory does not wait");
                let ours = answer.ok().map(|answer| Answer {
                    summary: answer.summary,
                    levels: answer.levels.iter().map(decided).collect(),
                });
                let theirs = model.check(check, *at);
                match &ours {
                    Some(decided) => tally.count(decided),
                    None => tally.met("refused factors", true),
                }
                tally.met("independent", check.independent == Some(true));
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
