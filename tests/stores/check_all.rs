//! Checks that are decided together on shared stores: all are charged or none, even if their keys are on several nodes.

use tokio::task::JoinSet;
use tonic::transport::Channel;
use weir::proto::{CheckAllRequest, CheckRequest, rate_limiter_client::RateLimiterClient};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis, eventually};

use crate::{
    service::{hash_of, patient, runtime},
    support::{
        Server,
        requests::{check, gcra, with_limits},
        server::Setup,
    },
};

/// Units of a key, which do not refill during a test.
const UNITS: u64 = 40;

fn keys(run: &str) -> Vec<String> {
    (0..8).map(|index| format!("{run}-{index}")).collect()
}

fn own(key: &str, units: u64, cost: i64) -> CheckRequest {
    CheckRequest { cost: Some(cost), ..with_limits(check(&[key]), vec![gcra(units - 1, 1, 31 * 86_400)]) }
}

async fn all(client: &mut RateLimiterClient<Channel>, checks: Vec<CheckRequest>) -> bool {
    let answer = client.check_all(CheckAllRequest { checks }).await.expect("an answer").into_inner();
    assert!(answer.results.iter().all(|result| !result.degraded));
    answer.allowed
}

async fn left(client: &mut RateLimiterClient<Channel>, key: &str, units: u64) -> u64 {
    client.check(own(key, units, 0)).await.expect("an answer").into_inner().remaining
}

/// A refusal by one key charges none of the others, and many callers together get no more than the limits.
async fn all_or_none(service: &Server) {
    let mut client = service.client().await;
    let names = keys("refused");
    let checks = |last: i64| {
        names.iter().enumerate().map(|(index, key)| own(key, UNITS, if index == 7 { last } else { 1 })).collect()
    };
    assert!(all(&mut client, checks(30)).await);
    assert!(!all(&mut client, checks(11)).await);
    for (index, key) in names.iter().enumerate() {
        let expected = if index == 7 { UNITS - 30 } else { UNITS - 1 };
        assert_eq!(left(&mut client, key, UNITS).await, expected, "{key}");
    }
    // Each call takes a unit of two neighbouring keys, so that all callers contend.
    let names = keys("shared");
    let mut callers = JoinSet::new();
    for caller in 0..16_usize {
        let (mut client, names) = (service.client().await, names.clone());
        callers.spawn(async move {
            let mut taken = [0; 8];
            for turn in 0..30 {
                let pair = [(caller + turn) % 8, (caller + turn + 1) % 8];
                let checks = pair.map(|index| own(&names[index], UNITS, 1));
                if all(&mut client, checks.to_vec()).await {
                    pair.iter().for_each(|index| taken[*index] += 1);
                }
            }
            taken
        });
    }
    let taken = callers.join_all().await;
    for (index, key) in names.iter().enumerate() {
        let taken: u64 = taken.iter().map(|taken| taken[index]).sum();
        assert!(taken <= UNITS, "{key}: {taken}");
        assert_eq!(left(&mut client, key, UNITS).await, UNITS - taken, "{key}: charged what was admitted");
    }
    let total: u64 = taken.iter().flatten().sum();
    assert!(total > UNITS * 4, "{total}");
}

#[test]
fn checks_are_decided_together_in_redis() {
    let redis = Redis::start(Options::socket());
    let service = patient(&redis.url()).start();
    runtime().block_on(all_or_none(&service));
}

#[test]
fn checks_are_decided_together_in_a_cluster() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let service = patient(&cluster.url()).start();
    runtime().block_on(all_or_none(&service));
    assert_eq!(service.metric("weir_store_undo_failures_total{store=\"redis\"}"), 0.0);
}

/// All have passed by then, and one of them is charged.
#[test]
fn a_refund_that_fails_is_counted_and_refuses_nothing() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let service = patient(&cluster.url()).policy("on_store_failure: deny\nschema: {}").start();
    let runtime = runtime();
    let mut client = runtime.block_on(service.client());
    let on_node = |node: usize| {
        let mut names = keys("refunded").into_iter().chain(keys("charged"));
        names.find(|name| cluster.owner(cluster.slot(&hash_of(&[name]))) == node).expect("a key of each node")
    };
    let [refunded, charged] = [0, 1].map(on_node);
    assert!(runtime.block_on(all(&mut client, vec![own(&refunded, UNITS, 3)])));
    cluster.nodes[0].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(runtime.block_on(all(&mut client, vec![own(&charged, UNITS, 5), own(&refunded, UNITS, -3)])));
    cluster.nodes[0].cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(service.metric("weir_store_undo_failures_total{store=\"redis\"}"), 1.0);
    assert_eq!(runtime.block_on(left(&mut client, &charged, UNITS)), UNITS - 5);
    let remaining = eventually("it is asked again", || {
        let answer = runtime.block_on(client.check(own(&refunded, UNITS, 0))).expect("an answer").into_inner();
        if answer.degraded { Err("degraded".to_owned()) } else { Ok(answer.remaining) }
    });
    assert_eq!(remaining, UNITS - 3);
}

#[test]
fn checks_are_decided_together_in_memory() {
    let service = Setup::new().policy("schema: {}").start();
    runtime().block_on(all_or_none(&service));
}
