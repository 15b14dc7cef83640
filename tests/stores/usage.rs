//! The contents of stores, listed page by page by different replicas.

use std::collections::BTreeMap;

use prost::Message;
use tonic::transport::Channel;
use weir::proto::{
    CheckBatchRequest, CheckRequest, KeyUsage, ListHotKeysRequest, ListKeysRequest, ListKeysResponse,
    ListReplicasRequest, Replica, ReplicaReport, ReserveRequest, admin_client::AdminClient,
    rate_limiter_client::RateLimiterClient,
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::{
    service::{hash_of, patient, runtime, window},
    support::{
        Server, eventually, eventually_async,
        requests::{check, reset},
    },
};

/// Number of keys with a hash each, and of keys that share one hash.
const APART: usize = 2_000;
const TOGETHER: usize = 1_000;
/// Units of each limit.
const LIMIT: u64 = 5_000;

/// Makes a policy: each user has two limits, each thing of a user has one; all things of a user share a hash.
fn policy() -> String {
    let window = window(LIMIT);
    format!(
        "schema: {{ user: {{ children: {{ '*': {{ limits: [{{ name: a, {window} }}, {{ name: b, shadow: true, {window} }}],
           children: {{ '*': {{ limits: [{{ name: c, {window} }}] }} }} }} }} }} }}"
    )
}

fn user(number: usize) -> CheckRequest {
    check(&["user", &format!("u{number}")])
}

fn thing(number: usize) -> CheckRequest {
    check(&["user", "one", &format!("t{number}")])
}

async fn spend(channel: &Channel, checks: impl Iterator<Item = CheckRequest>) {
    let checks: Vec<_> = checks.collect();
    for checks in checks.chunks(1_000) {
        let batch = CheckBatchRequest { checks: checks.to_vec() };
        let answers = RateLimiterClient::new(channel.clone()).check_batch(batch).await.expect("answers").into_inner();
        assert!(answers.results.iter().all(|answer| answer.error.is_none() && !answer.degraded));
    }
}

/// Lists all pages, each from the next replica, and calls `between` after each. Returns the entries and the longest
/// page.
async fn list(
    replicas: &[Channel],
    mut request: ListKeysRequest,
    mut between: impl AsyncFnMut(),
) -> (Vec<KeyUsage>, usize) {
    let (mut keys, mut longest) = (Vec::new(), 0);
    for replica in replicas.iter().cycle() {
        let page = AdminClient::new(replica.clone()).list_keys(request.clone()).await;
        let ListKeysResponse { keys: found, next_cursor } = page.expect("a page").into_inner();
        longest = longest.max(found.len());
        keys.extend(found);
        request.cursor = next_cursor;
        if request.cursor.is_empty() {
            break;
        }
        between().await;
    }
    (keys, longest)
}

fn prefix(segments: &[&str], page_size: u32) -> ListKeysRequest {
    let prefix = segments.iter().map(|segment| (*segment).to_owned()).collect();
    ListKeysRequest { prefix, page_size, ..Default::default() }
}

/// Returns how often each limit of each key was listed.
fn times(keys: &[KeyUsage]) -> BTreeMap<(String, &str), usize> {
    let mut times = BTreeMap::new();
    keys.iter().for_each(|row| *times.entry((row.key.join("/"), row.limit_name.as_str())).or_default() += 1);
    times
}

