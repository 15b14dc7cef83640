//! Concurrency limits in a shared store.

use rustix::process::Signal;
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    service::{patient, replicas, runtime},
    support::{
        eventually_async,
        requests::peek,
        reservations::{cancel, left},
        slots::{crowd, slot},
    },
};

const MAX: u64 = 7;
const KEY: [&str; 2] = ["pool", "a"];
const OTHER: [&str; 2] = ["pool", "b"];
const POLICY: &str = "
schema:
  pool:
    limits: [{ concurrency: { max: 100, ttl: 5s }, name: all }]
    children: { '*': { limits: [{ concurrency: { max: 7, ttl: 5s }, name: pool }, { gcra: { burst: 1000000, count: 1, period: 1s } }] } }
";

/// Holders die, and one replica is killed: slots never exceed the limit, and all become free again.
fn replicas_share_slots(url: &str) {
    let services = replicas(url, POLICY);
    runtime().block_on(async {
        let seen = crowd(&services, &KEY, MAX, || ()).await;
        println!("{seen:?}");
        assert!(seen.most == MAX && seen.died > 0, "{seen:?}");
        let seen = crowd(&services, &OTHER, MAX, || services[1].signal(Signal::KILL)).await;
        println!("{seen:?} while one was killed");
        let mut client = services[0].client().await;
        for key in [KEY, OTHER] {
            eventually_async("all slots are free", async || {
                let answer = client.check(peek(&key)).await.expect("an answer").into_inner();
                let free: Vec<_> = answer.levels.iter().map(|level| level.remaining).collect();
                (free[..2] == [100, MAX]).then_some(())
            })
            .await;
        }
        let mut holds = Vec::new();
        for _ in 0..MAX {
            holds.push(client.reserve(slot(&KEY)).await.expect("an answer").into_inner().hold);
        }
        assert!(holds.iter().all(|hold| !hold.is_empty()));
        assert_eq!(left(&mut client, &KEY).await, 0);
    });
}

/// On a Cluster the user's slot is taken before the tenant's refusal is known, and then released; the stored answer is
/// removed with it.
async fn an_undone_slot_is_taken_by_the_repeat(url: &str) {
    let policy = "
schema:
  tenant:
    limits: [{ concurrency: { max: 1, ttl: 1m }, name: all }]
    children: { '*': { children: { '*': { limits: [{ concurrency: { max: 2, ttl: 1m }, name: own }] } } } }
";
    let service = patient(url).policy(policy).start();
    let mut client = service.client().await;
    let (key, other) = (["tenant", "acme", "alex"], ["tenant", "acme", "sam"]);
    let mut request = slot(&key);
    request.check.as_mut().expect("a check").request_id = "one".to_owned();
    let taken = client.reserve(slot(&other)).await.expect("an answer").into_inner().hold;
    assert!(client.reserve(request.clone()).await.expect("an answer").into_inner().hold.is_empty());
    cancel(&mut client, &taken).await.expect("settled");
    let mut holds = Vec::new();
    for _ in 0..2 {
        let answer = client.reserve(request.clone()).await.expect("an answer").into_inner();
        assert!(answer.expires_after.is_some_and(|lasts| lasts.seconds > 50), "{answer:?}");
        holds.push(answer.hold);
        let stands = client.check(peek(&key)).await.expect("an answer").into_inner();
        assert_eq!(stands.levels.iter().map(|level| level.remaining).collect::<Vec<_>>(), [0, 1]);
    }
    assert_eq!(holds[0], holds[1], "the repeat takes no other slot");
    cancel(&mut client, &holds[0]).await.expect("settled");
    let stands = client.check(peek(&key)).await.expect("an answer").into_inner();
    assert_eq!(stands.levels.iter().map(|level| level.remaining).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn on_a_cluster_an_undone_slot_is_taken_by_the_repeat() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(an_undone_slot_is_taken_by_the_repeat(&cluster.url()));
}

#[test]
fn on_redis_no_more_slots_are_held_than_there_are() {
    replicas_share_slots(&Redis::start(Options::socket()).url());
}

#[test]
fn on_a_cluster_no_more_slots_are_held_than_there_are() {
    replicas_share_slots(&Cluster::start(&ClusterOptions::default()).url());
}
