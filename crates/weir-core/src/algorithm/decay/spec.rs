//! The spec of `decay`, and its vectors.

use super::{
    super::{
        Algorithm as _, Bounds, LUA_PRELUDE, Params, Spent, State, checked, find,
        properties::{
            Spec,
            check::{Key, MS, S, check, error, never, parse, pass, refuse},
            spec::Example,
        },
    },
    Decay, Fields, MAX_AMOUNT, NOTHING, left_after,
};
use crate::{
    domain::{Micros, StepInput, time::MAX_MOMENT},
    testing::{Random, cases},
};

pub(crate) const SPEC: Spec = Spec {
    bound,
    is_reached: true,
    shapes: false,
    lends: false,
    states: &[
        (&[1e15, 4_294_967_296.0], true),
        (&[1e15, 0.25], true),
        (&[1e15, 1e-9], false),
        (&[1e15, 4_294_967_297.0], false),
        (&[0.0, -1.0], false),
        (&[0.5, 1.0], false),
        (&[1e16, 1.0], false),
    ],
};

/// The units spent are what the counter ends with, at most `max`, plus what it has lost in between: at each edge
/// between slots at most `max * (decay - 1) / decay`. Plus the rounding of the sums, and what is left when the counter
/// counts as 0.
fn bound(example: Example, elapsed: Micros, _: u64) -> u128 {
    let (max, decay) = (example.real("max"), example.real("decay"));
    let edges = u128::from(elapsed.unsigned_abs()).div_ceil(example.micros("resolution"));
    (max * (1.0 + 1e-12) + edges as f64 * (max * (decay - 1.0) / decay + NOTHING)) as u128
}

#[test]
fn a_counter_halves_from_slot_to_slot() {
    let params = parse("decay", &[("max", "100"), ("resolution", "1s"), ("decay", "2")]);
    let mut key = Key::new();
    for (cost, remaining) in [(1, 99), (1, 98), (1, 97)] {
        let answer = key.decide(&params, 1_000 * S, cost);
        assert_eq!((answer.allowed, answer.remaining), (true, remaining));
    }
    let encoded = |key: &Key| key.state.as_ref().unwrap().encode();
    assert_eq!(encoded(&key), [1e9, 3.0]);
    // Decays to 1.5, then to 0.75, less one unit.
    assert_eq!(key.decide(&params, 1_001 * S, 0).remaining, 98);
    assert_eq!(key.decide(&params, 1_002 * S, 1).remaining, 98);
    assert_eq!(encoded(&key), [1.002e9, 1.75]);
    assert_eq!(key.decide(&params, 1_002 * S, -1).remaining, 99);
    assert_eq!(encoded(&key), [1.002e9, 0.75]);
    assert_eq!(key.decide(&params, 1_003 * S - 1, -1), pass(100, 100, 0));
}

#[test]
fn retry_and_reset_fall_on_slot_boundaries() {
    check(
        "decay",
        &[("max", "10"), ("resolution", "1s"), ("decay", "2")],
        &[
            // 10 / 2^34 is below 1e-9.
            (300 * MS, 10, pass(10, 0, 33_700 * MS)),
            (300 * MS, 1, refuse(10, 0, 700 * MS, 33_700 * MS)),
            (300 * MS, 6, refuse(10, 0, 1_700 * MS, 33_700 * MS)),
            (300 * MS, 10, refuse(10, 0, 33_700 * MS, 33_700 * MS)),
            (300 * MS, 11, never(10, 0, 33_700 * MS)),
            (S - 1, 1, refuse(10, 0, 1, 33 * S + 1)),
            (S, 1, pass(10, 4, 33 * S)),
            // The clock steps back: the known slot stays.
            (500 * MS, 5, refuse(10, 4, 1_500 * MS, 33_500 * MS)),
            (500 * MS, -2, pass(10, 6, 32_500 * MS)),
            (500 * MS, -9, pass(10, 10, 0)),
        ],
    );
}

