//! A snapshot of a million keys of 24 bytes: the time to write and to load it, the size of the file, and the latency of
//! decisions meanwhile.

#![allow(clippy::expect_used)]

mod support;

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use weir_core::{
    domain::{Clock, Key},
    plan::Plan,
};
use weir_policy::Policy;
use weir_store::{
    MemoryStore, SystemClock,
    memory::{
        MemorySettings,
        snapshot::{Snapshot, save},
    },
};

use support::Shape;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: usize = 1_000_000;
const ROUNDS: usize = 3;

fn main() {
    println!("{KEYS} keys of 24 bytes, {ROUNDS} rounds; decisions by one thread meanwhile\n");
    println!(
        "{:<12} {:>9} {:>12} {:>9} {:>9} {:>12} {:>12}",
        "", "file", "bytes/state", "write", "load", "p99 decision", "p99.9"
    );
    for shape in [Shape::One, Shape::Nested] {
        measure(shape);
    }
}

fn measure(shape: Shape) {
    let policy = shape.policy(60, 1_000_000);
    let settings = MemorySettings { max_keys: KEYS * shape.levels(), ..MemorySettings::default() };
    let store = MemoryStore::new(settings, SystemClock::new());
    for user in 0..KEYS {
        decide(&store, &policy, &shape.key(user));
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("weir.snapshot");
    for _ in 0..ROUNDS {
        let written = AtomicBool::new(false);
        let (saved, write, decisions) = thread::scope(|scope| {
            let decisions = scope.spawn(|| {
                let mut times = Vec::new();
                for user in (0..KEYS).map(|number| number * 7_919 % KEYS).cycle() {
                    let key = shape.key(user);
                    let since = Instant::now();
                    decide(&store, &policy, &key);
                    times.push(since.elapsed());
                    if written.load(Ordering::Relaxed) {
                        break;
                    }
                }
                times.sort_unstable();
                times
            });
            let since = Instant::now();
            let saved = save(&store, &path).expect("written");
            let write = since.elapsed();
            written.store(true, Ordering::Relaxed);
            (saved, write, decisions.join().expect("no panic"))
        });
        let since = Instant::now();
        let snapshot = Snapshot::open(&path).expect("good").expect("a file");
        let loaded = MemoryStore::new(settings, SystemClock::resuming_at(snapshot.clock()));
        snapshot.load_into(&loaded, |_| 2).expect("good");
        let load = since.elapsed();
        assert_eq!((saved.states, loaded.stats().keys), (store.stats().keys as u64, store.stats().keys));
        assert_eq!(fs::metadata(&path).expect("a file").len(), saved.bytes);
        let at = |share: f64| decisions[(decisions.len() as f64 * share) as usize];
        println!(
            "{:<12} {:>6} MB {:>12.1} {:>9} {:>9} {:>12} {:>12}",
            shape.to_string(),
            saved.bytes / 1_000_000,
            saved.bytes as f64 / saved.states as f64,
            shown(write),
            shown(load),
            shown(at(0.99)),
            shown(at(0.999)),
        );
    }
}

fn decide<C: Clock>(store: &MemoryStore<C>, policy: &Policy, key: &Key) {
    let domain = policy.domain("").expect("the default domain");
    store.verdict(&Plan::new(domain.levels(key, 1, 1.0).expect("no factor"), domain.charge, None));
}

fn shown(time: Duration) -> String {
    format!("{:.1?}", time)
}
