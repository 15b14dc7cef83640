//! Requests with a `request_id` in a shared store: charged once, whichever replica gets them and however often.

use std::{io, thread::sleep, time::Duration};

use futures_util::future::join_all;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::{task::spawn_blocking, time::timeout};
use tonic::transport::Channel;
use weir::proto::{CheckRequest, ReserveRequest, rate_limiter_client::RateLimiterClient};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    service::{patient, runtime, window},
    support::{
        Server,
        raw::Raw,
        requests::check,
        reservations::{HOUR, commit, left, reserve, wanted},
    },
};

const UNITS: u64 = 100_000;
/// Default number of requests of all clients together, each on a connection that is cut; `WEIR_RETRIES` overrides it.
const REQUESTS: u64 = 400;
/// Number of concurrent clients.
const CLIENTS: u64 = 4;
const KEY: [&str; 3] = ["tenant", "acme", "alex"];
/// The latest time, in microseconds, at which a connection, or the first attempt of a call, is cut.
const MOMENT_US: u64 = 1_500;

/// Statistics of the calls.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    connections_cut: u64,
    calls_cut: u64,
    /// Answers to repeated requests whose first answer was lost.
    repeated: u64,
}

fn requests() -> u64 {
    std::env::var("WEIR_RETRIES").map_or(REQUESTS, |text| text.parse().expect("a number"))
}

/// Sends a request and cuts the connection after this time, whatever the request's progress.
fn cut(address: &str, request: &CheckRequest, after: Duration) -> io::Result<()> {
    let mut connection = Raw::connect(address, 65_535)?;
    connection.ask("/weir.v1.RateLimiter/Check", request)?;
    sleep(after);
    Ok(())
}

/// Sends requests for one unit: each first on a connection that is cut, then as calls to either replica, which are also
/// cut, until there is an answer.
async fn client(number: u64, services: &[Server; 2]) -> Tally {
    let clients = [services[0].client().await, services[1].client().await];
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut tally = Tally::default();
    for id in (number..requests()).step_by(CLIENTS as usize) {
        let request = CheckRequest { request_id: format!("request {id}"), ..check(&KEY) };
        let (address, first) = (services[random.random_range(0..2)].grpc.clone(), request.clone());
        let after = Duration::from_micros(random.random_range(0..MOMENT_US));
        spawn_blocking(move || cut(&address, &first, after)).await.expect("it ends").expect("sent");
        tally.connections_cut += 1;
        let mut tries = 0;
        let answer = loop {
            let mut client = clients[random.random_range(0..2)].clone();
            let time = Duration::from_micros(random.random_range(1..MOMENT_US) << (3 * tries).min(20));
            match timeout(time, client.check(request.clone())).await {
                Ok(answer) => break answer.expect("an answer").into_inner(),
                Err(_) => tries += 1,
            }
        };
        assert!(answer.allowed);
        tally.calls_cut += tries;
        tally.repeated += u64::from(answer.repeated_request);
    }
    tally
}

/// Cuts connections and calls at random times, and repeats each request until it is answered.
async fn cut_requests_are_charged_once(store: &str, url: &str) {
    let policy = format!(
        "schema: {{ tenant: {{ limits: [{{ {} }}], children: {{ '*': {{ children: {{ '*': {{ limits: [{{ {} }}] }} }} }} }} }} }}",
        window(2 * UNITS),
        window(UNITS),
    );
    let services = [(); 2].map(|()| patient(url).policy(&policy).start());
    let tallies = join_all((0..CLIENTS).map(|number| client(number, &services))).await;
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    println!(
        "{store}: {} requests, {} connections and {} calls cut; {} answers had been given before and were lost",
        requests(),
        sum(|tally| tally.connections_cut),
        sum(|tally| tally.calls_cut),
        sum(|tally| tally.repeated),
    );
    let mut client = services[0].client().await;
    let charged = [UNITS - left(&mut client, &KEY).await, 2 * UNITS - left(&mut client, &KEY[..1]).await];
    println!("{store}: the user's limit is charged {} units, the tenants' {}", charged[0], charged[1]);
    assert_eq!(charged, [requests(); 2]);
}

#[test]
fn on_redis_cut_requests_that_are_repeated_are_charged_once() {
    let redis = Redis::start(Options::socket());
    runtime().block_on(cut_requests_are_charged_once("Redis", &redis.url()));
}

