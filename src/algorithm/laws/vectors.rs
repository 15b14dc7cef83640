//! What the specification prints about single algorithms, in Rust and in Lua.

use super::lua::Halves;
use crate::{
    algorithm::{Bounds, Params, State, find},
    domain::{Ask, Decision, Micros, ask::MAX_COST},
};

const MS: Micros = 1_000;
const S: Micros = 1_000 * MS;

/// One request: its moment, its cost, and the answer.
type Line = (Micros, i64, Decision);

/// A key that is asked in both languages.
struct Key {
    halves: Halves,
    state: Option<State>,
}

impl Key {
    fn new() -> Self {
        Self { halves: Halves::new(), state: None }
    }

    fn ask(&mut self, params: &Params, now: Micros, cost: i64) -> Decision {
        let ask = Ask { now, cost, max_wait: None, phase: 0 };
        let (decision, next) = params.step(self.state.as_ref(), &ask);
        self.halves.assert_same(params, self.state.as_ref(), &ask, (&decision, next.as_ref()));
        self.state = next.or(self.state.take());
        decision
    }
}

fn parse(name: &str, fields: &'static [(&str, &str)]) -> Params {
    (find(name).unwrap().parse)(&fields, &Bounds::default()).unwrap()
}

/// Runs the lines at the epoch and in our days.
fn check(name: &str, fields: &'static [(&str, &str)], lines: &[Line]) {
    let params = parse(name, fields);
    for start in [0, 1_790_000_040 * S] {
        let mut key = Key::new();
        for (number, (at, cost, expected)) in lines.iter().enumerate() {
            assert_eq!(key.ask(&params, start + at, *cost), *expected, "{name} {fields:?}, line {number}");
        }
    }
}

const fn pass(limit: u64, remaining: u64, reset_after: Micros) -> Decision {
    Decision { allowed: true, limit, remaining, retry_after: None, reset_after, wait: 0, never: false }
}

const fn refuse(limit: u64, remaining: u64, retry: Micros, reset_after: Micros) -> Decision {
    Decision { allowed: false, limit, remaining, retry_after: Some(retry), reset_after, wait: 0, never: false }
}

const fn never(limit: u64, remaining: u64, reset_after: Micros) -> Decision {
    Decision { allowed: false, limit, remaining, retry_after: None, reset_after, wait: 0, never: true }
}

#[test]
fn gcra() {
    check(
        "gcra",
        &[("burst", "0"), ("count", "1"), ("period", "2s")],
        &[
            (0, 1, pass(1, 0, 2 * S)),
            (0, 1, refuse(1, 0, 2 * S, 2 * S)),
            (2 * S - 1, 1, refuse(1, 0, 1, 1)),
            (2 * S, 1, pass(1, 0, 2 * S)),
            (2 * S, 2, never(1, 0, 2 * S)),
            (2 * S, -1, pass(1, 1, 0)),
        ],
    );
}

#[test]
fn gcra_at_a_rate_that_no_microsecond_divides() {
    check(
        "gcra",
        &[("burst", "2"), ("count", "3"), ("period", "1s")],
        &[
            (0, 1, pass(3, 2, 333_334)),
            (0, 1, pass(3, 1, 666_667)),
            (0, 1, pass(3, 0, S)),
            (0, 1, refuse(3, 0, 333_334, S)),
            (333_333, 1, refuse(3, 0, 1, 666_667)),
            (333_334, 1, pass(3, 0, S)),
            (333_334, 3, refuse(3, 0, S, S)),
        ],
    );
}

#[test]
fn token_bucket() {
    check(
        "token_bucket",
        &[("capacity", "3"), ("count", "1"), ("period", "2s")],
        &[
            (0, 1, pass(3, 2, 2 * S)),
            (0, 1, pass(3, 1, 4 * S)),
            (0, 1, pass(3, 0, 6 * S)),
            (0, 1, refuse(3, 0, 2 * S, 6 * S)),
            (S, 1, refuse(3, 0, S, 5 * S)),
            (2 * S, 1, pass(3, 0, 6 * S)),
            (4 * S, 0, pass(3, 1, 4 * S)),
            (4 * S, -9, pass(3, 3, 0)),
        ],
    );
}

#[test]
fn fixed_window() {
    check(
        "fixed_window",
        &[("count", "5"), ("period", "60s")],
        &[
            (59 * S, 1, pass(5, 4, S)),
            (59 * S, 4, pass(5, 0, S)),
            (59 * S, 1, refuse(5, 0, S, S)),
            (60 * S, 5, pass(5, 0, 60 * S)),
            (60 * S, 6, never(5, 0, 60 * S)),
            // The clock steps back: still the window that is known, whose end is now further away.
            (58 * S, 1, refuse(5, 0, 62 * S, 62 * S)),
            (58 * S, -2, pass(5, 2, 62 * S)),
            (120 * S, -2, pass(5, 5, 0)),
        ],
    );
}

#[test]
fn fixed_window_that_charges_what_it_denies() {
    check(
        "fixed_window",
        &[("count", "2"), ("period", "1s"), ("charge_denied", "true")],
        &[
            (0, 2, pass(2, 0, S)),
            (500 * MS, 2, refuse(2, 0, 500 * MS, 500 * MS)),
            (500 * MS, -2, pass(2, 0, 500 * MS)),
            (500 * MS, -1, pass(2, 1, 500 * MS)),
            (500 * MS, 5, never(2, 0, 500 * MS)),
            (500 * MS, 0, refuse(2, 0, 500 * MS, 500 * MS)),
        ],
    );
}

#[test]
fn a_raised_capacity_frees_the_difference_at_once_and_a_lowered_one_forgets_nothing() {
    let small = parse("token_bucket", &[("capacity", "3"), ("count", "1"), ("period", "2s")]);
    let large = parse("token_bucket", &[("capacity", "10"), ("count", "1"), ("period", "2s")]);
    let mut key = Key::new();
    assert_eq!(key.ask(&small, 0, 3), pass(3, 0, 6 * S));
    assert_eq!(key.ask(&large, 0, 0), pass(10, 7, 6 * S));
    assert_eq!(key.ask(&large, 0, 7), pass(10, 0, 20 * S));
    assert_eq!(key.ask(&small, 0, 1), refuse(3, 0, 16 * S, 20 * S));
}

#[test]
fn a_charge_given_back_at_once_leaves_what_was() {
    for (_, params) in super::examples().filter(|(_, params)| !super::shapes(params)) {
        let mut key = Key::new();
        let now = 1_790_000_000 * S;
        let most = key.ask(&params, now, 0).limit as i64;
        key.ask(&params, now, (most + 1) / 2);
        let before = key.ask(&params, now, 0);
        let all = before.remaining as i64;
        assert!(key.ask(&params, now, all).allowed);
        assert_eq!(key.ask(&params, now, -all), before, "{params:?}");
    }
}

#[test]
fn a_window_counts_what_it_denies_up_to_what_a_double_holds() {
    let params = parse("fixed_window", &[("count", "1"), ("period", "1d"), ("charge_denied", "true")]);
    let ask = Ask { now: 0, cost: MAX_COST, max_wait: None, phase: 0 };
    let mut key = Key::new();
    for _ in 0..(1 << 20) - 1 {
        key.state = params.step(key.state.as_ref(), &ask).1;
    }
    for _ in 0..2 {
        assert_eq!(key.ask(&params, 0, MAX_COST), never(1, 0, 86_400 * S));
        assert_eq!(key.state.as_ref().unwrap().lua_state(), [0.0, (1u64 << 52) as f64]);
    }
}
