//! A state that is ahead of the clock counts for no more than the current limit could have produced
//! itself.

use super::{
    assert_exact_retry,
    trace::{Events, examples, replay},
};
use crate::{
    algorithm::{Bounds, Entry, Params, State, params::MAX_DEPTH, rates},
    domain::{
        Micros, StepInput,
        request::{MAX_COST, MAX_WAIT},
        time::DAY,
    },
    testing::{Random, cases},
};

/// Algorithms whose states record spent units, which a changed limit never rewrites.
const RECORDS_SPENT_UNITS: [&str; 2] = ["leaky_bucket", "decay"];

/// Parameters that no factor scales, with values to change them to.
const OTHERS: [(&str, &str); 3] = [("cold_factor", "1.5"), ("cold_factor", "1000"), ("max_burst", "2s")];

/// A limit, and the same limit without its own `max_wait`: a wait that was granted stays valid
/// under a changed `max_wait`.
struct Limit {
    params: Params,
    waiting: Params,
}

/// Returns the examples, some of them changed.
fn limits(entry: &'static Entry) -> impl Iterator<Item = Limit> {
    let others = OTHERS.into_iter().filter(|(field, _)| entry.fields.contains(field)).map(Some);
    let texts = [None].into_iter().chain(others).flat_map(|other| {
        entry.examples.iter().map(move |example| {
            let kept = example.iter().filter(move |(field, _)| other.is_none_or(|(changed, _)| changed != *field));
            kept.copied().chain(other).collect::<Vec<_>>()
        })
    });
    let read = |text: &[(&str, &str)]| (entry.parse)(text, &Bounds::default()).ok();
    let read = texts.filter_map(move |text| {
        let waiting: Vec<_> = text.iter().copied().filter(|(field, _)| *field != "max_wait").collect();
        Some(Limit { params: read(&text)?, waiting: read(&waiting)? })
    });
    read.flat_map(|Limit { params, waiting }| {
        [0.001, 0.1, 1.0, 2.0, 10.0, 1_000.0].into_iter().filter_map(move |factor| {
            Some(Limit { params: params.scale(factor).ok()?, waiting: waiting.scale(factor).ok()? })
        })
    })
}

/// Returns the longest time until a key is as if never used, after any requests under this limit
/// alone.
fn longest_reset(entry: &Entry, params: &Params) -> Micros {
    let input = |cost, max_wait| StepInput { now: 0, cost, max_wait, phase: 0 };
    let mut state: Option<State> = None;
    for _ in 0..64 {
        let remaining = params.step(state.as_ref(), &input(0, None)).0.remaining;
        let (decision, next) = params.step(state.as_ref(), &input(remaining.max(1) as i64, None));
        state = next.or(state);
        if !decision.allowed {
            break;
        }
    }
    let waits = params.step(state.as_ref(), &input(1, Some(MAX_WAIT))).0.allowed;
    // At this moment a window may be about to end.
    let longest =
        params.edges(|| 0).map_or(0, |edges| edges.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0));
    let reset = params.step(state.as_ref(), &input(0, None)).0.reset_after.max(longest);
    // A granted debt stays valid, like a granted wait.
    let debt = if entry.spec.lends { MAX_DEPTH } else { 0 };
    reset + debt + if waits || entry.spec.lends { MAX_WAIT + params.window() } else { 0 }
}

/// Returns a state after large costs with long waits, and its time.
fn fill(params: &Params, random: &mut Random) -> (State, Micros) {
    let mut now = 1_790_000_000_000_000 + random.within(0, DAY);
    let phase = params.phase_period().map_or(0, |period| random.within(0, period - 1));
    let mut state = None;
    for _ in 0..8 {
        let max_wait = random.pick(&[None, Some(0), Some(MAX_WAIT)]);
        let peek = params.step(state.as_ref(), &StepInput { now, cost: 0, max_wait, phase }).0;
        let cost = random.pick(&[1, peek.limit as i64, peek.remaining as i64, random.clone().magnitude(MAX_COST)]);
        let cost = cost.clamp(1, MAX_COST);
        let (_, next) = params.step(state.as_ref(), &StepInput { now, cost, max_wait, phase });
        state = next.or(state);
        now += if random.once_in(2) { 0 } else { random.magnitude(peek.reset_after) };
    }
    let all = params.step(state.as_ref(), &StepInput { now, cost: 1, max_wait: None, phase }).1;
    (all.or(state).unwrap(), now)
}

