//! Tests of the step over several levels, against a model of the specification and the properties of a whole request.

mod identity;
mod model;
mod trace;

use std::collections::HashSet;

use model::{Memory, Request};
use trace::{Rule, Scenario, Store};

use super::{Level, Limit, Origin, Plan, decide};
use crate::{
    algorithm::{Bounds, find},
    domain::{Charge, Decision, Key, Micros, StepInput, aggregate, request::MAX_WAIT, time::SECOND},
    hold::{RequestId, Reservation, ReservationStep},
    testing::{OnPanic, Random, cases, parse},
};

/// Whether a plan over two levels may be leased, and units be held of it, with and without what prevents it.
#[test]
fn units_are_held_only_of_levels_that_are_charged_alike() {
    let (key, other) = (Key::new("", &["a", "b"]).unwrap(), Key::new("", &["a", "c"]).unwrap());
    let params = parse("gcra", &[("burst", "9"), ("count", "10"), ("period", "1s")]);
    let limit = Limit::new(Origin::Policy, None, "*", 0, false, params).with_lease(Some(SECOND));
    let id = RequestId { name: b"id".as_slice().into(), fingerprint: [0; 8], window: SECOND };
    let level = |depth| Level::new(&key, depth, 1, &limit, 2);
    let plan = |levels: [Level<'_>; 2], change: &dyn Fn(&mut Plan<'_>)| {
        let mut plan = Plan::new(levels.into_iter().collect(), Charge::AllOrNothing, None);
        plan.policy_version = Some(1);
        change(&mut plan);
        (plan.is_holdable(), plan.lease_ttl().is_some())
    };
    let both = || [level(1), level(2)];
    assert_eq!(plan(both(), &|_| {}), (true, true));
    let scaled = level(2).under_factor(0.5).unwrap().unwrap();
    for levels in [[level(1), scaled], [level(1), Level { cost: 3, ..level(2) }], [level(2), level(2)]] {
        assert_eq!(plan(levels, &|_| {}), (false, false));
    }
    assert_eq!(plan([level(2), Level::new(&other, 2, 1, &limit, 2)], &|_| {}), (true, true));
    let changes: [&dyn for<'p> Fn(&mut Plan<'p>); 4] = [
        &|plan| plan.charge = Charge::Independent,
        &|plan| plan.dry_run = true,
        &|plan| plan.reservation = Some(Reservation { name: b"a", step: ReservationStep::Cancel }),
        &|plan| plan.change_levels(|levels| levels.clear()),
    ];
    for change in changes {
        assert_eq!(plan(both(), change), (false, false));
    }
    let mut repeated = Plan::new(both().into_iter().collect(), Charge::AllOrNothing, None);
    (repeated.policy_version, repeated.request) = (Some(1), Some(&id));
    assert_eq!((repeated.is_holdable(), repeated.lease_ttl()), (false, None));
}

const TRACES: u64 = 2_000;
const REQUESTS: usize = 8;

/// A request of a trace, as stores take it and as the model takes it.
struct Call<'a> {
    scenario: &'a Scenario,
    levels: &'a [(&'a Rule, i64)],
    plan: Plan<'a>,
    request: Request,
}

impl Call<'_> {
    /// Decides the same request at another time, in a copy of the store.
    fn again(&self, store: &Store, now: Micros) -> Decision {
        let (plan, request) = self.scenario.request(self.levels, self.request.charge, self.request.max_wait, now);
        let mut store = store.clone();
        store.hold(&request, false);
        summary(&request, &decide(&plan, &mut store, now))
    }
}

fn summary(request: &Request, decisions: &[Decision]) -> Decision {
    aggregate(decisions.iter().zip(request.levels.iter().map(|level| level.shadow))).decision
}

