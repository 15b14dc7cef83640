//! Memory per key: the growth of the process by a million keys of 24 bytes in a store.
//!
//! Each case runs in a separate process, so that it does not reuse memory that another one freed.

#![allow(clippy::expect_used)]

mod support;

use std::{env, process::Command};

use weir_core::plan::Plan;
use weir_store::{MemoryStore, SystemClock, memory::MemorySettings};

use support::{Shape, resident};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const KEYS: usize = 1_000_000;
/// Environment variable with the case, for the process that measures it.
const CASE: &str = "WEIR_BENCH_MEMORY_CASE";

fn main() {
    match env::var(CASE).ok().as_deref() {
        Some("one") => measure(Shape::One),
        Some(_) => measure(Shape::Nested),
        None => {
            println!("{KEYS} keys of 24 bytes; growth of the resident set when filled, and at its peak\n");
            println!(
                "{:<12} {:>9} {:>12} {:>14} {:>10} {:>15}",
                "", "RSS", "bytes/key", "bytes/state", "peak", "peak/state"
            );
            for case in ["one", "nested"] {
                let program = env::current_exe().expect("this program");
                let status = Command::new(program).env(CASE, case).status().expect("a process");
                assert!(status.success());
            }
        }
    }
}

fn measure(shape: Shape) {
    let policy = shape.policy(60, 0);
    let domain = policy.domain("").expect("the default domain");
    let states = KEYS * shape.levels();
    let before = resident("VmRSS:");
    let store = MemoryStore::new(MemorySettings { max_keys: states, ..MemorySettings::default() }, SystemClock::new());
    for user in 0..KEYS {
        let key = shape.key(user);
        let plan = Plan::new(domain.levels(&key, 1, 1.0).expect("no factor"), domain.charge, None);
        store.verdict(&plan);
    }
    assert_eq!((store.stats().keys, store.stats().capacity_misses), (states, 0));
    let (after, peak) = (resident("VmRSS:") - before, resident("VmHWM:") - before);
    let each = |bytes: usize, of: usize| bytes as f64 / of as f64;
    println!(
        "{:<12} {:>6} MB {:>12.1} {:>14.1} {:>7} MB {:>15.1}",
        shape.to_string(),
        after / 1_000_000,
        each(after, KEYS),
        each(after, states),
        peak / 1_000_000,
        each(peak, states)
    );
}
