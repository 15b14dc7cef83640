//! Load is not an outage. One client sends far more work than the store can do within the timeout of a check. The store
//! still answers another client, which sends one check at a time: none of its checks is degraded, shed or late, and no
//! circuit breaker opens.
//!
//! The work determines the times, not the machine: the link to the store is slow, or each check reads large states. In
//! each test a round trip takes far less than a check's timeout, and all waiting work takes far more.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join_all;
use tokio::{runtime::Runtime, task::JoinHandle};
use tonic::Code;
use weir::proto::{CheckBatchRequest, CheckRequest, Limit, SlidingLog, limit::Algorithm};
use weir_test_redis::{Options, Server as Redis, eventually};

use crate::{
    service::{hash_of, patient, runtime},
    support::{
        Server,
        requests::{check, gcra, limit, peek, seconds_long, with_limits},
    },
    wire::Wire,
};

/// Number of connections of the flood.
const CONNECTIONS: usize = 8;
/// Maximum number of checks in one batch, and of limits in one check.
const CHECKS: usize = 1_000;
const LIMITS: usize = 16;
/// Bytes per second of the link to the store: one round trip's work, 2,048 levels of about 70 bytes, takes a second,
/// and the batches of all connections more than a minute.
const NARROW: u32 = 140_000;
/// Timeout of a check.
const COMMAND_TIMEOUT: &str = "6s";
/// Waiting checks of the flood when the other client starts, and the number of checks of that client.
const MANY: f64 = 300.0;
const GOOD_CHECKS: usize = 4;
/// Number of units in each log.
const LOGGED: u64 = 10_000;
/// Grows each state of a hash, a log of one unit, to a given number of units, a microsecond apart.
const FILL: &str = "
local fields, units = redis.call('HGETALL', KEYS[1]), tonumber(ARGV[1])
for index = 1, #fields, 2 do
  local expires, words = cmsgpack.unpack(fields[index + 1])
  local newest, numbers = words[1], {words[1] - units + 1}
  for number = 2, units do numbers[number] = 1 end
  numbers[units + 1], numbers[units + 2] = newest, units
  redis.call('HSET', KEYS[1], fields[index], cmsgpack.pack(expires, numbers))
end
return #fields / 2";

#[test]
fn a_flood_of_heavy_batches_does_not_starve_other_clients() {
    let redis = Redis::start(Options::socket());
    let service = narrow(&redis);
    let runtime = runtime();
    let flood = Flood::default();
    (0..CONNECTIONS).for_each(|number| flood.batches(&service, &runtime, heavy(&format!("heavy{number}"))));
    flood.leaves_a_good_client_its_turn(&service, &runtime);
}

/// All calls of a connection share one turn of the fair queue, however many tasks send them.
#[test]
fn a_flood_of_calls_does_not_starve_other_clients() {
    let redis = Redis::start(Options::socket());
    let service = narrow(&redis);
    let runtime = runtime();
    let flood = Flood::default();
    // Each connection has at most grpc.max_streams calls open.
    (0..CONNECTIONS).for_each(|number| flood.calls(&service, &runtime, heavy(&format!("heavy{number}"))));
    flood.leaves_a_good_client_its_turn(&service, &runtime);
}

#[test]
fn a_flood_of_large_log_peeks_does_not_starve_other_clients() {
    let redis = Redis::start(Options::socket());
    let service = setup(&redis.url());
    let runtime = runtime();
    let period = Some(seconds_long(86_400));
    let log = SlidingLog { count: LOGGED, period, ..SlidingLog::default() };
    let logs: Vec<_> = (0..LIMITS).map(|number| named(number, limit(Algorithm::SlidingLog(log)))).collect();
    // Two keys of each connection alternate, so that no check can reuse the state that the previous one read.
    let keys = |number: usize| ["a", "b"].map(|key| ["log".to_owned(), format!("{key}{number}")]);
    for key in (0..CONNECTIONS).flat_map(keys) {
        let charge = with_limits(check(&key), logs.clone());
        let charged = runtime.block_on(async { service.client().await.check(charge).await });
        assert!(charged.expect("an answer").into_inner().allowed);
        let hash = hash_of(&[&key[0], &key[1]]);
        redis.command(&[b"EVAL", FILL.as_bytes(), b"1", &hash, LOGGED.to_string().as_bytes()]);
    }
    let flood = Flood::default();
    for number in 0..CONNECTIONS {
        let keys = keys(number);
        let peeks = keys.iter().cycle().take(CHECKS).map(|key| with_limits(peek(key), logs.clone()));
        let peeks = peeks.map(|peek| CheckRequest { summary_only: true, ..peek });
        flood.batches(&service, &runtime, peeks.collect());
    }
    flood.leaves_a_good_client_its_turn(&service, &runtime);
}

