//! The limit of open files. Raised to the most that is allowed, since connections count: once they have taken all, no port accepts others
//! and no file can be read.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Files beside connections: those that listen, those that are read, connections to a store.
const BESIDE_CONNECTIONS: u64 = 256;

/// Raises the limit, and warns where so many connections do not fit.
pub(super) fn raise_limit(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let most = if raised.is_ok() { limit.maximum } else { limit.current };
    let needed = connections as u64 + BESIDE_CONNECTIONS;
    if let Some(most) = most.filter(|most| *most < needed) {
        warn!(
            limit = most,
            needed,
            "connections may take all open files: raise LimitNOFILE or `ulimit -Hn`, or lower max_connections of the ports"
        );
    }
}
