//! Reservations in a shared store: made on one replica, settled on another.

use std::time::Duration;

use futures_util::future::join_all;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tonic::Code;
use weir::proto::{OnExpiry, ReserveRequest, r#override::Change};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    service::{REPLICAS, patient, runtime, window},
    support::{
        Server, eventually_async,
        overrides::{end, over, set},
        requests::reset,
        reservations::{HOUR, cancel, commit, extend, left, reserve, settled, wanted},
    },
};

const TENANT: [&str; 2] = ["tenant", "acme"];
const USER: [&str; 3] = ["tenant", "acme", "alex"];
const PLENTY: u64 = 100_000_000;
/// Timeout of a crowd.
const TIMEOUT: Duration = Duration::from_secs(120);
const CLIENTS: usize = 64;
/// Units that each client of a crowd reserves, and the most that it uses.
const ESTIMATE: i64 = 2_000;
const MOST: i64 = 5_000;

/// Makes a policy: tenants have plenty of units, each of their users has this limit.
fn policy(limit: &str) -> String {
    format!(
        "schema: {{ tenant: {{ children: {{ '*': {{ limits: [{{ {} }}], children: {{ '*': {{ limits: [{{ {limit} }}] }} }} }} }} }} }}",
        window(PLENTY)
    )
}

async fn replicas_settle_each_others(url: &str, limit: &str) {
    let services = [(); 2].map(|()| patient(url).policy(&policy(limit)).start());
    let [mut here, mut there] = [services[0].client().await, services[1].client().await];
    let looks = services[0].client().await;
    // Units that the tenant has spent, and units that the user has left.
    let both_left = async || (PLENTY - left(&mut looks.clone(), &TENANT).await, left(&mut looks.clone(), &USER).await);
    let mut spent = 0;
    for (actual, outcome) in
        [(Some(50), settled(50, 150, 0)), (Some(250), settled(250, 0, 50)), (None, settled(200, 0, 0))]
    {
        let hold = reserve(&mut there, wanted(&USER, 200, HOUR)).await.hold;
        assert_eq!(both_left().await, (spent + 200, 1_000 - spent - 200));
        for client in [&mut here, &mut there] {
            assert_eq!(commit(client, &hold, actual).await.expect("settled"), outcome, "also when asked again");
        }
        spent += outcome.charged.unsigned_abs();
        assert_eq!(both_left().await, (spent, 1_000 - spent));
    }
    let refused = reserve(&mut there, wanted(&USER, 501, HOUR)).await;
    assert!(refused.decision.is_some_and(|decision| !decision.allowed) && refused.hold.is_empty());
    assert_eq!(both_left().await, (500, 500), "nothing is held of the tenant either");

    let release = |cost, ttl| ReserveRequest { on_expiry: OnExpiry::Release.into(), ..wanted(&USER, cost, ttl) };
    let kept = reserve(&mut there, wanted(&USER, 100, 300)).await.hold;
    let extended = reserve(&mut there, release(50, 1_000)).await.hold;
    extend(&mut here, &extended, HOUR).await.expect("extended");
    let released = reserve(&mut there, release(200, 2_000)).await.hold;
    eventually_async("it is released", async || (left(&mut there, &USER).await == 350).then_some(())).await;
    for hold in [&kept, &released] {
        let status = commit(&mut here, hold, Some(1)).await.expect_err("over");
        assert_eq!(status.code(), Code::NotFound);
    }
    assert_eq!(both_left().await, (650, 350));
    here.reset(reset(&TENANT, true)).await.expect("a reset");
    assert_eq!(both_left().await, (50, 950), "what is reserved stays charged");
    assert_eq!(cancel(&mut here, &extended).await.expect("settled").refunded, 50);
    assert_eq!(both_left().await, (0, 1_000));
}

/// Of a Commit and a Cancel at the same moment one counts, for the limits of both anchors and in both answers.
async fn concurrent_settlements_agree(url: &str) {
    let policy = format!("anchor: 3\n{}", policy(&window(1_000)));
    let services = [(); 2].map(|()| patient(url).policy(&policy).start());
    let [mut here, mut there] = [services[0].client().await, services[1].client().await];
    let (tenant, user) = (["tenant", "beta"], ["tenant", "beta", "bo"]);
    let mut used = 0;
    for round in 0..50 {
        let hold = reserve(&mut here, wanted(&user, 4, HOUR)).await.hold;
        let (committed, cancelled) = tokio::join!(commit(&mut here, &hold, Some(4)), cancel(&mut there, &hold));
        let charged = committed.expect("settled").charged;
        assert_eq!(cancelled.expect("settled").charged, charged, "round {round}");
        used += charged.unsigned_abs();
        let both_left = [left(&mut here, &tenant).await, left(&mut here, &user).await];
        assert_eq!(both_left, [PLENTY - used, 1_000 - used], "round {round}");
    }
}

