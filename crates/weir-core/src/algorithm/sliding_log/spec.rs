//! The spec of `sliding_log`, and its vectors.

use super::{
    super::{
        Spent,
        properties::{
            Spec,
            check::{Key, MS, S, check, error, never, parse, pass, refuse},
        },
    },
    MAX_COUNT,
};
use crate::domain::{StepInput, request::MAX_COST, time::DAY};

pub(crate) const SPEC: Spec = Spec {
    // `count` for each period that the window touches, and with a minimum interval one request for each interval.
    bound: |example, elapsed, largest| {
        let elapsed = u128::from(elapsed.unsigned_abs());
        let by_count = example.units("count") * (elapsed / example.micros("period") + 1);
        let interval = example.text("min_interval").map(|_| example.micros("min_interval"));
        interval.map_or(by_count, |interval| by_count.min((elapsed / interval + 1) * u128::from(largest)))
    },
    is_reached: true,
    shapes: false,
    lends: false,
    states: &[
        (&[0.0, 0.0], true),
        (&[1e15, -9_999.0, 1e15, 10_000.0], true),
        (&[1e15, -9_998.0, 31_622_400_000_000.0, 1_031_622_400_000_000.0, 10_000.0], true),
        (&[1e15, 1e15, 2.0], false),
        (&[1e15, 2.0, 1e15, 2.0], false),
        (&[1e15, -16_383.0, 1e15, 16_384.0], false),
        (&[4_503_599_627_370_497.0, 4_503_599_627_370_497.0, 1.0], false),
    ],
};

#[test]
fn three_in_any_ten_seconds() {
    check(
        "sliding_log",
        &[("count", "3"), ("period", "10s")],
        &[
            (0, 1, pass(3, 2, 10 * S)),
            (4 * S, 1, pass(3, 1, 10 * S)),
            (5 * S, 1, pass(3, 0, 10 * S)),
            (8 * S, 1, refuse(3, 0, 2 * S, 7 * S)),
            (8 * S, 3, refuse(3, 0, 7 * S, 7 * S)),
            (10 * S - 1, 1, refuse(3, 0, 1, 5 * S + 1)),
            (10 * S, 1, pass(3, 0, 10 * S)),
            (11 * S, 1, refuse(3, 0, 3 * S, 9 * S)),
            (11 * S, 4, never(3, 0, 9 * S)),
            (11 * S, -1, pass(3, 1, 4 * S)),
            (15 * S, 0, pass(3, 3, 0)),
        ],
    );
}

#[test]
fn hits_in_the_same_microsecond_count_separately() {
    check(
        "sliding_log",
        &[("count", "3"), ("period", "10s")],
        &[(0, 1, pass(3, 2, 10 * S)), (0, 1, pass(3, 1, 10 * S)), (0, 2, refuse(3, 1, 10 * S, 10 * S))],
    );
}

#[test]
fn min_interval_applies_regardless_of_cost() {
    check(
        "sliding_log",
        &[("count", "5"), ("period", "10s"), ("min_interval", "1s")],
        &[
            (0, 2, pass(5, 0, 10 * S)),
            // A preview is not a request, so it passes, and reports that nothing else would.
            (400 * MS, 0, pass(5, 0, 9_600 * MS)),
            (400 * MS, 1, refuse(5, 0, 600 * MS, 9_600 * MS)),
            // The later of the two: the end of the interval, or the expiry that frees a unit.
            (400 * MS, 4, refuse(5, 0, 9_600 * MS, 9_600 * MS)),
            (S, 0, pass(5, 3, 9 * S)),
            (S, 3, pass(5, 0, 10 * S)),
            (10_500 * MS, 1, pass(5, 0, 10 * S)),
            (10_600 * MS, 2, refuse(5, 0, 900 * MS, 9_900 * MS)),
            // The newest unit is refunded, and the interval counts from the one before.
            (10_600 * MS, -1, pass(5, 2, 400 * MS)),
        ],
    );
}

#[test]
fn charge_denied_charges_refused_requests() {
    check(
        "sliding_log",
        &[("count", "3"), ("period", "10s"), ("charge_denied", "true")],
        &[
            (0, 2, pass(3, 1, 10 * S)),
            // The newest three are kept: one of the two from before, and these two.
            (4 * S, 2, refuse(3, 0, 10 * S, 10 * S)),
            (5 * S, 0, pass(3, 0, 9 * S)),
            (10 * S, 0, pass(3, 1, 4 * S)),
            (11 * S, 2, refuse(3, 0, 10 * S, 10 * S)),
            (12 * S, 9, never(3, 0, 10 * S)),
            (12 * S, 1, refuse(3, 0, 10 * S, 10 * S)),
            (22 * S, 1, pass(3, 2, 10 * S)),
        ],
    );
}

#[test]
fn a_charged_denial_restarts_the_minimum_interval() {
    check(
        "sliding_log",
        &[("count", "3"), ("period", "10s"), ("min_interval", "1s"), ("charge_denied", "true")],
        &[
            (0, 1, pass(3, 0, 10 * S)),
            (900 * MS, 1, refuse(3, 0, S, 10 * S)),
            (1_800 * MS, 1, refuse(3, 0, 8_200 * MS, 10 * S)),
            (10 * S, 1, pass(3, 0, 10 * S)),
        ],
    );
}

