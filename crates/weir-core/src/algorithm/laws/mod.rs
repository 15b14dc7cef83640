//! The laws that every algorithm keeps, tested over the whole list with the examples that each names.

pub(crate) mod facts;
mod lua;
pub(crate) use crate::testing as random;
mod story;
mod vectors;
mod window;

pub(crate) use facts::Facts;
use lua::Halves;
use story::{Plot, Scene, examples, tell};

use super::{LIST, Params, State};
use crate::domain::{Ask, Decision, ask::MAX_COST, time::MAX_MOMENT};

/// Panics unless a refusal's retry is the first moment at which the same request passes.
fn assert_exact_retry(params: &Params, state: Option<&State>, ask: &Ask, refusal: &Decision) {
    let place = || format!("{refusal:?} for {ask:?} in {state:?} of {params:?}");
    assert_eq!(refusal.never, refusal.retry_after.is_none(), "{}", place());
    let Some(retry) = refusal.retry_after else { return };
    assert!(retry > 0, "{}", place());
    let at = |now| params.step(state, &Ask { now, ..*ask }).0;
    assert!(at(ask.now + retry).allowed, "still refused when the retry is over: {}", place());
    assert!(!at(ask.now + retry - 1).allowed, "passes before the retry is over: {}", place());
}

#[test]
fn law_1_rust_and_lua_are_the_same() {
    let halves = Halves::new();
    tell(60, 60, Plot::ANY, |scene, _| {
        halves.assert_same(scene.params, scene.state, &scene.ask, (&scene.decision, scene.next));
    });
}

#[test]
fn law_1_and_11_at_the_ends_of_every_range() {
    let halves = Halves::new();
    let moments = [0, 1, MAX_MOMENT - 1, MAX_MOMENT];
    let costs = [-MAX_COST, -1, 0, 1, MAX_COST - 1, MAX_COST];
    for (entry, writer) in examples() {
        let most = writer.step(None, &Ask { now: 0, cost: 0, max_wait: None, phase: 0 }).0.limit as i64;
        let phases = |params: &Params| params.phase_period().map_or([0, 0], |period| [0, period - 1]);
        for written_at in moments {
            let full = Ask { now: written_at, cost: most.min(MAX_COST), max_wait: None, phase: phases(&writer)[1] };
            let written = writer.step(None, &full).1;
            for (_, params) in examples().filter(|(other, _)| other.name == entry.name) {
                for (now, cost) in moments.into_iter().flat_map(|now| costs.map(|cost| (now, cost))) {
                    for phase in phases(&params) {
                        let ask = Ask { now, cost, max_wait: None, phase };
                        let (decision, next) = params.step(written.as_ref(), &ask);
                        halves.assert_same(&params, written.as_ref(), &ask, (&decision, next.as_ref()));
                    }
                }
            }
        }
    }
}

#[test]
fn states_come_back_from_their_words_bit_for_bit_and_from_no_others() {
    tell(60, 60, Plot::ANY, |scene, random| {
        let Some(state) = scene.next else { return };
        let words = state.lua_state();
        let from = |words: &[f64]| State::from_lua_state(state.algorithm(), words);
        assert_eq!(state.algorithm(), scene.params.name());
        assert_eq!(from(&words).as_ref(), Some(state), "{words:?}");
        assert_eq!(State::from_lua_state("none", &words), None);
        assert_eq!((from(&words[1..]), from(&[])), (None, None), "{words:?}");
        let mut other = words.clone();
        let index = random.below(other.len());
        for word in [f64::NAN, f64::INFINITY, -0.0, 9e15, -9.1e15, -1.0, 0.5, random.magnitude(1 << 52) as f64] {
            other[index] = word;
            if let Some(state) = from(&other) {
                let bits = |words: &[f64]| words.iter().map(|word| word.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&state.lua_state()), bits(&other), "{words:?} with another word {index}");
            }
        }
    });
}

