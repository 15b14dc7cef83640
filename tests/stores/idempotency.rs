//! Requests with a `request_id` in a shared store: charged once, wherever and however often they are asked.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::time::timeout;
use weir::proto::CheckRequest;
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    service::{patient, runtime, window},
    support::{requests::check, reservations::left},
};

const UNITS: u64 = 100_000;
const REQUESTS: u64 = 400;

/// Cuts calls off at any moment, and repeats each at one replica or the other until it is answered.
async fn cut_calls_are_charged_once(url: &str) {
    let policy = format!(
        "schema: {{ tenant: {{ limits: [{{ {} }}], children: {{ '*': {{ children: {{ '*': {{ limits: [{{ {} }}] }} }} }} }} }} }}",
        window(2 * UNITS),
        window(UNITS),
    );
    let services = [(); 2].map(|()| patient(url).policy(&policy).start());
    let clients = [services[0].client().await, services[1].client().await];
    let key = ["tenant", "acme", "alex"];
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut cut, mut repeated) = (0, 0);
    for number in 0..REQUESTS {
        let request = CheckRequest { request_id: format!("request {number}"), ..check(&key) };
        let mut tries = 0;
        let answer = loop {
            let mut client = clients[random.random_range(0..2)].clone();
            // The first ones have hardly time to get there.
            let time = Duration::from_micros(random.random_range(1..1_500) << (3 * tries).min(20));
            match timeout(time, client.check(request.clone())).await {
                Ok(answer) => break answer.expect("an answer").into_inner(),
                Err(_) => (cut, tries) = (cut + 1, tries + 1),
            }
        };
        assert!(answer.allowed);
        repeated += u32::from(answer.repeated_request);
    }
    println!("{cut} calls of {REQUESTS} requests were cut off, {repeated} of the answers had been given before");
    let mut client = clients[0].clone();
    assert_eq!(left(&mut client, &key).await, UNITS - REQUESTS);
    assert_eq!(left(&mut client, &key[..1]).await, 2 * UNITS - REQUESTS);
}

#[test]
fn on_redis_cut_calls_that_are_repeated_are_charged_once() {
    let redis = Redis::start(Options::socket());
    runtime().block_on(cut_calls_are_charged_once(&redis.url()));
}

#[test]
fn on_a_cluster_cut_calls_that_are_repeated_are_charged_once() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(cut_calls_are_charged_once(&cluster.url()));
}

/// On a Cluster the user's level is charged before the tenant's refusal is known, and then taken back: with its answer.
async fn what_was_taken_back_is_charged_by_the_repeat(url: &str) {
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
fn on_a_cluster_what_was_taken_back_is_charged_by_the_repeat() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(what_was_taken_back_is_charged_by_the_repeat(&cluster.url()));
}
