//! The spec of `warming_up`, and its vectors.

use super::{
    super::{
        Bounds, Params, State, checked,
        properties::{
            Spec,
            check::{Key, MS, S, check, check_waiting, never, parse, pass, refuse, wait},
        },
    },
    Fields, WarmingUp,
};
use crate::domain::{Micros, StepInput, request::MAX_COST, time::DAY};

pub(crate) const SPEC: Spec = Spec {
    // Every request delays the next one by at least its units at the stable price. Starts are rounded up, by less
    // than a microsecond.
    bound: |example, elapsed, largest| {
        let elapsed = u128::from(elapsed.unsigned_abs()) + 1;
        elapsed * example.units("count") / example.micros("period") + u128::from(largest)
    },
    // That price applies only while the key is warm, and a client that takes everything available lets it cool down
    // again.
    is_reached: false,
    shapes: true,
    lends: true,
    states: &[
        (&[1e15, 0.25, 4_294_967_296.0], true),
        (&[1e15, 1.0, 0.5], false),
        (&[1e15, 0.0, -0.5], false),
        (&[1e15, 0.0, 4_294_967_296.5], false),
        (&[1e15, 0.0, -0.0], false),
        (&[-1.0, 0.0, 1.0], false),
    ],
};

const HALF_SECOND: &[(&str, &str)] = &[("count", "2"), ("period", "1s"), ("warm_up", "4s")];

/// Returns the waits of `requests` requests in a row, in hundredths of a second, halves rounded up. Each asks for one
/// unit as soon as the one before has waited.
fn waits(key: &mut Key, params: &Params, now: &mut Micros, requests: usize) -> Vec<Micros> {
    let input = |_| {
        let wait = key.decide(params, *now, 1).wait;
        *now += wait;
        (wait + 5 * MS) / (10 * MS)
    };
    (0..requests).map(input).collect()
}

/// Guava's own tests: cold, then warm; cold again after a long idle time, still warm after a shorter one.
#[test]
fn idle_time_cools_the_limit_down() {
    let factor_ten: &[_] = &[("count", "5"), ("period", "1s"), ("warm_up", "4s"), ("cold_factor", "10")];
    for (fields, cold, warm, short_rest) in [
        (HALF_SECOND, vec![0, 138, 113, 88, 63, 50, 50, 50], 50, 2 * S),
        (factor_ten, vec![0, 175, 126, 76, 30, 20, 20, 20], 20, S),
    ] {
        let params = parse("warming_up", fields);
        for start in [0, 1_790_000_000 * S] {
            let (mut key, mut now) = (Key { max_wait: Some(DAY), ..Key::new() }, start);
            assert_eq!(waits(&mut key, &params, &mut now, 8), cold);
            now += 10 * MS * warm + 4 * S;
            assert_eq!(waits(&mut key, &params, &mut now, 8), cold);
            now += 10 * MS * warm + short_rest;
            assert_eq!(waits(&mut key, &params, &mut now, 8), [vec![0], vec![warm; 7]].concat());
        }
    }
}

#[test]
fn two_per_second_with_a_warm_up_of_four_seconds() {
    check_waiting(
        "warming_up",
        HALF_SECOND,
        Some(2 * S),
        &[
            // A unit takes 1.375 s now, and is missing from the store for another half second.
            (0, 1, wait(8, 0, 0, 1_875 * MS)),
            (0, 0, wait(8, 0, 1_375 * MS, 1_875 * MS)),
            (0, 1, wait(8, 0, 1_375 * MS, 3_500 * MS)),
            (0, 1, refuse(8, 0, 500 * MS, 3_500 * MS)),
            (500 * MS, 1, wait(8, 0, 2 * S, 4_375 * MS)),
            (3_375 * MS, 0, pass(8, 5, 1_500 * MS)),
            (4_874 * MS, 0, pass(8, 7, MS)),
            (4_875 * MS, 0, pass(8, 8, 0)),
            // In one burst: 4 units take the warm-up time, and 4 more half a second each.
            (5 * S, 8, pass(8, 0, 10 * S)),
            (9 * S, 1, wait(8, 0, 2 * S, 6_500 * MS)),
        ],
    );
}

#[test]
fn a_request_larger_than_the_store_delays_the_next() {
    check(
        "warming_up",
        HALF_SECOND,
        &[
            (0, 20, pass(8, 0, 16 * S)),
            (0, 1, refuse(8, 0, 12 * S, 16 * S)),
            (12 * S - 1, 1, refuse(8, 0, 1, 4 * S + 1)),
            (12 * S, 1, pass(8, 0, 4_500 * MS)),
        ],
    );
}

