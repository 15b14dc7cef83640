//! The spec of `sliding_window`, and its vectors.

use super::super::{
    State,
    properties::{
        Spec,
        check::{Key, MS, S, error, never, parse, pass, refuse},
        spec::Example,
    },
};
use crate::{
    domain::{Micros, time::DAY},
    testing::cases,
};

pub(crate) const SPEC: Spec = Spec {
    bound,
    // Only by a client that spends everything at the end of a window, and then as the weight of that fades; see
    // below.
    is_reached: false,
    shapes: false,
    lends: false,
    states: &[
        (&[1e15, 67_108_864.0, 67_108_864.0], true),
        (&[1e15, 67_108_865.0, 0.0], false),
        (&[1e15, 0.0, 67_108_865.0], false),
        (&[0.0, -1.0, 0.0], false),
        (&[0.0, 1.0, 0.5], false),
        (&[1e16, 1.0, 1.0], false),
    ],
};

/// From a moment to one `elapsed` later, both included. Let `A` be the units of the second-to-last aligned window
/// that this touches, and `e` how far it reaches into the last one. There at most `L - A * (P - e) / P` pass, so in
/// both together at most `L + A * e / P`, and `L` in each one before. `A <= L`, and `e <= elapsed - 1` less the whole
/// windows in between, as the first moment is at least 1 µs before an edge.
fn bound(example: Example, elapsed: Micros, _: u64) -> u128 {
    let (count, elapsed) = (example.units("count"), u128::from(elapsed.unsigned_abs()));
    count + count * elapsed.saturating_sub(1) / example.micros("period")
}

/// Returns the state with these units used of the window that started at `start` and of the one before it.
fn windows(start: Micros, before: u32, used: u32) -> Option<State> {
    State::decode("sliding_window", &[start as f64, before.into(), used.into()])
}

#[test]
fn the_previous_window_is_weighted_by_its_overlap() {
    let params = parse("sliding_window", &[("count", "100"), ("period", "60s")]);
    let at = |seconds: Micros| 60 * S + seconds * S;
    let mut key = Key { state: windows(60 * S, 100, 40), ..Key::new() };
    // 100 * 45 / 60 + 40 + 1 = 116; space for 59 of the 100 is left when 24.6 s have gone.
    assert_eq!(key.decide(&params, at(15), 1), refuse(100, 0, 9_600 * MS, 105 * S));
    assert_eq!(key.decide(&params, at(15) + 9_600 * MS - 1, 1), refuse(100, 0, 1, 95_400 * MS + 1));
    assert_eq!(key.decide(&params, at(15) + 9_600 * MS, 1), pass(100, 0, 95_400 * MS));
    assert_eq!(key.decide(&params, at(30), 9), pass(100, 0, 90 * S));
    assert_eq!(key.decide(&params, at(30), -5), pass(100, 5, 90 * S));
    // Refunds 45 units of this window, and then all of the one before.
    assert_eq!(key.decide(&params, at(30), -46), pass(100, 50, 30 * S));
    assert_eq!(key.decide(&params, at(30), -100), pass(100, 100, 0));
}

#[test]
fn retry_after_can_fall_in_the_next_window() {
    let params = parse("sliding_window", &[("count", "10"), ("period", "10s")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&params, 3 * S, 10), pass(10, 0, 17 * S));
    // From 10 s on the 10 units weigh 10 * (20 - t) / 10: one passes at 11 s, four at 14 s.
    assert_eq!(key.decide(&params, 3 * S, 1), refuse(10, 0, 8 * S, 17 * S));
    assert_eq!(key.decide(&params, 3 * S, 4), refuse(10, 0, 11 * S, 17 * S));
    assert_eq!(key.decide(&params, 3 * S, 11), never(10, 0, 17 * S));
    assert_eq!(key.decide(&params, 10 * S, 0), pass(10, 0, 10 * S));
    assert_eq!(key.decide(&params, 11 * S, 1), pass(10, 0, 19 * S));
    // The clock steps back: the known window stays, and begins in the future.
    assert_eq!(key.decide(&params, 9 * S, 1), refuse(10, 0, 3 * S, 21 * S));
    assert_eq!(key.decide(&params, 30 * S, 10), pass(10, 0, 20 * S));
}

