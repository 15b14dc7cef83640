//! Leases: replicas decide hot keys locally, and together admit at most the limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};
use weir::proto::{CheckBatchRequest, CheckRequest, CheckResponse};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis, eventually};

use crate::{
    service::{patient, runtime, window},
    support::{
        Server,
        http::Client,
        requests::{check, peek, reset},
    },
};

/// Callers of each replica.
const CALLERS: usize = 8;
/// More units than a replica of these tests can request: the number of sequential calls in 100 ms.
const MOST_HELD: u64 = 10_000;
const USER: [&str; 2] = ["user", "alex"];
pub const TRADE: [&str; 3] = ["user", "alex", "trade"];
const SPENT: &str = "weir_leases_decisions_total{outcome=\"allowed\"}";
pub const HELD: &str = "weir_leases_held_units";

/// Numbers of answers that the callers got, by kind.
#[derive(Default)]
pub struct Seen {
    pub admitted: AtomicU64,
    pub leased: AtomicU64,
    refused: AtomicU64,
}

/// A nested policy with leases: users have plenty of units, trades have this limit.
pub fn policy(limit: &str) -> String {
    format!(
        "lease: true\nschema: {{ user: {{ children: {{ '*': {{ limits: [{{ {} }}], children: {{ trade: {{ limits: [{{ {limit} }}] \
         }} }} }} }} }} }}",
        window(100_000_000)
    )
}

/// As [`policy`], with leases that do not expire during a test, even on a busy machine: what they held would be burnt.
pub fn lasting(limit: &str) -> String {
    policy(limit).replace("lease: true", "lease: { ttl: 1m }")
}

pub fn two(url: &str, policy: &str) -> [Server; 2] {
    [(); 2].map(|()| patient(url).policy(policy).start())
}

pub async fn ask(service: &Server, request: CheckRequest) -> CheckResponse {
    service.client().await.check(request).await.expect("an answer").into_inner()
}

/// Repeats checks of trades on each service until `is_over`.
pub async fn flood(services: &[Server], is_over: impl Fn(&Seen) -> bool + Copy) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    let callers = services.iter().flat_map(|service| (0..CALLERS).map(move |_| service)).map(|service| {
        let seen = Arc::clone(&seen);
        async move {
            let mut client = service.client().await;
            while !is_over(&seen) {
                let answer = client.check(check(&TRADE)).await.expect("an answer").into_inner();
                assert!(!answer.degraded, "{answer:?}");
                let counted = if answer.allowed { &seen.admitted } else { &seen.refused };
                counted.fetch_add(1, Relaxed);
                seen.leased.fetch_add(u64::from(answer.allowed && answer.leased), Relaxed);
            }
        }
    });
    join_all(callers).await;
    seen
}

/// Returns the remaining units of trades, according to the store.
pub fn left(service: &Server) -> u64 {
    runtime().block_on(ask(service, peek(&TRADE))).remaining
}

fn never_over_a_quota(url: &str) {
    const QUOTA: u64 = 8_000;
    let services = two(url, &policy(&window(QUOTA)));
    // After so many refusals no unit is given back any more.
    let seen = runtime().block_on(flood(&services, |seen| seen.refused.load(Relaxed) > 2_000));
    let (admitted, leased) = (seen.admitted.load(Relaxed), seen.leased.load(Relaxed));
    println!("{admitted} of {QUOTA} admitted, {leased} from leases");
    // `never` is reported even if a replica refuses locally.
    for _ in 0..20 {
        let beyond =
            runtime().block_on(ask(&services[0], CheckRequest { cost: Some(QUOTA as i64 + 1), ..check(&TRADE) }));
        assert!(beyond.never && beyond.retry_after.is_none(), "{beyond:?}");
    }
    assert!(admitted <= QUOTA, "{admitted} of {QUOTA}");
    assert!(leased > QUOTA / 2, "only {leased} from leases");
    let counted: f64 = services.iter().map(|service| service.metric(SPENT)).sum();
    assert_eq!(counted, leased as f64);
    // All units are admitted, left or burnt.
    let burnt: f64 = services.iter().map(|service| service.metric("weir_leases_burnt_units_total")).sum();
    services.iter().for_each(|service| service.wait_for_metric(HELD, 0.0));
    eventually("what was held is given back", || {
        let missing = QUOTA - admitted - left(&services[0]);
        if missing as f64 <= burnt { Ok(()) } else { Err(format!("{missing} missing, {burnt} burnt")) }
    });
}

#[test]
fn two_replicas_spend_a_quota_from_leases_and_never_exceed_it() {
    never_over_a_quota(&Redis::start(Options::socket()).url());
}

#[test]
fn on_a_cluster_two_replicas_never_exceed_a_quota() {
    never_over_a_quota(&Cluster::start(&ClusterOptions::default()).url());
}

