//! Silent nodes of a Cluster, slots that their master does not serve, and keys in a slot under migration.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use weir_test_redis::{Cluster, ClusterOptions, HelloOnly, Reply, eventually};

use crate::{
    service::{hash_of, patient, runtime},
    support::{Server as Service, requests::check},
};

const SLOTS: u16 = 16_384;
/// The log line of a server whose circuit breaker is open.
const DOWN: &str = "store unhealthy: circuit breaker open, checks are decided by on_store_failure";
/// Number of checks, which take far longer than several probes.
const CHECKS_WHILE_DOWN: usize = 500;

const POLICY: &str =
    "schema: { user: { children: { '*': { limits: [{ gcra: { burst: 9, count: 1, period: 1h } }] } } } }";
/// Number of clients whose checks are of a slot that its master does not serve, and the number of their checks.
const ASKING: usize = 8;
const CHECKS_OF_THE_SLOT: usize = 3;
/// Number of keys in a slot, and the number of them that have migrated.
const KEYS: usize = 10;
const MOVED: &str = "4";

#[test]
fn a_node_silent_after_its_hello_does_not_block_the_others() {
    let (silent, cluster) = (HelloOnly::start(), Cluster::start(&ClusterOptions::default()));
    let url = format!("redis-cluster://127.0.0.1:{},127.0.0.1:{}", silent.port(), cluster.nodes[0].port());
    let service = patient(&url).env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "500ms").policy(POLICY).start();
    runtime().block_on(async {
        let mut client = service.client().await;
        let answer = client.check(check(&["user", "alex"])).await.expect("an answer").into_inner();
        assert!(answer.allowed && !answer.degraded, "{answer:?}");
    });
}

#[test]
fn a_reset_finds_keys_under_migration() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let service = patient(&cluster.url()).policy(POLICY).start();
    let name = |number: usize| [&hash_of(&["user"])[..], format!("{{alex}}{number}").as_bytes()].concat();
    let slot = cluster.slot(&name(0));
    let owner = cluster.owner(slot);
    let other = cluster.masters().into_iter().find(|node| *node != owner).expect("another");
    for number in 0..KEYS {
        let command: [&[u8]; 4] = [b"HSET", &name(number), b"field", b"value"];
        assert_eq!(cluster.nodes[owner].try_command(&command).expect("a reply"), Reply::Int(1));
    }
    let migration = cluster.begin_migration(slot, other);
    assert_eq!(migration.move_some(MOVED).to_string(), MOVED);
    let run = service.run(&["reset", "user", "--subtree"]);
    assert_eq!(run.code, 0, "{run:?}");
    for node in [owner, other] {
        let count = cluster.nodes[node].cli(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]);
        assert_eq!(count, "0", "node {node}");
    }
    migration.finish();
}

#[test]
fn a_node_out_of_memory_stays_unhealthy_after_a_slot_moved() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let service = patient(&cluster.url()).policy(POLICY).start();
    let runtime = runtime();
    let mut client = runtime.block_on(service.client());
    let mut degraded = |user: &str| {
        let answer = runtime.block_on(client.check(check(&["user", user])));
        answer.expect("an answer").into_inner().degraded
    };
    let (node, other) = (1, 0);
    let first = (0..SLOTS).find(|slot| cluster.owner(*slot) == node).expect("it serves some");
    let slot_of = |user: &str| cluster.slot(&hash_of(&["user", user]));
    let mut users = (0..).map(|number| number.to_string());
    let moved = users.find(|user| slot_of(user) == first).expect("every slot has some");
    let stays = users.find(|user| slot_of(user) == first + 1).expect("every slot has some");
    assert!(!degraded(&moved), "where it is known from the start");
    cluster.migrate_slot(first, other);
    assert!(!degraded(&moved), "where it is found");

    cluster.nodes[node].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    service_is_down(&service, || degraded(&stays));
    let lines = service.log_lines("store healthy: circuit breaker closed");
    assert!(lines.is_empty(), "{lines:?}");
    cluster.nodes[node].cli(&["CONFIG", "SET", "maxmemory", "0"]);
    service.wait_for_log("store healthy: circuit breaker closed");
    eventually("it is asked again", || if degraded(&stays) { Err("degraded") } else { Ok(()) }.map_err(str::to_owned));
}

#[test]
fn a_slot_that_its_master_does_not_serve_degrades_no_other_slot() {
    let settings = vec![("cluster-require-full-coverage".to_owned(), "no".to_owned())];
    let cluster = Cluster::start(&ClusterOptions { settings, ..ClusterOptions::default() });
    let setup = patient(&cluster.url()).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "2s");
    let service = setup.policy(POLICY).start();
    let node = 1;
    let slot_of = |user: &str| cluster.slot(&hash_of(&["user", user]));
    let mut users = (0..).map(|number| number.to_string()).filter(|user| cluster.owner(slot_of(user)) == node);
    let (lost, other) = (users.next().expect("there are more"), users.next().expect("there are more"));
    // The other nodes still say that it has the slot.
    cluster.nodes[node].cli(&["CLUSTER", "DELSLOTS", &slot_of(&lost).to_string()]);
    let ask_for = async |user: &str, expected: bool, count: usize| {
        let mut client = service.client().await;
        for _ in 0..count {
            let answer = client.check(check(&["user", user])).await.expect("an answer").into_inner();
            assert_eq!(answer.degraded, expected, "{user}: {answer:?}");
            // Meanwhile there are round trips with checks of the lost slot only.
            sleep(Duration::from_millis(5)).await;
        }
    };
    runtime().block_on(async {
        tokio::select! {
            _ = join_all((0..ASKING).map(|_| ask_for(&lost, true, CHECKS_OF_THE_SLOT))) => {}
            () = ask_for(&other, false, usize::MAX) => {}
        }
    });
    assert!(service.log_lines(DOWN).is_empty());
}

/// Sends checks until the breaker opens, and many more while it is open, so that probes have time to fail.
fn service_is_down(service: &Service, mut degraded: impl FnMut() -> bool) {
    eventually("checks do not go there", || match service.log_lines(DOWN).len() {
        0 => Err(format!("degraded: {}", degraded())),
        _ => Ok(()),
    });
    for _ in 0..CHECKS_WHILE_DOWN {
        assert!(degraded());
    }
}