#[test]
fn a_lowered_count_keeps_spent_units() {
    let large = parse("sliding_window", &[("count", "100"), ("period", "60s")]);
    let small = parse("sliding_window", &[("count", "10"), ("period", "60s")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&large, 0, 100), pass(100, 0, 120 * S));
    assert_eq!(key.decide(&small, 0, 0), refuse(10, 0, 114 * S, 120 * S));
    assert_eq!(key.decide(&small, 0, 1), refuse(10, 0, 60 * S + 54_600 * MS, 120 * S));
    assert_eq!(key.decide(&small, 90 * S, 1), refuse(10, 0, 24_600 * MS, 30 * S));
    assert_eq!(key.decide(&large, 90 * S, 1), pass(100, 49, 90 * S));
}

/// The worst case: 2 * count - 1 within less than one period.
#[test]
fn almost_twice_the_count_passes_around_a_window_boundary() {
    let fields: &[(&str, &str)] = &[("count", "10"), ("period", "10s")];
    let params = parse("sliding_window", fields);
    let (mut key, from) = (Key::new(), 10 * S - 1);
    assert!(key.decide(&params, from, 10).allowed);
    let passed = |key: &mut Key, now: Micros| (0..).take_while(|_| key.decide(&params, now, 1).allowed).count();
    let later: usize = (11..=19).map(|second| passed(&mut key, second * S)).sum();
    assert_eq!(later, 9);
    assert_eq!(bound(Example(fields), 19 * S - from, 10), 10 + 9);
    assert_eq!(bound(Example(fields), 10 * S - 1, 10), 2 * 10 - 1);
}

/// Near whole weights, `before * (period - e)` exceeds 2^53, and its rounding would be visible.
#[test]
fn weights_are_exact_beyond_double_precision() {
    let (params, period) = (parse("sliding_window", &[("count", "67108864"), ("period", "366d")]), 366 * DAY);
    let mut key = Key::new();
    for (before, left, weight) in [(43_687_608, 7_905_600 * S, 10_921_902), (20_917_676, period, 20_917_676)] {
        key.state = windows(period, before, 0);
        assert_eq!(key.decide(&params, 2 * period - left, 0), pass(1 << 26, (1 << 26) - weight, left));
    }
    cases(5_000, |random| {
        let mut random = random.clone();
        let before = random.within(1 << 25, 1 << 26);
        let weight = random.within(1, before - 1);
        // From this moment on the weight is at most `weight`.
        let into = period - (i128::from(weight) * i128::from(period) / i128::from(before)) as Micros;
        let remaining = ((1 << 26) - weight).unsigned_abs();
        key.state = windows(period, before as u32, 0);
        assert_eq!(key.decide(&params, period + into, 0), pass(1 << 26, remaining, period - into));
        assert_eq!(key.decide(&params, period + into - 1, 0).remaining, remaining - 1);
        assert_eq!(key.decide(&params, period + into - 1, remaining as i64).retry_after, Some(1));
        assert!(key.decide(&params, period + into, remaining as i64).allowed);
    });
}

#[test]
fn invalid_parameters_are_rejected() {
    let rejected = |fields: &[(&str, &str)]| error("sliding_window", fields).reason;
    assert_eq!(rejected(&[("count", "0"), ("period", "1s")]), "count must be 1 to 2^26, not 0");
    assert_eq!(rejected(&[("count", "67108865"), ("period", "1s")]), "count must be 1 to 2^26, not 67108865");
    assert_eq!(rejected(&[("count", "1")]), "period is missing");
    assert!(rejected(&[("count", "1"), ("period", "32d")]).starts_with("period must be 1us to 31d"));
    let largest = parse("sliding_window", &[("count", "67108864"), ("period", "1s")]);
    assert_eq!(largest.scale(0.5).unwrap_err().field, "count");
}