#[test]
fn a_rate_is_never_exceeded_in_any_window() {
    const BURST: u64 = 200;
    const RATE: u64 = 2_000;
    let redis = Redis::start(Options::socket());
    let limit = format!("token_bucket: {{ capacity: {BURST}, count: {RATE}, period: 1s }}");
    let services = two(&redis.url(), &policy(&limit));
    let started = Instant::now();
    let seen = runtime().block_on(flood(&services, |_| started.elapsed() > Duration::from_secs(3)));
    let most = BURST + (started.elapsed().as_secs_f64() * RATE as f64).ceil() as u64;
    let admitted = seen.admitted.load(Relaxed);
    println!("{admitted} of at most {most} admitted, {} from leases", seen.leased.load(Relaxed));
    assert!(admitted <= most, "{admitted} of at most {most}");
    assert!(seen.leased.load(Relaxed) > admitted / 4);
}

#[test]
fn a_stopped_replica_gives_back_what_it_holds() {
    const QUOTA: u64 = 100_000;
    let redis = Redis::start(Options::socket());
    let [mut stops, stays] = two(&redis.url(), &lasting(&window(QUOTA)));
    let seen = runtime().block_on(flood(std::slice::from_ref(&stops), |seen| seen.leased.load(Relaxed) > 1_000));
    let admitted = seen.admitted.load(Relaxed);
    stops.stop();
    assert_eq!(left(&stays), QUOTA - admitted, "at once, and not when the lease has run out");
}

#[test]
fn an_override_of_another_key_burns_nothing() {
    const QUOTA: u64 = 1_000_000;
    let redis = Redis::start(Options::socket());
    let [mut leases, stays] = two(&redis.url(), &lasting(&window(QUOTA)));
    let are_set = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let bans = scope.spawn(|| {
            let ban = |user: u32| leases.run(&["ban", &format!("user/{user}"), "--reason", "abuse", "--for", "1h"]);
            let bans: Vec<_> = (0..5).map(ban).collect();
            are_set.store(true, Relaxed);
            bans
        });
        let is_over = |seen: &Seen| seen.leased.load(Relaxed) > 1_000 && are_set.load(Relaxed);
        let seen = runtime().block_on(flood(std::slice::from_ref(&leases), is_over));
        assert!(bans.join().expect("they are set").iter().all(|ban| ban.code == 0));
        seen
    });
    leases.stop();
    assert_eq!(left(&stays), QUOTA - seen.admitted.load(Relaxed));
}

#[test]
fn a_killed_replica_burns_at_most_what_it_held() {
    const QUOTA: u64 = 100_000;
    let redis = Redis::start(Options::socket());
    let [mut dies, stays] = two(&redis.url(), &policy(&window(QUOTA)));
    let seen = runtime().block_on(flood(std::slice::from_ref(&dies), |seen| seen.leased.load(Relaxed) > 1_000));
    let admitted = seen.admitted.load(Relaxed);
    dies.signal(Signal::KILL);
    eventually("it is dead", || if dies.lives() { Err("not yet".to_owned()) } else { Ok(()) });
    // While the dead replica's lease lasts, and after it has expired.
    let (since, mut least) = (Instant::now(), u64::MAX);
    while since.elapsed() < Duration::from_millis(600) {
        let left = left(&stays);
        assert!(left <= QUOTA - admitted, "{left} left after {admitted}: what it spent and never told is charged");
        least = least.min(left);
    }
    assert!(least >= QUOTA - 2 * admitted - MOST_HELD, "{least} left after {admitted}");
}

/// Returns the leases of each level of trades, as shown by the explorer.
fn shown(service: &Server) -> Vec<Vec<Value>> {
    let mut client = Client::connect(&service.http).expect("it accepts connections");
    let body = json!({ "domain": "", "key": TRADE }).to_string();
    let headers = [("content-type", "application/json")];
    let answer = client.ask("POST /ui/api/key", &headers, body.as_bytes()).expect("it answers");
    let state: Value = serde_json::from_str(&answer.body).expect("JSON");
    let levels = state["levels"].as_array().expect("levels").iter();
    levels.map(|level| level["holds"].as_array().expect("holds").clone()).collect()
}