#[test]
fn words_that_no_state_has_are_refused() {
    for entry in LIST {
        assert!(entry.facts.words.iter().any(|(_, good)| !good), "{} says nothing of them", entry.name);
        for (words, good) in entry.facts.words {
            let state = State::from_lua_state(entry.name, words).map(|state| state.lua_state());
            assert_eq!(state.as_deref(), good.then_some(*words), "{}", entry.name);
        }
    }
}

#[test]
fn law_2_expiry_is_invisible() {
    tell(60, 60, Plot::ANY, |scene, random| {
        let after = scene.after();
        let reset = scene.decision.reset_after;
        assert!(reset >= 0, "{scene:?}");
        let is_new =
            |later| scene.judge(after, &Ask { now: scene.ask.now + later, ..scene.costing(0) }).reset_after == 0;
        assert!(is_new(reset), "{scene:?}");
        assert!(reset == 0 || !is_new(reset - 1), "new before its reset is over: {scene:?}");
        let later = reset + if random.once_in(2) { 0 } else { random.magnitude(1 << 42) };
        let limit = scene.decision.limit as i64;
        for cost in [0, 1, limit, limit + 1, random.within(0, limit), -1, -limit] {
            let ask = Ask { now: scene.ask.now + later, ..scene.costing(cost) };
            let (expired, unseen) = (scene.params.step(after, &ask), scene.params.step(None, &ask));
            assert_eq!(expired.0, unseen.0, "{ask:?} after {scene:?}");
            assert!(cost < 0 || expired.1 == unseen.1, "another state from {ask:?} after {scene:?}");
        }
    });
}

#[test]
fn law_3_a_refusal_spends_nothing_unless_the_limit_says_so() {
    tell(60, 60, Plot::ANY, |scene, _| {
        if !scene.decision.allowed {
            let charged = scene.params.charges_denied() && scene.ask.cost > 0;
            assert_eq!(scene.next.is_some(), charged, "{scene:?}");
        }
    });
}

#[test]
fn law_4_retry_after_is_exact() {
    tell(60, 60, Plot::ANY, |scene, _| {
        if scene.decision.allowed {
            assert_eq!((scene.decision.retry_after, scene.decision.never), (None, false), "{scene:?}");
        } else {
            assert_exact_retry(scene.params, scene.after(), &scene.ask, &scene.decision);
        }
    });
}

#[test]
fn law_5_a_cost_of_zero_is_a_peek_by_the_same_inequality() {
    tell(60, 60, Plot::ANY, |scene, _| {
        let peek = scene.params.step(scene.state, &scene.costing(0));
        assert_eq!(peek.1, None, "{scene:?}");
        assert!(peek.0.allowed || (peek.0.remaining == 0 && !scene.entry.facts.shapes), "{peek:?} {scene:?}");
        if scene.decision.allowed && scene.ask.cost >= 0 {
            for less in [0, scene.ask.cost / 2, (scene.ask.cost - 1).max(0)] {
                assert!(scene.judge(scene.state, &scene.costing(less)).allowed, "not at a cost of {less}: {scene:?}");
            }
        }
    });
    tell(60, 60, Plot { changes: false, back: false, refunds: true }, |scene, _| {
        let peek = scene.judge(scene.state, &scene.costing(0));
        assert!(peek.allowed || scene.params.charges_denied(), "{scene:?}");
    });
}

#[test]
fn law_7_a_clock_that_steps_back_grants_nothing() {
    tell(60, 60, Plot::ANY, |scene, random| {
        let Some(known) = scene.charged_at.filter(|known| scene.ask.now < *known) else { return };
        let limit = scene.decision.limit as i64;
        for cost in [scene.ask.cost, 0, 1, limit, random.within(0, limit)] {
            let back = scene.judge(scene.state, &scene.costing(cost));
            let still = scene.judge(scene.state, &Ask { now: known, ..scene.costing(cost) });
            assert!(back.allowed <= still.allowed, "cost {cost}: {back:?}, {still:?} {scene:?}");
            assert!(cost > 0 || back.remaining <= still.remaining, "{back:?}, {still:?} {scene:?}");
            if let (Some(back), Some(still)) = (back.retry_after, still.retry_after) {
                assert_eq!(scene.ask.now + back, known + still, "another event: {scene:?}");
            }
        }
    });
}

