//! Limits above the anchor, on a Cluster: each anchor is decided separately, and a refusal refunds exactly the charges
//! at the other anchors. It stands if another anchor has no answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Runtime;
use tonic::transport::Channel;
use weir::proto::{
    Calendar, Charge, CheckRequest, CheckResponse, FixedWindow, Limit, LimitSpec, OnExpiry, ReserveRequest,
    SlidingBuckets, SlidingLog, TokenBucket, limit::Algorithm, rate_limiter_client::RateLimiterClient,
};
use weir_test_redis::{Cluster, ClusterOptions, eventually};

use crate::{
    service::{hash_of, patient, runtime},
    support::{
        eventually_async,
        requests::{check, limit, seconds_long},
    },
};

/// Units of the limit above the anchor.
const OUTER: u64 = 100;
/// A period that does not end while a test runs.
const LONG_SECONDS: i64 = 30 * 86_400;
/// The metric of charges that could not be refunded.
const UNDO_FAILURES: &str = "weir_store_undo_failures_total{store=\"redis\"}";
/// A window that ends while a check is in flight, but outlasts the steps after that.
const WINDOW_SECONDS: i64 = 4;

fn bucket(depth: u32, capacity: u64) -> Limit {
    let bucket = TokenBucket { capacity, count: 1, period: Some(seconds_long(86_400)) };
    Limit { depth, ..limit(Algorithm::TokenBucket(bucket)) }
}

fn window(count: u64, seconds: i64, charge_denied: bool) -> Limit {
    let period = Some(seconds_long(seconds));
    let window = FixedWindow { count, period, charge_denied, ..FixedWindow::default() };
    Limit { depth: 1, ..limit(Algorithm::FixedWindow(window)) }
}

fn shadow(limit: Limit) -> Limit {
    Limit { shadow: true, ..limit }
}

/// A client of one service that sends limits with each request.
#[derive(Clone)]
struct Asker {
    client: RateLimiterClient<Channel>,
    limits: Vec<Limit>,
    charge: Charge,
}

impl Asker {
    fn request(&self, key: &[&str], cost: i64) -> CheckRequest {
        let spec = LimitSpec { limits: self.limits.clone(), charge: self.charge.into() };
        CheckRequest { limit_spec: Some(spec), cost: Some(cost), ..check(key) }
    }

    async fn degraded(&mut self, key: &[&str], cost: i64) -> CheckResponse {
        let answer = self.client.check(self.request(key, cost)).await.expect("an answer").into_inner();
        assert!(answer.degraded, "{answer:?}");
        answer
    }

    /// Reserves units while an anchor has no answer.
    async fn reserve(&mut self, key: &[&str], cost: i64) -> CheckResponse {
        let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        let check = Some(self.request(key, cost));
        let request = ReserveRequest { check, ttl, on_expiry: OnExpiry::Keep.into() };
        let decision = self.client.reserve(request).await.expect("an answer").into_inner().decision;
        decision.filter(|decision| decision.degraded).expect("a degraded decision")
    }

    async fn ask(&mut self, key: &[&str], cost: i64) -> CheckResponse {
        let answer = self.client.check(self.request(key, cost)).await.expect("an answer").into_inner();
        assert!(!answer.degraded);
        answer
    }

    /// Returns the remaining units of each level.
    async fn left(&mut self, key: &[&str]) -> Vec<u64> {
        self.ask(key, 0).await.levels.into_iter().map(|level| level.remaining).collect()
    }
}

#[test]
fn a_refusal_refunds_the_charges_of_other_anchors() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let service = patient(&cluster.url()).start();
    let runtime = runtime();
    runtime.block_on(async {
        for (case, outer, inner, charge, passes, left) in [
            ("taken-back", bucket(1, OUTER), bucket(2, 1), Charge::AllOrNothing, false, [OUTER - 1, 0]),
            ("window", window(OUTER, LONG_SECONDS, false), bucket(2, 1), Charge::AllOrNothing, false, [OUTER - 1, 0]),
            ("kept", bucket(1, OUTER), bucket(2, 1), Charge::Independent, false, [OUTER - 2, 0]),
            ("denied", window(OUTER, LONG_SECONDS, true), bucket(2, 1), Charge::AllOrNothing, false, [OUTER - 2, 0]),
            ("shadow-above", shadow(bucket(1, OUTER)), bucket(2, 1), Charge::AllOrNothing, false, [OUTER - 1, 0]),
            ("shadow-apart", shadow(bucket(1, OUTER)), bucket(2, 1), Charge::Independent, false, [OUTER - 1, 0]),
            ("shadow-refuses", bucket(1, OUTER), shadow(bucket(2, 1)), Charge::AllOrNothing, true, [OUTER - 2, 0]),
            ("other-way", bucket(1, 1), bucket(2, OUTER), Charge::AllOrNothing, false, [0, OUTER - 1]),
        ] {
            let mut asker = Asker { client: service.client().await, limits: vec![outer, inner], charge };
            let key = [case, "alex"];
            assert!(asker.ask(&key, 1).await.allowed, "{case}");
            let second = asker.ask(&key, 1).await;
            assert_eq!(second.allowed, passes, "{case}");
            let seen: Vec<_> = second.levels.iter().map(|level| level.remaining).collect();
            assert_eq!(seen, left, "{case}: as answered");
            assert_eq!(asker.left(&key).await, left, "{case}: as it is afterwards");
        }
    });
    let client = runtime.block_on(service.client());
    let window_ends = || {
        let window = window_now();
        eventually("the window ends", || if window_now() > window { Ok(()) } else { Err("not yet".to_owned()) });
    };
    let above = window(OUTER, WINDOW_SECONDS, false);
    let left = refused_while_others_charge(&cluster, (client, "ended"), &runtime, above, window_ends);
    assert_eq!(left, OUTER - 3, "nothing was given back to the window of now");
    assert_eq!(service.metric(UNDO_FAILURES), 1.0);
}

