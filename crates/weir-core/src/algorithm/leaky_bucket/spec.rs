//! The spec of `leaky_bucket`, and its vectors.

use super::super::{
    Bounds, Params, Spent, find,
    properties::{
        Spec,
        check::{Key, MS, S, check, error, never, parse, pass, refuse},
        spec::Example,
    },
};
use crate::domain::{Micros, time::DAY};

pub(crate) const SPEC: Spec = Spec {
    // The size at the start of the window, and at each tick within it as much as a tick can free. Ticks
    // start when units come into an empty bucket: then the first one is a whole drip_rate away; otherwise the bucket
    // held a unit before.
    bound: |example: Example, elapsed: Micros, _| {
        let size = example.units("size");
        let drip_size = example.text("drip_size").map_or(1, |_| example.units("drip_size"));
        let drip_rate = example.text("drip_rate").map_or(S.unsigned_abs().into(), |_| example.micros("drip_rate"));
        let elapsed = u128::from(elapsed.unsigned_abs());
        size + drip_size.min(size) * elapsed.div_ceil(drip_rate) - u128::from(elapsed % drip_rate > 0)
    },
    is_reached: true,
    shapes: false,
    lends: false,
    states: &[
        (&[1e15, 4_294_967_296.0], true),
        (&[1e15, 4_294_967_297.0], false),
        (&[0.0, -1.0], false),
        (&[0.5, 1.0], false),
        (&[1e16, 1.0], false),
    ],
};

#[test]
fn three_at_once_then_one_a_second() {
    check(
        "leaky_bucket",
        &[("size", "3")],
        &[
            (0, 1, pass(3, 2, S)),
            (0, 1, pass(3, 1, 2 * S)),
            (0, 1, pass(3, 0, 3 * S)),
            (0, 1, refuse(3, 0, S, 3 * S)),
            (700 * MS, 1, refuse(3, 0, 300 * MS, 2_300 * MS)),
            (S, 1, pass(3, 0, 3 * S)),
            (S, 4, never(3, 0, 3 * S)),
            // The clock steps back: the known tick stays.
            (500 * MS, 1, refuse(3, 0, 1_500 * MS, 3_500 * MS)),
            (500 * MS, -1, pass(3, 1, 2_500 * MS)),
            (S, -9, pass(3, 3, 0)),
        ],
    );
}

/// 12 units in a bucket whose size is now 10: two ticks of 2 free space for one more.
#[test]
fn a_lowered_size_keeps_spent_units() {
    let large = parse("leaky_bucket", &[("size", "20"), ("drip_size", "2"), ("drip_rate", "1s")]);
    let small = parse("leaky_bucket", &[("size", "10"), ("drip_size", "2"), ("drip_rate", "1s")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&large, 0, 12), pass(20, 8, 6 * S));
    assert_eq!(key.decide(&small, 0, 1), refuse(10, 0, 2 * S, 6 * S));
    assert_eq!(key.decide(&small, 0, 0), refuse(10, 0, S, 6 * S));
    assert_eq!(key.decide(&small, 2 * S - 1, 1), refuse(10, 0, 1, 4 * S + 1));
    assert_eq!(key.decide(&small, 2 * S, 1), pass(10, 1, 5 * S));
}

/// Returns how many requests of one unit pass from `from` to `to`, tried every 100 ms until one is refused.
fn admitted(key: &mut Key, params: &Params, from: Micros, to: Micros) -> usize {
    let moments = (from..=to).step_by(100 * MS as usize);
    moments.map(|now| (0..).take_while(|_| key.decide(params, now, 1).allowed).count()).sum()
}

/// A tick advances time by one `drip_rate`, however many units it takes: otherwise 70 would pass instead of 130.
#[test]
fn a_tick_advances_by_one_drip_rate_for_any_drip_size() {
    let params = parse("leaky_bucket", &[("size", "10"), ("drip_size", "2")]);
    assert_eq!(admitted(&mut Key::new(), &params, 0, 60 * S), 10 + 2 * 60);
}

