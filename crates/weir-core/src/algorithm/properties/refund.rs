//! Exactly one charge is taken back, although others were made after it, as [`Algorithm::takes_back`] specifies.
//!
//! [`Algorithm::takes_back`]: crate::algorithm::Algorithm::takes_back

use std::collections::HashMap;

use super::{lua::Halves, trace::examples};
use crate::{
    algorithm::{Params, State, TakesBack},
    domain::{Ask, Decision, Micros},
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
    fn ask(&mut self, params: &Params, ask: &Ask) -> Decision {
        let (decision, next) = params.step(self.state.as_ref(), ask);
        if let Some(state) = &next {
            // A mark takes at most two numbers.
            let numbers = state.encode().len() as u64;
            assert!(numbers <= 2 * params.marks_max() + FEW_NUMBERS, "{numbers} numbers: {params:?}");
            *self = Self { state: next, expires: ask.now + decision.reset_after };
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
            if takes_back_one(&params, &halves, &mut random) {
                *checked.entry(entry.name).or_default() += 1;
            }
        }
    });
    for (entry, params) in examples() {
        let never = params.takes_back() == TakesBack::Never;
        assert!(never || checked.get(entry.name) > Some(&20), "{}: too few {checked:?}", entry.name);
    }
}

/// Makes one charge and others after it, takes the first back, and compares with a key that has only the others.
/// `false`: not specified for this case.
fn takes_back_one(params: &Params, halves: &Halves, random: &mut Random) -> bool {
    let phase = params.phase_period().map_or(0, |period| random.within(0, period - 1));
    let mut ask = Ask { now: 1_790_000_000_000_000 + random.within(0, 1 << 40), cost: 0, max_wait: None, phase };
    ask.max_wait = random.pick(&[None, Some(params.window())]);
    let mut without = Key::default();
    let limit = without.ask(params, &ask).limit as i64;
    for _ in 0..random.below(4) {
        ask.cost = random.magnitude(limit / 2);
        without.ask(params, &ask);
        ask.now += random.magnitude(params.window() / 8);
    }
    let (before, charged_at, units) = (without.clone(), ask.now, random.magnitude(limit / 4).max(1));
    let mut with = without.clone();
    if !with.ask(params, &Ask { cost: units, ..ask }).allowed {
        return false;
    }
    let charged = with.state.as_ref().map(State::encode).unwrap_or_default();
    let mark = charged.iter().copied().nth_back(1);
    let mut others = 0;
    for _ in 0..random.below(4) {
        ask.now += random.magnitude(params.window() / 8);
        ask.cost = random.magnitude(limit / 4).max(1);
        if with.ask(params, &ask).allowed {
            assert!(without.ask(params, &ask).allowed, "{params:?} {ask:?} {with:?} {without:?}");
            others += 1;
        }
    }
    ask.now += random.magnitude(params.window() / 8);
    let promised = match params.takes_back() {
        TakesBack::WhileItLasts => before.state.is_some() && before.expires > ask.now,
        TakesBack::WithinPeriod(period) => {
            (charged_at - phase).div_euclid(period) == (ask.now - phase).div_euclid(period)
        }
        TakesBack::WithinWindow => {
            let first = with.state.as_ref().map(State::encode).and_then(|numbers| numbers.first().copied());
            first == charged.first().copied() && with.expires > ask.now
        }
        TakesBack::ByMark => true,
        TakesBack::Never => false,
    };
    if !promised {
        return false;
    }
    match (params.takes_back(), mark) {
        (TakesBack::ByMark, Some(mark)) => with.state = with.state.map(|state| halves.without(&state, mark, units)),
        _ => drop(with.ask(params, &Ask { cost: -units, ..ask })),
    }
    let same = is_near(with.state.as_ref(), without.state.as_ref())
        || [0, 1, limit / 2, limit].into_iter().all(|cost| {
            let ask = Ask { cost, ..ask };
            params.step(with.state.as_ref(), &ask).0 == params.step(without.state.as_ref(), &ask).0
        });
    assert!(same, "{units} units of {charged_at}, {others} others, {ask:?}: {with:?}, not {without:?} {params:?}");
    others > 0
}

/// Whether two states differ by no more than sums of fractions in a different order do.
fn is_near(one: Option<&State>, other: Option<&State>) -> bool {
    let (Some(one), Some(other)) = (one.map(State::encode), other.map(State::encode)) else { return false };
    one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| (one - other).abs() <= one.abs() * 1e-12)
}