fn setup(url: &str) -> Server {
    // One connection to the store: all checks share one queue.
    patient(url)
        .env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", COMMAND_TIMEOUT)
        .env("WEIR_STORE__REDIS__POOL_SIZE", "1")
        .env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "30s")
        .policy("schema: { good: { children: { '*': { limits: [[100000, 100000, 60]] } } } }")
        .start()
}

/// Starts a service with a slow link to the store.
fn narrow(redis: &Redis) -> Server {
    setup(&Wire::narrow(redis, NARROW).url())
}

fn named(number: usize, limit: Limit) -> Limit {
    Limit { name: format!("limit{number}"), ..limit }
}

/// Returns the checks of a batch of maximum work.
fn heavy(user: &str) -> Vec<CheckRequest> {
    let limits: Vec<_> = (0..LIMITS).map(|number| named(number, gcra(9, 9, 1))).collect();
    let check = |number: usize| with_limits(check(&[user, &number.to_string()]), limits.clone());
    (0..CHECKS).map(|number| CheckRequest { summary_only: true, ..check(number) }).collect()
}

/// Tasks that send until they are stopped. Their checks are decided by the store or shed.
#[derive(Default)]
struct Flood {
    stop: Arc<AtomicBool>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl Flood {
    /// Repeats a batch on a connection of its own.
    fn batches(&self, service: &Server, runtime: &Runtime, checks: Vec<CheckRequest>) {
        let (mut client, stop) = (runtime.block_on(service.client()), Arc::clone(&self.stop));
        self.tasks.borrow_mut().push(runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let batch = CheckBatchRequest { checks: checks.clone() };
                for result in client.check_batch(batch).await.expect("an answer").into_inner().results {
                    let code = result.error.as_ref().map(|error| Code::from(error.code));
                    assert!(code.is_none_or(|code| code == Code::ResourceExhausted), "{result:?}");
                    assert!(!result.degraded, "{result:?}");
                }
            }
        }));
    }

    /// Repeats checks, one call for each, all on one connection.
    fn calls(&self, service: &Server, runtime: &Runtime, checks: Vec<CheckRequest>) {
        let (client, stop) = (runtime.block_on(service.client()), Arc::clone(&self.stop));
        self.tasks.borrow_mut().push(runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let calls = checks.iter().map(|check| {
                    let (mut client, check) = (client.clone(), check.clone());
                    async move { client.check(check).await }
                });
                for answer in join_all(calls).await {
                    match answer {
                        Ok(answer) => assert!(!answer.get_ref().degraded, "{answer:?}"),
                        Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
                    }
                }
            }
        }));
    }

    /// Asserts that the store answers every check of another client during the flood.
    fn leaves_a_good_client_its_turn(self, service: &Server, runtime: &Runtime) {
        let waiting = format!("weir_store_waiting_checks{{server=\"{}\"}}", server(service));
        eventually("the flood waits", || match service.metric(&waiting) {
            many if many > MANY => Ok(()),
            few => Err(format!("{few} wait")),
        });
        let mut client = runtime.block_on(service.client());
        for number in 0..GOOD_CHECKS {
            let answer = runtime.block_on(client.check(check(&["good", &number.to_string()])));
            let answer = answer.unwrap_or_else(|status| panic!("check {number}: {status}")).into_inner();
            assert!(answer.allowed && !answer.degraded, "check {number}: {answer:?}");
        }
        let errors =
            |kind: &str| service.metric(&format!("weir_store_errors_total{{store=\"redis\",kind=\"{kind}\"}}"));
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks.into_inner() {
            runtime.block_on(task).expect("what the flood sends is decided by the store or shed");
        }
        assert_eq!((errors("breaker_open"), errors("lost")), (0.0, 0.0));
        assert!(errors("shed") > 0.0, "the flood was less than the store can do");
    }
}

/// Returns the store's name in metrics.
fn server(service: &Server) -> String {
    let metrics = service.get("/metrics").1;
    let line = metrics.lines().find_map(|line| line.strip_prefix("weir_store_server_up{server=\""));
    line.and_then(|rest| rest.split('"').next()).expect("a server").to_owned()
}
