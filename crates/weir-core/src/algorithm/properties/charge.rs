//! Unconditional charges, by which holds are settled: the guarantees of [`Algorithm::charge`]. And charges of what
//! fits, for units that were admitted without the store.
//!
//! [`Algorithm::charge`]: crate::algorithm::Algorithm::charge

use super::{
    lua::Halves,
    trace::{Events, examples, replay},
};
use crate::{
    algorithm::{HoldAccuracy, Params, Spent, State, params::MAX_KEPT_FOR_OTHERS},
    domain::{Micros, StepInput},
    testing::{Random, cases, parse},
};

#[test]
fn rust_and_lua_agree_on_charges() {
    let halves = Halves::new();
    replay(10, 60, Events::ANY, |step, random| {
        if step.params.holdable().is_err() {
            return;
        }
        let limit = step.decision.limit as i64;
        for units in [0, 1, random.within(0, limit), limit, random.magnitude(1 << 45)] {
            let units = units.unsigned_abs();
            for held in [0, units, random.within(0, units as i64).unsigned_abs()] {
                halves.assert_same_charge(step.params, step.state, Spent { units, held }, &step.input);
            }
        }
        // Under limits in turns, each from the state after the last charge or request.
        let mut state = step.state.cloned();
        for _ in 0..6 {
            let params = if random.once_in(2) { step.params } else { &step.others[random.below(step.others.len())] };
            let is_of_state = params.name() == step.params.name() && params.time_base() == step.params.time_base();
            if !is_of_state || step.input.now > 1 << 51 {
                continue;
            }
            let input = StepInput { now: step.input.now + random.magnitude(1 << 44), ..step.input };
            let units = random.magnitude(1 << 33).unsigned_abs();
            let spent = Spent { units, held: random.within(0, units as i64).unsigned_abs() };
            halves.assert_same_charge(params, state.as_ref(), spent, &input);
            state = params.charge(state.as_ref(), spent, input.now, input.phase).or(state);
            state = params.step(state.as_ref(), &StepInput { cost: 1, ..input }).1.or(state);
            let state = state.as_ref().expect("charged");
            assert_eq!(State::decode(params.name(), &state.encode()).as_ref(), Some(state), "{step:?}");
        }
    });
}

/// A charge that fits equals the charge of a request.
#[test]
fn a_charge_within_the_limit_equals_a_step() {
    replay(10, 60, Events::ANY, |step, _| {
        if step.params.holdable().is_ok() && step.decision.allowed && step.input.cost > 0 {
            let units = step.input.cost.unsigned_abs();
            let charged = step.params.charge(step.state, Spent { units, held: 0 }, step.input.now, step.input.phase);
            assert_eq!(charged.as_ref(), step.next, "{step:?}");
        }
    });
}

/// Units spent under another limit count for no longer than a charge of twice this limit; but a window in use keeps
/// its end.
#[test]
fn units_of_another_limit_count_at_most_twice_the_capacity() {
    replay(60, 60, Events { back: false, changes: true, refunds: true }, |step, random| {
        let other = &step.others[random.below(step.others.len())];
        let is_window = matches!(other, Params::FixedWindow(_) | Params::Cycle(_));
        if other.holdable().is_err() || is_window {
            return;
        }
        let StepInput { now, phase, .. } = step.under(other);
        let peek = |state: Option<&State>| other.step(state, &StepInput { now, cost: 0, max_wait: None, phase }).0;
        // One more, as a limit may be a fraction.
        let units = peek(None).limit + 1;
        let twice = (0..2).fold(None, |state, _| other.charge(state.as_ref(), Spent { units, held: 0 }, now, phase));
        assert!(peek(step.state).reset_after <= peek(twice.as_ref()).reset_after, "{other:?} {step:?}");
    });
}

