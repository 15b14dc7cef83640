//! `store.redis.wait_replicas`: a check is answered once that many replicas have its charge, or after a timeout.

use std::{thread::sleep, time::Duration};

use weir_test_redis::{Options, Server as Redis, eventually};

use crate::{
    service::{hash_of, patient, runtime, window},
    support::{Server, requests::check},
};

/// Time for which a replica is paused before it acknowledges: far less than the timeout.
const AWAY: Duration = Duration::from_millis(300);
const TIMEOUTS: &str = "weir_store_replication_timeouts_total{store=\"redis\"}";

/// Starts a master and a synchronized replica.
fn replicated() -> (Redis, Redis) {
    let master = Redis::start(Options::port());
    let replica = Redis::start(Options::port().set("replicaof", &format!("127.0.0.1 {}", master.port())));
    eventually("the replica follows", || match master.info("slave0")? {
        state if state.contains("state=online") => Ok(()),
        state => Err(state),
    });
    (master, replica)
}

fn waiting(url: &str, command_timeout: &str) -> Server {
    patient(url)
        .env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", command_timeout)
        .env("WEIR_STORE__REDIS__WAIT_REPLICAS", "1")
        .policy(&format!("schema: {{ user: {{ children: {{ '*': {{ limits: [{{ {} }}] }} }} }} }}", window(9)))
        .start()
}

#[test]
fn wait_replicas_delays_the_response_until_replication() {
    let (master, replica) = replicated();
    // A replica's acknowledgement may take half of this timeout.
    let service = waiting(&master.url(), "60s");
    let runtime = runtime();
    let mut client = runtime.block_on(service.client());
    replica.pause();
    let answer = runtime.spawn(async move { client.check(check(&["user", "alex"])).await });
    let hash = hash_of(&["user", "alex"]);
    let charged = |server: &Redis| server.command(&[b"HLEN", &hash[..]]);
    let none = charged(&Redis::start(Options::socket()));
    eventually("the master has it", || if charged(&master) == none { Err("not yet".to_owned()) } else { Ok(()) });
    sleep(AWAY);
    assert!(!answer.is_finished(), "answered before the replica has it");
    replica.resume();
    let answer = runtime.block_on(answer).expect("a task").expect("an answer").into_inner();
    assert!(answer.allowed && !answer.degraded, "{answer:?}");
    assert_ne!(charged(&replica), none);
    assert_eq!(service.metric(TIMEOUTS), 0.0);
}

#[test]
fn a_user_without_the_right_to_wait_is_rejected_and_logged() {
    let (master, _replica) = replicated();
    let rights = ["~weir:*", "+@all", "-wait"];
    master.cli(&[&["ACL", "SETUSER", "app", "on", ">pw"], &rights[..]].concat());
    let service = waiting(&master.url().replace("redis://", "redis://app:pw@"), "1s");
    let runtime = runtime();
    let mut client = runtime.block_on(service.client());
    let mut degraded = || {
        let answer = runtime.block_on(client.check(check(&["user", "alex"]))).expect("an answer").into_inner();
        answer.degraded
    };
    eventually("the circuit breaker opens", || if degraded() { Ok(()) } else { Err("not degraded".to_owned()) });
    eventually("it is logged", || {
        let log = service.log();
        if log.iter().any(|line| line.contains("NOPERM") && line.contains("'wait'")) {
            Ok(())
        } else {
            Err(log.join("\n"))
        }
    });
    assert_eq!(service.get("/readyz"), (200, "the shared store has not answered since the start\n".to_owned()));
    master.cli(&["ACL", "SETUSER", "app", "+wait"]);
    eventually("a new connection may", || if degraded() { Err("degraded".to_owned()) } else { Ok(()) });
}

#[test]
fn wait_replicas_times_out_without_a_replica_and_is_counted() {
    let (master, mut replica) = replicated();
    let service = waiting(&master.url(), "1s");
    replica.kill();
    let runtime = runtime();
    let mut client = runtime.block_on(service.client());
    for number in 1..=2 {
        let answer = runtime.block_on(client.check(check(&["user", "alex"]))).expect("an answer").into_inner();
        assert!(answer.allowed && !answer.degraded, "{answer:?}");
        assert_eq!((answer.remaining, service.metric(TIMEOUTS)), (9 - number, number as f64));
    }
    let warned = || service.log().into_iter().filter(|line| line.contains("a failover would lose charges")).count();
    let warned = eventually("it is logged", || if warned() > 0 { Ok(warned()) } else { Err("no line".to_owned()) });
    assert_eq!(warned, 1, "once a minute at most");
}
