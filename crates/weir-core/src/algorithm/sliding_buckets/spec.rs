//! The spec of `sliding_buckets`, and its vectors.

use super::super::{
    State,
    properties::{
        Spec,
        check::{Key, MS, S, check, error, never, parse, pass, refuse},
    },
};

pub(crate) const SPEC: Spec = Spec {
    // `count` for each period that the window touches.
    bound: |example, elapsed, _| {
        example.units("count") * (u128::from(elapsed.unsigned_abs()) / example.micros("period") + 1)
    },
    is_reached: true,
    shapes: false,
    lends: false,
    states: &[
        (&[0.0, 0.0], true),
        (&[497_223.0, -4_294_967_294.0, 1_001.0, 498_224.0, 4_294_967_296.0], true),
        (&[497_223.0, -8_589_934_591.0, 497_223.0, 8_589_934_592.0], false),
        (&[497_223.0, 2_147_483_648.0, 2_147_980_871.0, 2.0], false),
        (&[497_223.5, 497_223.5, 1.0], false),
        (&[497_223.0, 497_223.0, 0.0], false),
    ],
};

const HOURLY: &[(&str, &str)] = &[("count", "3"), ("period", "1h"), ("resolution", "20m")];

#[test]
fn three_per_hour_in_buckets_of_twenty_minutes() {
    let params = parse("sliding_buckets", HOURLY);
    for start in [0, 497_223 * 3_600 * S] {
        let mut key = Key::new();
        for (at, decision) in [
            (0, pass(3, 2, 4_800 * S)),
            (1_300, pass(3, 1, 4_700 * S)),
            (2_500, pass(3, 0, 4_700 * S)),
            (2_600, refuse(3, 0, 2_200 * S, 4_600 * S)),
            (3_599, refuse(3, 0, 1_201 * S, 3_601 * S)),
            (3_600, refuse(3, 0, 1_200 * S, 3_600 * S)),
            (4_800, pass(3, 0, 4_800 * S)),
        ] {
            assert_eq!(key.decide(&params, start + at * S, 1), decision, "at {at}");
        }
    }
}

#[test]
fn a_bucket_counts_until_it_has_left_the_window_entirely() {
    check(
        "sliding_buckets",
        &[("count", "2"), ("period", "10s"), ("resolution", "4s")],
        &[
            (0, 1, pass(2, 1, 14 * S)),
            (3_999 * MS, 1, pass(2, 0, 10 * S + MS)),
            (14 * S - 1, 1, refuse(2, 0, 1, 1)),
            (14 * S, 2, pass(2, 0, 12 * S)),
            (14 * S, 3, never(2, 0, 12 * S)),
        ],
    );
}

#[test]
fn a_clock_that_steps_back_counts_in_the_newest_bucket() {
    check(
        "sliding_buckets",
        &[("count", "3"), ("period", "10s"), ("resolution", "1s")],
        &[
            (20_500 * MS, 1, pass(3, 2, 10_500 * MS)),
            (12_500 * MS, 1, pass(3, 1, 18_500 * MS)),
            (12_500 * MS, 2, refuse(3, 1, 18_500 * MS, 18_500 * MS)),
            (31 * S, 3, pass(3, 0, 11 * S)),
        ],
    );
}

#[test]
fn a_refund_removes_the_newest_units_first() {
    check(
        "sliding_buckets",
        &[("count", "9"), ("period", "10s"), ("resolution", "1s")],
        &[
            (0, 4, pass(9, 5, 11 * S)),
            (2 * S, 2, pass(9, 3, 11 * S)),
            (3 * S, -1, pass(9, 4, 10 * S)),
            (3 * S, -2, pass(9, 6, 8 * S)),
            (3 * S, 9, refuse(9, 6, 8 * S, 8 * S)),
            (3 * S, -9, pass(9, 9, 0)),
        ],
    );
}

#[test]
fn charge_denied_counts_refused_requests_and_keeps_the_newest() {
    check(
        "sliding_buckets",
        &[("count", "2"), ("period", "10s"), ("resolution", "1s"), ("charge_denied", "true")],
        &[
            (0, 1, pass(2, 1, 11 * S)),
            (0, 1, pass(2, 0, 11 * S)),
            (5_500 * MS, 1, refuse(2, 0, 5_500 * MS, 10_500 * MS)),
            (6 * S, 2, refuse(2, 0, 11 * S, 11 * S)),
            (6 * S, 0, pass(2, 0, 11 * S)),
            (6 * S, 3, never(2, 0, 11 * S)),
            (17 * S, 2, pass(2, 0, 11 * S)),
        ],
    );
}

#[test]
fn a_changed_count_keeps_recorded_units() {
    let [five, ten, twenty, largest] = ["5", "10", "20", "4294967296"]
        .map(|count| parse("sliding_buckets", &[("count", count), ("period", "10s"), ("resolution", "1s")]));
    let mut key = Key::new();
    assert_eq!(key.decide(&ten, 0, 6), pass(10, 4, 11 * S));
    assert_eq!(key.decide(&ten, 5 * S, 4), pass(10, 0, 11 * S));
    assert_eq!(key.decide(&five, 5 * S, 0), refuse(5, 0, 6 * S, 11 * S));
    assert_eq!(key.decide(&five, 5 * S, 2), refuse(5, 0, 11 * S, 11 * S));
    assert_eq!(key.decide(&twenty, 5 * S, 1 << 32), never(20, 10, 11 * S));
    assert_eq!(key.decide(&largest, 5 * S, (1 << 32) - 10), pass(1 << 32, 0, 11 * S));
}

#[test]
fn marks_of_another_resolution_are_ignored() {
    let params = parse("sliding_buckets", HOURLY);
    let far = (1u64 << 52) as f64;
    let state = State::decode("sliding_buckets", &[far, far, 1.0]);
    let mut key = Key { state, ..Key::new() };
    assert_eq!(key.decide(&params, 0, 2), pass(3, 1, 4_800 * S));
}

#[test]
fn invalid_parameters_are_rejected() {
    let wrong = |count, period, resolution| {
        error("sliding_buckets", &[("count", count), ("period", period), ("resolution", resolution)]).reason
    };
    assert_eq!(wrong("0", "1s", "1s"), "count must be 1 to 2^32, not 0");
    let fine = "resolution must be 2ms (1000 buckets) to 2s (the period), not";
    assert_eq!(wrong("1", "2s", "1999us"), format!("{fine} 1999us"));
    assert_eq!(wrong("1", "2s", "2000001us"), format!("{fine} 2000001us"));
    assert!(wrong("1", "32d", "1d").starts_with("period must be 1us to 31d"));
    parse("sliding_buckets", &[("count", "1"), ("period", "999us"), ("resolution", "1us")]);
    assert!(wrong("1", "1001us", "1us").starts_with("resolution must be 2us"));
}
