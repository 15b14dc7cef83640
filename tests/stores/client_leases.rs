//! Leases of clients: the clients decide locally, over several replicas, and together admit at most the limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::{runtime::Runtime, task::JoinHandle, time::sleep};
use weir_client::{Check, Client, Decision, Error, Source};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis, eventually};

use crate::{
    leases::{TRADE, lasting, left, policy, two},
    service::{patient, runtime, window},
    support::{Server, requests::reset, server::Setup},
};

const CLIENTS: usize = 8;
/// Longer than a lease lasts.
const TTL: Duration = Duration::from_millis(300);
/// Deadline that even a busy machine meets.
const PATIENCE: Duration = Duration::from_secs(60);
const GRANTED: &str = "weir_client_leases_granted_units_total{domain=\"default\"}";

/// Numbers of answers that the clients got, by kind.
#[derive(Debug, Default)]
struct Seen {
    leased: AtomicU64,
    asked: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Seen {
    fn admitted(&self) -> u64 {
        self.leased.load(Relaxed) + self.asked.load(Relaxed)
    }
}

/// Checks trades until `is_over`, then gives back the units left.
async fn spend(target: String, seen: Arc<Seen>, is_over: impl Fn(&Seen) -> bool) {
    let client = Client::builder(target).lease(true).deadline(PATIENCE).build().expect("a client");
    let check = Check::new(TRADE);
    while !is_over(&seen) {
        let decided = client.check(&check).await;
        count(&seen, &decided);
        if decided.is_ok_and(|decision| !decision.allowed && decision.source == Source::Lease) {
            sleep(Duration::from_millis(1)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    client.close().await;
}

fn count(seen: &Seen, decided: &Result<Decision, Error>) {
    let counter = match decided {
        Ok(Decision { allowed: false, .. }) => &seen.refused,
        Ok(Decision { source: Source::Lease, .. }) => &seen.leased,
        Ok(_) => &seen.asked,
        Err(_) => &seen.failed,
    };
    counter.fetch_add(1, Relaxed);
}

fn start<F>(runtime: &Runtime, services: &[Server], is_over: F) -> (Arc<Seen>, Vec<JoinHandle<()>>)
where
    F: Fn(&Seen) -> bool + Clone + Send + 'static,
{
    let seen = Arc::<Seen>::default();
    let mut addresses: Vec<_> = services.iter().map(|service| service.grpc.as_str()).collect();
    let clients = (0..CLIENTS).map(|_| {
        addresses.rotate_left(1);
        runtime.spawn(spend(addresses.join(","), Arc::clone(&seen), is_over.clone()))
    });
    let clients = clients.collect();
    (seen, clients)
}

fn wait(runtime: &Runtime, clients: Vec<JoinHandle<()>>) {
    runtime.block_on(join_all(clients)).into_iter().for_each(|ended| {
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()), "a client failed");
    });
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    eventually(what, || if is_so() { Ok(()) } else { Err("not yet".to_owned()) });
}

/// Kills clients and a replica while they hold units: the clients never exceed the quota, and no call fails.
fn never_over_a_quota(url: &str) {
    const QUOTA: u64 = 10_000;
    let (mut services, runtime) = (two(url, &policy(&window(QUOTA))), runtime());
    let (seen, clients) = start(&runtime, &services, |seen| seen.refused.load(Relaxed) > 1_000);
    wait_until("a part is spent", || seen.leased.load(Relaxed) > QUOTA / 8);
    // Two clients die with their held units.
    clients[..2].iter().for_each(JoinHandle::abort);
    wait_until("more is spent", || seen.admitted() > QUOTA / 4);
    services[0].signal(Signal::KILL);
    eventually("it is dead", || if services[0].lives() { Err("not yet".to_owned()) } else { Ok(()) });
    wait(&runtime, clients);
    println!("{seen:?} of {QUOTA}");
    let admitted = seen.admitted();
    assert!(admitted <= QUOTA, "{admitted} of {QUOTA}");
    assert!(seen.leased.load(Relaxed) > QUOTA / 2, "{seen:?}");
    assert_eq!(seen.failed.load(Relaxed), 0, "the other replica answers");
}

#[test]
fn clients_of_two_replicas_never_exceed_a_quota() {
    never_over_a_quota(&Redis::start(Options::socket()).url());
}

#[test]
fn on_a_cluster_clients_never_exceed_a_quota() {
    never_over_a_quota(&Cluster::start(&ClusterOptions::default()).url());
}

#[test]
fn a_rate_is_never_exceeded_by_clients() {
    const BURST: u64 = 200;
    const RATE: u64 = 2_000;
    let redis = Redis::start(Options::socket());
    let limit = format!("token_bucket: {{ capacity: {BURST}, count: {RATE}, period: 1s }}");
    let (services, runtime) = (two(&redis.url(), &policy(&limit)), runtime());
    let started = Instant::now();
    let (seen, clients) = start(&runtime, &services, |seen| seen.leased.load(Relaxed) > 2 * RATE);
    wait_until("more than a burst is leased", || seen.leased.load(Relaxed) > 2 * RATE);
    wait(&runtime, clients);
    let most = BURST + (started.elapsed().as_secs_f64() * RATE as f64).ceil() as u64;
    println!("{seen:?} of at most {most}");
    assert!(seen.admitted() <= most, "{seen:?} of at most {most}");
    assert!(seen.leased.load(Relaxed) > seen.admitted() / 4, "{seen:?}");
}

const QUOTA_OF_RETURNS: u64 = 1_000_000;

/// Stops the replicas, which give back their own leases, and returns the units left according to a new one.
fn left_after(mut services: [Server; 2], url: &str) -> u64 {
    for service in &mut services {
        if service.lives() {
            service.stop();
        }
    }
    left(&patient(url).policy(&lasting(&window(QUOTA_OF_RETURNS))).start())
}

#[test]
fn clients_that_end_give_back_what_they_hold() {
    let (redis, runtime) = (Redis::start(Options::socket()), runtime());
    let services = two(&redis.url(), &lasting(&window(QUOTA_OF_RETURNS)));
    let over = Arc::new(AtomicU64::default());
    let has_ended = Arc::clone(&over);
    let is_over = move |_: &Seen| has_ended.load(Relaxed) > 0;
    // Clients stay with the replica that granted their first units, and might all choose the same one.
    let started = services.chunks(1).map(|service| start(&runtime, service, is_over.clone()));
    let (seen, clients): (Vec<_>, Vec<_>) = started.unzip();
    wait_until("both replicas have granted units", || services.iter().all(|service| service.metric(GRANTED) > 0.0));
    over.store(1, Relaxed);
    wait(&runtime, clients.into_iter().flatten().collect());
    println!("{seen:?}");
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(|seen| of(seen)).sum::<u64>();
    let of = |kind| -> f64 {
        let series = format!("weir_client_leases_{kind}_units_total{{domain=\"default\"}}");
        services.iter().map(|service| service.metric(&series)).sum()
    };
    assert_eq!(of("spent"), sum(|seen| seen.leased.load(Relaxed)) as f64);
    assert_eq!((of("granted"), of("burnt")), (of("spent") + of("returned"), 0.0));
    assert_eq!(left_after(services, &redis.url()), QUOTA_OF_RETURNS - sum(Seen::admitted));
}

#[test]
fn clients_lease_units_of_a_memory_store_too() {
    let (service, runtime) = (Setup::new().policy(&lasting(&window(QUOTA_OF_RETURNS))).start(), runtime());
    let (seen, clients) = start(&runtime, std::slice::from_ref(&service), |seen| seen.leased.load(Relaxed) > 2_000);
    wait(&runtime, clients);
    println!("{seen:?}");
    assert_eq!(left(&service), QUOTA_OF_RETURNS - seen.admitted());
}

#[test]
fn clients_of_a_replica_that_stops_go_on_elsewhere_with_what_they_hold() {
    let (redis, runtime) = (Redis::start(Options::socket()), runtime());
    let mut services = two(&redis.url(), &lasting(&window(QUOTA_OF_RETURNS)));
    let (seen, clients) = start(&runtime, &services, |seen| seen.leased.load(Relaxed) > 4_000);
    wait_until("units are held", || seen.leased.load(Relaxed) > 1_000);
    services[0].stop();
    wait(&runtime, clients);
    let missing = QUOTA_OF_RETURNS - seen.admitted() - left_after(services, &redis.url());
    println!("{seen:?}, {missing} missing");
    // A check in a lease request whose answer is lost is decided again: at most one for each client.
    assert!(missing <= CLIENTS as u64, "{missing} units are lost");
    assert_eq!(seen.failed.load(Relaxed), 0, "the other replica answers");
}

#[test]
fn clients_learn_that_a_limit_was_lowered_and_that_leases_were_turned_off() {
    const LOW: u64 = 500;
    let redis = Redis::start(Options::socket());
    let (services, runtime) = (two(&redis.url(), &policy(&window(1_000_000))), runtime());
    let over = Arc::new(AtomicU64::default());
    let is_over = Arc::clone(&over);
    let (seen, clients) = start(&runtime, &services, move |_| is_over.load(Relaxed) > 0);
    wait_until("more is spent than the new limit has", || seen.leased.load(Relaxed) > 2 * LOW);
    services.iter().for_each(|service| service.replace_policy(&policy(&window(LOW))));
    for service in &services {
        service.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 1.0);
    }
    std::thread::sleep(TTL);
    let before = seen.admitted();
    let refused = seen.refused.load(Relaxed);
    wait_until("all is refused", || seen.refused.load(Relaxed) > refused + 500);
    assert_eq!(seen.admitted(), before, "{seen:?}");
    let unleased = policy(&window(10_000_000)).replace("lease: true", "lease: false");
    services.iter().for_each(|service| service.replace_policy(&unleased));
    for service in &services {
        service.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 2.0);
    }
    std::thread::sleep(TTL);
    let (leased, asked) = (seen.leased.load(Relaxed), seen.asked.load(Relaxed));
    wait_until("the service decides again", || seen.asked.load(Relaxed) > asked + 100);
    assert_eq!(seen.leased.load(Relaxed), leased, "{seen:?}");
    over.store(1, Relaxed);
    wait(&runtime, clients);
}

#[test]
fn a_reset_keeps_charged_what_clients_hold() {
    const QUOTA: u64 = 5_000;
    let redis = Redis::start(Options::socket());
    let (services, runtime) = (two(&redis.url(), &policy(&window(QUOTA))), runtime());
    let most_refused = Arc::new(AtomicU64::new(u64::MAX));
    let most = Arc::clone(&most_refused);
    let (seen, clients) = start(&runtime, &services, move |seen| seen.refused.load(Relaxed) > most.load(Relaxed));
    wait_until("a part is spent", || seen.leased.load(Relaxed) > QUOTA / 4);
    let before = seen.admitted();
    runtime.block_on(async { services[0].client().await.reset(reset(&TRADE, false)).await }).expect("a reset");
    let at_most = seen.admitted() + QUOTA;
    most_refused.store(seen.refused.load(Relaxed) + 1_000, Relaxed);
    wait(&runtime, clients);
    println!("{seen:?}, {before} before the reset");
    assert!(seen.admitted() > QUOTA, "the reset gave nothing: {seen:?}");
    assert!(seen.admitted() <= at_most, "{seen:?}, at most {at_most}");
}
