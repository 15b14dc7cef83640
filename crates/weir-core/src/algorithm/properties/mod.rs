//! Properties of every algorithm, tested over the whole list with the examples of each.

mod charge;
pub(crate) mod check;
mod examples;
mod implied;
pub(crate) mod lua;
#[cfg(feature = "proto")]
mod message;
mod rate;
mod reach;
mod refund;
pub(crate) mod spec;
mod trace;
mod window;

pub(crate) use spec::Spec;

use lua::Halves;
pub(crate) use trace::examples;
use trace::{Events, Step, replay};

use super::{LIST, Params, State, rates};
use crate::domain::{Decision, StepInput, request::MAX_COST, time::MAX_MOMENT};

/// Panics unless a refusal's retry is the first time at which the same request passes.
fn assert_exact_retry(params: &Params, state: Option<&State>, input: &StepInput, refusal: &Decision) {
    let context = || format!("{refusal:?} for {input:?} in {state:?} of {params:?}");
    assert_eq!(refusal.never, refusal.retry_after.is_none(), "{}", context());
    let Some(retry) = refusal.retry_after else { return };
    assert!(retry > 0, "{}", context());
    let at = |now| params.step(state, &StepInput { now, ..*input }).0;
    assert!(at(input.now + retry).allowed, "still refused when the retry is over: {}", context());
    assert!(!at(input.now + retry - 1).allowed, "passes before the retry is over: {}", context());
}

#[test]
fn rust_and_lua_agree() {
    let halves = Halves::new();
    replay(60, 60, Events::ANY, |step, _| {
        halves.assert_same(step.params, step.state, &step.input, (&step.decision, step.next));
    });
}

#[test]
fn rust_and_lua_agree_at_the_ends_of_every_range() {
    let halves = Halves::new();
    let moments = [0, 1, MAX_MOMENT - 1, MAX_MOMENT];
    let costs = [-MAX_COST, -1, 0, 1, MAX_COST - 1, MAX_COST];
    for (entry, writer) in examples() {
        let max = writer.step(None, &StepInput { now: 0, cost: 0, max_wait: None, phase: 0 }).0.limit as i64;
        let phases = |params: &Params| params.phase_period().map_or([0, 0], |period| [0, period - 1]);
        for written_at in moments {
            let full =
                StepInput { now: written_at, cost: max.min(MAX_COST), max_wait: None, phase: phases(&writer)[1] };
            let written = writer.step(None, &full).1;
            for (_, params) in examples().filter(|(other, _)| other.name == entry.name) {
                for (now, cost) in moments.into_iter().flat_map(|now| costs.map(|cost| (now, cost))) {
                    for phase in phases(&params) {
                        let input = StepInput { now, cost, max_wait: None, phase };
                        let (decision, next) = params.step(written.as_ref(), &input);
                        halves.assert_same(&params, written.as_ref(), &input, (&decision, next.as_ref()));
                    }
                }
            }
        }
    }
}

#[test]
fn encoded_states_round_trip_and_altered_ones_are_rejected() {
    replay(60, 60, Events::ANY, |step, random| {
        let Some(state) = step.next else { return };
        let numbers = state.encode();
        let from = |numbers: &[f64]| State::decode(state.algorithm(), numbers);
        assert_eq!(state.algorithm(), step.params.name());
        assert_eq!(from(&numbers).as_ref(), Some(state), "{numbers:?}");
        assert_eq!(State::decode("none", &numbers), None);
        assert_eq!((from(&numbers[1..]), from(&[])), (None, None), "{numbers:?}");
        let mut other = numbers.clone();
        let index = random.below(other.len());
        for number in [f64::NAN, f64::INFINITY, -0.0, 9e15, -9.1e15, -1.0, 0.5, random.magnitude(1 << 52) as f64] {
            other[index] = number;
            if let Some(state) = from(&other) {
                let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&state.encode()), bits(&other), "{numbers:?} with another number {index}");
            }
        }
    });
}

