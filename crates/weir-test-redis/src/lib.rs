//! Real Redis servers for tests: one, one with replica and Sentinels, a Cluster. Each lives in a directory of its own
//! below the system's directory for temporary files, listens on free loopback ports and a unix socket, keeps nothing on
//! disk, and ends with the value that started it, or with the test's process, however that ends.

#![allow(clippy::expect_used)]
#![cfg_attr(not(test), warn(unreachable_pub))]

mod cluster;
mod ports;
mod process;
mod sentinel;
mod silent;
mod single;
mod wire;

use std::time::{Duration, Instant};

pub use cluster::{Cluster, ClusterOptions, Migration};
pub use ports::free as free_port;
pub use process::Process;
pub use sentinel::{SentinelOptions, Sentinels};
pub use silent::{Endless, Greeter, Silent};
pub use single::{HARNESS, Options, Server, TlsFiles};
pub use wire::Reply;

/// How long anything may take before a test fails; far above what is needed, for machines that are busy.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until there is a value; after [`TIMEOUT`] the test fails with what was seen last.
pub fn eventually<T>(what: &str, mut poll: impl FnMut() -> Result<T, String>) -> T {
    let since = Instant::now();
    loop {
        match poll() {
            Ok(value) => return value,
            Err(seen) => assert!(since.elapsed() < TIMEOUT, "not in time: {what}; last seen: {seen}"),
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