/// Replays [`TRACES`] random traces. `each` decides a request; the times of the next ones depend on its decision.
fn replay(back: bool, mut each: impl FnMut(&Call<'_>, &mut Random, usize) -> Decision) {
    cases(TRACES, |seed| {
        let mut random = seed.clone();
        let scenario = Scenario::new(&mut random);
        let mut now = 1_790_000_000_000_000 + random.within(0, 1 << 40);
        let mut edges = [0, 1, 1_000_000];
        for number in 0..REQUESTS {
            let edge = random.pick(&edges);
            now += match random.below(8) {
                0..3 => 0,
                3 | 4 => (edge + random.within(-1, 1)).max(0),
                5 => random.within(0, edge),
                6 => random.magnitude(1 << 38),
                _ if back => -random.magnitude(edge.max(1_000)),
                _ => 1,
            };
            let charge = match random.once_in(2) {
                true => Charge::AllOrNothing,
                false => random.pick(&[Charge::Independent, Charge::OverLimitOnly]),
            };
            let max_wait = if random.once_in(3) { Some(random.magnitude(MAX_WAIT)) } else { None };
            let levels = scenario.levels(&mut random);
            let (plan, request) = scenario.request(&levels, charge, max_wait, now);
            let call = Call { scenario: &scenario, levels: &levels, plan, request };
            let _context = OnPanic(|| format!("request {number}: {:?}", call.request));
            let answer = each(&call, &mut random, number);
            edges = [answer.retry_after.unwrap_or(0), answer.reset_after, edges[random.below(3)]];
        }
    });
}

#[test]
fn decisions_and_states_match_the_model() {
    let mut memory = Memory::new();
    let mut store = Store::new(usize::MAX);
    replay(true, |Call { plan, request, .. }, _, number| {
        if number == 0 {
            (memory, store) = (Memory::new(), Store::new(usize::MAX));
        }
        store.hold(request, false);
        let ours = decide(plan, &mut store, request.now);
        let (theirs, after) = model::decide(request, &memory);
        assert_eq!(ours.to_vec(), theirs, "ours, the model's; before: {memory:?}");
        memory = after;
        assert_eq!(store.memory(), memory, "ours, the model's");
        summary(request, &ours)
    });
}

/// A store that drops each state at its expiry answers like one that never drops any.
#[test]
fn dropping_states_at_their_expiry_changes_no_decision() {
    let mut memory = Memory::new();
    let mut store = Store::new(usize::MAX);
    replay(false, |Call { plan, request, .. }, _, number| {
        if number == 0 {
            (memory, store) = (Memory::new(), Store::new(usize::MAX));
        }
        store.hold(request, true);
        let ours = decide(plan, &mut store, request.now);
        let (theirs, after) = model::decide(request, &memory);
        assert_eq!(ours.to_vec(), theirs, "ours, the model's; before: {memory:?}");
        memory = after;
        summary(request, &ours)
    });
}

#[test]
fn a_full_store_passes_nothing_uncounted_or_half_charged() {
    let (mut store, mut capacity) = (Store::new(0), 0);
    replay(true, |Call { plan, request, .. }, random, number| {
        if number == 0 {
            capacity = random.below(5);
            store = Store::new(capacity);
        }
        store.hold(request, false);
        let before = store.memory();
        let ours = decide(plan, &mut store, request.now);
        let after = store.memory();
        let answer = summary(request, &ours);
        let (theirs, unbounded) = model::decide(request, &before);
        if unbounded.len() <= capacity {
            assert_eq!((ours.to_vec(), &after), (theirs, &unbounded), "all states fit");
        }
        for level in &request.levels {
            let state_key = &level.state_key;
            let counts = request.levels.iter().all(|duplicate| duplicate.state_key != *state_key || !duplicate.shadow);
            if answer.allowed && counts {
                assert_eq!(after.get(state_key), unbounded.get(state_key), "passed, but {state_key:?} was not charged");
            }
            let may_charge = level.params.charges_denied() || answer.allowed || request.charge != Charge::AllOrNothing;
            assert!(
                may_charge || after.get(state_key) == before.get(state_key),
                "refused, but {state_key:?} was charged"
            );
        }
        answer
    });
}

#[test]
fn a_dry_run_decides_as_a_check_does_and_changes_nothing() {
    let (mut store, mut capacity, mut met) = (Store::new(0), 0, [0; 2]);
    replay(true, |call, random, number| {
        if number == 0 {
            capacity = if random.once_in(2) { random.below(5) } else { usize::MAX };
            store = Store::new(capacity);
        }
        let Call { plan, request, .. } = call;
        let (mut dry_run, _) = call.scenario.request(call.levels, request.charge, request.max_wait, request.now);
        dry_run.dry_run = true;
        store.hold(request, false);
        let before = store.memory();
        let would_be = decide(&dry_run, &mut store, request.now);
        assert_eq!(store.memory(), before, "a dry run changed a state");
        assert_eq!(dry_run.charged(&would_be).sum::<u64>(), 0);
        let decisions = decide(plan, &mut store, request.now);
        assert_eq!(would_be, decisions, "the dry run, the check; before: {before:?}");
        let answer = summary(request, &decisions);
        met[usize::from(answer.allowed)] += usize::from(store.memory() != before);
        answer
    });
    assert!(met.iter().all(|times| *times > TRACES as usize / 4), "too few checks that changed something: {met:?}");
}

/// A full store that allows requests answers as if it were unbounded, except that duplicate levels under
/// `independent` do not see the charge of the earlier one. The states that it keeps are correct.
#[test]
fn a_full_store_with_allow_decides_like_an_unbounded_one() {
    let (mut store, mut capacity, mut forgot) = (Store::new(0), 0, 0);
    replay(true, |Call { plan, request, .. }, random, number| {
        if number == 0 {
            capacity = random.below(5);
            store = Store::letting_pass(capacity);
        }
        store.hold(request, false);
        let before = store.memory();
        let ours = decide(plan, &mut store, request.now);
        let (theirs, unbounded) = model::decide(request, &before);
        let state_keys: HashSet<_> = request.levels.iter().map(|level| &level.state_key).collect();
        if request.charge == Charge::AllOrNothing || state_keys.len() == request.levels.len() {
            assert_eq!(ours.to_vec(), theirs, "ours, the model's; before: {before:?}");
            let after = store.memory();
            assert!(
                after.iter().all(|(state_key, state)| unbounded.get(state_key) == Some(state)),
                "{after:?}, {unbounded:?}"
            );
            assert!(after.len() == unbounded.len().min(capacity) || after.len() == before.len());
            forgot += usize::from(after.len() < unbounded.len());
        }
        summary(request, &ours)
    });
    assert!(forgot > TRACES as usize / 4, "too few requests lacked space: {forgot}");
}

/// `retry_after` is exact for a whole request. This holds under `all_or_nothing` if every repetition is alike: no
/// passing level may charge denied requests, as it may be exhausted when the others are ready; and no level may
/// refund while another one charges, as its decision is then the one without the refund.
#[test]
fn a_refused_request_passes_exactly_at_its_retry_after() {
    let mut store = Store::new(usize::MAX);
    let mut checked = 0;
    replay(true, |call, _, number| {
        if number == 0 {
            store = Store::new(usize::MAX);
        }
        let Call { plan, request, .. } = call;
        store.hold(request, false);
        let alone = |level: &model::Level, cost| {
            let input = StepInput { now: request.now, cost, max_wait: request.max_wait, phase: level.phase };
            level.params.step(model::live(request, &store.states, level), &input).0
        };
        let total = |level: &model::Level| {
            request.levels.iter().filter(|other| other.state_key == level.state_key).map(|other| other.cost).sum()
        };
        let used_up_later =
            request.levels.iter().any(|level| level.params.charges_denied() && alone(level, total(level)).allowed);
        let mixed =
            request.levels.iter().any(|level| level.cost < 0) && request.levels.iter().any(|level| level.cost >= 0);
        let answer = summary(request, &decide(plan, &mut store, request.now));
        assert_eq!(answer.allowed, answer.retry_after.is_none() && !answer.never);
        if let Some(retry) = answer.retry_after
            && request.charge == Charge::AllOrNothing
            && !(used_up_later || mixed)
        {
            checked += 1;
            assert!(call.again(&store, request.now + retry).allowed, "still refused after {retry} us");
            assert!(!call.again(&store, request.now + retry - 1).allowed, "passes before {retry} us are over");
        }
        answer
    });
    assert!(checked > TRACES / 4, "too few refusals: {checked}");
}

#[test]
fn per_key_phases_differ_by_key_and_are_stable() {
    let phase = |user: &str, fields: &[(&str, &str)]| {
        let limit = Limit::new(Origin::Policy, None, "user/*", 0, false, parse("fixed_window", fields));
        Level::new(&Key::new("", &["user", user]).unwrap(), 2, 2, &limit, 1).phase()
    };
    let own = |user: &str| phase(user, &[("count", "10"), ("period", "60s"), ("per_key_phase", "true")]);
    let phases: HashSet<_> = (0..1_000).map(|user| own(&user.to_string())).collect();
    assert!(phases.iter().all(|phase| (0..60 * SECOND).contains(phase)));
    assert!(phases.len() > 990, "only {} phases for 1,000 keys", phases.len());
    assert_eq!(own("alex"), 9_665_025, "the windows of all keys would move");
    assert_eq!(phase("alex", &[("count", "10"), ("period", "60s")]), 0);
}

#[test]
fn duplicates_are_found_among_many_levels() {
    let gcra = find("gcra").unwrap();
    let params = (gcra.parse)(gcra.examples[0], &Bounds::default()).unwrap();
    let limits = [0, 1].map(|ordinal| Limit::new(Origin::Policy, None, "*", ordinal, false, params.clone()));
    let keys: Vec<_> = (0..9).map(|key| Key::new("", &["a", &key.to_string()]).unwrap()).collect();
    cases(50, |seed| {
        let mut random = seed.clone();
        let row: Vec<_> = (0..1 + random.below(60))
            .map(|_| (random.below(9), random.below(2), random.within(1, 2) as u8, random.within(-5, 5)))
            .collect();
        let level = |&(key, limit, depth, cost): &(usize, usize, u8, i64)| {
            Level::new(&keys[key], depth, 2, &limits[limit], cost)
        };
        let plan = Plan::new(row.iter().map(level).collect(), Charge::AllOrNothing, None);
        let state = |&(key, limit, depth, _): &(usize, usize, u8, i64)| (if depth == 1 { 0 } else { key + 1 }, limit);
        for (index, own) in row.iter().enumerate() {
            let same = || row.iter().enumerate().filter(|(_, other)| state(other) == state(own));
            assert_eq!(Some(plan.state_of(index)), same().next().map(|(first, _)| first), "{row:?}");
            assert_eq!(plan.total_cost(index), same().map(|(_, other)| other.3).sum::<i64>(), "{row:?}");
        }
    });
}
