//! The spec of `concurrency`. Its slots are in ledgers, so the tests of holds check most of its
//! properties.

use super::super::{
    Spent,
    properties::{
        Spec,
        check::{S, error, parse},
    },
};
use crate::{
    algorithm::{Params, State, properties::lua::Halves},
    domain::{Decision, StepInput},
};

pub(crate) const SPEC: Spec = Spec {
    // Without reservations it refuses nothing.
    bound: |_, _, _| u128::MAX,
    is_reached: false,
    shapes: false,
    lends: true,
    states: &[(&[1.0], true), (&[0.0], false), (&[-1.0], false), (&[0.5], false)],
};

fn input(cost: i64) -> StepInput {
    StepInput { now: S, cost, max_wait: None, phase: 0 }
}

fn held(params: &Params, slots: u64) -> Option<State> {
    params.charge(None, Spent::held(slots), S, 0)
}

#[test]
fn a_request_takes_one_slot_whatever_it_costs() {
    let params = parse("concurrency", &[("max", "3"), ("ttl", "1m")]);
    let decide = |slots, cost| params.step(held(&params, slots).as_ref(), &input(cost)).0;
    let free = |free| Decision { next_after: (free == 0).then_some(S), ..Decision::pass(3, free, 0) };
    assert_eq!([decide(0, 1), decide(0, 1_000), decide(2, 5), decide(3, 0), decide(3, -1)], [3, 3, 1, 0, 0].map(free));
    let full = Decision { next_after: Some(S), ..Decision::refuse(3, 0, Some(S), 0) };
    assert_eq!(decide(3, 1), full);
    // The limit was lowered.
    assert_eq!([decide(7, 0), decide(7, 1)], [full; 2]);
}

#[test]
fn a_retry_is_no_later_than_a_slot_lasts() {
    let params = parse("concurrency", &[("max", "1"), ("ttl", "20ms")]);
    assert_eq!(params.step(held(&params, 1).as_ref(), &input(1)).0.retry_after, Some(20_000));
}

#[test]
fn rust_and_lua_agree_on_slots() {
    let halves = Halves::new();
    const LIMITS: [&[(&str, &str)]; 3] =
        [&[("max", "1"), ("ttl", "10ms")], &[("max", "3"), ("ttl", "1s")], &[("max", "4294967296"), ("ttl", "1d")]];
    for params in LIMITS.map(|fields| parse("concurrency", fields)) {
        for slots in [0, 1, 2, 3, 4, 1 << 32, 1 << 53] {
            let state = held(&params, slots);
            for cost in [-1, 0, 1, 2, 1 << 32] {
                let (decision, next) = params.step(state.as_ref(), &input(cost));
                halves.assert_same(&params, state.as_ref(), &input(cost), (&decision, next.as_ref()));
            }
            for units in [0, 1, 1 << 53] {
                halves.assert_same_charge(&params, state.as_ref(), Spent::held(units), &input(0));
            }
        }
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    let reason = |fields: &[(&str, &str)]| error("concurrency", fields).reason;
    assert_eq!(reason(&[("max", "0"), ("ttl", "1s")]), "max must be 1 to 2^32, not 0");
    assert_eq!(reason(&[("max", "1"), ("ttl", "9ms")]), "ttl must be 10ms to 1d, not 9ms");
    assert_eq!(reason(&[("max", "1")]), "ttl is missing");
    assert_eq!(reason(&[("max", "1"), ("ttl", "1s"), ("check", "wait")]), "check must be refuse or peek, not `wait`");
}
