//! The limit of open files (`RLIMIT_NOFILE`), raised to the hard limit: every connection takes a file descriptor, and
//! once there is none left no port accepts connections and no file can be read.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;
use weir_server::max_open;

/// File descriptors in addition to client connections: listeners, files being read, connections to a store.
const BESIDE_CONNECTIONS: u64 = 256;

/// Raises the soft limit to the hard limit, and warns if the connections of ports with these maxima do not fit.
pub(super) fn raise(max_connections: [usize; 3]) {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let most = if raised.is_ok() { limit.maximum } else { limit.current };
    let needed = max_connections.map(max_open).iter().sum::<usize>() as u64 + BESIDE_CONNECTIONS;
    if let Some(most) = most.filter(|most| *most < needed) {
        warn!(
            limit = most,
            needed,
            "connections may take all open files: raise LimitNOFILE or `ulimit -Hn`, or lower max_connections of the ports"
        );
    }
}
