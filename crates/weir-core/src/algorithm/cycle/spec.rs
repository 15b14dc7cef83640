//! The spec of `cycle`, and its vectors.

use super::{
    super::{
        Bounds, Params, State, checked,
        properties::{
            Spec,
            check::{Key, MS, S, check, check_waiting, error, never, parse, pass, refuse, wait},
        },
    },
    Cycle, Fields,
};
use crate::{
    domain::{
        Micros, StepInput,
        request::{MAX_COST, MAX_WAIT},
        time::{DAY, MAX_MOMENT},
    },
    testing::cases,
};

pub(crate) const SPEC: Spec = Spec {
    // All permits of each cycle that the window touches. A window that starts with a cycle also has
    // the permits of the cycle before that were granted to requests starting at that moment.
    bound: |example, elapsed, largest| {
        let (elapsed, period) = (u128::from(elapsed.unsigned_abs()), example.micros("period"));
        let given_before = if elapsed.is_multiple_of(period) { u128::from(largest) - 1 } else { 0 };
        example.units("count") * (elapsed.div_ceil(period) + 1) + given_before
    },
    is_reached: true,
    shapes: true,
    lends: true,
    states: &[
        (&[1e15, 4_294_967_296.0], true),
        (&[1e15, -4_294_967_296.0], true),
        (&[1e15, 4_294_967_297.0], false),
        (&[1e15, 0.5], false),
        (&[1e16, 1.0], false),
    ],
};

#[test]
fn waiting_requests_reserve_permits_of_the_next_cycle() {
    check_waiting(
        "cycle",
        &[("count", "2"), ("period", "1s")],
        Some(S),
        &[
            (300 * MS, 1, pass(2, 1, 700 * MS)),
            (300 * MS, 1, pass(2, 0, 700 * MS)),
            (300 * MS, 0, pass(2, 0, 700 * MS)),
            (300 * MS, 1, wait(2, 0, 700 * MS, 1_700 * MS)),
            (300 * MS, 1, wait(2, 0, 700 * MS, 1_700 * MS)),
            (300 * MS, 1, refuse(2, 0, 700 * MS, 1_700 * MS)),
            (300 * MS, 3, never(2, 0, 1_700 * MS)),
            (S - 1, 1, refuse(2, 0, 1, S + 1)),
            (S, 1, wait(2, 0, S, 2 * S)),
            (S, 0, wait(2, 0, S, 2 * S)),
            (S, -1, pass(2, 0, S)),
            (S, -1, pass(2, 1, S)),
            (S, -9, pass(2, 2, 0)),
        ],
    );
}

#[test]
fn non_waiting_requests_get_the_permits_of_the_cycle() {
    check(
        "cycle",
        &[("count", "10"), ("period", "1s")],
        &[
            (999 * MS, 10, pass(10, 0, MS)),
            (999 * MS, 1, refuse(10, 0, MS, MS)),
            (S, 10, pass(10, 0, S)),
            // The clock steps back: the known cycle stays, and its end is further away.
            (900 * MS, 1, refuse(10, 0, 1_100 * MS, 1_100 * MS)),
            (900 * MS, -4, pass(10, 4, 1_100 * MS)),
            (900 * MS, 4, pass(10, 0, 1_100 * MS)),
            (2 * S, -4, pass(10, 10, 0)),
        ],
    );
}

#[test]
fn the_max_wait_of_the_limit_caps_the_wait() {
    check_waiting(
        "cycle",
        &[("count", "10"), ("period", "1s"), ("max_wait", "1500ms")],
        Some(MAX_WAIT),
        &[
            (0, 8, pass(10, 2, S)),
            // Two of this cycle and two of the next, whose start is the end of the wait.
            (0, 4, wait(10, 0, S, 2 * S)),
            (0, 9, refuse(10, 0, 500 * MS, 2 * S)),
            (0, 8, wait(10, 0, S, 2 * S)),
            (500 * MS, 10, wait(10, 0, 1_500 * MS, 2_500 * MS)),
        ],
    );
}

#[test]
fn a_changed_count_keeps_used_permits() {
    let large = parse("cycle", &[("count", "10"), ("period", "1s")]);
    let small = parse("cycle", &[("count", "2"), ("period", "1s")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&large, 0, 7), pass(10, 3, S));
    assert_eq!(key.decide(&small, 0, 0), pass(2, 0, S));
    assert_eq!(key.decide(&small, 0, 1), refuse(2, 0, S, S));
    assert_eq!(key.decide(&small, S - 1, 1), refuse(2, 0, 1, 1));
    assert_eq!(key.decide(&large, 500 * MS, 0), pass(10, 3, 500 * MS));
    key.max_wait = Some(S);
    assert_eq!(key.decide(&small, 0, 1), wait(2, 0, S, 2 * S));
    assert_eq!(key.decide(&large, 0, 9), wait(10, 0, S, 2 * S));
    assert_eq!(key.decide(&small, 0, 1), refuse(2, 0, S, 2 * S));
    assert_eq!(key.decide(&small, S, 2), wait(2, 0, S, 2 * S));
}

