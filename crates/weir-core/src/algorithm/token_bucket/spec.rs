//! The spec of `token_bucket`, and its vectors.

use super::super::properties::{
    Spec,
    check::{Key, S, check, parse, pass, refuse},
};

pub(crate) const SPEC: Spec = Spec {
    bound: |example, elapsed, _| example.metered(example.units("capacity"), elapsed),
    is_reached: true,
    shapes: false,
    lends: false,
    states: &[
        (&[-1.0, 4_294_967_295.0, 4_294_967_296.0], true),
        (&[0.5, 0.0, 1.0], false),
        (&[0.0, -1.0, 1.0], false),
        (&[1e16, 0.0, 1.0], false),
    ],
};

#[test]
fn three_at_once_then_one_in_two_seconds() {
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
fn a_changed_capacity_applies_at_once() {
    let small = parse("token_bucket", &[("capacity", "3"), ("count", "1"), ("period", "2s")]);
    let large = parse("token_bucket", &[("capacity", "10"), ("count", "1"), ("period", "2s")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&small, 0, 3), pass(3, 0, 6 * S));
    assert_eq!(key.decide(&large, 0, 0), pass(10, 7, 6 * S));
    assert_eq!(key.decide(&large, 0, 7), pass(10, 0, 20 * S));
    assert_eq!(key.decide(&small, 0, 1), refuse(3, 0, 2 * S, 6 * S));
    assert_eq!(key.decide(&small, 2 * S, 1), pass(3, 0, 6 * S));
}

#[test]
fn of_several_limits_the_furthest_arrival_time_counts_and_is_kept() {
    let fast = [
        parse("token_bucket", &[("capacity", "10"), ("count", "10"), ("period", "100ms")]),
        parse("token_bucket", &[("capacity", "10"), ("count", "10"), ("period", "200ms")]),
        parse("token_bucket", &[("capacity", "10"), ("count", "10"), ("period", "300ms")]),
        parse("token_bucket", &[("capacity", "10"), ("count", "10"), ("period", "400ms")]),
    ];
    let slow = parse("token_bucket", &[("capacity", "50"), ("count", "1"), ("period", "1h")]);
    let other = parse("token_bucket", &[("capacity", "60"), ("count", "1"), ("period", "1h")]);
    let mut key = Key::new();
    assert!(key.decide(&slow, 0, 50).allowed);
    assert!(!key.decide(&fast[0], 0, 1).allowed, "used up by the slow one");
    assert!(key.decide(&fast[0], S, 1).allowed, "its own units have refilled");
    assert_eq!(key.decide(&other, S, 0).remaining, 10);
    // If more limits write a state than it keeps, it forgets the ones whose units refill first.
    for fast in &fast {
        key.decide(fast, 2 * S, 1);
        assert!(key.decide(fast, 3 * S, 1).allowed);
    }
    assert_eq!(key.decide(&slow, 3 * S, 0).remaining, 0);
}

#[test]
fn a_limit_that_is_gone_is_forgotten_although_others_charge_it() {
    let gone = parse("token_bucket", &[("capacity", "10"), ("count", "10"), ("period", "1h")]);
    let own = parse("token_bucket", &[("capacity", "10"), ("count", "10"), ("period", "1m")]);
    let mut key = Key::new();
    key.decide(&gone, 0, 1);
    key.decide(&own, 0, 1);
    assert!(key.decide(&gone, S, 1).allowed);
    let numbers = |key: &Key| key.state.as_ref().unwrap().encode().len();
    for number in 1..240 {
        assert!(key.decide(&own, number * 60 * S, 2).allowed);
        // An hour until its own unit has certainly refilled, and another one.
        assert_eq!(numbers(&key), if number <= 120 { 18 } else { 3 }, "after {number} minutes");
    }
}

#[test]
fn the_window_is_the_time_to_fill_the_bucket() {
    assert_eq!(parse("token_bucket", &[("capacity", "3"), ("count", "1"), ("period", "2s")]).window(), 6 * S);
}