#[test]
fn charge_denied_counts_refused_requests_above_max() {
    check(
        "decay",
        &[("max", "10"), ("resolution", "1s"), ("decay", "2"), ("charge_denied", "true")],
        &[
            (0, 10, pass(10, 0, 34 * S)),
            // The amount is 16, and 4 after two slots.
            (0, 6, refuse(10, 0, 2 * S, 34 * S)),
            (0, 0, refuse(10, 0, S, 34 * S)),
            (S, 1, pass(10, 1, 34 * S)),
            (S, 11, never(10, 0, 35 * S)),
            (S, 1 << 32, never(10, 0, 62 * S)),
            (S, 1, refuse(10, 0, 29 * S, 62 * S)),
        ],
    );
}

#[test]
fn max_can_be_a_fraction() {
    check(
        "decay",
        &[("max", "2.5"), ("resolution", "1s"), ("decay", "4")],
        &[(0, 2, pass(2, 0, 16 * S)), (S, 2, pass(2, 0, 16 * S)), (S, 3, never(2, 0, 16 * S))],
    );
    // Below 1 no unit passes, but a preview does.
    check(
        "decay",
        &[("max", "0.5"), ("resolution", "1s"), ("decay", "4")],
        &[(0, 1, never(0, 0, 0)), (0, 0, pass(0, 0, 0))],
    );
}

#[test]
fn a_lowered_max_keeps_spent_units_up_to_twice_itself() {
    let large = parse("decay", &[("max", "100"), ("resolution", "1s"), ("decay", "2")]);
    let small = parse("decay", &[("max", "10"), ("resolution", "1s"), ("decay", "2")]);
    let mut key = Key::new();
    assert_eq!(key.decide(&large, 0, 18), pass(100, 82, 35 * S));
    assert_eq!(key.decide(&small, 0, 0), refuse(10, 0, S, 35 * S));
    assert_eq!(key.decide(&small, 0, 4), refuse(10, 0, 2 * S, 35 * S));
    assert_eq!(key.decide(&small, 2 * S, 4), pass(10, 1, 33 * S));
}

/// Units that were held under a larger `max`, and are settled under a smaller one.
#[test]
fn settled_units_cut_none_above_twice_a_lowered_max() {
    let of = |max| parse("decay", &[("max", max), ("resolution", "1s"), ("decay", "2")]);
    let (large, small) = (of("100"), of("10"));
    let mut key = Key::new();
    assert!(key.decide(&large, 0, 64).allowed);
    key.state = small.charge(key.state.as_ref(), Spent::held(5), 0, 0);
    assert_eq!(key.decide(&large, 0, 0).remaining, 31);
    assert_eq!(small.kept_until(key.state.as_ref().unwrap()), Some(37 * S));
    // 10 of 34.5 units count, and 10 more.
    key.state = small.charge(key.state.as_ref(), Spent::held(10), S, 0);
    assert_eq!(key.decide(&large, S, 0).remaining, 55);
    // An overage, which no limit has admitted, counts up to twice `max`.
    key.state = small.charge(key.state.as_ref(), Spent { units: 99, held: 1 }, S, 0);
    assert_eq!(key.decide(&large, S, 0).remaining, 54);
    // Where less counts than twice `max`, the rest is cut.
    key.state = small.charge(key.state.as_ref(), Spent::held(1), 2 * S, 0);
    assert_eq!(key.decide(&large, 2 * S, 0).remaining, 89);
}

#[test]
fn the_documented_worst_case_is_reached() {
    let fields: &[(&str, &str)] = &[("max", "10"), ("resolution", "1s"), ("decay", "2")];
    let (params, from, mut key) = (parse("decay", fields), S - 1, Key::new());
    let mut all = |now: Micros| (0..).take_while(|_| key.decide(&params, now, 1).allowed).count() as u128;
    let units: u128 = all(from) + (1..=4).map(|slot| all(slot * S)).sum::<u128>();
    assert_eq!((units, bound(Example(fields), 4 * S - from, 1)), (10 + 4 * 5, 30));
}

#[test]
fn a_factor_rounds_max_up() {
    let scaled = |max: f64, factor: f64| second(max, 2.0).scale(factor).map(|scaled| scaled.fields.max);
    for (max, factor, expected) in
        [(10.0, 3.0, 4.0), (10.0, 0.5, 20.0), (10.0, 99.0, 1.0), (2.5, 1.0, 2.5), (2.5, 0.9, 3.0), (0.5, 2.0, 0.5)]
    {
        assert_eq!(scaled(max, factor), Ok(expected), "{max} under {factor}");
    }
    assert_eq!(scaled(10.0, 1e-9).unwrap_err().field, "max");
}

