//! Properties that hold for the examples of every algorithm.

use super::{
    check::{Key, MS, S},
    trace::examples,
};
use crate::{
    algorithm::{Bounds, Params, rates},
    domain::{Micros, StepInput, time::DAY},
};

#[test]
fn an_immediate_refund_restores_the_previous_decision() {
    for (entry, params) in examples().filter(|(entry, _)| !entry.spec.lends) {
        let mut key = Key { max_wait: Some(0), ..Key::new() };
        let now = 1_790_000_000 * S;
        let limit = key.decide(&params, now, 0).limit as i64;
        key.decide(&params, now, (limit + 1) / 2);
        let before = key.decide(&params, now, 0);
        let all = before.remaining as i64;
        assert!(key.decide(&params, now, all).allowed);
        assert_eq!(key.decide(&params, now, -all), before, "{} {params:?}", entry.name);
    }
}

#[test]
fn descriptions_parse_back_to_the_same_limit() {
    for (entry, params) in examples() {
        for params in [params.scale(0.5).ok(), params.scale(3.0).ok(), Some(params)].into_iter().flatten() {
            let text = params.describe();
            let inner = text.strip_prefix("{ ").and_then(|text| text.strip_suffix(" }")).unwrap();
            let pairs: Vec<_> = inner.split(", ").map(|part| part.split_once(": ").unwrap()).collect();
            assert!(pairs.iter().all(|(name, _)| entry.fields.contains(name)), "{text}");
            assert_eq!((entry.parse)(&pairs, &Bounds::default()).as_ref(), Ok(&params), "{text}");
        }
    }
}

#[test]
fn windows_are_within_bounds() {
    for (entry, params) in examples() {
        for params in [params.scale(0.5).ok(), params.scale(3.0).ok(), Some(params)].into_iter().flatten() {
            let window = params.window();
            assert!((1..=1 << 53).contains(&window), "{} {}: {window}", entry.name, params.describe());
        }
    }
}

#[test]
fn the_examples_cover_what_other_tests_need() {
    let now = 1_790_000_000 * S;
    let input = |now: Micros, cost: i64| StepInput { now, cost, max_wait: Some(0), phase: 0 };
    for entry in rates() {
        let examples: Vec<_> = examples().filter(|(other, _)| other.name == entry.name).map(|(_, it)| it).collect();
        let first = examples[0].step(None, &input(now, 0)).0;
        assert!((3..=20).contains(&first.limit), "{}: the first is of about ten units", entry.name);
        let reset = |params: &Params| params.step(None, &input(now, 1)).0.reset_after;
        assert!(
            examples.iter().any(|it| (S / 2..=2 * S).contains(&reset(it))),
            "{}: none is soon forgotten",
            entry.name
        );
        let lasting = examples.iter().filter(|params| {
            let (full, state) = params.step(None, &input(now, params.step(None, &input(now, 0)).0.limit as i64));
            // An algorithm that lends grants one unit more.
            let lent = params.step(state.as_ref(), &input(now, 1)).1.or(state);
            let (later, charged) = params.step(lent.as_ref(), &input(now + MS, 1));
            let waits = !later.allowed && later.retry_after > Some(DAY / 24);
            (100..=700).contains(&full.limit) && waits && charged.is_none()
        });
        assert!(lasting.count() >= 2, "{}: fewer than two last", entry.name);
    }
}