/// The units that were held, and that lower limits settle, cut none that were charged before under a higher limit, which
/// counts them too. (Factors change
/// how fast a leaky bucket drips: its spec tests other sizes. And the `gcra` family counts these units for a month at most.)
#[test]
fn units_that_were_held_cut_none_under_lower_limits() {
    let mut met = std::collections::HashSet::new();
    replay(60, 60, Events { back: false, changes: false, refunds: false }, |step, random| {
        let high = step.params;
        let is_within = !matches!(high, Params::LeakyBucket(_)) && high.window() <= MAX_KEPT_FOR_OTHERS;
        if !is_within || high.holdable() != Ok(HoldAccuracy::Exact) {
            return;
        }
        let lower: Vec<_> =
            [1.5, 2.0, 3.0, 10.0, 1_000.0].iter().filter_map(|factor| high.scale(*factor).ok()).collect();
        if lower.is_empty() {
            return;
        }
        let StepInput { now, phase, .. } = step.input;
        let remaining = |params: &Params, state: Option<&State>| {
            params.step(state, &StepInput { now, cost: 0, max_wait: None, phase }).0.remaining
        };
        let before = remaining(high, step.state);
        let held = random.within(0, before as i64).unsigned_abs();
        let (mut state, mut left, mut is_met) = (step.state.cloned(), held, false);
        let mut settled = Vec::new();
        for last in [false, false, false, false, false, true] {
            let low = &lower[random.below(lower.len())];
            let units = if last { left } else { random.within(0, left as i64).unsigned_abs() };
            left -= units;
            is_met |= units > 0 && remaining(low, state.as_ref()) == 0;
            settled.push((units, low));
            state = low.charge(state.as_ref(), Spent::held(units), now, phase).or(state);
        }
        let after = remaining(high, state.as_ref());
        assert!(after <= before - held, "{after} of {before} less {held}, {settled:?}: {step:?}");
        if after > 0 && is_met {
            met.insert(high.name());
        }
    });
    assert!(
        ["gcra", "token_bucket", "sliding_log", "sliding_buckets", "fixed_window"]
            .iter()
            .all(|name| met.contains(name)),
        "{met:?}"
    );
}

/// A limit that stores a state without a charge, as when a lease is returned, keeps it for as long as the limit that
/// charged it needs it. (A bucket does not tell the `drip_size` of the limit that filled it.)
#[test]
fn a_state_is_kept_for_the_limit_that_charged_it() {
    let mut met = std::collections::HashSet::new();
    replay(60, 60, Events::ANY, |step, _| {
        let (Some(state), true) = (step.next, step.params.holdable().is_ok()) else { return };
        let input = step.with_cost(0);
        let needed = step.params.step(Some(state), &input).0.reset_after.min(MAX_KEPT_FOR_OTHERS);
        let drip_size =
            |params: &Params| matches!(params, Params::LeakyBucket(_)).then(|| params.numbers()[1].to_bits());
        let is_of_state = |other: &&Params| {
            other.time_base() == step.params.time_base() && drip_size(other) == drip_size(step.params)
        };
        for other in step.others.iter().filter(is_of_state) {
            let reset_after = other.step(Some(state), &StepInput { cost: 0, ..step.under(other) }).0.reset_after;
            let lasts = reset_after.max(other.kept_until(state).map_or(0, |until| until - input.now));
            assert!(lasts >= needed, "kept for {lasts}, not {needed}, under {other:?}: {step:?}");
            if reset_after < needed {
                met.insert(other.name());
            }
        }
    });
    assert!(["gcra", "token_bucket", "leaky_bucket", "decay"].iter().all(|name| met.contains(name)), "{met:?}");
}

/// With a smaller burst at the same rate, the larger one counts exactly the units that were held, also after those of
/// others, and the smaller one is full no longer than without them.
#[test]
fn a_larger_burst_counts_the_units_that_a_smaller_one_settles() {
    let burst = |capacity| parse("token_bucket", &[("capacity", capacity), ("count", "1"), ("period", "1h")]);
    let (high, low) = (burst("1000"), burst("20"));
    let at = |now, cost| StepInput { now, cost, max_wait: None, phase: 0 };
    for before in [0, 15, 400] {
        let state = (before > 0).then(|| high.step(None, &at(0, before)).1.expect("charged"));
        let settled = low.charge(state.as_ref(), Spent::held(300), 0, 0);
        let settled = low.charge(settled.as_ref(), Spent::held(7), 0, 0);
        assert_eq!(high.step(settled.as_ref(), &at(0, 0)).0.remaining, 693 - before.unsigned_abs());
        assert_eq!(low.step(settled.as_ref(), &at(40 * 3_600_000_000, 20)).0.remaining, 0);
    }
}