#[test]
fn a_refund_releases_the_furthest_reservation_first() {
    check_waiting(
        "cycle",
        &[("count", "10"), ("period", "1s")],
        Some(MAX_WAIT),
        &[
            (0, 10, pass(10, 0, S)),
            (0, 10, wait(10, 0, S, 2 * S)),
            (0, 10, wait(10, 0, 2 * S, 3 * S)),
            (0, 4, wait(10, 0, 3 * S, 4 * S)),
            (0, -3, pass(10, 0, 4 * S)),
            (0, -1, pass(10, 0, 3 * S)),
            (0, -12, pass(10, 0, 2 * S)),
            (0, -10, pass(10, 2, S)),
            (0, 3, wait(10, 0, S, 2 * S)),
            (0, -11, pass(10, 10, 0)),
        ],
    );
}

fn input(now: Micros, cost: i64, max_wait: Micros) -> StepInput {
    StepInput { now, cost, max_wait: Some(max_wait), phase: 0 }
}

/// Without a wait nothing is lent, regardless of earlier reservations and changes of the count.
#[test]
fn remaining_is_the_largest_cost_without_a_wait() {
    let limits: [Params; 3] = [
        parse("cycle", &[("count", "10"), ("period", "1s")]),
        parse("cycle", &[("count", "3"), ("period", "1s")]),
        parse("cycle", &[("count", "4294967296"), ("period", "1s")]),
    ];
    cases(200, |random| {
        let mut random = random.clone();
        let (mut key, mut now) = (Key::new(), 1_790_000_000 * S);
        for _ in 0..60 {
            let limit = &limits[if random.once_in(4) { random.below(3) } else { 0 }];
            now += random.pick(&[0, 0, random.clone().magnitude(10 * S), -random.clone().magnitude(2 * S)]);
            key.max_wait = Some(random.magnitude(20 * S));
            let max = key.decide(limit, now, 0).limit as i64;
            let cost = random.within(-max / 2, max);
            key.decide(limit, now, cost);
            let remaining = key.decide(limit, now, 0).remaining as i64;
            let passes = |cost| limit.step(key.state.as_ref(), &input(now, cost, 0)).0.allowed;
            assert!(passes(remaining) && !passes(remaining + 1), "{remaining} {:?}", key.state);
        }
    });
}

/// The current cycle and its permits, negative if owed, by the documented formulas.
#[test]
fn decisions_match_the_documented_formulas() {
    const L: i64 = 10;
    let limit = parse("cycle", &[("count", "10"), ("period", "1s")]);
    cases(200, |random| {
        let mut random = random.clone();
        let (mut key, mut now) = (Key::new(), 1_790_000_000 * S);
        let (mut cycle, mut permits) = (0, L);
        for _ in 0..60 {
            now += random.pick(&[0, 0, random.clone().magnitude(5 * S)]);
            let accepted = random.magnitude(5 * S);
            key.max_wait = Some(accepted);
            permits = L.min(permits + (now / S - cycle) * L);
            cycle = now / S;
            let cost = random.within(-15, 11);
            let owed = cost.max(0) - permits - L;
            let waits =
                if permits >= cost { 0 } else { (cycle + 1) * S - now + (owed + L - 1).div_euclid(L).max(0) * S };
            let decision = key.decide(&limit, now, cost);
            if cost > L {
                assert!(decision.never);
            } else if cost > 0 && waits > accepted {
                assert_eq!(decision.retry_after, Some(waits - accepted));
            } else {
                permits = L.min(permits - cost);
                assert_eq!((decision.allowed, decision.wait), (true, if cost < 0 { 0 } else { waits }));
            }
            let ends = (cycle + (L - permits + L - 1) / L) * S;
            let expected = (permits.max(0).unsigned_abs(), if permits < L { ends - now } else { 0 });
            assert_eq!((decision.remaining, decision.reset_after), expected);
        }
    });
}

/// The shortest cycles, and the largest ones.
#[test]
fn reservations_for_a_whole_day_stay_exact() {
    let bounds = Bounds { max_period: 366 * DAY };
    let mut key = Key { max_wait: Some(MAX_WAIT), ..Key::new() };
    for (count, period) in [(1 << 32, 1), (1, 1), (1 << 32, 83 * MS), (1 << 32, DAY), (1, 366 * DAY)] {
        let limit = Params::Cycle(checked::<Cycle>(Fields { count, period, max_wait: None }, &bounds).unwrap());
        for now in [0, 1_790_000_000 * S + 1, MAX_MOMENT] {
            let cycles = (now + MAX_WAIT) / period;
            for (cycle, used) in [(cycles - 1, 1), (cycles, 1), (cycles, count), (cycles + 1, count)] {
                for cost in [0, 1, count as i64, MAX_COST, -1, -MAX_COST] {
                    let numbers = [(cycle * period) as f64, -(used as f64)];
                    key.state = State::decode("cycle", &numbers);
                    let decision = key.decide(&limit, now, cost);
                    if let Some(retry) = decision.retry_after {
                        assert!(!key.decide(&limit, now + retry - 1, cost).allowed);
                        assert!(key.decide(&limit, now + retry, cost).allowed);
                    }
                }
            }
        }
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    let wrong =
        |count, period, max_wait| error("cycle", &[("count", count), ("period", period), ("max_wait", max_wait)]).field;
    assert_eq!(wrong("0", "1s", "0s"), "count");
    assert_eq!(wrong("4294967297", "1s", "0s"), "count");
    assert_eq!(wrong("1", "0s", "0s"), "period");
    assert_eq!(wrong("1", "367d", "0s"), "period");
    assert_eq!(wrong("1", "1s", "86400000001us"), "max_wait");
}