/// Extreme values of a search: amount, what may be left, decay.
fn searches() -> impl Iterator<Item = (f64, f64, f64)> {
    let amounts = [2e-9, 0.3, 1.0, 10.0, 4_096.0, 999_983.25, MAX_AMOUNT - 1.0, MAX_AMOUNT];
    let lefts = [NOTHING, 0.1, 1.0, 5.0, 4_096.0, MAX_AMOUNT - 1.0, MAX_AMOUNT - f64::EPSILON * MAX_AMOUNT / 2.0];
    let decays = [1.001, 1.001_000_000_1, 1.1, 1.125, 2.0, 10.0, 999_999.0, 1e6];
    let targets = move |amount, decay| lefts.into_iter().map(move |left| (amount, left, decay));
    amounts.into_iter().flat_map(move |amount| decays.into_iter().flat_map(move |decay| targets(amount, decay)))
}

fn second(max: f64, decay: f64) -> Decay {
    checked(Fields { max, resolution: S, decay, charge_denied: false }, &Bounds::default()).unwrap()
}

#[test]
fn the_slot_search_ends_within_one_of_its_guess() {
    let exact = |amount: f64, target: f64, decay: f64| {
        let params = second(MAX_AMOUNT, decay);
        let slots = params.slots_until(amount, target);
        assert!(params.guess(amount, target).abs_diff(slots) <= 1, "{amount} to {target} by {decay}: {slots}");
        let left = |slots: i64| left_after(slots.unsigned_abs(), amount, decay);
        assert!(
            left(slots) <= target && (slots == 0 || left(slots - 1) > target),
            "{amount} to {target} by {decay}: {slots}"
        );
    };
    searches().for_each(|(amount, target, decay)| exact(amount, target, decay));
    cases(2_000, |random| {
        let mut random = random.clone();
        let decay = 1.001 + random.magnitude(1 << 30) as f64 / f64::from(1 << 10);
        let slots = random.magnitude(43_000).unsigned_abs();
        let amount = random.magnitude(1 << 32) as f64 + 0.5;
        // Exactly what is left after this many slots, where a logarithm is most likely to be wrong.
        let target = left_after(slots, amount, decay.min(1e6)).max(NOTHING);
        exact(amount, target, decay.min(1e6));
        exact(amount, target.next_down().max(NOTHING), decay.min(1e6));
    });
}

/// Returns the state of a counter of this amount in the slot of the epoch.
fn counter(amount: f64) -> Option<State> {
    State::decode("decay", &[0.0, amount])
}

#[test]
fn retry_after_is_exact_in_rust_and_lua_despite_logarithms() {
    let mut key = Key::new();
    cases(500, |random| {
        let mut random = random.clone();
        let decay = (1.001 + random.magnitude(1 << 30) as f64 / f64::from(1 << 10)).min(1e6);
        let amount = random.magnitude(1 << 32) as f64 + 0.5;
        let slots = random.within(1, ((amount / NOTHING).ln() / decay.ln()) as i64);
        let max = left_after(slots.unsigned_abs(), amount, decay);
        if max > NOTHING {
            key.state = counter(amount);
            for (max, slots) in [(max, slots), (max.next_down(), slots + 1)] {
                // A counter this far above `max` is clamped unless refusals may raise it.
                let fields = Fields { max, resolution: S, decay, charge_denied: true };
                let answer = key.decide(&Params::Decay(checked(fields, &Bounds::default()).unwrap()), 0, 0);
                assert_eq!(answer.retry_after, Some(slots * S), "{amount} to {max} by {decay}");
            }
        }
    });
}

#[test]
fn sums_just_above_max_are_refused() {
    let params = Params::Decay(second(MAX_AMOUNT, 2.0));
    for (amount, retry) in [(2e-9, S), (1e-7, 7 * S)] {
        let mut key = Key { state: counter(amount), ..Key::new() };
        assert_eq!(key.decide(&params, 0, 0), pass(1 << 32, (1 << 32) - 1, retry));
        assert_eq!(key.decide(&params, 0, 1 << 32), refuse(1 << 32, (1 << 32) - 1, retry, retry));
    }
}