async fn lists_everything(services: &[Server]) {
    let mut replicas = Vec::new();
    for service in services {
        replicas.push(service.channel().await);
    }
    spend(&replicas[0], (0..APART).map(user).chain((0..TOGETHER).map(thing))).await;
    for (wanted, expected) in
        [(prefix(&["user"], 300), 2 * APART + TOGETHER + 2), (prefix(&["user", "one"], 100), TOGETHER + 2)]
    {
        let (keys, longest) = list(&replicas, wanted.clone(), async || {}).await;
        let times = times(&keys);
        assert_eq!((keys.len(), times.len()), (expected, expected), "each exactly once: {wanted:?}");
        // A hash that fits into one reply is listed completely on one page.
        assert!(longest < 2 * wanted.page_size as usize, "{longest}");
    }
    let (keys, _) = list(&replicas, prefix(&["user", "one", "t7"], 100), async || {}).await;
    assert_eq!(times(&keys).into_keys().collect::<Vec<_>>(), [("user/one/t7".to_owned(), "c")]);

    // Listing charges nothing, and shows the same numbers as a preview.
    let mut client = RateLimiterClient::new(replicas[services.len() - 1].clone());
    let reserve = ReserveRequest {
        check: Some(CheckRequest { cost: Some(4), ..user(3) }),
        ttl: Some(prost_types::Duration { seconds: 3_600, nanos: 0 }),
        ..Default::default()
    };
    assert!(client.reserve(reserve).await.expect("an answer").into_inner().decision.expect("one").allowed);
    for _ in 0..2 {
        let (keys, _) = list(&replicas, prefix(&["user", "u3"], 1), async || {}).await;
        let peeked = client.check(CheckRequest { cost: Some(0), ..user(3) }).await.expect("an answer").into_inner();
        assert_eq!(keys.len(), peeked.levels.len(), "{keys:?}");
        for level in peeked.levels {
            let row = keys.iter().find(|row| row.limit_name == level.name).expect("an entry");
            assert_eq!((row.limit, row.remaining, row.used, row.shadow), (LIMIT, level.remaining, 5, level.shadow));
            assert_eq!((row.outstanding, row.known, row.at_limit), (4, true, false), "{row:?}");
        }
    }

    // Keys appear and disappear during the scan; those that stay are all listed.
    let (mut gone, mut came) = ((0..APART).step_by(4), APART..2 * APART);
    let churn = async || {
        for number in gone.by_ref().take(50) {
            client.reset(reset(&user(number).key, false)).await.expect("a reset");
        }
        spend(&replicas[0], came.by_ref().take(200).map(user)).await;
    };
    let (keys, _) = list(&replicas, prefix(&["user"], 300), churn).await;
    let times = times(&keys);
    for number in (0..APART).filter(|number| number % 4 != 0) {
        for limit in ["a", "b"] {
            assert!(times.contains_key(&(format!("user/u{number}"), limit)), "u{number} lives through the scan");
        }
    }
    for number in 0..TOGETHER {
        assert!(times.contains_key(&(format!("user/one/t{number}"), "c")), "t{number} lives through the scan");
    }
}

/// Migrates the hash that is being listed to a server that has been scanned, or to one that will be scanned.
async fn lists_what_moves(cluster: &Cluster, services: &[Server]) {
    let mut replicas = Vec::new();
    for service in services {
        replicas.push(service.channel().await);
    }
    spend(&replicas[0], (0..TOGETHER).map(thing)).await;
    let slot = cluster.slot(&hash_of(&["user", "one"]));
    for to in cluster.masters() {
        let mut pages = 0;
        let (keys, _) = list(&replicas, prefix(&["user"], 100), async || {
            pages += 1;
            assert!(pages < TOGETHER, "it ends");
            if pages == 3 && cluster.owner(slot) != to {
                cluster.migrate_slot(slot, to);
            }
        })
        .await;
        let times = times(&keys);
        for number in 0..TOGETHER {
            assert!(times.contains_key(&(format!("user/one/t{number}"), "c")), "t{number} is listed");
        }
        // Entries may repeat: those listed before the migration, and those of a server that is scanned later.
        assert!(keys.len() <= 3 * (TOGETHER + 2), "{} entries", keys.len());
    }
}

#[test]
fn keys_whose_slot_moves_while_they_are_listed_are_listed() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let services: Vec<_> = (0..2).map(|_| patient(&cluster.url()).policy(&policy()).start()).collect();
    runtime().block_on(lists_what_moves(&cluster, &services));
}

#[test]
fn keys_in_memory_are_listed_once() {
    runtime().block_on(lists_everything(&[patient("memory").policy(&policy()).start()]));
}

