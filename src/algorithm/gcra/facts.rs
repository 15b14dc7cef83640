//! What the laws must be told of `gcra`, and its vectors.

use super::super::laws::{
    Facts,
    facts::{S, check, never, pass, refuse},
};

pub const FACTS: Facts = Facts {
    bound: |fields, elapsed, _| fields.metered(fields.units("burst") + 1, elapsed),
    is_reached: true,
    shapes: false,
    lends: false,
    words: &[
        (&[1e15, 2.0, 3.0], true),
        (&[1e15, 3.0, 3.0], false),
        (&[1e15, 0.0, 0.0], false),
        (&[0.0, 0.0, 4_294_967_297.0], false),
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
fn a_rate_that_no_microsecond_divides() {
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