#[test]
fn a_refund_pays_the_debt_before_filling_the_store() {
    check(
        "warming_up",
        HALF_SECOND,
        &[
            (0, 8, pass(8, 0, 10 * S)),
            (0, -10, pass(8, 0, 5 * S)),
            (0, -5, pass(8, 3, 2_500 * MS)),
            (250 * MS, -1, pass(8, 4, 1_750 * MS)),
            (250 * MS, -99, pass(8, 8, 0)),
        ],
    );
}

#[test]
fn a_cost_beyond_two_to_the_50_microseconds_never_passes() {
    // A unit takes half of 2^50 us, and the store has much less than one.
    let fields: &[_] = &[("count", "1"), ("period", "366d"), ("warm_up", "1us"), ("max_wait", "1d")];
    check("warming_up", fields, &[(0, 35, pass(1, 0, 35 * 366 * DAY + 2)), (0, 36, never(1, 0, 35 * 366 * DAY + 2))]);
    check("warming_up", HALF_SECOND, &[(0, MAX_COST / 2, pass(8, 0, (1 << 30) * S + 2 * S + 4 * S))]);
}

#[test]
fn indivisible_rates_do_not_drift() {
    let params = parse("warming_up", &[("count", "3"), ("period", "1s"), ("warm_up", "10s")]);
    let mut key = Key { max_wait: Some(DAY), ..Key::new() };
    assert_eq!(key.decide(&params, 0, 0), pass(30, 30, 0));
    let mut now = 0;
    for _ in 0..100_030 {
        let input = StepInput { now, cost: 1, max_wait: key.max_wait, phase: 0 };
        let (decision, next) = params.step(key.state.as_ref(), &input);
        now += decision.wait;
        key.state = next;
    }
    // 15 units warm it up in 10 s; the others take a third of a second each.
    assert_eq!(now + key.decide(&params, now, 0).wait, 10 * S + (100_015 * S + 2) / 3);
}

#[test]
fn a_changed_cold_factor_keeps_spent_units_and_debt() {
    let slow = parse("warming_up", &[("count", "2"), ("period", "1s"), ("warm_up", "4s"), ("cold_factor", "7")]);
    let usual = parse("warming_up", HALF_SECOND);
    assert_eq!(slow.time_base(), usual.time_base());
    let mut key = Key::new();
    assert_eq!(key.decide(&usual, 0, 6), pass(8, 0, 8 * S));
    // 6 of 6 are missing, then 2 of 8 are left: spent units are kept.
    assert_eq!(key.decide(&slow, 5 * S, 0), pass(6, 0, 4 * S));
    assert_eq!(key.decide(&usual, 5 * S, 0), pass(8, 2, 3 * S));
}

#[test]
fn a_state_larger_than_the_store_is_capped() {
    let params = parse("warming_up", HALF_SECOND);
    let state = State::decode("warming_up", &[1e6, 0.5, 4e9]);
    let mut key = Key { state, ..Key::new() };
    assert_eq!(key.decide(&params, 0, 0), wait(8, 0, S + 1, 5 * S + 1));
    // All 8 were missing at 1.0000005 s, and nearly 2 have refilled by now.
    assert_eq!(key.decide(&params, 2 * S, 1), pass(8, 0, 4 * S + 1));
}

#[test]
fn invalid_parameters_are_rejected() {
    let new = |count, period, warm_up, cold_factor, max_wait| {
        let fields = Fields { count, period, warm_up, cold_factor, max_wait };
        let made = checked::<WarmingUp>(fields, &Bounds::default()).map(Params::WarmingUp);
        made.map(|made| made.describe()).map_err(|error| error.field)
    };
    let error = |field: &str| Err(field.to_owned());
    assert_eq!(new(0, S, S, 3.0, None), error("count"));
    assert_eq!(new(1, 0, S, 3.0, None), error("period"));
    assert_eq!(new(1, S, 0, 3.0, None), error("warm_up"));
    assert_eq!(new(1, S, 32 * DAY, 3.0, None), error("warm_up"));
    assert_eq!(new(1, S, S, 1.0, None), error("cold_factor"));
    assert_eq!(new(1, S, S, 1_000_001.0, None), error("cold_factor"));
    assert_eq!(new(1, S, S, f64::NAN, None), error("cold_factor"));
    assert_eq!(new(1, S, S, 3.0, Some(DAY + 1)), error("max_wait"));
    assert_eq!(new(1 << 32, 1, 1, 3.0, None), Ok("{ count: 4294967296, period: 1us, warm_up: 1us }".to_owned()));
    assert_eq!(new(1 << 32, 1, 2, 3.0, None), error("warm_up"));
    assert_eq!(
        new(1, S, S, 1.5, Some(0)),
        Ok("{ count: 1, period: 1s, warm_up: 1s, cold_factor: 1.5, max_wait: 0s }".to_owned())
    );
}
