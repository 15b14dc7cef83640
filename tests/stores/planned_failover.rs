//! Planned Sentinel failovers while the master is healthy. The old master keeps its role for a while, and charges made
//! there in that time are lost.

use std::{thread, time::Duration};

use weir_test_redis::{Options, Sentinels, Server as Redis, eventually};

use crate::{
    service::{patient, runtime, window},
    support::{
        Server, eventually_async,
        requests::{self, check, peek},
    },
};

const UNITS: u64 = 1_000;
/// Number of keys, so large that every connection of the service is used.
const KEYS: u64 = 100;
/// Number of other keys in the database, besides states.
const OTHER_KEYS: u64 = 1_000_000;
/// With it Sentinels start no failover of their own, however long a busy machine lets the master wait.
const NEVER_DOWN_MS: u32 = 60_000;
/// The log line of a switch to another master.
const SWITCHED: &str = "connections go to the new master";

#[test]
fn a_live_master_is_left_at_once_after_a_failover() {
    let all = Sentinels::start(NEVER_DOWN_MS);
    let setup = || patient(&all.url()).policy(&policy());
    let (service, runtime) = (setup().start(), runtime());
    runtime.block_on(charge_each(&service));
    has_all_of(&all.data[1 - all.master()], &all.data[all.master()]);

    let old = all.switch_with_stale_master();
    eventually("the switch is seen", || log_count(&service, SWITCHED, 1));
    runtime.block_on(charge_each(&service));

    // A service that never was connected to the old master.
    let other = setup().start();
    for number in 0..KEYS {
        assert_eq!(runtime.block_on(left(&other, number)), UNITS - 2, "both charges of key {number}");
    }
    assert_eq!(all.data[old].info("role").as_deref(), Ok("master"), "no Sentinel has reconfigured it yet");
}

/// The Sentinel that leads the failover is paused as soon as the replica is promoted, so that it never announces it.
#[test]
fn a_replica_is_followed_once_it_is_promoted() {
    let all = Sentinels::start(NEVER_DOWN_MS);
    let (service, runtime) = (patient(&all.url()).policy(&policy()).start(), runtime());
    runtime.block_on(charge_each(&service));
    let (old, new) = (all.master(), 1 - all.master());
    has_all_of(&all.data[new], &all.data[old]);
    for sentinel in &all.sentinels {
        // Otherwise the other Sentinels would demote it after four of these periods.
        sentinel.cli(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "60000"]);
    }
    let leader = &all.sentinels[0];
    eventually("a failover begins", || leader.try_cli(&["SENTINEL", "FAILOVER", "mymaster"]));
    eventually("the replica is promoted", || match all.data[new].info("role")?.as_str() {
        "master" => Ok(()),
        role => Err(role.to_owned()),
    });
    leader.pause();
    eventually("the switch is seen", || log_count(&service, SWITCHED, 1));
    runtime.block_on(charge_each(&service));
    // Several rounds, in which the other Sentinels still name the old master.
    thread::sleep(Duration::from_secs(1));
    log_count(&service, SWITCHED, 1).expect("nothing goes back and forth");
    let other = patient(&all.data[new].url()).policy(&policy()).start();
    for number in 0..KEYS {
        assert_eq!(runtime.block_on(left(&other, number)), UNITS - 2, "both charges of key {number}");
    }
    leader.resume();
}

/// A stale Sentinel, cut off or misconfigured, names another master than the rest.
#[test]
fn one_stale_sentinel_of_three_is_outvoted() {
    let (stale, master) = (Redis::start(Options::port()), Redis::start(Options::port()));
    let sentinels = [&stale, &master, &master].map(watching);
    let service = led_by_the_first(&sentinels);
    eventually("the others are followed", || log_count(&service, SWITCHED, 1));
    let runtime = runtime();
    // Several rounds, in which the stale Sentinel still names its master.
    for _ in 0..20 {
        runtime.block_on(charge_each(&service));
        thread::sleep(Duration::from_millis(50));
    }
    let other = patient(&url(&sentinels[1..])).policy(&policy()).start();
    assert_eq!(runtime.block_on(left(&other, 7)), UNITS - 20);
    log_count(&service, SWITCHED, 1).expect("nothing goes back and forth");
}

/// The stale Sentinel's master hangs while the service connects to it.
#[test]
fn a_connection_under_way_to_an_outvoted_master_is_not_used() {
    let (stale, master) = (Redis::start(Options::port()), Redis::start(Options::port()));
    let sentinels = [&stale, &master, &master].map(watching);
    stale.pause();
    let service = led_by_the_first(&sentinels);
    // Several rounds, in which the others name their master.
    thread::sleep(Duration::from_secs(1));
    stale.resume();
    let runtime = runtime();
    runtime.block_on(charge_each(&service));
    let other = patient(&url(&sentinels[1..])).policy(&policy()).start();
    for number in 0..KEYS {
        assert_eq!(runtime.block_on(left(&other, number)), UNITS - 1, "key {number}");
    }
}

#[test]
fn a_master_that_rejects_writes_is_not_switched_to() {
    let (master, other) =
        (Redis::start(Options::port()), Redis::start(Options::port().set("min-replicas-to-write", "1")));
    let sentinels = [&master, &other, &other].map(watching);
    let service = led_by_the_first(&sentinels);
    eventually("it is logged", || log_count(&service, "that does not accept checks", 1));
    runtime().block_on(charge_each(&service));
    log_count(&service, SWITCHED, 0).expect("it stays");
}