#[test]
fn keys_in_redis_are_listed_once_by_several_replicas() {
    let redis = Redis::start(Options::socket());
    // Keys of other programs may have the prefix.
    redis.command(&["SET", "weir:string", "s"]);
    redis.command(&["HSET", "weir:hash", "f", "v"]);
    redis.command(&["RPUSH", "weir:\u{0}\u{4}user\u{3}one\u{9}", "v"]);
    let services: Vec<_> = (0..2).map(|_| patient(&redis.url()).policy(&policy()).start()).collect();
    runtime().block_on(lists_everything(&services));
}

#[test]
fn keys_in_a_cluster_are_listed_once_by_several_replicas() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let services: Vec<_> = (0..2).map(|_| patient(&cluster.url()).policy(&policy()).start()).collect();
    runtime().block_on(lists_everything(&services));
}

#[test]
fn without_the_store_there_is_no_list() {
    let mut redis = Redis::start(Options::socket());
    let service = patient(&redis.url()).policy(&policy()).start();
    runtime().block_on(async {
        let channel = service.channel().await;
        spend(&channel, (0..9).map(user)).await;
        redis.kill();
        let page = AdminClient::new(channel).list_keys(prefix(&["user"], 9)).await;
        assert_eq!(page.expect_err("there is no store").code(), tonic::Code::Unavailable);
    });
}

/// Each replica lists all replicas, and the keys that any of them refuses most.
async fn replicas_know_each_other(services: Vec<Server>) {
    let mut replicas = Vec::new();
    for service in &services {
        replicas.push(service.channel().await);
    }
    let list = async |replica: &Channel| {
        let listed = AdminClient::new(replica.clone()).list_replicas(ListReplicasRequest {}).await;
        listed.expect("an answer").into_inner().replicas
    };
    for (index, replica) in replicas.iter().enumerate() {
        let listed = eventually_async("all replicas", async || {
            let listed = list(replica).await;
            (listed.len() == replicas.len()).then_some(listed)
        })
        .await;
        let answering: Vec<_> = listed.iter().filter(|replica| replica.answering).collect();
        assert!(answering.len() == 1 && answering[0].address.ends_with(&services[index].grpc), "{listed:?}");
        let of_first = |replica: &Replica| (replica.version.clone(), replica.policy_hash.clone());
        assert!(listed.iter().all(|replica| of_first(replica) == of_first(&listed[0]) && replica.store_healthy));
        assert!(listed.iter().all(|replica| replica.samples_hot_keys && replica.degraded_per_second == 0.0));
    }
    // Two replicas refuse one key, and the third reports it.
    let found = eventually_async("the refused key", async || {
        for replica in &replicas[..2] {
            spend(replica, (0..200).map(|_| CheckRequest { cost: Some(LIMIT as i64 + 1), ..user(1) })).await;
        }
        let request = ListHotKeysRequest { prefix: vec!["user".to_owned()], ..Default::default() };
        let found = AdminClient::new(replicas[2].clone()).list_hot_keys(request).await.expect("an answer").into_inner();
        assert_eq!(found.replicas as usize, replicas.len());
        (!found.keys.is_empty()).then_some(found)
    })
    .await;
    assert_eq!((&found.keys[0].key[..], &*found.keys[0].limit_name), (&user(1).key[..], "a"), "{found:?}");
    assert!(found.keys[0].refused_per_second > 0.0 && found.keys[0].limit == LIMIT, "{found:?}");
    let request = ListHotKeysRequest { domain: "other".to_owned(), ..Default::default() };
    let none = AdminClient::new(replicas[2].clone()).list_hot_keys(request).await.expect("an answer").into_inner();
    assert!(none.keys.is_empty());

    // A replica that shuts down removes its entry.
    let mut services = services.into_iter();
    let mut first = services.next().expect("a replica");
    first.stop();
    eventually_async("the others", async || (list(&replicas[1]).await.len() == replicas.len() - 1).then_some(())).await;
}

fn sampling(url: &str) -> Vec<Server> {
    let start = |_| patient(url).policy(&policy()).env("WEIR_HTTP__UI__ENABLED", "true").start();
    (0..3).map(start).collect()
}

#[test]
fn replicas_on_redis_know_each_other() {
    let redis = Redis::start(Options::socket());
    runtime().block_on(replicas_know_each_other(sampling(&redis.url())));
}