#[test]
fn the_explorer_shows_which_replicas_lease_how_much() {
    let redis = Redis::start(Options::socket());
    let policy = lasting(&window(1_000_000));
    let [one, mut other] =
        [(); 2].map(|()| patient(&redis.url()).policy(&policy).env("WEIR_HTTP__UI__ENABLED", "true").start());
    for service in [&one, &other] {
        runtime().block_on(flood(std::slice::from_ref(service), |seen| seen.leased.load(Relaxed) > 500));
    }
    eventually("renewals are settled", || {
        let (first, second) = (shown(&one), shown(&other));
        let all_agree = [&first, &second].iter().all(|levels| levels.iter().all(|leases| leases.len() == 2));
        if all_agree { Ok(()) } else { Err(format!("{first:?} {second:?}")) }
    });
    for (service, peer) in [(&one, &other), (&other, &one)] {
        let levels = shown(service);
        assert_eq!(levels[0], levels[1], "both levels are held alike, by one key below the first");
        for lease in &levels[0] {
            let held = if lease["own"] == true { service.metric(HELD) } else { peer.metric(HELD) };
            assert!(lease["units"].as_f64() >= Some(held), "{lease} tells less than {held}");
            assert!((1..=60_000_000).contains(&lease["expires_after_us"].as_i64().expect("a time")), "{lease}");
        }
        assert_eq!(levels[0].iter().filter(|lease| lease["own"] == true).count(), 1, "{levels:?}");
    }
    other.stop();
    let levels = shown(&one);
    assert!(levels.iter().all(|leases| leases.len() == 1 && leases[0]["own"] == true), "given back: {levels:?}");
}

#[test]
fn a_reset_keeps_what_is_held_charged() {
    const QUOTA: u64 = 5_000;
    let redis = Redis::start(Options::socket());
    let services = two(&redis.url(), &policy(&window(QUOTA)));
    let runtime = runtime();
    let before = runtime.block_on(flood(&services, |seen| seen.leased.load(Relaxed) > 500));
    runtime.block_on(async { services[0].client().await.reset(reset(&USER, true)).await }).expect("a reset");
    let after = runtime.block_on(flood(&services, |seen| seen.refused.load(Relaxed) > 2_000));
    let (before, after) = (before.admitted.load(Relaxed), after.admitted.load(Relaxed));
    println!("{before} admitted before the reset, {after} after it");
    assert!(before + after > QUOTA, "the reset gave nothing");
    assert!(after <= QUOTA, "{after} of {QUOTA} after the reset");
}

#[test]
fn a_cancelled_check_does_not_keep_its_key_from_being_leased() {
    let redis = Redis::start(Options::socket());
    let policy = lasting(&window(1_000_000));
    let service = patient(&redis.url()).policy(&policy).start();
    let runtime = runtime();
    redis.pause();
    // All callers wait for the store, one of them with a renewal, and all of them time out.
    let cancelled = (0..CALLERS).map(|_| async {
        let mut client = service.client().await;
        let call = client.check(check(&TRADE));
        tokio::time::timeout(Duration::from_millis(300), call).await.expect_err("the store does not answer");
    });
    runtime.block_on(join_all(cancelled));
    redis.resume();
    let started = Instant::now();
    let seen = runtime.block_on(flood(std::slice::from_ref(&service), |seen| {
        seen.leased.load(Relaxed) > 100 || started.elapsed() > Duration::from_secs(30)
    }));
    assert!(seen.leased.load(Relaxed) > 100, "the renewal of a cancelled check holds up all others");
}

#[test]
fn a_lease_of_a_long_key_takes_the_room_of_several() {
    /// Each key has a path of over 2 KiB, which counts as nine of the 65,536 entries. That makes 7,281 keys; on a busy
    /// machine many more are needed, since some keys do not get their three checks within a tenth of a second.
    const MOST_KEYS: usize = 30_000;
    /// Keys in a batch of 0.6 MB.
    const TOGETHER: usize = 100;
    let mut limits = format!("'*': {{ limits: [{{ {} }}] }}", window(1_000_000));
    for _ in 1..32 {
        limits = format!("'*': {{ children: {{ {limits} }} }}");
    }
    let redis = Redis::start(Options::socket());
    let service = patient(&redis.url()).policy(&format!("lease: {{ ttl: 60s }}\nschema: {{ {limits} }}")).start();
    let of_key = |number: usize| {
        let last = format!("{number:064}");
        let long = "k".repeat(64);
        let segments: Vec<&str> = [&*long; 31].into_iter().chain([&*last]).collect();
        // The third check within 100 ms makes the key hot.
        vec![check(&segments); 3]
    };
    runtime().block_on(async {
        let mut client = service.client().await;
        for first in (0..MOST_KEYS).step_by(TOGETHER) {
            let checks = (first..first + TOGETHER).flat_map(of_key).collect();
            client.check_batch(CheckBatchRequest { checks }).await.expect("answers");
            if service.metric("weir_leases_full_total") >= 1.0 {
                return;
            }
        }
        panic!("{MOST_KEYS} keys have room");
    });
    let leases = service.metric("weir_leases");
    assert!((1.0..=65_536.0 / 9.0).contains(&leases), "{leases} leases");
}
