//! The spec of `gcra`, and its vectors.

use super::super::properties::{
    Spec,
    check::{S, check, never, parse, pass, refuse},
};

pub(crate) const SPEC: Spec = Spec {
    bound: |example, elapsed, _| example.metered(example.units("burst") + 1, elapsed),
    is_reached: true,
    shapes: false,
    lends: false,
    states: &[
        (&[1e15, 2.0, 3.0], true),
        (&[1e15, 3.0, 3.0], false),
        (&[1e15, 0.0, 0.0], false),
        (&[0.0, 0.0, 4_503_599_627_370_497.0], false),
    ],
};

#[test]
fn one_in_two_seconds() {
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
fn times_of_indivisible_rates_round_up() {
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
fn the_window_is_the_time_to_refill_all_units() {
    let window = |fields| parse("gcra", fields).window();
    assert_eq!(
        [
            window(&[("burst", "15"), ("count", "30"), ("period", "60s")]),
            window(&[("burst", "0"), ("count", "7"), ("period", "60s")]),
        ],
        [32 * S, 8_571_429]
    );
}
