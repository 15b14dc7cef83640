//! The spec of `leaky_queue`, and its vectors.

use super::super::{
    ParamError,
    properties::{
        Spec,
        check::{Key, MS, S, check, check_waiting, error, never, parse, pass, refuse, wait},
        spec::Example,
    },
};
use crate::{
    domain::{Micros, StepInput, request::MAX_WAIT},
    testing::cases,
};

pub(crate) const SPEC: Spec = Spec {
    bound: |example, elapsed, largest| {
        let delay = delay(example);
        // A request that waits starts on a whole microsecond, up to one later than the exact moment.
        let late = Micros::from(delay < example.units("burst"));
        let started = u128::from((elapsed + late).unsigned_abs()) * example.units("count");
        let paced =
            if late > 0 { started.div_ceil(example.micros("period")) - 1 } else { started / example.micros("period") };
        paced + (delay + 1).max(largest.into())
    },
    is_reached: true,
    shapes: true,
    lends: false,
    states: &[
        (&[1e15, 2.0, 3.0], true),
        (&[1e15, 3.0, 3.0], false),
        (&[1e15, 0.5, 3.0], false),
        (&[1e16, 0.0, 1.0], false),
    ],
};

fn delay(example: Example) -> u128 {
    example.text("delay").map_or(0, |_| example.units("delay"))
}

#[test]
fn a_burst_of_five_queues_behind_the_first_request() {
    check(
        "leaky_queue",
        &[("count", "10"), ("period", "1s"), ("burst", "5")],
        &[
            (0, 0, pass(6, 6, 0)),
            (0, 1, pass(6, 5, 100 * MS)),
            (0, 1, wait(6, 4, 100 * MS, 200 * MS)),
            (0, 1, wait(6, 3, 200 * MS, 300 * MS)),
            (0, 1, wait(6, 2, 300 * MS, 400 * MS)),
            (0, 1, wait(6, 1, 400 * MS, 500 * MS)),
            (0, 1, wait(6, 0, 500 * MS, 600 * MS)),
            (0, 1, refuse(6, 0, 100 * MS, 600 * MS)),
            (0, 1, refuse(6, 0, 100 * MS, 600 * MS)),
            // A preview waits behind the whole queue, without adding a unit.
            (0, 0, wait(6, 0, 500 * MS, 600 * MS)),
            (100 * MS - 1, 1, refuse(6, 0, 1, 500 * MS + 1)),
            (100 * MS, 1, wait(6, 0, 500 * MS, 600 * MS)),
            (100 * MS, 7, never(6, 0, 600 * MS)),
            (100 * MS, -2, pass(6, 2, 400 * MS)),
            (500 * MS, -9, pass(6, 6, 0)),
            (500 * MS, 6, wait(6, 0, 500 * MS, 600 * MS)),
        ],
    );
}

#[test]
fn no_request_waits_when_delay_equals_burst() {
    check(
        "leaky_queue",
        &[("count", "10"), ("period", "1s"), ("burst", "5"), ("delay", "5")],
        &[
            (0, 1, pass(6, 5, 100 * MS)),
            (0, 1, pass(6, 4, 200 * MS)),
            (0, 1, pass(6, 3, 300 * MS)),
            (0, 1, pass(6, 2, 400 * MS)),
            (0, 1, pass(6, 1, 500 * MS)),
            (0, 1, pass(6, 0, 600 * MS)),
            (0, 1, refuse(6, 0, 100 * MS, 600 * MS)),
            (0, 1, refuse(6, 0, 100 * MS, 600 * MS)),
        ],
    );
}

#[test]
fn requests_beyond_the_delay_wait() {
    check(
        "leaky_queue",
        &[("count", "10"), ("period", "1s"), ("burst", "5"), ("delay", "3")],
        &[
            (0, 3, pass(6, 3, 300 * MS)),
            (0, 1, pass(6, 2, 400 * MS)),
            (0, 1, wait(6, 1, 100 * MS, 500 * MS)),
            (0, 1, wait(6, 0, 200 * MS, 600 * MS)),
            (0, 1, refuse(6, 0, 100 * MS, 600 * MS)),
            (150 * MS, 1, wait(6, 0, 150 * MS, 550 * MS)),
        ],
    );
}

#[test]
fn requests_beyond_the_maximum_wait_are_refused() {
    let limit = &[("count", "10"), ("period", "1s"), ("burst", "5"), ("delay", "1"), ("max_wait", "250ms")];
    check(
        "leaky_queue",
        limit,
        &[
            (0, 5, never(6, 4, 0)),
            (0, 3, wait(6, 1, 100 * MS, 300 * MS)),
            (0, 1, wait(6, 0, 200 * MS, 400 * MS)),
            (0, 1, refuse(6, 0, 50 * MS, 400 * MS)),
            (50 * MS, 1, wait(6, 0, 250 * MS, 450 * MS)),
        ],
    );
    check_waiting(
        "leaky_queue",
        limit,
        Some(0),
        &[
            (0, 3, never(6, 2, 0)),
            (0, 2, pass(6, 0, 200 * MS)),
            (0, 1, refuse(6, 0, 100 * MS, 200 * MS)),
            (100 * MS, 1, pass(6, 0, 200 * MS)),
        ],
    );
    // A wait longer than the burst lasts is capped at the burst.
    check_waiting(
        "leaky_queue",
        &[("count", "10"), ("period", "1s"), ("burst", "5")],
        Some(MAX_WAIT),
        &[(0, 6, wait(6, 0, 500 * MS, 600 * MS)), (0, 1, refuse(6, 0, 100 * MS, 600 * MS))],
    );
}

