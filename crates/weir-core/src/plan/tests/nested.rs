//! The table of nested limits in the specification: a user's limit above that of the user's trades.

use smallvec::smallvec;

use super::{
    super::{Level, Limit, Origin, Plan, decide},
    model::{Level as ModelLevel, Request, StateKey},
    trace::Store,
};
use crate::{
    domain::{Charge, Decision, Key, Micros, aggregate, time::SECOND},
    testing::parse,
};

/// A row of the table: limited, limit, remaining, retry (-1 for none), reset. Times are truncated to whole seconds.
type Row = [i64; 5];

fn row(allowed: bool, limit: u64, remaining: u64, retry: Option<Micros>, reset: Micros) -> Row {
    let retry = retry.map_or(-1, |retry| retry / SECOND);
    [i64::from(!allowed), limit as i64, remaining as i64, retry, reset / SECOND]
}

fn of_level(level: &Decision) -> Row {
    row(level.allowed, level.limit, level.remaining, level.retry_after, level.reset_after)
}

fn limit(fields: &'static [(&str, &str)]) -> Limit {
    Limit::new(Origin::Policy, None, "user/*", 0, false, parse("gcra", fields))
}

/// Returns, for each of 101 calls within half a second, the rows of the user, the trade and the summary.
fn calls(charge: Charge) -> Vec<[Row; 3]> {
    let key = Key::new("", &["user", "alex", "trade"]).unwrap();
    let user = limit(&[("burst", "15"), ("count", "30"), ("period", "60s")]);
    let trade = limit(&[("burst", "5"), ("count", "10"), ("period", "15s")]);
    let mut store = Store::new(2);
    let call = |call: i64| {
        let now = 1_790_000_000 * SECOND + call * 4_900;
        let levels = smallvec![Level::new(&key, 2, 2, &user, 1), Level::new(&key, 3, 2, &trade, 1)];
        store.hold(&held(&[&user, &trade], charge, now), false);
        let decisions = decide(&Plan::new(levels, charge, None), &mut store, now);
        let all = aggregate(decisions.iter().map(|decision| (decision, false)));
        [of_level(&decisions[0]), of_level(&decisions[1]), of_level(&all.decision)]
    };
    (0..101).map(call).collect()
}

/// Returns the request for the test store.
fn held(limits: &[&Limit], charge: Charge, now: Micros) -> Request {
    let level = |(index, limit): (usize, &&Limit)| ModelLevel {
        state_key: StateKey {
            path: ["user", "alex", "trade"][..2 + index].to_vec(),
            from_policy: true,
            discriminator: Err(0),
            algorithm: limit.params.name(),
            time_base: limit.params.time_base(),
        },
        params: limit.params.clone(),
        shadow: false,
        cost: 1,
        phase: 0,
    };
    Request { now, charge, max_wait: None, levels: limits.iter().enumerate().map(level).collect() }
}

const FIRST_SIX: [[Row; 3]; 6] = [
    [[0, 16, 15, -1, 2], [0, 6, 5, -1, 1], [0, 6, 5, -1, 2]],
    [[0, 16, 14, -1, 3], [0, 6, 4, -1, 2], [0, 6, 4, -1, 3]],
    [[0, 16, 13, -1, 5], [0, 6, 3, -1, 4], [0, 6, 3, -1, 5]],
    [[0, 16, 12, -1, 7], [0, 6, 2, -1, 5], [0, 6, 2, -1, 7]],
    [[0, 16, 11, -1, 9], [0, 6, 1, -1, 7], [0, 6, 1, -1, 9]],
    [[0, 16, 10, -1, 11], [0, 6, 0, -1, 8], [0, 6, 0, -1, 11]],
];

#[test]
fn independent_charging_matches_the_published_table() {
    let mut table = FIRST_SIX.to_vec();
    for k in 0..9 {
        let reset = 13 + 2 * k;
        table.push([[0, 16, 9 - k, -1, reset], [1, 6, 0, 1, 8], [1, 6, 0, 1, reset]]);
    }
    table.push([[0, 16, 0, -1, 31], [1, 6, 0, 1, 8], [1, 6, 0, 1, 31]]);
    table.resize(101, [[1, 16, 0, 1, 31], [1, 6, 0, 1, 8], [1, 6, 0, 1, 31]]);
    for (number, (ours, printed)) in calls(Charge::Independent).iter().zip(&table).enumerate() {
        assert_eq!(ours, printed, "call {}", number + 1);
    }
}

#[test]
fn all_or_nothing_charges_no_level_on_a_refusal() {
    let mut table = FIRST_SIX.to_vec();
    table.resize(101, [[0, 16, 10, -1, 11], [1, 6, 0, 1, 8], [1, 6, 0, 1, 11]]);
    for (number, (ours, printed)) in calls(Charge::AllOrNothing).iter().zip(&table).enumerate() {
        assert_eq!(ours, printed, "call {}", number + 1);
    }
}