#[test]
fn no_state_prolongs_a_refusal_beyond_the_limits_longest_reset() {
    let mut clamped = std::collections::HashSet::new();
    let lies_ahead = |entry: &&'static Entry| !RECORDS_SPENT_UNITS.contains(&entry.name);
    let limits: Vec<_> = rates()
        .filter(lies_ahead)
        .flat_map(|entry| limits(entry).map(move |limit| (entry, longest_reset(entry, &limit.waiting), limit)))
        .collect();
    cases(12, |random| {
        for (index, (entry, maker)) in examples().enumerate() {
            let mut random = random.fork(index as u64);
            let (state, now) = fill(&maker, &mut random);
            let may_meet = |params: &Params| params.name() == entry.name && params.time_base() == maker.time_base();
            for (_, longest, Limit { params, .. }) in limits.iter().filter(|(.., limit)| may_meet(&limit.params)) {
                let own =
                    maker.step(Some(&state), &StepInput { now, cost: 0, max_wait: Some(0), phase: 0 }).0.reset_after;
                for cost in [0, 1, random.within(1, 1 << 20)] {
                    let input = StepInput { now, cost, max_wait: Some(0), phase: 0 };
                    let (decision, next) = params.step(Some(&state), &input);
                    let context = || format!("{decision:?} for {input:?} in {state:?} of {maker:?} under {params:?}");
                    let retry = decision.retry_after.unwrap_or(0);
                    assert!(decision.reset_after.max(retry) <= *longest, "more than {longest}: {}", context());
                    if own > *longest {
                        clamped.insert(entry.name);
                    }
                    if !decision.allowed {
                        assert_exact_retry(params, next.as_ref().or(Some(&state)), &input, &decision);
                    }
                }
            }
        }
    });
    for name in ["gcra", "token_bucket", "leaky_queue"] {
        assert!(clamped.contains(name), "no state of {name} lay too far ahead");
    }
}

/// Requests with different factors charge one state. `leaky_bucket` and `decay` count at most twice their own size, and
/// so less than a factor of less than 1 allows.
#[test]
fn a_request_leaves_no_more_under_any_factor_than_it_refunds() {
    replay(20, 60, Events { changes: false, back: false, ..Events::ANY }, |step, random| {
        let base = step.params;
        let mut factors = vec![1.0, 1.001, 1.25, 2.0, 3.0, 10.0, 1_000.0];
        if !RECORDS_SPENT_UNITS.contains(&base.name()) {
            factors.extend([0.01, 0.3, 0.5, 0.8, 0.99]);
        }
        let mut under = || {
            let factor = random.pick(&factors);
            // Beyond what stays exact, units that would be counted for 35 years are cut. A limit that lends is paid for
            // by later waits.
            let is_exact = base.window() as f64 * factor <= MAX_DEPTH as f64 && !step.entry.spec.lends;
            Some((factor, base.scale(factor).ok().filter(|_| is_exact)?.reaching(base)))
        };
        let (Some((_, first)), Some((factor, second)), Some((_, third))) = (under(), under(), under()) else { return };
        // A factor also changes how fast a bucket leaks.
        let third = if base.name() == "leaky_bucket" { base.clone() } else { third };
        let first_cost = random.pick(&[1, first.step(None, &step.with_cost(0)).0.limit as i64]);
        let before = first.step(step.after(), &step.with_cost(first_cost)).1.or_else(|| step.after().cloned());
        let left_after = |params: &Params, cost: i64| {
            let next = params.step(before.as_ref(), &step.with_cost(cost)).1;
            third.step(next.as_ref().or(before.as_ref()), &step.with_cost(0)).0.remaining
        };
        // If several units take a microsecond, so do parts of a unit, which round up under another
        // factor.
        let rounded = (base.step(None, &step.with_cost(0)).0.limit as f64 / base.window() as f64).ceil() as i64;
        for cost in [1, -1, second.step(None, &step.with_cost(0)).0.limit as i64, MAX_COST] {
            let refunded = if cost < 0 { (cost as f64 * factor).floor() as i64 - 2 * rounded } else { 0 };
            let (after, allowed) = (left_after(&second, cost), left_after(base, refunded));
            let context = || format!("{before:?}, {second:?} and {third:?}, {step:?}");
            assert!(after <= allowed, "{after}, not {allowed}, after a cost of {cost}: {}", context());
        }
    });
}