#[test]
fn law_8_a_changed_limit_is_safe() {
    let mut overfull = std::collections::HashMap::new();
    tell(60, 60, Plot::ANY, |scene, random| {
        let other = &scene.others[random.below(scene.others.len())];
        let ask = Ask { cost: 0, ..scene.under(other) };
        let peek = other.step(scene.state, &ask).0;
        if !peek.allowed {
            *overfull.entry(other.name()).or_insert(0) += 1;
            assert_eq!(peek.remaining, 0, "{other:?} {scene:?}");
            for cost in [0, 1, random.within(1, peek.limit as i64)] {
                let ask = Ask { cost, ..ask };
                let (refusal, next) = other.step(scene.state, &ask);
                assert!(!refusal.allowed, "passes above its limit at a cost of {cost}: {other:?} {scene:?}");
                assert_exact_retry(other, next.as_ref().or(scene.state), &ask, &refusal);
            }
        }
    });
    for (entry, _) in examples().filter(|(entry, _)| !entry.facts.shapes) {
        assert!(overfull.contains_key(entry.name), "no story brings {} above its limit", entry.name);
    }
}

#[test]
fn law_9_a_refund_clamps_at_empty() {
    tell(60, 60, Plot::ANY, |scene, random| {
        let units = [1, random.magnitude(MAX_COST).max(1), MAX_COST, scene.ask.cost.abs().max(1)];
        for ask in units.map(|units| scene.costing(-units)) {
            let (refund, after) = scene.params.step(scene.state, &ask);
            assert!(refund.allowed, "{ask:?} {scene:?}");
            assert_eq!(after.is_some(), scene.state.is_some(), "{ask:?} {scene:?}");
            assert!(refund.remaining <= refund.limit, "{ask:?} {scene:?}");
            assert!(refund.remaining >= scene.judge(scene.state, &scene.costing(0)).remaining, "{ask:?} {scene:?}");
            let limit = refund.limit as i64;
            for then in [scene.ask.now, scene.ask.now + random.magnitude(1 << 40), scene.ask.now - 1] {
                for cost in [0, 1, limit, random.within(0, limit)] {
                    let ask = Ask { now: then.max(0), ..scene.costing(cost) };
                    let (refunded, unseen) = (scene.judge(after.as_ref(), &ask), scene.judge(None, &ask));
                    assert!(refunded.allowed <= unseen.allowed, "better than new: {ask:?} {scene:?}");
                    assert!(cost > 0 || refunded.remaining <= unseen.remaining, "better than new: {ask:?} {scene:?}");
                }
            }
        }
    });
}

#[test]
fn law_10_never_is_what_no_wait_can_make_pass() {
    tell(60, 60, Plot::ANY, |scene, _| {
        let Scene { ask, decision, .. } = scene;
        assert_eq!(decision.never, !scene.judge(None, ask).allowed, "an unseen key says otherwise: {scene:?}");
        // One that shapes may hold a cost for longer than is accepted, although its limit is larger.
        let Facts { lends, shapes, .. } = scene.entry.facts;
        let too_much = ask.cost > decision.limit as i64;
        assert!(*lends || decision.never == too_much || (*shapes && decision.never), "{scene:?}");
    });
}

#[test]
fn remaining_is_the_largest_cost_that_passes() {
    tell(60, 60, Plot::ANY, |scene, _| {
        let Decision { remaining, limit, .. } = scene.decision;
        let passes = |cost: u64| scene.judge(scene.after(), &scene.costing(cost as i64)).allowed;
        assert!(remaining <= limit, "{scene:?}");
        assert!(remaining == 0 || passes(remaining), "{scene:?}");
        assert!(scene.entry.facts.lends || !passes(remaining + 1), "{scene:?}");
    });
}