#[test]
fn on_a_cluster_cut_requests_that_are_repeated_are_charged_once() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(cut_requests_are_charged_once("Cluster", &cluster.url()));
}

/// On a Cluster the user's level is charged before the tenant's refusal is known, and then refunded; the stored answer
/// is removed with it.
async fn an_undone_charge_is_charged_by_the_repeat(url: &str) {
    let policy = format!(
        "schema: {{ tenant: {{ limits: [{{ {} }}], children: {{ '*': {{ children: {{ '*': {{ limits: [{{ {} }}] }} }} }} }} }} }}",
        window(5),
        window(UNITS),
    );
    let service = patient(url).policy(&policy).start();
    let mut client = service.client().await;
    let (key, other) = (["tenant", "acme", "alex"], ["tenant", "acme", "sam"]);
    let cost = |key: &[&str], cost| CheckRequest { cost: Some(cost), ..check(key) };
    let request = CheckRequest { request_id: "one".to_owned(), ..cost(&key, 3) };
    client.check(cost(&other, 3)).await.expect("an answer");
    assert!(!client.check(request.clone()).await.expect("an answer").into_inner().allowed);
    assert_eq!(left(&mut client, &key).await, 2, "the tenant's");
    client.check(cost(&other, -3)).await.expect("an answer");
    for repeated in [false, true] {
        let answer = client.check(request.clone()).await.expect("an answer").into_inner();
        assert_eq!((answer.allowed, answer.remaining, answer.repeated_request), (true, 2, repeated));
        assert_eq!(answer.levels[1].remaining, UNITS - 3);
    }
    let stands = client.check(cost(&key, 0)).await.expect("an answer").into_inner();
    assert_eq!(stands.levels.iter().map(|level| level.remaining).collect::<Vec<_>>(), [2, UNITS - 3]);
}

#[test]
fn on_a_cluster_an_undone_charge_is_charged_by_the_repeat() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(an_undone_charge_is_charged_by_the_repeat(&cluster.url()));
}

/// Sends several concurrent attempts for the same unit, or reserves and commits it, while the tenants' limit refuses
/// about half. One attempt may be refused and refunded while another one is admitted by its stored answer.
async fn an_admitted_repeat_is_charged(url: &str, reserves: bool) {
    let policy = format!(
        "schema: {{ tenant: {{ limits: [{{ token_bucket: {{ capacity: 1, count: 1, period: 5ms }} }}], \
         children: {{ '*': {{ children: {{ '*': {{ limits: [{{ {} }}] }} }} }} }} }} }}",
        window(UNITS),
    );
    let services = [(); 2].map(|()| patient(url).policy(&policy).start());
    let clients = [services[0].client().await, services[1].client().await];
    let attempt = async |mut client: RateLimiterClient<Channel>, check: CheckRequest| {
        if !reserves {
            return client.check(check).await.expect("an answer").into_inner().allowed;
        }
        let wanted = ReserveRequest { check: Some(check), ..wanted(&KEY, 1, HOUR) };
        let reserved = reserve(&mut client, wanted).await;
        let is_admitted = reserved.decision.is_some_and(|decision| decision.allowed);
        if is_admitted {
            commit(&mut client, &reserved.hold, None).await.expect("it is reserved");
        }
        is_admitted
    };
    let client = async |number: u64| {
        let mut admitted = 0;
        for id in (number..requests()).step_by(CLIENTS as usize) {
            let request = CheckRequest { request_id: format!("request {id}"), ..check(&KEY) };
            let attempts = (0..4).map(|number| attempt(clients[number % 2].clone(), request.clone()));
            admitted += u64::from(join_all(attempts).await.contains(&true));
        }
        admitted
    };
    let admitted = join_all((0..CLIENTS).map(client)).await.iter().sum::<u64>();
    let stands = clients[0].clone().check(CheckRequest { cost: Some(0), ..check(&KEY) }).await;
    let charged = UNITS - stands.expect("an answer").into_inner().levels[1].remaining;
    println!("{admitted} of {} requests are admitted, {charged} units charged", requests());
    assert_eq!(charged, admitted);
}

#[test]
fn on_a_cluster_an_admitted_repeat_is_charged() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(an_admitted_repeat_is_charged(&cluster.url(), false));
}

#[test]
fn on_a_cluster_a_repeated_reservation_is_held() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(an_admitted_repeat_is_charged(&cluster.url(), true));
}
