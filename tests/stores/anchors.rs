//! Limits above the anchor, on a Cluster: each anchor is decided for itself, and a refusal takes back what the others have
//! charged, but nothing else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Runtime;
use tonic::transport::Channel;
use weir::proto::{
    Charge, CheckRequest, CheckResponse, FixedWindow, Limit, LimitSpec, TokenBucket, limit::Algorithm,
    rate_limiter_client::RateLimiterClient,
};
use weir_test_redis::{Cluster, ClusterOptions, eventually};

use crate::{
    service::{assert_no_panic, hash_of, patient, runtime},
    support::requests::{check, limit, seconds_long},
};

/// Units of the limit above the anchor.
const OUTER: u64 = 100;
/// A period that does not end while a test runs.
const LONG_SECONDS: i64 = 30 * 86_400;
/// A window that ends while a check is on its way; what comes after it takes far less.
const WINDOW_SECONDS: i64 = 4;

fn bucket(depth: u32, capacity: u64) -> Limit {
    let bucket = TokenBucket { capacity, count: 1, period: Some(seconds_long(86_400)) };
    Limit { depth, ..limit(Algorithm::TokenBucket(bucket)) }
}

fn window(count: u64, seconds: i64, charge_denied: bool) -> Limit {
    let period = Some(seconds_long(seconds));
    let window = FixedWindow { count, period, charge_denied, per_key_phase: false };
    Limit { depth: 1, ..limit(Algorithm::FixedWindow(window)) }
}

fn shadow(limit: Limit) -> Limit {
    Limit { shadow: true, ..limit }
}

/// Asks one service, with limits of the request's own.
struct Asker {
    client: RateLimiterClient<Channel>,
    limits: Vec<Limit>,
    charge: Charge,
}

impl Asker {
    async fn ask(&mut self, key: &[&str], cost: i64) -> CheckResponse {
        let spec = LimitSpec { limits: self.limits.clone(), charge: self.charge.into() };
        let request = CheckRequest { limit_spec: Some(spec), cost: Some(cost), ..check(key) };
        let answer = self.client.check(request).await.expect("an answer").into_inner();
        assert!(!answer.degraded);
        answer
    }

    /// What is left of each level.
    async fn left(&mut self, key: &[&str]) -> Vec<u64> {
        self.ask(key, 0).await.levels.into_iter().map(|level| level.remaining).collect()
    }
}

#[test]
fn a_refusal_takes_back_what_other_anchors_charged() {
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
            let told: Vec<_> = second.levels.iter().map(|level| level.remaining).collect();
            assert_eq!(told, left, "{case}: as answered");
            assert_eq!(asker.left(&key).await, left, "{case}: as it is afterwards");
        }
    });
    of_a_window_that_has_ended(&cluster, service.client(), &runtime);
    assert_no_panic(&service);
}

/// What was charged to a window is not given back to the next one.
fn of_a_window_that_has_ended(
    cluster: &Cluster,
    client: impl Future<Output = RateLimiterClient<Channel>>,
    runtime: &Runtime,
) {
    let (outer, inner, node) = on_two_nodes(cluster);
    let mut asker = Asker {
        client: runtime.block_on(client),
        limits: vec![window(OUTER, WINDOW_SECONDS, false), bucket(2, 1)],
        charge: Charge::AllOrNothing,
    };
    let mut above = Asker {
        client: asker.client.clone(),
        limits: vec![window(OUTER, WINDOW_SECONDS, false)],
        charge: Charge::AllOrNothing,
    };
    let (top, user) = (outer.clone(), inner.clone());
    let key = [top.as_str(), user.as_str()];
    assert!(runtime.block_on(asker.ask(&key, 1)).allowed);
    // Writes wait there, those of the script too.
    cluster.nodes[node].cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let refused = runtime.spawn(async move { asker.ask(&[&outer, &inner].map(String::as_str), 5).await });
    let above_key = &key[..1];
    eventually("the other anchor is charged", || match runtime.block_on(above.left(above_key))[0] {
        left if left <= OUTER - 5 => Ok(()),
        left => Err(format!("{left} left")),
    });
    let window = window_now();
    eventually("the window ends", || if window_now() > window { Ok(()) } else { Err("not yet".to_owned()) });
    runtime.block_on(above.ask(above_key, 3));
    cluster.nodes[node].cli(&["CLIENT", "UNPAUSE"]);
    let refused = runtime.block_on(refused).expect("an answer");
    assert!(!refused.allowed);
    assert_eq!(runtime.block_on(above.left(above_key)), [OUTER - 3], "nothing was given back to the window of now");
}

fn window_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch");
    now.as_secs() / Duration::from_secs(WINDOW_SECONDS as u64).as_secs()
}

/// Two segments of a key that live on different nodes, and the node of the second.
fn on_two_nodes(cluster: &Cluster) -> (String, String, usize) {
    let outer = "ended".to_owned();
    let first = cluster.owner(cluster.slot(&hash_of(&[&outer])));
    let mut users = (0..).map(|number| format!("user{number}"));
    let found = users.find_map(|user| {
        let node = cluster.owner(cluster.slot(&hash_of(&[&outer, &user])));
        (node != first).then_some((user, node))
    });
    let (inner, node) = found.expect("there are three");
    (outer, inner, node)
}