/// As many units as fit are charged, so nothing more passes then, and the rest does not count later either.
#[test]
fn charges_fill_a_limit_at_most() {
    replay(10, 60, Events { back: false, changes: false, refunds: true }, |step, random| {
        let (params, state, StepInput { now, phase, .. }) = (step.params, step.state, step.input);
        let peek = |state: Option<&State>| step.decide(state, &StepInput { now, cost: 0, max_wait: None, phase });
        let before = peek(state);
        for units in [0, 1, before.remaining, random.magnitude(1 << 45).unsigned_abs()] {
            let (charged, next) = params.charge_what_fits(state, units, now, phase);
            assert_eq!(charged, units.min(before.remaining), "{units}: {step:?}");
            assert_eq!(next.is_some(), charged > 0, "{units}: {step:?}");
            let after = peek(next.as_ref().or(state));
            if params.holdable().is_ok() && charged > 0 {
                assert_eq!(
                    next,
                    params.charge(state, Spent { units: charged, held: 0 }, now, phase),
                    "{units}: {step:?}"
                );
            }
            if params.holdable() == Ok(HoldAccuracy::Exact) {
                assert!(after.remaining <= before.remaining - charged, "{units}: {after:?} {step:?}");
                let spent = params.spent(next.as_ref().or(state), now, phase);
                assert_eq!(spent, after.limit - after.remaining, "{units}: {step:?}");
            }
        }
    });
}

/// A key whose units are charged, whether they fit or not.
#[derive(Clone)]
struct Charged<'a> {
    params: &'a Params,
    state: Option<State>,
    phase: Micros,
}

impl Charged<'_> {
    fn charge(&mut self, (at, units): (Micros, u64)) {
        let next = self.params.charge(self.state.as_ref(), Spent::held(units), at, self.phase);
        self.state = next.or(self.state.take());
    }

    fn passes(&self, now: Micros, cost: u64) -> bool {
        let input = StepInput { now, cost: cost as i64, max_wait: None, phase: self.phase };
        self.params.step(self.state.as_ref(), &input).0.allowed
    }

    fn remaining(&self, now: Micros) -> u64 {
        let input = StepInput { now, cost: 0, max_wait: None, phase: self.phase };
        self.params.step(self.state.as_ref(), &input).0.remaining
    }
}

/// A charge that is made later, or in addition, never lets more pass: the reason why leases keep a limit exactly.
#[test]
fn a_later_charge_counts_for_at_least_as_long() {
    cases(60, |seed| {
        for (index, (_, params)) in examples().enumerate() {
            if params.holdable() == Ok(HoldAccuracy::Exact) {
                assert_later_counts_more(&params, seed.fork(index as u64));
            }
        }
    });
}

fn assert_later_counts_more(params: &Params, mut random: Random) {
    let phase = params.phase_period().map_or(0, |period| random.within(0, period - 1));
    let start = 1_790_000_000_000_000 + random.within(0, 1 << 40);
    let limit = params.step(None, &StepInput { now: start, cost: 0, max_wait: None, phase }).0.limit;
    let span = params.window().max(4);
    let mut spent = Vec::new();
    let mut reported = Vec::new();
    for _ in 0..random.below(8) {
        let at = start + random.within(0, span);
        let units = random.magnitude(limit as i64).max(1).unsigned_abs() / 2 + 1;
        spent.push((at, units));
        reported.push((at + random.pick(&[0, 1, random.clone().within(0, span / 2)]), units));
        if random.once_in(4) {
            reported.push((at, 1));
        }
    }
    let limit_units: u64 = spent.iter().map(|(_, units)| units).sum();
    if limit_units > limit {
        // Beyond the limit, a limiter without leases would not have admitted them.
        return;
    }
    spent.sort_unstable();
    reported.sort_unstable();
    let key = Charged { params, state: None, phase };
    let (mut ideal, mut authority) = (key.clone(), key);
    spent.iter().for_each(|charge| ideal.charge(*charge));
    reported.iter().for_each(|charge| authority.charge(*charge));
    let last = reported.iter().map(|(at, _)| *at).max().unwrap_or(start);
    for later in [0, 1, random.within(0, span), random.within(0, span), span, 2 * span] {
        let now = last + later;
        let context = || format!("{params:?}: {spent:?} spent, {reported:?} reported, at {now}");
        let (more, less) = (ideal.remaining(now), authority.remaining(now));
        assert!(less <= more, "{less} pass, {more} did: {}", context());
        assert!(less == 0 || ideal.passes(now, less), "{}", context());
    }
}