/// If another anchor refuses, a shadow limit still reports that it would have refused.
async fn a_shadow_tells_beside_a_refusal(url: &str) {
    let policy = format!(
        "schema: {{ tenant: {{ limits: [{{ {} }}], children: {{ '*': {{ limits: [{{ {} }}, {{ {}, shadow: true }}] }} }} }} }}",
        window(3),
        window(9),
        window(2)
    );
    let service = patient(url).policy(&policy).start();
    let mut client = service.client().await;
    for (cost, allowed) in [(2, [true; 3]), (2, [false, true, false])] {
        let decision = reserve(&mut client, wanted(&TENANT, cost, HOUR)).await.decision.expect("a decision");
        assert_eq!(decision.levels.iter().map(|level| level.allowed).collect::<Vec<_>>(), allowed, "{decision:?}");
    }
}

/// An override with another period gives each limit another state. What is reserved is settled where it is held.
async fn reservations_are_settled_under_another_period(url: &str) {
    // With the replaced limits a plan has 32 levels, twice as many as a path can have.
    let limits: Vec<_> = (0..8).map(|number| format!("{{ name: limit-{number}, {} }}", window(10))).collect();
    let limits = limits.join(", ");
    let policy =
        format!("schema: {{ tenant: {{ limits: [{limits}], children: {{ '*': {{ limits: [{limits}] }} }} }} }}");
    let service = patient(url).policy(&policy).start();
    let mut client = service.client().await;
    let [committed, cancelled, extended] = [3, 2, 1].map(|cost| wanted(&TENANT, cost, HOUR));
    let committed = reserve(&mut client, committed).await.hold;
    let cancelled = reserve(&mut client, cancelled).await.hold;
    let extended = reserve(&mut client, extended).await.hold;
    assert_eq!(left(&mut client, &TENANT).await, 4);

    let other_period = Change::Limits("{ fixed_window: { count: 50, period: 27d } }".to_owned());
    set(&service, over(&["tenant"], other_period)).await;
    assert_eq!(left(&mut client, &TENANT).await, 50);
    let under = reserve(&mut client, wanted(&TENANT, 9, HOUR)).await.hold;
    assert_eq!(commit(&mut client, &under, Some(4)).await.expect("settled"), settled(4, 5, 0));
    assert_eq!(commit(&mut client, &committed, Some(1)).await.expect("settled"), settled(1, 2, 0));
    assert_eq!(cancel(&mut client, &cancelled).await.expect("settled").refunded, 2);
    extend(&mut client, &extended, HOUR).await.expect("extended");
    assert_eq!(left(&mut client, &TENANT).await, 46, "only what was reserved under the override");

    assert!(end(&service, &["tenant"]).await);
    assert_eq!(left(&mut client, &TENANT).await, 8, "one is used, one is reserved");
    assert_eq!(commit(&mut client, &extended, Some(2)).await.expect("settled"), settled(2, 0, 1));
    for key in [&TENANT[..1], &TENANT] {
        assert_eq!(left(&mut client, key).await, 7);
    }
}

#[test]
fn in_memory_and_redis_reservations_are_settled_under_another_period() {
    let redis = Redis::start(Options::socket());
    runtime().block_on(async {
        reservations_are_settled_under_another_period("memory").await;
        reservations_are_settled_under_another_period(&redis.url()).await;
    });
}

#[test]
fn on_a_cluster_reservations_are_settled_under_another_period() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(reservations_are_settled_under_another_period(&cluster.url()));
}

const BUCKET: &str = "token_bucket: { capacity: 1000, count: 1, period: 1d }";

#[test]
fn on_redis_replicas_settle_each_others_reservations() {
    let redis = Redis::start(Options::socket());
    for limit in [BUCKET, &window(1_000)] {
        runtime().block_on(replicas_settle_each_others(&redis.url(), limit));
        redis.command(&["FLUSHALL"]);
    }
}

