//! Exactly one charge is taken back, although others were made after it, as [`Algorithm::undo_rule`] specifies.
//!
//! [`Algorithm::undo_rule`]: crate::algorithm::Algorithm::undo_rule

use std::collections::HashMap;

use super::{lua::Halves, trace::examples};
use crate::{
    algorithm::{Params, State, UndoRule},
    domain::{Decision, Micros, StepInput},
    testing::{Random, cases},
};

/// Maximum length of the encoding of a state that does not grow with use.
const FEW_NUMBERS: u64 = 6;

/// A key, and the expiry of its state.
#[derive(Clone, Debug, Default)]
struct Key {
    state: Option<State>,
    expires: Micros,
}

impl Key {
    fn decide(&mut self, params: &Params, input: &StepInput) -> Decision {
        let (decision, next) = params.step(self.state.as_ref(), input);
        if let Some(state) = &next {
            // A mark takes at most two numbers.
            let numbers = state.encode().len() as u64;
            assert!(numbers <= 2 * params.marks_max() + FEW_NUMBERS, "{numbers} numbers: {params:?}");
            *self = Self { state: next, expires: input.now + decision.reset_after };
        }
        decision
    }
}

#[test]
fn a_refund_reverses_exactly_one_charge_where_specified() {
    let (mut checked, halves): (HashMap<_, u32>, _) = (HashMap::new(), Halves::new());
    cases(60, |random| {
        for (index, (entry, params)) in examples().enumerate() {
            let params = params.sparing_denied().unwrap_or(params);
            let mut random = random.fork(index as u64);
            if undoes_one(&params, &halves, &mut random) {
                *checked.entry(entry.name).or_default() += 1;
            }
        }
    });
    for (entry, params) in examples() {
        let never = params.undo_rule() == UndoRule::Never;
        assert!(never || checked.get(entry.name) > Some(&20), "{}: too few {checked:?}", entry.name);
    }
}

/// Makes one charge and others after it, takes the first back, and compares with a key that has only the others.
/// `false`: not specified for this case.
fn undoes_one(params: &Params, halves: &Halves, random: &mut Random) -> bool {
    let phase = params.phase_period().map_or(0, |period| random.within(0, period - 1));
    let mut input =
        StepInput { now: 1_790_000_000_000_000 + random.within(0, 1 << 40), cost: 0, max_wait: None, phase };
    input.max_wait = random.pick(&[None, Some(params.window())]);
    let mut without = Key::default();
    let limit = without.decide(params, &input).limit as i64;
    for _ in 0..random.below(4) {
        input.cost = random.magnitude(limit / 2);
        without.decide(params, &input);
        input.now += random.magnitude(params.window() / 8);
    }
    let (before, charged_at, units) = (without.clone(), input.now, random.magnitude(limit / 4).max(1));
    let mut with = without.clone();
    if !with.decide(params, &StepInput { cost: units, ..input }).allowed {
        return false;
    }
    let charged = with.state.as_ref().map(State::encode).unwrap_or_default();
    let mark = charged.iter().copied().nth_back(1);
    let mut others = 0;
    for _ in 0..random.below(4) {
        input.now += random.magnitude(params.window() / 8);
        input.cost = random.magnitude(limit / 4).max(1);
        if with.decide(params, &input).allowed {
            assert!(without.decide(params, &input).allowed, "{params:?} {input:?} {with:?} {without:?}");
            others += 1;
        }
    }
    input.now += random.magnitude(params.window() / 8);
    let promised = match params.undo_rule() {
        UndoRule::WhileItLasts => before.state.is_some() && before.expires > input.now,
        UndoRule::WithinPeriod(period) => {
            (charged_at - phase).div_euclid(period) == (input.now - phase).div_euclid(period)
        }
        UndoRule::WithinWindow => {
            let first = with.state.as_ref().map(State::encode).and_then(|numbers| numbers.first().copied());
            first == charged.first().copied() && with.expires > input.now
        }
        UndoRule::ByMark => true,
        UndoRule::Never => false,
    };
    if !promised {
        return false;
    }
    match (params.undo_rule(), mark) {
        (UndoRule::ByMark, Some(mark)) => with.state = with.state.map(|state| halves.without(&state, mark, units)),
        _ => drop(with.decide(params, &StepInput { cost: -units, ..input })),
    }
    let same = is_near(with.state.as_ref(), without.state.as_ref())
        || [0, 1, limit / 2, limit].into_iter().all(|cost| {
            let input = StepInput { cost, ..input };
            params.step(with.state.as_ref(), &input).0 == params.step(without.state.as_ref(), &input).0
        });
    assert!(same, "{units} units of {charged_at}, {others} others, {input:?}: {with:?}, not {without:?} {params:?}");
    others > 0
}

/// Whether two states differ by no more than sums of fractions in a different order do.
fn is_near(one: Option<&State>, other: Option<&State>) -> bool {
    let (Some(one), Some(other)) = (one.map(State::encode), other.map(State::encode)) else { return false };
    one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| (one - other).abs() <= one.abs() * 1e-12)
}
