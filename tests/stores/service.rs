//! Services on a shared store.

use std::time::{SystemTime, UNIX_EPOCH};

use weir_core::domain::{Key, Micros, time::DAY};

use tokio::runtime::Runtime;

use crate::support::{Server, server::Setup};

/// Number of services that share a store.
pub const REPLICAS: usize = 4;

/// Configures a service on the store at this URL, with timeouts that even a busy machine meets.
pub fn patient(url: &str) -> Setup {
    let setup = Setup::new().env("WEIR_STORE__URL", url).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "10s");
    setup.env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "10s")
}

/// Starts replicas with the same policy.
pub fn replicas(url: &str, policy: &str) -> Vec<Server> {
    (0..REPLICAS).map(|_| patient(url).policy(policy).start()).collect()
}

/// Returns a runtime for clients, apart from the test's own thread.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Returns the name of the hash with the states of an anchor in the default domain, under the default prefix.
pub fn hash_of(anchor: &[&str]) -> Vec<u8> {
    hash_in("", anchor)
}

/// Returns the name of the hash in any domain.
pub fn hash_in(domain: &str, anchor: &[&str]) -> Vec<u8> {
    let key = Key::new(domain, anchor).expect("a key");
    [b"weir:", key.prefix(anchor.len())].concat()
}

/// Returns a limit of `units` in a window that does not end during a test.
pub fn window(units: u64) -> String {
    format!("fixed_window: {{ count: {units}, period: {}d }}", days_without_an_edge())
}

/// Returns such a limit of another period, twice as long.
pub fn longer_window(units: u64) -> String {
    format!("fixed_window: {{ count: {units}, period: {}d }}", 2 * days_without_an_edge())
}

/// Returns a period, in days, whose windows, counted from the epoch, do not end within the next hour.
fn days_without_an_edge() -> Micros {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_micros() as Micros;
    let found = [31, 30, 29].into_iter().find(|days| days * DAY - now % (days * DAY) > DAY / 24);
    found.expect("the three have an edge in common only every 73 years")
}