#[test]
fn on_a_cluster_replicas_settle_each_others_reservations() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(async {
        replicas_settle_each_others(&cluster.url(), BUCKET).await;
        concurrent_settlements_agree(&cluster.url()).await;
        a_shadow_tells_beside_a_refusal(&cluster.url()).await;
    });
}

/// The totals of a crowd.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    charged: u64,
    /// Units charged beyond the reserved ones.
    overage: u64,
    refused: u64,
}

/// Runs clients that reserve [`ESTIMATE`] units of a key, spread over the services, and use 300 to [`MOST`], until the
/// limit refuses them. Some cancel; all settle twice.
async fn crowd(services: &[Server], key: &[&str]) -> Spent {
    let clients = (0..CLIENTS).map(|number| one(&services[number % services.len()], key, number as u64));
    let spent = tokio::time::timeout(TIMEOUT, join_all(clients)).await.expect("in time");
    spent.into_iter().fold(Spent::default(), |all, one| Spent {
        charged: all.charged + one.charged,
        overage: all.overage + one.overage,
        refused: all.refused + one.refused,
    })
}

/// Returns the most units by which a crowd may exceed a limit: each client has one reservation, and its highest
/// overage.
fn most_overage() -> u64 {
    CLIENTS as u64 * (MOST - ESTIMATE).unsigned_abs()
}

async fn one(service: &Server, key: &[&str], seed: u64) -> Spent {
    let (mut client, mut rng) = (service.client().await, ChaCha8Rng::seed_from_u64(seed));
    let mut spent = Spent::default();
    while spent.refused < 3 {
        let answer = reserve(&mut client, wanted(key, ESTIMATE, HOUR)).await;
        let decision = answer.decision.expect("a decision");
        assert!(!decision.degraded, "{decision:?}");
        if !decision.allowed {
            spent.refused += 1;
            continue;
        }
        if rng.random_ratio(1, 8) {
            for _ in 0..2 {
                let cancelled = cancel(&mut client, &answer.hold).await.expect("settled");
                assert_eq!((cancelled.charged, cancelled.refunded), (0, ESTIMATE));
            }
            continue;
        }
        let actual = rng.random_range(300..=MOST);
        let (refunded, overage) = ((ESTIMATE - actual).max(0), (actual - ESTIMATE).max(0).unsigned_abs());
        for actual in [actual, ESTIMATE] {
            let answer = commit(&mut client, &answer.hold, Some(actual)).await.expect("settled");
            assert_eq!((answer.refunded, answer.overage), (refunded, overage));
        }
        spent.charged += actual.unsigned_abs();
        spent.overage += overage;
    }
    spent
}

/// 64 clients reserve concurrently and use fewer or more units.
fn never_above_a_quota_but_for_the_overage(url: &str) {
    const QUOTA: u64 = 400_000;
    // In memory replicas share nothing.
    let count = if url == "memory" { 1 } else { REPLICAS };
    let services: Vec<_> = (0..count).map(|_| patient(url).policy(&policy(&window(QUOTA))).start()).collect();
    runtime().block_on(async {
        let spent = crowd(&services, &USER).await;
        println!("{spent:?} of {QUOTA}");
        assert!(spent.charged - spent.overage <= QUOTA, "what was reserved is within the quota: {spent:?}");
        assert!((QUOTA / 2..=QUOTA + most_overage()).contains(&spent.charged), "{spent:?}");
        let mut client = services[0].client().await;
        assert_eq!(left(&mut client, &TENANT).await, PLENTY - spent.charged, "each unit is charged once");
        assert_eq!(left(&mut client, &USER).await, QUOTA.saturating_sub(spent.charged));
    });
}

#[test]
fn in_memory_64_clients_spend_no_more_than_the_quota_and_their_overage() {
    never_above_a_quota_but_for_the_overage("memory");
}

#[test]
fn on_redis_64_clients_spend_no_more_than_the_quota_and_their_overage() {
    never_above_a_quota_but_for_the_overage(&Redis::start(Options::socket()).url());
}

#[test]
fn on_a_cluster_64_clients_spend_no_more_than_the_quota_and_their_overage() {
    never_above_a_quota_but_for_the_overage(&Cluster::start(&ClusterOptions::default()).url());
}
