//! Two limits of one request that share a state: once the first one has refunded everything, the state counts as empty
//! for the second one, regardless of its encoding. Some encodings keep numbers that no longer count, which a clock that
//! steps back reveals.

use std::sync::Arc;

use weir_core::{
    algorithm::{Bounds, Entry, Params, rates},
    domain::{Charge, Key, Micros, request::MAX_COST},
    plan::{Decisions, Level, Limit, Origin, Plan},
    testing::parse,
};

use super::{
    holds::in_memory,
    redis::OnRedis,
    store_under_test::{Reference, StoreUnderTest},
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

/// The start of traces with fixed times.
pub const START: Micros = 1_790_000_000_000_000;

/// Times, in tenths of the limit's window, and the costs of a request's levels, which all share one state. The first
/// charges are outside the window at the time of the refunds, and inside again after the clock has stepped back.
const TRACE: [(Micros, &[i64]); 4] = [(0, &[2]), (5, &[2]), (12, &[-2, -2]), (6, &[0])];

async fn run_trace(params: &Params, store: &mut impl StoreUnderTest) -> Vec<Decisions> {
    store.forget().await;
    let key = Key::new("", &["user", "alex"]).expect("a key");
    let limit = Limit::new(Origin::Policy, None, "*", 0, false, params.clone());
    let mut answers = Vec::new();
    for (tenths, costs) in TRACE {
        let levels = costs.iter().map(|cost| Level::new(&key, 2, 2, &limit, *cost)).collect();
        let plan = Plan::new(levels, Charge::Independent, None);
        answers.push(store.decide(&plan, START + tenths * (params.window() / 10)).await);
    }
    answers
}

fn examples(algorithm: &Entry) -> Vec<Params> {
    algorithm.examples.iter().map(|it| (algorithm.parse)(it, &Bounds::default()).expect("an example")).collect()
}

#[tokio::test]
async fn a_state_emptied_by_a_limit_is_empty_for_its_duplicate() {
    let server = Server::start(Options::socket());
    let mut redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    for algorithm in rates() {
        for params in examples(algorithm) {
            let expected = run_trace(&params, &mut Reference::default()).await;
            let what = format!("{} {}", algorithm.name, params.describe());
            assert_eq!(run_trace(&params, &mut in_memory(&Arc::default())).await, expected, "in memory: {what}");
            assert_eq!(run_trace(&params, &mut redis).await, expected, "on Redis: {what}");
        }
    }
    // The second refund takes nothing from the remains of the first.
    let log = rates().find(|algorithm| algorithm.name == "sliding_log").expect("it is there");
    let answers = run_trace(&examples(log)[0], &mut redis).await;
    let left = answers.last().and_then(|last| Some((last.first()?.limit, last.first()?.remaining)));
    assert_eq!(left, Some((10, 8)));
}

/// With `independent`, a shadow limit on the same state as a counted level is charged and undone separately if another
/// anchor refuses. This holds for every algorithm, even those whose charges cannot be refunded in part.
#[tokio::test]
async fn undoing_a_shadow_keeps_the_charge_of_its_duplicate() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let mut redis = OnRedis::new("a Cluster", &cluster.url(), cluster.nodes.iter().collect());
    let (key, other) = (Key::new("", &["user", "alex"]).expect("a key"), Key::new("", &["user", "bo"]).expect("a key"));
    let window = rates().find(|algorithm| algorithm.name == "fixed_window").expect("it is there");
    let refuses = Limit::new(Origin::Policy, None, "*", 0, false, examples(window)[0].clone());
    for (algorithm, params) in rates().flat_map(|it| examples(it).into_iter().map(move |params| (it, params))) {
        let [counts, shadow] =
            [false, true].map(|shadow| Limit::new(Origin::Policy, None, "*", 0, shadow, params.clone()));
        for pair in [[&counts, &shadow], [&shadow, &counts]] {
            let mut reference = Reference::default();
            redis.forget().await;
            for number in 0..3 {
                let now = START + number * (params.window() / 10);
                let levels = pair.map(|limit| Level::new(&key, 2, 2, limit, 1)).into_iter();
                let levels = levels.chain([Level::new(&other, 2, 2, &refuses, MAX_COST)]).collect();
                let plan = Plan::new(levels, Charge::Independent, None);
                let what = format!("{} {}, check {number}", algorithm.name, params.describe());
                assert_eq!(redis.decide(&plan, now).await, reference.decide(&plan, now).await, "{what}");
                assert_eq!(redis.states(now).await, reference.states(now).await, "{what}");
            }
        }
    }
}

/// A refusing shadow limit may cut a state that another limit wrote (here with a larger burst). The state stays cut if
/// another anchor refuses, regardless of the shadow limits on it.
#[tokio::test]
async fn a_state_reduced_by_a_refusing_shadow_stays_reduced() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let mut redis = OnRedis::new("a Cluster", &cluster.url(), cluster.nodes.iter().collect());
    let (key, other) = (Key::new("", &["user", "alex"]).expect("a key"), Key::new("", &["user", "bo"]).expect("a key"));
    let gcra = |burst: &str, shadow| {
        let params = parse("gcra", &[("burst", burst), ("count", "1"), ("period", "1s")]);
        Limit::new(Origin::Policy, None, "*", 0, shadow, params)
    };
    let (before, shadow, refuses) = (gcra("9", true), gcra("1", true), gcra("1", false));
    for costs in [&[1][..], &[1, 0], &[0, 1], &[0, 1, MAX_COST]] {
        let mut reference = Reference::default();
        redis.forget().await;
        let mut states = Vec::new();
        for (limit, costs, refused) in [(&before, &[10][..], 0), (&shadow, costs, MAX_COST)] {
            let levels = costs.iter().map(|cost| Level::new(&key, 2, 2, limit, *cost));
            let levels = levels.chain([Level::new(&other, 2, 2, &refuses, refused)]).collect();
            let plan = Plan::new(levels, Charge::Independent, None);
            assert_eq!(redis.decide(&plan, START).await, reference.decide(&plan, START).await, "{costs:?}");
            states.push(redis.states(START).await);
            assert_eq!(states.last(), Some(&reference.states(START).await), "{costs:?}");
        }
        assert_ne!(states[0], states[1], "{costs:?}: the state was cut");
    }
}