#[test]
fn replicas_on_a_cluster_know_each_other() {
    let cluster = Cluster::start(&ClusterOptions::default());
    runtime().block_on(replicas_know_each_other(sampling(&cluster.url())));
}

/// The hash expires only when no replica reports any more: one that restarts again and again keeps it.
#[test]
fn a_replica_that_starts_removes_the_reports_of_those_long_gone() {
    let redis = Redis::start(Options::socket());
    let report = |at_us| ReplicaReport { at_us, ..ReplicaReport::default() }.encode_to_vec();
    for (id, value) in [("gone", report(1)), ("later", report(i64::MAX)), ("newer version", b"\xff".to_vec())] {
        redis.command(&[b"HSET", &b"weir:replicas"[..], id.as_bytes(), &value]);
    }
    let _service = patient(&redis.url()).policy(&policy()).start();
    let ids = eventually("its own report", || {
        let ids = redis.cli(&["HKEYS", "weir:replicas"]);
        (ids.lines().any(|id| id.len() == 16)).then_some(ids)
    });
    assert!(!ids.lines().any(|id| id == "gone"), "{ids}");
    assert!(["later", "newer version"].iter().all(|kept| ids.lines().any(|id| id == *kept)), "{ids}");
}

#[test]
fn replicas_are_listed_while_the_reports_of_those_long_gone_cannot_be_deleted() {
    let redis = Redis::start(Options::socket());
    let service = patient(&redis.url()).policy(&policy()).start();
    // New connections need the permission.
    eventually("its own report", || (!redis.cli(&["HKEYS", "weir:replicas"]).is_empty()).then_some(()));
    redis.cli(&["ACL", "SETUSER", "default", "-hdel"]);
    for (id, at_us) in [("gone", 1), ("other", i64::MAX)] {
        let replica = Some(Replica { id: id.to_owned(), ..Replica::default() });
        let value = ReplicaReport { replica, at_us, ..ReplicaReport::default() }.encode_to_vec();
        redis.command(&[b"HSET", &b"weir:replicas"[..], id.as_bytes(), &value]);
    }
    runtime().block_on(async {
        let mut admin = AdminClient::new(service.channel().await);
        eventually_async("the other replica", async || {
            let listed = admin.list_replicas(ListReplicasRequest {}).await.expect("an answer").into_inner().replicas;
            listed.iter().any(|replica| replica.id == "other").then_some(())
        })
        .await;
    });
}

#[test]
fn without_the_store_a_replica_lists_itself() {
    let mut redis = Redis::start(Options::socket());
    let service = patient(&redis.url()).policy(&policy()).start();
    runtime().block_on(async {
        let channel = service.channel().await;
        spend(&channel, (0..9).map(user)).await;
        redis.kill();
        eventually_async("it is told that the store is down", async || {
            // Repeated failures open the circuit breaker.
            let _ = RateLimiterClient::new(channel.clone()).check(user(1)).await;
            let listed = AdminClient::new(channel.clone()).list_replicas(ListReplicasRequest {}).await;
            let listed = listed.expect("an answer").into_inner().replicas;
            assert!(listed.len() == 1 && listed[0].answering, "{listed:?}");
            (!listed[0].store_healthy).then_some(())
        })
        .await;
    });
}

/// No check and no override meets the failover: each listing must find it by itself.
#[test]
fn listings_recover_after_a_failover_that_no_check_meets() {
    let mut cluster = Cluster::start(&ClusterOptions { replicas: 1, ..ClusterOptions::default() });
    let service = patient(&cluster.url()).env("WEIR_STORE__REDIS__WAIT_REPLICAS", "1").policy(&policy()).start();
    runtime().block_on(async {
        let channel = service.channel().await;
        spend(&channel, (0..100).map(user)).await;
        for master in cluster.masters() {
            cluster.fail_over(master);
            eventually_async("all are listed", async || {
                let page = AdminClient::new(channel.clone()).list_keys(prefix(&["user"], 1_000)).await.ok()?;
                (page.into_inner().keys.len() == 2 * 100).then_some(())
            })
            .await;
        }
    });
}
