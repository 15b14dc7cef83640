//! The spec of `smooth_bursty`, and its vectors.

use super::super::{
    Bounds, find,
    properties::{
        Spec,
        check::{Key, MS, S, check, check_waiting, error, never, parse, pass, refuse, wait},
        spec::Example,
    },
};
use crate::domain::{request::MAX_COST, time::DAY};

pub(crate) const SPEC: Spec = Spec {
    bound: |example, elapsed, largest| {
        let within = u128::from(elapsed.unsigned_abs()) + max_burst(example);
        within * example.units("count") / example.micros("period") + u128::from(largest)
    },
    // Only for a client whose largest request is its last one.
    is_reached: false,
    shapes: true,
    lends: true,
    states: &[
        (&[1e15, 1.0, 3.0], true),
        (&[1e15, 3.0, 3.0], false),
        (&[1e15, 0.0, 0.0], false),
        (&[1e15, 0.0, 4_503_599_627_370_497.0], false),
    ],
};

fn max_burst(example: Example) -> u128 {
    example.text("max_burst").map_or(1_000_000, |_| example.micros("max_burst"))
}

/// Each client sleeps for its wait, so the next request is sent when this one may start.
#[test]
fn each_request_waits_for_the_debt_of_the_previous_one() {
    check_waiting(
        "smooth_bursty",
        &[("count", "5"), ("period", "1s")],
        Some(DAY),
        &[
            (0, 5, pass(5, 0, S)),
            (0, 1, pass(5, 0, 1_200 * MS)),
            (0, 1, wait(5, 0, 200 * MS, 1_400 * MS)),
            (200 * MS, 3, wait(5, 0, 200 * MS, 1_800 * MS)),
            (400 * MS, 1, wait(5, 0, 600 * MS, 1_800 * MS)),
        ],
    );
}

#[test]
fn non_waiting_requests_are_refused_until_the_debt_is_paid() {
    check(
        "smooth_bursty",
        &[("count", "5"), ("period", "1s")],
        &[
            (0, 0, pass(5, 5, 0)),
            (0, 2, pass(5, 3, 400 * MS)),
            (0, 8, pass(5, 0, 2 * S)),
            (0, 0, wait(5, 0, S, 2 * S)),
            (0, 1, refuse(5, 0, S, 2 * S)),
            (S - 1, 1, refuse(5, 0, 1, S + 1)),
            (S, 1, pass(5, 0, 1_200 * MS)),
            (S, -1, pass(5, 0, S)),
            (S, -2, pass(5, 2, 600 * MS)),
            (S, -9, pass(5, 5, 0)),
        ],
    );
}

#[test]
fn the_max_wait_of_the_limit_caps_the_wait() {
    let limit = &[("count", "5"), ("period", "1s"), ("max_burst", "2s"), ("max_wait", "500ms")];
    check_waiting(
        "smooth_bursty",
        limit,
        Some(DAY),
        &[
            (0, 13, pass(10, 0, 2_600 * MS)),
            (0, 1, refuse(10, 0, 100 * MS, 2_600 * MS)),
            (100 * MS, 1, wait(10, 0, 500 * MS, 2_700 * MS)),
        ],
    );
    check_waiting(
        "smooth_bursty",
        limit,
        Some(0),
        &[(0, 11, pass(10, 0, 2_200 * MS)), (0, 1, refuse(10, 0, 200 * MS, 2_200 * MS))],
    );
}

/// Less than a permit can be stored, and one more passes: the first of a burst never waits.
#[test]
fn a_store_below_one_permit_still_admits_one() {
    check(
        "smooth_bursty",
        &[("count", "1"), ("period", "3s")],
        &[
            (0, 0, pass(1, 0, 0)),
            (0, 1, pass(1, 0, 3 * S)),
            (0, 1, refuse(1, 0, 2 * S, 3 * S)),
            (2 * S, 2, pass(1, 0, 7 * S)),
        ],
    );
}

#[test]
fn a_key_that_starts_empty_stores_permits_until_it_is_forgotten() {
    let limit = &[("count", "5"), ("period", "1s"), ("start", "empty")];
    let hour = 3_600 * S;
    check(
        "smooth_bursty",
        limit,
        &[
            (0, 0, pass(5, 0, 0)),
            (0, -3, pass(5, 0, 0)),
            (0, 2, pass(5, 0, hour + 1_400 * MS)),
            (0, 1, refuse(5, 0, 400 * MS, hour + 1_400 * MS)),
            (400 * MS, 1, pass(5, 0, hour + 1_200 * MS)),
            (1_000 * MS, 0, pass(5, 2, hour + 600 * MS)),
            (1_600 * MS, 0, pass(5, 5, hour)),
            (hour + 1_600 * MS - 1, 0, pass(5, 5, 1)),
            (hour + 1_600 * MS, 0, pass(5, 0, 0)),
            (hour + 1_600 * MS, -1, pass(5, 0, 0)),
            (hour + 2 * S, 1, pass(5, 0, hour + 1_200 * MS)),
            (hour + 2 * S, -9, pass(5, 5, hour)),
        ],
    );
    let (empty, full) = (parse("smooth_bursty", limit), parse("smooth_bursty", &limit[..2]));
    let mut key = Key::new();
    key.decide(&empty, 0, 1);
    assert_eq!(key.decide(&full, 0, 0), wait(5, 0, 200 * MS, 1_200 * MS), "another start keeps what was spent");
    assert_eq!(
        error("smooth_bursty", &[("count", "5"), ("period", "1s"), ("start", "half")]).reason,
        "start must be full or empty, not `half`"
    );
}