#[test]
fn refunds_stay_exact_when_others_charge_in_between() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let service = patient(&cluster.url()).start();
    let runtime = runtime();
    let period = Some(seconds_long(LONG_SECONDS));
    let log = SlidingLog { count: OUTER, period, ..SlidingLog::default() };
    let resolution = Some(seconds_long(86_400));
    let buckets = SlidingBuckets { count: OUTER, period, resolution, charge_denied: false };
    let month = FixedWindow { count: OUTER, calendar: Calendar::Month.into(), ..FixedWindow::default() };
    for (name, outer) in [
        ("log", Algorithm::SlidingLog(log)),
        ("buckets", Algorithm::SlidingBuckets(buckets)),
        ("month", Algorithm::FixedWindow(month)),
    ] {
        let client = runtime.block_on(service.client());
        let above = Limit { depth: 1, ..limit(outer) };
        let left = refused_while_others_charge(&cluster, (client, name), &runtime, above, || {});
        assert_eq!((left, service.metric(UNDO_FAILURES)), (OUTER - 4, 0.0), "{name}");
    }
}

#[test]
fn a_refusal_stands_while_another_anchor_fails() {
    let cluster = Cluster::start(&ClusterOptions::default());
    for rule in ["local", "allow"] {
        let policy = format!("on_store_failure: {rule}\nschema: {{}}\n");
        let service = patient(&cluster.url()).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "1s").policy(&policy).start();
        runtime().block_on(async {
            let (outer, inner, node) = on_two_nodes(&cluster, rule);
            let (key, above) = ([&*outer, &*inner], [&*outer]);
            let limits = vec![window(2, LONG_SECONDS, false), bucket(2, OUTER)];
            let mut asker = Asker { client: service.client().await, limits, charge: Charge::AllOrNothing };
            assert!(asker.ask(&key, 1).await.allowed);
            cluster.nodes[node].pause();
            let admitted = asker.reserve(&key, 1).await;
            assert!(admitted.allowed, "{rule}: what does not answer may admit");
            // What was reserved at the anchor with an answer is undone, so it is charged afterwards.
            let mut top = Asker { limits: vec![asker.limits[0].clone()], ..asker.clone() };
            eventually_async("it is charged", async || (top.left(&above).await == [0]).then_some(())).await;
            for charge in [Charge::AllOrNothing, Charge::Independent] {
                asker.charge = charge;
                for _ in 0..3 {
                    let refused = asker.degraded(&key, 1).await;
                    let levels: Vec<_> = refused.levels.iter().map(|level| level.allowed).collect();
                    assert_eq!((refused.allowed, &*levels), (false, &[false, true][..]), "{rule}: {charge:?}");
                }
            }
            asker.charge = Charge::AllOrNothing;
            assert!(!asker.reserve(&key, 1).await.allowed, "{rule}");
            cluster.nodes[node].resume();
        });
    }
}

/// A user's limit refuses a check of 5 units after the limit above has charged it. Meanwhile `wait` runs, and other
/// checks charge 3 units. Returns the units left above, where one unit was charged before. `name` is part of the key.
fn refused_while_others_charge(
    cluster: &Cluster,
    (client, name): (RateLimiterClient<Channel>, &str),
    runtime: &Runtime,
    above: Limit,
    wait: impl FnOnce(),
) -> u64 {
    let (outer, inner, node) = on_two_nodes(cluster, name);
    let limits = vec![above.clone(), bucket(2, 1)];
    let mut asker = Asker { client, limits, charge: Charge::AllOrNothing };
    let mut others = Asker { limits: vec![above], ..asker.clone() };
    let (top, user) = (outer.clone(), inner.clone());
    let key = [top.as_str(), user.as_str()];
    assert!(runtime.block_on(asker.ask(&key, 1)).allowed);
    // All writes to this node wait, including the script's.
    cluster.nodes[node].cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let refused = runtime.spawn(async move { asker.ask(&[&outer, &inner].map(String::as_str), 5).await });
    let above_key = &key[..1];
    eventually("the other anchor is charged", || match runtime.block_on(others.left(above_key))[0] {
        left if left <= OUTER - 5 => Ok(()),
        left => Err(format!("{left} left")),
    });
    wait();
    runtime.block_on(others.ask(above_key, 3));
    cluster.nodes[node].cli(&["CLIENT", "UNPAUSE"]);
    let refused = runtime.block_on(refused).expect("an answer");
    assert!(!refused.allowed);
    runtime.block_on(others.left(above_key))[0]
}

fn window_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch");
    now.as_secs() / Duration::from_secs(WINDOW_SECONDS as u64).as_secs()
}

/// Returns two segments of a key that are on different nodes, and the node of the second.
fn on_two_nodes(cluster: &Cluster, outer: &str) -> (String, String, usize) {
    let outer = outer.to_owned();
    let first = cluster.owner(cluster.slot(&hash_of(&[&outer])));
    let mut users = (0..).map(|number| format!("user{number}"));
    let found = users.find_map(|user| {
        let node = cluster.owner(cluster.slot(&hash_of(&[&outer, &user])));
        (node != first).then_some((user, node))
    });
    let (inner, node) = found.expect("there are three");
    (outer, inner, node)
}