#[test]
fn invalid_encoded_states_are_rejected() {
    for entry in LIST {
        assert!(entry.spec.states.iter().any(|(_, good)| !good), "{} says nothing of them", entry.name);
        for (numbers, good) in entry.spec.states {
            let state = State::decode(entry.name, numbers).map(|state| state.encode());
            assert_eq!(state.as_deref(), good.then_some(*numbers), "{}", entry.name);
        }
    }
}

#[test]
fn expired_states_decide_like_unseen_keys() {
    replay(60, 60, Events::ANY, |step, random| {
        if step.next.is_none() && step.may_be_clamped() {
            return;
        }
        let after = step.after();
        let reset = step.decision.reset_after;
        assert!(reset >= 0, "{step:?}");
        let is_new = |later| {
            step.decide(after, &StepInput { now: step.input.now + later, ..step.with_cost(0) }).reset_after == 0
        };
        assert!(is_new(reset), "{step:?}");
        assert!(reset == 0 || !is_new(reset - 1), "new before its reset is over: {step:?}");
        // To other limits the state may matter for longer.
        let kept = after.and_then(|after| step.params.kept_until(after)).map(|until| until - step.input.now);
        let later = reset.max(kept.unwrap_or(0)) + if random.once_in(2) { 0 } else { random.magnitude(1 << 42) };
        let limit = step.decision.limit as i64;
        for cost in [0, 1, limit, limit + 1, random.within(0, limit), -1, -limit] {
            let input = StepInput { now: step.input.now + later, ..step.with_cost(cost) };
            let (expired, unseen) = (step.params.step(after, &input), step.params.step(None, &input));
            assert_eq!(expired.0, unseen.0, "{input:?} after {step:?}");
            let is_same = cost < 0 || kept.is_some() || expired.1 == unseen.1;
            assert!(is_same, "another state from {input:?} after {step:?}");
        }
    });
}

/// A request's factor does not end what was spent earlier than for the limit without it.
#[test]
fn states_written_under_a_factor_expire_unnoticed() {
    let mut met = std::collections::HashSet::new();
    replay(60, 60, Events::ANY, |step, random| {
        // Without its state a key of this algorithm is cold, so it admits less.
        if step.params.name() == "warming_up" {
            return;
        }
        let Ok(scaled) = step.params.scale(random.pick(&[0.1, 0.5, 0.9])) else { return };
        let scaled = scaled.reaching(step.params);
        let (decision, Some(state)) = scaled.step(step.state, &step.input) else { return };
        let lasts = decision.reset_after.max(scaled.kept_until(&state).map_or(0, |until| until - step.input.now));
        let input = StepInput { now: step.input.now + lasts, ..step.with_cost(0) };
        assert_eq!(
            step.decide(Some(&state), &input),
            step.decide(None, &input),
            "{scaled:?} wrote {state:?}: {step:?}"
        );
        if step.decide(Some(&state), &StepInput { now: step.input.now + decision.reset_after, ..input }).reset_after > 0
        {
            met.insert(scaled.name());
        }
    });
    assert!(met.contains("leaky_bucket"), "{met:?}");
}

#[test]
fn a_refusal_charges_nothing_without_charge_denied() {
    replay(60, 60, Events::ANY, |step, _| {
        if step.decision.allowed {
            return;
        }
        if step.params.charges_denied() && step.input.cost > 0 {
            assert!(step.next.is_some(), "{step:?}");
        } else if step.next.is_some() {
            // A state that another limit made is clamped, which changes no decision.
            for cost in [-1, 0, 1, step.input.cost, step.decision.limit as i64] {
                let input = step.with_cost(cost);
                assert_eq!(step.decide(step.next, &input), step.decide(step.state, &input), "{input:?} {step:?}");
            }
        }
    });
}