#[test]
fn fractional_microseconds_round_up() {
    check(
        "smooth_bursty",
        &[("count", "3"), ("period", "1s")],
        &[
            (0, 4, pass(3, 0, 1_333_334)),
            (0, 1, refuse(3, 0, 333_334, 1_333_334)),
            (333_333, 1, refuse(3, 0, 1, 1_000_001)),
            (333_334, 1, pass(3, 0, 1_333_333)),
        ],
    );
}

#[test]
fn a_cost_that_takes_over_35_years_never_passes() {
    // 2^50 us are 13,031 days and some hours.
    check(
        "smooth_bursty",
        &[("count", "1"), ("period", "1d")],
        &[
            (0, 13_032, never(1, 0, 0)),
            (0, MAX_COST, never(1, 0, 0)),
            (0, 13_031, pass(1, 0, 13_031 * DAY)),
            (0, 13_032, never(1, 0, 13_031 * DAY)),
            (0, 1, refuse(1, 0, 13_031 * DAY - S, 13_031 * DAY)),
            (0, -MAX_COST, pass(1, 0, 0)),
        ],
    );
}

#[test]
fn a_changed_limit_keeps_spent_permits() {
    let large = parse("smooth_bursty", &[("count", "5"), ("period", "1s"), ("max_burst", "4s")]);
    let small = parse("smooth_bursty", &[("count", "1"), ("period", "1s"), ("max_burst", "2s")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&large, 0, 5), pass(20, 15, S));
    assert_eq!(key.decide(&small, 0, 0), pass(2, 1, S));
    assert_eq!(key.decide(&large, 0, 15), pass(20, 0, 4 * S));
    // A debt is clamped to the units that the smaller limit could have spent.
    assert_eq!(key.decide(&small, 0, 0), pass(2, 0, 2 * S));
    assert_eq!(key.decide(&small, 0, 1), pass(2, 0, 3 * S));
    assert_eq!(key.decide(&small, 0, 1), refuse(2, 0, S, 3 * S));
    assert_eq!(key.decide(&small, S - 1, 1), refuse(2, 0, 1, 2 * S + 1));
    assert_eq!(key.decide(&small, S, 1), pass(2, 0, 3 * S));
    // The units that the larger limit admitted.
    assert_eq!(key.decide(&large, S, 0), pass(20, 5, 3 * S));
}

/// The documented worst case: a full store, the refill, and a large request on top.
#[test]
fn the_worst_window_matches_its_documented_bound() {
    let params = parse("smooth_bursty", &[("count", "5"), ("period", "1s")]);
    let mut key = Key::new();
    for (at, cost) in [(0, 5), (0, 5), (S, 9)] {
        assert!(key.decide(&params, at, cost).allowed);
    }
    assert_eq!((SPEC.bound)(Example(&[("count", "5"), ("period", "1s")]), S, 9), 19);
}

#[test]
fn invalid_parameters_are_rejected() {
    let new = |count, period, max_burst| {
        let limit = [("count", count), ("period", period), ("max_burst", max_burst)];
        (find("smooth_bursty").unwrap().parse)(limit.as_slice(), &Bounds::default())
    };
    let wrong = |count, period, max_burst| new(count, period, max_burst).unwrap_err();
    assert_eq!(wrong("1", "1s", "0s").reason, "max_burst must be 1us to 366d, not 0s");
    assert_eq!(wrong("1", "1s", "31622400000001us").field, "max_burst");
    assert!(wrong("4294967296", "1s", "1s").reason.contains("exact arithmetic"));
    assert!(new("4294967296", "1d", "1d").is_ok());
    assert!(wrong("4294967296", "1d", "86400000021us").reason.contains("2^32 permits"));
    for (count, period, field) in [("0", "1s", "count"), ("4294967297", "1s", "count"), ("1", "0s", "period")] {
        assert_eq!(wrong(count, period, "1s").field, field);
    }
    let limit = [("count", "1"), ("period", "1s"), ("max_wait", "86400000001us")];
    assert_eq!(error("smooth_bursty", &limit).field, "max_wait");
}
