//! The size of a state of each algorithm, in memory and in Redis: keys of 24 bytes under the limit of the algorithm's
//! first example, exhausted one unit at a time, a millisecond apart. Prints a table in the format
//! of the manuals, of all algorithms or of the ones named as arguments.
//!
//! Needs redis-server. In memory each algorithm has its own process, so that it does not reuse
//! memory that another one freed.

#![allow(clippy::expect_used)]

mod support;

use std::{env, process::Command, sync::Arc};

use weir_core::{
    algorithm::{Bounds, Entry, find, rates},
    domain::{Charge, ManualClock, Micros, StepInput},
    plan::{Level, Limit, Origin, Plan},
};
use weir_settings::Time;
use weir_store::{
    Decide, MemoryStore, Store, StoreUrl, Verdict,
    memory::MemorySettings,
    redis::{RedisStore, settings::RedisSettings},
};
use weir_test_redis::{Options, Reply, Server};

use smallvec::smallvec;
use support::{Shape, resident};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of keys in memory, so high that other memory of the process does not matter.
const KEYS: usize = 200_000;
/// Environment variable with the algorithm, for the process that measures it.
const CASE: &str = "WEIR_BENCH_STATES_CASE";
const NOW: Micros = 1_790_000_000_000_000;
/// Time between two requests for a key.
const APART: Micros = 1_000;

fn main() {
    if let Ok(name) = env::var(CASE) {
        return println!("{}", in_memory(find(&name).expect("an algorithm")));
    }
    let redis = Server::start(Options::socket());
    println!(
        "| algorithm | units used | in memory, a key of 24 bytes | in Redis, the state | in Redis, a key with it |"
    );
    println!("|---|---:|---:|---:|---:|");
    let named: Vec<_> = env::args().skip(1).filter(|argument| find(argument).is_some()).collect();
    let wanted = |entry: &&Entry| named.is_empty() || named.iter().any(|name| name == entry.name);
    for entry in rates().filter(wanted) {
        let program = env::current_exe().expect("this program");
        let output = Command::new(program).env(CASE, entry.name).output().expect("a process");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let memory = String::from_utf8(output.stdout).expect("a number");
        let (state, key) = in_redis(&redis, entry);
        let (name, units) = (entry.name, units(entry));
        println!("| `{name}` | {units} | {} bytes | {state} bytes | {key} bytes |", memory.trim());
    }
}

fn limit(entry: &Entry) -> Limit {
    let params = (entry.parse)(entry.examples[0], &Bounds::default()).expect("an example");
    Limit::new(Origin::Policy, None, "user/*", 0, false, params)
}

/// Returns the number of units that an unused key may spend in a burst.
fn units(entry: &Entry) -> u64 {
    limit(entry).params.step(None, &StepInput { now: NOW, cost: 0, max_wait: None, phase: 0 }).0.limit
}

/// Exhausts the limit of one key.
fn use_up(entry: &Entry, limit: &Limit, store: &impl Store, clock: &ManualClock, user: usize) {
    let key = Shape::One.key(user);
    for unit in 0..units(entry) {
        clock.set(NOW + unit as Micros * APART);
        let plan = Plan::new(smallvec![Level::new(&key, 2, 2, limit, 1)], Charge::AllOrNothing, None);
        let mut verdict = Verdict::default();
        let decided = match store.decide(&plan, &mut verdict) {
            Decide::Ready(verdict) => verdict.decisions.len(),
            Decide::Waiting(store) => runtime().block_on(store.verdict(&plan)).expect("decisions").decisions.len(),
        };
        assert_eq!(decided, 1);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Measures the bytes per key in memory.
fn in_memory(entry: &Entry) -> usize {
    let (clock, limit) = (Arc::new(ManualClock::default()), limit(entry));
    let before = resident("VmRSS:");
    let settings = MemorySettings { max_keys: KEYS, ..MemorySettings::default() };
    let store = MemoryStore::new(settings, Arc::clone(&clock));
    (0..KEYS).for_each(|user| use_up(entry, &limit, &store, &clock, user));
    assert_eq!((store.stats().keys, store.stats().capacity_misses), (KEYS, 0));
    (resident("VmRSS:") - before) / KEYS
}

/// Returns the bytes of the value, and of the hash that holds only this value, as the server reports them.
fn in_redis(server: &Server, entry: &Entry) -> (i64, i64) {
    let Ok(StoreUrl::Redis(url)) = server.url().parse() else { panic!("no Redis") };
    let clock = Arc::new(ManualClock::default());
    let settings = RedisSettings {
        key_prefix: format!("{}:", entry.name),
        command_timeout: Time::seconds(20),
        ..RedisSettings::default()
    };
    let metrics = std::sync::Arc::default();
    let store = RedisStore::start(&url, &settings, Some(Arc::clone(&clock) as _), metrics).expect("a thread");
    use_up(entry, &limit(entry), &store, &clock, 1);
    let ask = "local key = redis.call('KEYS', ARGV[1] .. '*')[1]
        return {#redis.call('HVALS', key)[1], redis.call('MEMORY', 'USAGE', key)}";
    let reply = server.command(&["EVAL", ask, "0", &settings.key_prefix]);
    let Reply::Array(items) = reply else { panic!("{reply:?}") };
    let [Reply::Int(state), Reply::Int(key)] = items[..] else { panic!("{items:?}") };
    (state, key)
}
