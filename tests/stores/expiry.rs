//! States without effect expire from the store, and nothing else.

use std::time::Duration;

use futures_util::stream;
use tokio::time::sleep;
use weir::proto::{CheckRequest, LeaseRequest};
use weir_core::{
    algorithm::{Bounds, Entry, Params, rates},
    domain::{StepInput, time::SECOND},
};
use weir_test_redis::{Options, Server, eventually};

use crate::{
    service::{patient, runtime},
    support::requests::check,
};

/// Number of users with a state each.
const USERS: usize = 50;

/// Returns a limit whose states expire within two seconds: the example of each algorithm with the shortest
/// `reset_after` of at least half a second.
fn short_lived(algorithm: &Entry) -> String {
    let examples = algorithm.examples.iter().filter_map(|it| (algorithm.parse)(it, &Bounds::default()).ok());
    let input = StepInput { now: 0, cost: 1, max_wait: None, phase: 0 };
    let lives = |params: &Params| params.step(None, &input).0.reset_after;
    let shortest = examples.filter(|params| lives(params) >= SECOND / 2).min_by_key(lives).expect("an example");
    assert!(lives(&shortest) <= 2 * SECOND, "{}", algorithm.name);
    format!("{}: {}", algorithm.name, shortest.describe())
}

#[test]
fn all_keys_expire_after_the_longest_period() {
    let redis = Server::start(Options::socket());
    let nodes: String = rates()
        .map(|algorithm| {
            let limit = short_lived(algorithm);
            format!(
                "  {}: {{ children: {{ '*': {{ limits: [{{ {limit} }}], children: {{ trade: {{ limits: [{{ {limit} }}] }} }} \
                 }} }} }}\n",
                algorithm.name
            )
        })
        .collect();
    let service = patient(&redis.url()).policy(&format!("schema:\n{nodes}")).start();
    runtime().block_on(async {
        let mut client = service.client().await;
        for (algorithm, user) in rates().flat_map(|algorithm| (0..USERS).map(move |user| (algorithm.name, user))) {
            let answer = client.check(check(&[algorithm, &user.to_string(), "trade"])).await.expect("an answer");
            assert!(answer.into_inner().allowed);
        }
    });
    // The service keeps its heartbeat key.
    let keys = || Ok(redis.try_cli(&["KEYS", "*"])?.lines().filter(|key| *key != "weir:replicas").count());
    assert_ne!(keys(), Ok(0));
    eventually("an empty store", || keys().and_then(|keys| if keys == 0 { Ok(()) } else { Err(keys.to_string()) }));
}

/// The limit is as new again long before the lease ends, and other keys of its hash are swept.
#[test]
fn a_repeated_renewal_is_recognized_until_the_lease_ends() {
    let redis = Server::start(Options::socket());
    let policy = "anchor: 1\nlease: { ttl: 1m }\nschema: { user: { children: { '*': { limits: [{ token_bucket: \
                  { capacity: 100, count: 100, period: 10ms } }] } } } }";
    let service = patient(&redis.url()).policy(policy).start();
    runtime().block_on(async {
        let mut client = service.client().await;
        let mut renew = async |request: LeaseRequest| {
            let of_alex = CheckRequest { cost: Some(0), ..check(&["user", "alex"]) };
            let request = LeaseRequest { check: Some(of_alex), holder: vec![7; 16], lease: 1, ..request };
            let mut answers = client.lease(stream::iter([request])).await.expect("a stream").into_inner();
            answers.message().await.expect("an answer").expect("one")
        };
        let asked = renew(LeaseRequest { sequence: 1, ..LeaseRequest::default() }).await;
        let generation = asked.terms.expect("terms").generation;
        let first = LeaseRequest { sequence: 2, want: 4, generation, ..LeaseRequest::default() };
        let units = |answer: weir::proto::LeaseResponse| answer.grant.expect("a grant").units;
        assert_eq!(units(renew(first.clone()).await), 4);
        renew(LeaseRequest { sequence: 3, spent: 4, generation, ..LeaseRequest::default() }).await;
        sleep(Duration::from_millis(1_500)).await;
        let mut others = service.client().await;
        for user in 0..USERS {
            others.check(check(&["user", &user.to_string()])).await.expect("an answer");
        }
        assert_eq!(units(renew(first).await), 0);
    });
}