#[test]
fn a_changed_count_keeps_recorded_hits() {
    let of_ten = parse("sliding_log", &[("count", "10"), ("period", "10s")]);
    let of_two = parse("sliding_log", &[("count", "2"), ("period", "10s"), ("charge_denied", "true")]);
    let mut key = Key::new();
    for second in 0..10 {
        assert!(key.decide(&of_ten, second * S, 1).allowed);
    }
    // The second newest of ten hits must leave.
    assert_eq!(key.decide(&of_two, 9 * S, 0), refuse(2, 0, 8 * S, 10 * S));
    assert_eq!(key.decide(&of_two, 9 * S, 1), refuse(2, 0, 10 * S, 10 * S));
    // The charge for the refusal has pushed out only the oldest of the ten.
    assert_eq!(key.decide(&of_ten, 9 * S, 0), pass(10, 0, 10 * S));
    assert_eq!(key.decide(&of_ten, 12 * S, 0), pass(10, 2, 7 * S));
}

/// Units that were held under a larger count, and are settled under a smaller one.
#[test]
fn settled_units_cut_none_under_a_lowered_count() {
    let of = |count| parse("sliding_log", &[("count", count), ("period", "10s")]);
    let (ten, five) = (of("10"), of("5"));
    let mut key = Key::new();
    assert_eq!(key.decide(&ten, 0, 5), pass(10, 5, 10 * S));
    key.state = five.charge(key.state.as_ref(), Spent::held(4), S, 0);
    assert_eq!(key.decide(&ten, S, 0), pass(10, 1, 10 * S));
    // An overage, which no limit has admitted, pushes out the oldest.
    key.state = five.charge(key.state.as_ref(), Spent { units: 20, held: 1 }, 2 * S, 0);
    assert_eq!(key.state.as_ref().unwrap().encode(), [2e6, -9.0, 2e6, 10.0]);
    let held = |units| five.charge(key.state.as_ref(), Spent::held(units), 3 * S, 0).unwrap().encode();
    assert_eq!(held(3), [2e6, -9.0, 1e6, -2.0, 3e6, 13.0]);
    assert_eq!(held(1 << 40), [3e6, -9_999.0, 3e6, 10_000.0]);
}

#[test]
fn a_clock_that_steps_back_adds_to_the_newest_hit() {
    check(
        "sliding_log",
        &[("count", "2"), ("period", "10s")],
        &[
            (30 * S, 1, pass(2, 1, 10 * S)),
            (25 * S, 1, pass(2, 0, 15 * S)),
            (25 * S, 1, refuse(2, 0, 15 * S, 15 * S)),
            (40 * S, 2, pass(2, 0, 10 * S)),
        ],
    );
}

#[test]
fn ten_thousand_hits_are_stored_as_one_number_each() {
    let params = parse("sliding_log", &[("count", "10000"), ("period", "366d"), ("charge_denied", "true")]);
    let (max, every) = (MAX_COUNT as i64, 3_162_240_000);
    let mut key = Key::new();
    for hit in 0..max {
        let input = StepInput { now: hit * every, cost: 1, max_wait: None, phase: 0 };
        key.state = params.step(key.state.as_ref(), &input).1;
    }
    let now = (max - 1) * every;
    assert_eq!(key.state.as_ref().unwrap().encode().len(), 10_002);
    assert_eq!(key.decide(&params, now, 0), pass(10_000, 0, 366 * DAY));
    assert_eq!(key.decide(&params, now, 5_000), refuse(10_000, 0, 366 * DAY, 366 * DAY));
    assert_eq!(key.decide(&params, now, -4_999), pass(10_000, 4_999, 366 * DAY));
    assert_eq!(key.decide(&params, now, -2), pass(10_000, 5_001, 366 * DAY - every));
    assert_eq!(key.decide(&params, now + 1, MAX_COST), never(10_000, 0, 366 * DAY));
    assert_eq!(key.state.as_ref().unwrap().encode(), [(now + 1) as f64, -9_999.0, (now + 1) as f64, 10_000.0]);
    assert_eq!(key.decide(&params, now, -MAX_COST), pass(10_000, 10_000, 0));
}

#[test]
fn invalid_parameters_are_rejected() {
    let wrong = |count, period, interval| {
        error("sliding_log", &[("count", count), ("period", period), ("min_interval", interval)]).reason
    };
    assert_eq!(wrong("0", "1s", "0s"), "count must be 1 to 10000, not 0");
    assert_eq!(wrong("10001", "1s", "0s"), "count must be 1 to 10000, not 10001");
    assert_eq!(wrong("1", "1s", "1000001us"), "min_interval must be 0 to the period, 1s, not 1000001us");
    assert!(wrong("1", "32d", "0s").starts_with("period must be 1us to 31d"));
    let largest = parse("sliding_log", &[("count", "10000"), ("period", "1s")]);
    assert_eq!(largest.scale(0.5).unwrap_err().field, "count");
}