/// If the time at which a bucket was empty were saved for later, 8 more would pass at once than it holds.
#[test]
fn idle_time_is_not_saved() {
    let params = parse("leaky_bucket", &[("size", "10")]);
    let mut key = Key::new();
    assert!(key.decide(&params, 0, 2).allowed);
    assert_eq!(admitted(&mut key, &params, 10 * S, 10 * S), 10);
    assert_eq!(key.decide(&params, 10 * S, 1), refuse(10, 0, S, 10 * S));
}

/// Two requests at the same tick let it drip once: otherwise 4 would pass through a bucket of 2.
#[test]
fn a_tick_drips_once() {
    let params = parse("leaky_bucket", &[("size", "2")]);
    let mut key = Key::new();
    assert_eq!(admitted(&mut key, &params, 0, 0), 2);
    assert_eq!(admitted(&mut key, &params, 2 * S, 2 * S), 2);
    assert_eq!(admitted(&mut key, &params, 3 * S, 3 * S), 1);
}

#[test]
fn the_first_tick_is_one_drip_rate_after_the_first_unit() {
    let params = parse("leaky_bucket", &[("size", "2")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&params, 900 * MS, 1), pass(2, 1, S));
    assert_eq!(key.decide(&params, 1_899 * MS, 1), pass(2, 0, S + MS));
    // Empty since 2.9 s, and refilled at 3.5 s.
    assert_eq!(key.decide(&params, 3_500 * MS, 1), pass(2, 1, S));
}

#[test]
fn a_factor_scales_size_and_drip_rate_rounding_up() {
    let params = parse("leaky_bucket", &[("size", "10"), ("drip_size", "2"), ("drip_rate", "1s")]);
    let scaled = |factor: f64| params.scale(factor).map(|params| params.describe());
    assert_eq!(scaled(2.0).as_deref(), Ok("{ size: 5, drip_size: 2, drip_rate: 2s }"));
    assert_eq!(scaled(0.5).as_deref(), Ok("{ size: 20, drip_size: 2, drip_rate: 500ms }"));
    assert_eq!(scaled(3.0).as_deref(), Ok("{ size: 4, drip_size: 2, drip_rate: 3s }"));
    assert_eq!(scaled(100.0).as_deref(), Ok("{ size: 1, drip_size: 2, drip_rate: 100s }"));
    let third = parse("leaky_bucket", &[("size", "1"), ("drip_rate", "1us")]);
    assert_eq!(third.scale(1.0 / 3.0).unwrap().describe(), "{ size: 3, drip_rate: 1us }");
    assert_eq!(third.scale(4.0 / 3.0).unwrap().describe(), "{ size: 1, drip_rate: 2us }");
    assert_eq!(scaled(1e9).unwrap_err().field, "drip_rate");
    assert_eq!(scaled(1e-9).unwrap_err().field, "size");
    let bounds = Bounds { max_period: DAY };
    let daily = (find("leaky_bucket").unwrap().parse)(&[("size", "9"), ("drip_rate", "1d")], &bounds);
    assert_eq!(daily.unwrap().scale(2.0).unwrap_err().field, "drip_rate", "beyond max_period");
}

/// Units spent under a limit 2^32 times as large are clamped to twice the new size, and to 35 years.
#[test]
fn units_of_a_much_larger_bucket_are_cut() {
    let large = parse("leaky_bucket", &[("size", "4294967296"), ("drip_size", "4294967296"), ("drip_rate", "31d")]);
    let one = parse("leaky_bucket", &[("size", "1"), ("drip_rate", "31d")]);
    let many = parse("leaky_bucket", &[("size", "300"), ("drip_rate", "31d")]);
    for (small, size, ticks) in [(one, 1, 2), (many, 300, 420)] {
        let mut key = Key::new();
        assert!(key.decide(&large, 0, 1 << 32).allowed);
        let retry = (ticks - size + 1) * 31 * DAY;
        assert_eq!(key.decide(&small, 0, 1), refuse(size as u64, 0, retry, ticks * 31 * DAY));
        assert_eq!(key.decide(&small, retry, 1), pass(size as u64, 0, size * 31 * DAY));
    }
}

