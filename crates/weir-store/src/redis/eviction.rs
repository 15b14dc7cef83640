//! Detection of servers that evict live keys when their memory is full.

use deadpool_redis::redis::{Value, aio::MultiplexedConnection};
use parking_lot::Mutex;
use tracing::{debug, info, warn};

use super::command::{command, failure, query};
use crate::url::Address;

/// Logs whether servers evict keys, when that changes.
#[derive(Default)]
pub(super) struct EvictionLog {
    /// The last server that evicts, and its policy.
    last: Mutex<Option<(Address, String)>>,
}

impl EvictionLog {
    /// Asks a server on a new connection. Without permission for `INFO` it is not known.
    pub(super) async fn ask(&self, connection: MultiplexedConnection, server: &Address) {
        let reply = query(connection, &command(&[b"INFO", b"memory"]), false).await.map_err(failure);
        let info = match &reply {
            Ok(Value::VerbatimString { text, .. }) => text,
            other => {
                let error = other.as_ref().err().map(tracing::field::display);
                debug!(%server, error, "it is not known whether the server evicts keys");
                return;
            }
        };
        let found = evicts(info).map(|policy| (server.clone(), policy.to_owned()));
        let before = std::mem::replace(&mut *self.last.lock(), found.clone());
        match found {
            unchanged if unchanged == before => {}
            Some((server, policy)) => warn!(
                %server,
                policy,
                "the server evicts keys when its memory is full, so limits would start afresh: set maxmemory-policy noeviction"
            ),
            None => info!(%server, "the server does not evict keys"),
        }
    }
}

/// Returns the eviction policy in an `INFO memory` reply, if keys can be evicted.
fn evicts(info: &str) -> Option<&str> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let has_bound = field("maxmemory").is_some_and(|bytes| bytes != "0");
    field("maxmemory_policy").filter(|policy| has_bound && *policy != "noeviction")
}