#[test]
fn waits_round_up() {
    check(
        "leaky_queue",
        &[("count", "3"), ("period", "1s"), ("burst", "3")],
        &[
            (0, 1, pass(4, 3, 333_334)),
            (0, 1, wait(4, 2, 333_334, 666_667)),
            (0, 1, wait(4, 1, 666_667, S)),
            (0, 1, wait(4, 0, S, 1_333_334)),
            (0, 1, refuse(4, 0, 333_334, 1_333_334)),
        ],
    );
}

#[test]
fn a_queue_filled_by_a_larger_limit_is_capped_at_full() {
    let large = parse("leaky_queue", &[("count", "1"), ("period", "1s"), ("burst", "9")]);
    let small = parse("leaky_queue", &[("count", "1"), ("period", "2s"), ("burst", "1"), ("delay", "1")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&large, 0, 10), wait(10, 0, 9 * S, 10 * S));
    assert_eq!(key.decide(&small, 0, 1), refuse(2, 0, 2 * S, 4 * S));
    assert_eq!(key.decide(&small, 0, 0), pass(2, 0, 4 * S));
    assert_eq!(key.decide(&small, 2 * S - 1, 1), refuse(2, 0, 1, 2 * S + 1));
    assert_eq!(key.decide(&small, 2 * S, 1), pass(2, 0, 4 * S));
    // The units that the larger limit admitted.
    assert_eq!(key.decide(&large, 2 * S, 0), wait(10, 2, 7 * S, 8 * S));
    assert_eq!(key.decide(&large, 2 * S, 1), wait(10, 1, 8 * S, 9 * S));
    // From now on each unit is charged to both.
    assert_eq!(key.decide(&small, 2 * S, 1), refuse(2, 0, 2 * S, 4 * S));
    assert_eq!(key.decide(&small, 4 * S, 1), pass(2, 0, 4 * S));
    assert_eq!(key.decide(&large, 4 * S, 0), wait(10, 2, 7 * S, 8 * S));
}

/// The documented formulas, each computed independently of the meter, in exact fractions of a microsecond.
#[test]
fn decisions_match_the_documented_formulas() {
    let limits = [
        parse("leaky_queue", &[("count", "7"), ("period", "1s"), ("burst", "9"), ("delay", "3")]),
        parse("leaky_queue", &[("count", "7"), ("period", "1s"), ("burst", "9"), ("max_wait", "700ms")]),
    ];
    cases(200, |random| {
        for (limit, (delay, own)) in limits.iter().zip([(3, MAX_WAIT), (0, 700 * MS)]) {
            let mut random = random.clone();
            // In sevenths of a microsecond, of which a unit takes a whole number.
            let (unit, part) = (S, 7);
            let (mut key, mut now, mut tat) = (Key::new(), 1_790_000_000 * S, 0);
            for _ in 0..40 {
                now += random.magnitude(S);
                key.max_wait = random.pick(&[None, Some(0), Some(random.clone().magnitude(2 * S))]);
                let accepted = key.max_wait.unwrap_or(MAX_WAIT).min(own);
                let cost = random.within(1, 11);
                let next = (now * part).max(tat) + cost * unit;
                let waits = (next - now * part - (delay + 1) * unit).max(0);
                let [late, full] = [waits - accepted * part, next - 10 * unit - now * part];
                let decision = key.decide(limit, now, cost);
                let up = |parts: Micros| (parts + part - 1).div_euclid(part);
                let too_much = cost > 10 || cost * unit - (delay + 1) * unit > accepted * part;
                assert_eq!(decision.never, too_much);
                if late.max(full) <= 0 {
                    tat = next;
                    assert_eq!((decision.allowed, decision.wait), (true, up(waits)));
                } else if !too_much {
                    assert_eq!(decision.retry_after, Some(up(late.max(full))));
                }
            }
        }
    });
}

#[test]
fn invalid_parameters_are_rejected() {
    let wrong = |burst, delay, max_wait| {
        let limit = [("count", "1"), ("period", "1s"), ("burst", burst), ("delay", delay), ("max_wait", max_wait)];
        error("leaky_queue", &limit)
    };
    assert_eq!(wrong("5", "6", "0s"), ParamError::new("delay", "delay must be 0 to the burst of 5, not 6"));
    assert_eq!(wrong("4294967297", "0", "0s").field, "burst");
    assert_eq!(wrong("2147483648", "0", "0s").field, "burst");
    assert_eq!(wrong("5", "5", "86400000001us").field, "max_wait");
    for (count, period, field) in [("0", "1s", "count"), ("4294967297", "1s", "count"), ("1", "0s", "period")] {
        assert_eq!(error("leaky_queue", &[("count", count), ("period", period)]).field, field);
    }
}

#[test]
fn a_factor_also_divides_the_delay() {
    let limit = parse("leaky_queue", &[("count", "10"), ("period", "1s"), ("burst", "5"), ("delay", "3")]);
    assert_eq!(limit.scale(2.0).unwrap().describe(), "{ count: 5, period: 1s, burst: 3, delay: 2 }");
    assert_eq!(limit.scale(1e9).unwrap().describe(), "{ count: 1, period: 1s, burst: 1, delay: 1 }");
    let never = StepInput { now: 0, cost: 3, max_wait: Some(0), phase: 0 };
    assert!(limit.scale(1e9).unwrap().step(None, &never).0.never);
}