/// Units that were held under a larger bucket, and are settled under a smaller one that counts twice its size at most.
#[test]
fn settled_units_cut_none_under_a_smaller_size() {
    let sized = |size| parse("leaky_bucket", &[("size", size)]);
    let (small, large, larger) = (sized("20"), sized("100"), sized("300"));
    let mut key = Key::new();
    let spent = |key: &Key, params: &Params, now| params.spent(key.state.as_ref(), now, 0);
    assert!(key.decide(&large, 0, 60).allowed);
    // After 25 ticks the small one counts 15 of 35 units.
    for (now, held, spent_small, spent_large) in [(25 * S, 3, 18, 38), (26 * S, 1, 18, 38), (30 * S, 50, 20, 84)] {
        key.state = small.charge(key.state.as_ref(), Spent::held(held), now, 0);
        assert_eq!([&small, &large].map(|params| spent(&key, params, now)), [spent_small, spent_large], "{now}");
        assert_eq!(spent(&key, &larger, now), spent_large, "{now}");
    }
    // It refuses until 21 of 40 units have left, and keeps the state for the large one.
    assert_eq!(key.decide(&small, 30 * S, 1), refuse(20, 0, 21 * S, 40 * S));
    assert_eq!(small.kept_until(key.state.as_ref().unwrap()), Some(114 * S));
    assert_eq!(spent(&key, &large, 80 * S), 34);
    // Empty for the small one.
    key.state = small.charge(key.state.as_ref(), Spent::held(2), 80 * S, 0);
    assert_eq!([&small, &large].map(|params| spent(&key, params, 80 * S)), [2, 36]);
    // An overage, which no limit has admitted, counts up to twice the size.
    key.state = small.charge(key.state.as_ref(), Spent { units: 1_000, held: 1 }, 80 * S, 0);
    assert_eq!([&small, &large].map(|params| spent(&key, params, 80 * S)), [20, 40]);
    // Several units at a tick: where no number of ticks says both, the smaller one's count remains.
    let by_three = |size| parse("leaky_bucket", &[("size", size), ("drip_size", "3")]);
    let (small, large) = (by_three("20"), by_three("100"));
    for (after, held, expected) in [(0, 10, 70), (5 * S, 15, 60), (5 * S, 8, 33)] {
        let mut key = Key::new();
        assert!(key.decide(&large, 0, 60).allowed);
        key.state = small.charge(key.state.as_ref(), Spent::held(held), after, 0);
        assert_eq!(spent(&key, &large, after), expected);
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    let rejected = |fields: &[(&str, &str)]| {
        let error = error("leaky_bucket", fields);
        (error.field, error.reason)
    };
    assert_eq!(rejected(&[]).1, "size is missing");
    assert_eq!(rejected(&[("size", "0")]).1, "size must be 1 to 2^32, not 0");
    assert_eq!(rejected(&[("size", "1"), ("drip_size", "0")]).1, "drip_size must be 1 to 2^32, not 0");
    assert_eq!(rejected(&[("size", "1"), ("drip_size", "4294967297")]).0, "drip_size");
    assert_eq!(rejected(&[("size", "1"), ("drip_rate", "0s")]).0, "drip_rate");
    assert_eq!(rejected(&[("size", "1"), ("drip_rate", "32d")]).0, "drip_rate");
    let (field, reason) = rejected(&[("size", "1000"), ("drip_rate", "31d")]);
    assert_eq!(field, "size");
    assert!(reason.contains("2^50 us"), "{reason}");
}