/// Limits for one key at the same time, as while a policy is rolled out. `leaky_bucket` and `decay` cut what larger ones
/// have spent, and a key under `warming_up` is kept warm by all.
#[test]
fn limits_in_turns_admit_no_more_than_each_alone() {
    // Calendars of other zones end their windows at other times, and keys that start empty are empty for each limit.
    let is_comparable = |params: &Params| params.edges(|| 0).is_none() && params.starting_full().is_none();
    let families: Vec<(_, Vec<_>)> = rates()
        .filter(|entry| !RECORDS_SPENT_UNITS.contains(&entry.name) && entry.name != "warming_up")
        .map(|entry| (entry, limits(entry).map(|limit| limit.params).filter(is_comparable).collect()))
        .collect();
    cases(400, |random| {
        for (index, (entry, limits)) in families.iter().enumerate() {
            let mut random = random.fork(index as u64);
            let mut now = 1_790_000_000_000_000 + random.within(0, DAY);
            let (mut shared, mut expires): (Option<State>, _) = (None, 0);
            let first = &limits[random.below(limits.len())];
            let same: Vec<_> = limits.iter().filter(|limit| limit.time_base() == first.time_base()).collect();
            let mut alone: Vec<(&Params, Option<State>)> = Vec::new();
            let is_metered = ["gcra", "token_bucket", "leaky_queue"].contains(&entry.name);
            for _ in 0..random.within(2, 4) {
                let limit = same[random.below(same.len())];
                // Those with the same signature, which is the seventh number, are one limit.
                if !is_metered || alone.iter().all(|(other, _)| other.lua_params().get(6) != limit.lua_params().get(6))
                {
                    alone.push((limit, None));
                }
            }
            let spans: Vec<_> = alone.iter().map(|(limit, _)| limit.window()).collect();
            for _ in 0..100 {
                let (limit, own) = {
                    let place = random.below(alone.len());
                    &mut alone[place]
                };
                let max_wait = random.pick(&[None, Some(0), Some(1 << 20)]);
                let input = |cost| StepInput { now, cost, max_wait, phase: 0 };
                shared = shared.filter(|_| expires > now);
                let peek = limit.step(shared.as_ref(), &input(0)).0;
                let cost = random.pick(&[1, 1, peek.remaining as i64, peek.limit as i64, random.clone().within(1, 5)]);
                // Limits that share one count, or one arrival time, also share refunds.
                let refunds = is_metered && random.once_in(4);
                let input = input(if refunds { -cost } else { cost.max(1) });
                let (decision, next) = limit.step(shared.as_ref(), &input);
                let (by_itself, next_alone) = limit.step(own.as_ref(), &input);
                if decision.allowed {
                    let context = || format!("{shared:?} and alone {own:?}: {input:?} under {limit:?}");
                    assert!(by_itself.allowed, "{} admits more than alone: {}", entry.name, context());
                    assert!(by_itself.wait <= decision.wait, "{} waits less than alone: {}", entry.name, context());
                    *own = next_alone.or(own.take());
                }
                if let Some(state) = next {
                    expires = now + decision.reset_after.max(limit.kept_until(&state).map_or(0, |until| until - now));
                    shared = Some(state);
                }
                let edge = random.pick(&[
                    decision.retry_after.unwrap_or(0),
                    decision.reset_after,
                    random.clone().pick(&spans),
                ]);
                now += match random.below(8) {
                    0..4 => 0,
                    4 => edge,
                    5 => random.within(0, edge),
                    6 => random.magnitude(edge),
                    _ => random.magnitude(1 << 24),
                };
            }
        }
    });
}
