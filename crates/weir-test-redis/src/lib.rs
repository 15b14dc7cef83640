//! Real Redis servers for tests: a single one, a master with replica and Sentinels, a Cluster. Each has a directory of
//! its own below the system's directory for temporary files, listens on free loopback ports and a unix socket, does not
//! persist, and ends when its value is dropped or the test's process ends, however that happens.

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
pub use sentinel::Sentinels;
pub use silent::{Endless, HelloOnly, Silent};
pub use single::{HARNESS, Options, Server, TlsFiles};
pub use wire::Reply;

/// Timeout of every wait before a test fails; far above what is needed, for busy machines.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between polls of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls until there is a value; after [`TIMEOUT`] the test fails with the last error.
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
