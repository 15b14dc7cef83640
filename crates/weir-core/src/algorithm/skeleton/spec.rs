//! The spec of `skeleton`, and its vectors.

use super::super::properties::{
    Spec,
    check::{S, check, error, never, pass, refuse},
};

pub(crate) const SPEC: Spec = Spec {
    // All units of each of the limit's windows that this one can touch.
    bound: |example, elapsed, _| {
        example.units("count") * (u128::from(elapsed.unsigned_abs()).div_ceil(example.micros("period")) + 1)
    },
    is_reached: true,
    shapes: false,
    lends: false,
    states: &[
        (&[1e15, 4_294_967_296.0], true),
        (&[1e15, 4_294_967_297.0], false),
        (&[0.0, -1.0], false),
        (&[1e16, 1.0], false),
    ],
};

#[test]
fn five_in_a_minute() {
    check(
        "skeleton",
        &[("count", "5"), ("period", "60s")],
        &[
            (59 * S, 4, pass(5, 1, S)),
            (59 * S, 2, refuse(5, 1, S, S)),
            (59 * S, 6, never(5, 1, S)),
            (59 * S, -3, pass(5, 4, S)),
            (60 * S, 5, pass(5, 0, 60 * S)),
        ],
    );
}

#[test]
fn invalid_parameters_are_rejected() {
    assert_eq!(error("skeleton", &[("count", "0"), ("period", "1s")]).reason, "count must be 1 to 2^32, not 0");
}