#[test]
fn the_decay_is_monotonic() {
    for decay in [1.001, 1.002, 1.1, 2.0, 1e6] {
        let mut before = f64::INFINITY;
        for slots in (0..50_000).chain((16..53).map(|bit| 1 << bit)) {
            let left = left_after(slots, MAX_AMOUNT, decay);
            assert!(left < before || left == 0.0, "{slots} slots by {decay}");
            before = left;
        }
        assert_eq!(before, 0.0);
    }
}

/// Runs whole steps of the Lua half, which has the same searches, within a bounded number of instructions.
#[test]
fn the_lua_step_has_a_bounded_number_of_instructions() {
    let lua = mlua::Lua::new();
    let script = LUA_PRELUDE.map(|(_, text)| text).concat() + find("decay").unwrap().lua + "return decay";
    let step: mlua::Function = lua.load(script).eval().unwrap();
    let input = |params: &Decay, state: [f64; 2], now: Micros, cost: f64| {
        let hook = mlua::HookTriggers::new().every_nth_instruction(2_500);
        lua.set_hook(hook, |_, _| Err(mlua::Error::runtime("too many instructions"))).unwrap();
        let answer: mlua::Result<Vec<f64>> = step.call((params.lua_params(), state, now, cost, -1));
        assert!(answer.is_ok(), "{params:?} {state:?} {now} {cost}: {answer:?}");
    };
    for (amount, left, decay) in searches() {
        for cost in [0.0, 1.0, (MAX_AMOUNT - left).floor(), MAX_AMOUNT] {
            for (start, now) in [(0, 0), (0, 1), (0, 40_000 * S), (0, MAX_MOMENT), (4_503_599_627 * S, 0)] {
                input(&second(MAX_AMOUNT, decay), [start as f64, amount], now, cost);
            }
        }
    }
}

#[test]
fn rust_and_lua_agree_at_the_ends_of_every_search() {
    for (amount, left, decay) in searches() {
        let params = Params::Decay(second(MAX_AMOUNT, decay));
        let mut key = Key::new();
        let input = StepInput { now: 0, cost: amount as i64, max_wait: None, phase: 0 };
        key.state = params.step(None, &input).1;
        for cost in [(MAX_AMOUNT - left) as i64, 1 << 32] {
            let refusal = key.decide(&params, 7, cost);
            let retry = refusal.retry_after.unwrap_or(0);
            for moment in [retry - 1, retry, refusal.reset_after - 1, refusal.reset_after] {
                key.decide(&params, 7 + moment.max(0), 0);
            }
        }
    }
    let random = &mut Random::new(1);
    let params = Params::Decay(second(MAX_AMOUNT, 1.001));
    let mut key = Key::new();
    for _ in 0..2_000 {
        key.decide(&params, random.magnitude(MAX_MOMENT), random.magnitude(1 << 32));
    }
}

#[test]
fn invalid_parameters_are_rejected() {
    let rejected = |max: &str, resolution: &str, decay: &str| {
        let error = error("decay", &[("max", max), ("resolution", resolution), ("decay", decay)]);
        (error.field, error.reason)
    };
    for max in ["0", "-1", "4294967296.5"] {
        assert_eq!(
            rejected(max, "1s", "2"),
            ("max".to_owned(), format!("max must be above 0 and at most 2^32, not {max}"))
        );
    }
    assert_eq!(rejected("NaN", "1s", "2").1, "max must be a number, not `NaN`");
    assert_eq!(rejected("1", "0s", "2").0, "resolution");
    assert_eq!(rejected("1", "32d", "2").0, "resolution");
    assert_eq!(rejected("1", "1s", "1.0009").1, "decay must be 1.001 to 1000000, not 1.0009");
    assert_eq!(rejected("1", "1s", "1000001").0, "decay");
    // 42,930 slots with a decay of 1.001, so a slot is 7 h 17 min at most.
    assert_eq!(rejected("1", "8h", "1.001").0, "decay");
    // Only possible in a message.
    for (max, decay, field) in [(f64::NAN, 2.0, "max"), (1.0, f64::NAN, "decay")] {
        let fields = Fields { max, resolution: S, decay, charge_denied: false };
        let wrong = checked::<Decay>(fields, &Bounds::default()).unwrap_err();
        assert_eq!(wrong.field, field);
    }
}