#[test]
fn retry_after_is_exact() {
    replay(60, 60, Events::ANY, |step, _| {
        if step.decision.allowed {
            assert_eq!((step.decision.retry_after, step.decision.never), (None, false), "{step:?}");
        } else {
            assert_exact_retry(step.params, step.after(), &step.input, &step.decision);
        }
    });
}

#[test]
fn next_after_is_exact() {
    let (mut empty, mut always_empty) = (std::collections::HashMap::new(), std::collections::HashSet::new());
    replay(60, 60, Events::ANY, |step, random| {
        let Decision { remaining, next_after, reset_after, .. } = step.decision;
        assert!(remaining == 0 || next_after.is_none(), "{step:?}");
        // Until a state made by another limit is written, it may count for less than it says.
        if remaining > 0 || (step.next.is_none() && step.may_be_clamped()) {
            return;
        }
        let left = |later| {
            let input = StepInput { now: step.input.now + later, ..step.with_cost(0) };
            step.decide(step.after(), &input).remaining
        };
        *empty.entry(step.entry.name).or_insert(0) += 1;
        let Some(next) = next_after else {
            always_empty.insert(step.entry.name);
            let later = [1, reset_after, reset_after + random.magnitude(1 << 42)];
            assert!(later.into_iter().all(|later| left(later) == 0), "a wait helps: {step:?}");
            return;
        };
        assert!(next > 0, "{step:?}");
        assert!(left(next) > 0, "nothing is left when the time is over: {step:?}");
        assert_eq!(left(next - 1), 0, "a unit is left before the time is over: {step:?}");
    });
    for entry in rates() {
        assert!(empty.get(entry.name).is_some_and(|times| *times > 1_000), "{}: {empty:?}", entry.name);
    }
    let expected = ["decay", "smooth_bursty", "warming_up"];
    assert!(always_empty.iter().all(|name| expected.contains(name)), "{always_empty:?}");
}

#[test]
fn a_cost_of_zero_is_a_consistent_peek() {
    replay(60, 60, Events::ANY, |step, _| {
        let peek = step.params.step(step.state, &step.with_cost(0));
        assert_eq!(peek.1, None, "{step:?}");
        assert!(peek.0.allowed || (peek.0.remaining == 0 && !step.entry.spec.shapes), "{peek:?} {step:?}");
        if step.decision.allowed && step.input.cost >= 0 {
            for less in [0, step.input.cost / 2, (step.input.cost - 1).max(0)] {
                assert!(step.decide(step.state, &step.with_cost(less)).allowed, "not at a cost of {less}: {step:?}");
            }
        }
    });
    replay(60, 60, Events { changes: false, back: false, refunds: true }, |step, _| {
        let peek = step.decide(step.state, &step.with_cost(0));
        assert!(peek.allowed || step.params.charges_denied(), "{step:?}");
    });
}

#[test]
fn a_clock_that_steps_back_grants_nothing() {
    replay(60, 60, Events::ANY, |step, random| {
        let Some(known) = step.charged_at.filter(|known| step.input.now < *known) else { return };
        let limit = step.decision.limit as i64;
        for cost in [step.input.cost, 0, 1, limit, random.within(0, limit)] {
            let back = step.decide(step.state, &step.with_cost(cost));
            let still = step.decide(step.state, &StepInput { now: known, ..step.with_cost(cost) });
            // Clamped since the charge, a key that starts empty may be as if never used by then.
            if still.reset_after == 0 && step.params.starting_full().is_some() {
                continue;
            }
            assert!(back.allowed <= still.allowed, "cost {cost}: {back:?}, {still:?} {step:?}");
            assert!(cost > 0 || back.remaining <= still.remaining, "{back:?}, {still:?} {step:?}");
            if let (Some(back), Some(still), false) = (back.retry_after, still.retry_after, step.may_be_clamped()) {
                assert_eq!(step.input.now + back, known + still, "another event: {step:?}");
            }
        }
    });
}

