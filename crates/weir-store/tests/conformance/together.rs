//! Concurrent checks share calls of the script, which reads a shared state once. The decisions are the same as in
//! sequence.

use std::iter::repeat_n;

use weir_core::{
    algorithm::{Bounds, rates},
    domain::{Charge, Key},
    plan::{Level, Limit, Origin, Plan},
    testing::parse,
};

use super::{
    STEPS,
    duplicates::START,
    generator::{Generator, Step, TraceOptions},
    redis::OnRedis,
    seeds,
    store_under_test::{Reference, StoreUnderTest},
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

/// Maximum number of concurrent checks.
const CROWD: usize = 12;
const TRACES: u64 = 100;

/// Runs a trace with all checks of a crowd at the same time. All are of one anchor, as checks of several anchors are
/// unordered.
async fn run_trace(seed: u64, store: &mut OnRedis<'_>) {
    let mut reference = Reference::default();
    reference.forget().await;
    store.forget().await;
    let mut generator = Generator::new(seed, TraceOptions { back: true, several_anchors: false });
    for crowd in 0..STEPS / CROWD {
        let (mut checks, mut now) = (Vec::new(), 0);
        for _ in 0..CROWD {
            let (moment, step) = generator.step();
            now = moment;
            if let Step::Check(check) = step {
                // Hot keys get the same check several times.
                checks.extend(repeat_n(check, 1 + now as usize % 3));
            }
        }
        let planned: Vec<_> = checks.iter().filter_map(|it| Some((it, generator.fixture.plan(it)?))).collect();
        let mut ours = Vec::new();
        for (_, plan) in &planned {
            ours.push(reference.decide(plan, now).await);
        }
        let theirs = store.decide_together(planned.iter().map(|(_, plan)| plan), now).await;
        let sent: Vec<_> = planned.iter().map(|(check, _)| check).collect();
        assert_eq!(theirs, ours, "WEIR_SEED={seed}, crowd {crowd} at {now}\n{:#?}\n{sent:#?}", generator.fixture);
        assert_eq!(store.states(now).await, reference.states(now).await, "WEIR_SEED={seed}, crowd {crowd}: {sent:#?}");
        let observed = planned.last().map(|(check, _)| *check).zip(ours.last());
        drop(planned);
        if let Some((check, decisions)) = observed {
            generator.observe(check, decisions);
        }
    }
}

#[tokio::test]
async fn concurrent_checks_are_decided_as_if_sequential() {
    let server = Server::start(Options::socket());
    let mut redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    let seeds = seeds(TRACES);
    for seed in &seeds {
        run_trace(*seed, &mut redis).await;
    }
    let is_short = seeds.len() < TRACES as usize;
    assert!(is_short || 2 * server.calls()["evalsha"] < seeds.len() * STEPS, "hardly any came together");
}

/// As in `duplicates`: the first charges are outside the window at the time of the refunds, and inside again after the
/// clock has stepped back. The first check of a batch is sent alone, the others concurrently.
#[tokio::test]
async fn a_state_emptied_by_a_check_is_empty_for_the_next_check() {
    let server = Server::start(Options::socket());
    let mut redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    let key = Key::new("", &["user", "alex"]).expect("a key");
    for (algorithm, example) in rates().flat_map(|it| it.examples.iter().map(move |example| (it, example))) {
        let params = (algorithm.parse)(example, &Bounds::default()).expect("an example");
        let limit = Limit::new(Origin::Policy, None, "*", 0, false, params.clone());
        let mut reference = Reference::default();
        redis.forget().await;
        for (tenths, costs) in [(0, [0, 2, 0]), (5, [0, 2, 0]), (12, [0, -2, -2]), (6, [0, 0, 0])] {
            let now = START + tenths * (params.window() / 10);
            let plan = |cost| {
                Plan::new([Level::new(&key, 2, 2, &limit, cost)].into_iter().collect(), Charge::AllOrNothing, None)
            };
            let plans = costs.map(plan);
            let mut expected = Vec::new();
            for plan in &plans {
                expected.push(reference.decide(plan, now).await);
            }
            let decided = redis.decide_together(plans.iter(), now).await;
            assert_eq!(decided, expected, "{} {}, {tenths}", algorithm.name, params.describe());
        }
    }
}

/// The refunds of a request that another anchor refuses free no units, not even until it has refused.
#[tokio::test]
async fn refunds_of_refused_requests_admit_no_others() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let mut redis = OnRedis::new("a Cluster", &cluster.url(), cluster.nodes.iter().collect());
    let [key, other] = ["alex", "bo"].map(|user| Key::new("", &["user", user]).expect("a key"));
    for (charge, charge_denied) in
        [(Charge::AllOrNothing, "false"), (Charge::AllOrNothing, "true"), (Charge::OverLimitOnly, "false")]
    {
        redis.forget().await;
        let params = parse("fixed_window", &[("count", "6"), ("period", "31d"), ("charge_denied", charge_denied)]);
        let limit = Limit::new(Origin::Policy, None, "*", 0, false, params);
        let level = |key, cost| Level::new(key, 2, 2, &limit, cost);
        let check = Plan::new([level(&key, 1)].into_iter().collect(), charge, None);
        let refused = Plan::new([level(&key, -3), level(&other, 20)].into_iter().collect(), charge, None);
        let mut admitted = 0;
        for _ in 0..100 {
            let decided = redis.decide_together([&check, &refused, &check, &refused].into_iter(), START).await;
            assert!(!decided[1][1].allowed && !decided[3][1].allowed);
            admitted += usize::from(decided[0][0].allowed) + usize::from(decided[2][0].allowed);
        }
        assert_eq!(admitted, 6, "{charge:?}, charge_denied: {charge_denied}");
    }
}
