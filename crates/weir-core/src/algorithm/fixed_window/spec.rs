//! The spec of `fixed_window`, and its vectors.

mod calendar;

use super::{
    super::{
        Params,
        properties::{
            Spec,
            check::{Key, MS, S, check, never, parse, pass, refuse},
        },
    },
    FixedWindow,
};
use crate::domain::{StepInput, request::MAX_COST};

pub(crate) const SPEC: Spec = Spec {
    // All units of each of the limit's windows that this one can touch: 2 * count for a length of one period.
    bound: |example, elapsed, _| {
        const HOUR: u128 = 3_600_000_000;
        let shortest = match example.text("calendar") {
            None => example.micros("period"),
            // The clocks are set forward by an hour.
            Some("day") => 23 * HOUR,
            Some("week") => (7 * 24 - 1) * HOUR,
            Some("month") => (28 * 24 - 1) * HOUR,
            Some(_) => (365 * 24 - 1) * HOUR,
        };
        example.units("count") * (u128::from(elapsed.unsigned_abs()).div_ceil(shortest) + 1)
    },
    is_reached: true,
    shapes: false,
    lends: false,
    states: &[
        (&[1e15, 4_503_599_627_370_496.0], true),
        (&[1e15, 4_503_599_627_370_497.0], false),
        (&[0.0, -1.0], false),
        (&[1e16, 1.0], false),
    ],
};

#[test]
fn five_in_a_minute() {
    check(
        "fixed_window",
        &[("count", "5"), ("period", "60s")],
        &[
            (59 * S, 1, pass(5, 4, S)),
            (59 * S, 4, pass(5, 0, S)),
            (59 * S, 1, refuse(5, 0, S, S)),
            (60 * S, 5, pass(5, 0, 60 * S)),
            (60 * S, 6, never(5, 0, 60 * S)),
            // The clock steps back: the known window stays, and its end is now further away.
            (58 * S, 1, refuse(5, 0, 62 * S, 62 * S)),
            (58 * S, -2, pass(5, 2, 62 * S)),
            (120 * S, -2, pass(5, 5, 0)),
        ],
    );
}

#[test]
fn charge_denied_charges_refused_requests() {
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
fn charge_denied_saturates_at_two_to_the_52() {
    let params = parse("fixed_window", &[("count", "1"), ("period", "1d"), ("charge_denied", "true")]);
    let input = StepInput { now: 0, cost: MAX_COST, max_wait: None, phase: 0 };
    let mut key = Key::new();
    for _ in 0..(1 << 20) - 1 {
        key.state = params.step(key.state.as_ref(), &input).1;
    }
    for _ in 0..2 {
        assert_eq!(key.decide(&params, 0, MAX_COST), never(1, 0, 86_400 * S));
        assert_eq!(key.state.as_ref().unwrap().encode(), [0.0, (1u64 << 52) as f64]);
    }
}

#[test]
fn a_count_of_zero_allows_only_peeks_and_refunds() {
    let params = Params::FixedWindow(FixedWindow::in_unit(0, 60 * S, true));
    let mut key = Key::new();
    assert_eq!(key.decide(&params, 10 * S, 0), pass(0, 0, 0));
    assert_eq!(key.decide(&params, 10 * S, -1), pass(0, 0, 0));
    assert_eq!(key.decide(&params, 10 * S, 1), never(0, 0, 50 * S));
    assert_eq!(key.decide(&params, 10 * S, 0), refuse(0, 0, 50 * S, 50 * S));
    assert_eq!(params.scale(0.5).unwrap(), params, "a factor makes nothing of none");
}

#[test]
fn a_factor_cannot_leave_the_bounds_of_a_count() {
    let params = parse("fixed_window", &[("count", "4294967295"), ("period", "60s")]);
    assert_eq!(params.scale(0.1).unwrap_err().to_string(), "count must be 1 to 2^32, not 42949672950");
}

#[test]
fn the_window_is_the_period() {
    assert_eq!(parse("fixed_window", &[("count", "5"), ("period", "60s")]).window(), 60 * S);
}