#[test]
fn a_reset_during_a_failover_applies_to_the_new_master() {
    let (old, new) = (Redis::start(Options::port()), Redis::start(Options::port()));
    let (service, sentinel) = charged_on_both(&old, &new);
    // Opens the connection for resets, which could not be opened while the master is paused.
    reset(&service, &["user", "8"], false);
    old.pause();
    thread::scope(|scope| {
        // Whether the reset runs before or after the switch: no client gets an answer of the old master that the new
        // one contradicts.
        let reset = scope.spawn(|| reset(&service, &["user", "7"], false));
        lead(&sentinel, &new);
        eventually("the switch is seen", || log_count(&service, SWITCHED, 1));
        old.resume();
        reset.join().expect("a reset");
    });
    assert_eq!(runtime().block_on(left(&service, 7)), UNITS);
}

#[test]
fn a_scan_restarts_on_the_new_master() {
    let (old, new) = (Redis::start(Options::port()), Redis::start(Options::port()));
    let (service, sentinel) = charged_on_both(&old, &new);
    // With these keys the scan is far from its end when the master is paused.
    for server in [&old, &new] {
        server.cli(&["DEBUG", "POPULATE", &OTHER_KEYS.to_string(), "other"]);
    }
    thread::scope(|scope| {
        let reset = scope.spawn(|| reset(&service, &["user"], true));
        eventually("the scan has started", || if scans(&old)? > 100 { Ok(()) } else { Err("not yet".to_owned()) });
        old.pause();
        lead(&sentinel, &new);
        eventually("the switch is seen", || log_count(&service, SWITCHED, 1));
        old.resume();
        reset.join().expect("a reset");
    });
    let pages = scans(&new).expect("a number");
    reset(&service, &["user"], true);
    let all = scans(&new).expect("a number") - pages;
    assert!(pages > 0 && pages + 50 >= all, "{pages} pages of {all} were looked at");
    for number in 0..KEYS {
        assert_eq!(runtime().block_on(left(&service, number)), UNITS, "key {number}");
    }
}

/// Returns a service with one Sentinel that names `old`, and the same counts on both servers.
fn charged_on_both(old: &Redis, new: &Redis) -> (Server, Redis) {
    let runtime = runtime();
    for server in [new, old] {
        let service = patient(&server.url()).policy(&policy()).start();
        runtime.block_on(charge_each(&service));
    }
    let sentinel = watching(old);
    let service = led_by_the_first(std::slice::from_ref(&sentinel));
    assert_eq!(runtime.block_on(left(&service, 7)), UNITS - 1);
    (service, sentinel)
}

/// Makes the Sentinel name this master.
pub fn lead(sentinel: &Redis, master: &Redis) {
    sentinel.cli(&["SENTINEL", "REMOVE", "mymaster"]);
    sentinel.cli(&["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", &master.port().to_string(), "1"]);
}

fn reset(service: &Server, key: &[&str], subtree: bool) {
    runtime()
        .block_on(async { service.client().await.reset(requests::reset(key, subtree)).await.expect("it is done") });
}

/// Returns the number of scan pages requested from a server.
fn scans(server: &Redis) -> Result<u64, String> {
    let found = server.info("cmdstat_scan")?;
    let calls = found.strip_prefix("calls=").and_then(|rest| rest.split(',').next()).unwrap_or("0");
    calls.parse().map_err(|_| found.clone())
}

fn policy() -> String {
    format!("schema: {{ user: {{ children: {{ '*': {{ limits: [{{ {} }}] }} }} }} }}", window(UNITS))
}

/// Starts a service that waits long for the first Sentinel, which may be slow on a busy machine.
fn led_by_the_first(sentinels: &[Redis]) -> Server {
    patient(&url(sentinels)).policy(&policy()).env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "30s").start()
}

pub fn watching(master: &Redis) -> Redis {
    Redis::start(Options::sentinel().set("sentinel monitor", &format!("mymaster 127.0.0.1 {} 1", master.port())))
}

pub fn url(sentinels: &[Redis]) -> String {
    let hosts: Vec<_> = sentinels.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("redis-sentinel://{}/mymaster", hosts.join(","))
}

/// Checks that the log contains a line exactly `times` times.
fn log_count(service: &Server, line: &str, times: usize) -> Result<(), String> {
    let log = service.log();
    let found = log.iter().filter(|found| found.contains(line)).count();
    if found == times { Ok(()) } else { Err(format!("{found} times: {log:#?}")) }
}

async fn charge_each(service: &Server) {
    let mut client = service.client().await;
    for number in 0..KEYS {
        let answer = client.check(check(&["user", &number.to_string()])).await.expect("an answer").into_inner();
        assert!(answer.allowed && !answer.degraded, "{answer:?}");
    }
}

async fn left(service: &Server, number: u64) -> u64 {
    let mut client = service.client().await;
    eventually_async("the store answers", async || {
        let answer = client.check(peek(&["user", &number.to_string()])).await.expect("an answer").into_inner();
        (!answer.degraded).then_some(answer.remaining)
    })
    .await
}

/// Waits until the replica has received everything that its master has written so far.
fn has_all_of(replica: &Redis, master: &Redis) {
    let offset = |server: &Redis, name| server.info(name)?.parse::<u64>().map_err(|error| error.to_string());
    let written = offset(master, "master_repl_offset").expect("an offset");
    eventually("the replica has it all", || match offset(replica, "slave_repl_offset")? {
        read if read >= written => Ok(()),
        read => Err(format!("{read} of {written}")),
    });
}