#[test]
fn a_changed_limit_is_enforced_with_an_exact_retry() {
    let mut lowered = std::collections::HashSet::new();
    replay(60, 60, Events::ANY, |step, random| {
        let other = &step.others[random.below(step.others.len())];
        let input = StepInput { cost: 0, ..step.under(other) };
        let peek = other.step(step.state, &input).0;
        let is_full = peek.remaining == 0 && !step.entry.spec.shapes && !step.entry.spec.lends;
        if !peek.allowed || is_full {
            if step.decide(step.state, &step.with_cost(0)).remaining > 0 {
                lowered.insert(other.name());
            }
            assert_eq!(peek.remaining, 0, "{other:?} {step:?}");
            let min = i64::from(peek.allowed);
            for cost in [min, 1, random.within(1, peek.limit as i64)] {
                let input = StepInput { cost, ..input };
                let (refusal, next) = other.step(step.state, &input);
                assert!(!refusal.allowed, "passes above its limit at a cost of {cost}: {other:?} {step:?}");
                assert_exact_retry(other, next.as_ref().or(step.state), &input, &refusal);
            }
        }
    });
    for (entry, _) in examples().filter(|(entry, _)| !entry.spec.shapes) {
        assert!(lowered.contains(entry.name), "no trace brings {} to or above its limit", entry.name);
    }
}

#[test]
fn a_refund_clamps_at_empty() {
    replay(60, 60, Events::ANY, |step, random| {
        let units = [1, random.magnitude(MAX_COST).max(1), MAX_COST, step.input.cost.abs().max(1)];
        let full = step.params.starting_full().unwrap_or_else(|| step.params.clone());
        for input in units.map(|units| step.with_cost(-units)) {
            let (refund, after) = step.params.step(step.state, &input);
            assert!(refund.allowed, "{input:?} {step:?}");
            assert_eq!(after.is_some(), step.state.is_some(), "{input:?} {step:?}");
            assert!(refund.remaining <= refund.limit, "{input:?} {step:?}");
            assert!(refund.remaining >= step.decide(step.state, &step.with_cost(0)).remaining, "{input:?} {step:?}");
            let limit = refund.limit as i64;
            for then in [step.input.now, step.input.now + random.magnitude(1 << 40), step.input.now - 1] {
                for cost in [0, 1, limit, random.within(0, limit)] {
                    let input = StepInput { now: then.max(0), ..step.with_cost(cost) };
                    let (refunded, full) = (step.decide(after.as_ref(), &input), full.step(None, &input).0);
                    assert!(refunded.allowed <= full.allowed, "better than full: {input:?} {step:?}");
                    assert!(cost > 0 || refunded.remaining <= full.remaining, "better than full: {input:?} {step:?}");
                }
            }
        }
    });
}

#[test]
fn never_means_that_no_wait_makes_the_cost_pass() {
    replay(60, 60, Events::ANY, |step, _| {
        let Step { input, decision, .. } = step;
        assert_eq!(decision.never, !step.decide(None, input).allowed, "an unseen key says otherwise: {step:?}");
        // A limit that shapes may hold a cost for longer than is accepted, although its limit is larger.
        let Spec { lends, shapes, .. } = step.entry.spec;
        let too_much = input.cost > decision.limit as i64;
        assert!(*lends || decision.never == too_much || (*shapes && decision.never), "{step:?}");
    });
}

#[test]
fn remaining_is_the_largest_cost_that_passes() {
    replay(60, 60, Events::ANY, |step, _| {
        let Decision { remaining, limit, .. } = step.decision;
        let passes = |cost: u64| step.decide(step.after(), &step.with_cost(cost as i64)).allowed;
        assert!(remaining <= limit, "{step:?}");
        assert!(remaining == 0 || passes(remaining), "{step:?}");
        assert!(step.entry.spec.lends || !passes(remaining + 1), "{step:?}");
    });
}
