//! Detection of servers that evict live keys when their memory is full.

use deadpool_redis::redis::{Value, aio::MultiplexedConnection};
use tracing::{debug, warn};

use super::command::{command, failure, query};
use crate::url::Address;

/// Logs a warning if a server evicts keys. Without permission for `INFO` it is not detected.
pub(super) async fn warn_of_eviction(connection: MultiplexedConnection, server: &Address) {
    let reply = query(connection, &command(&[b"INFO", b"memory"]), false).await.map_err(failure);
    let info = match &reply {
        Ok(Value::VerbatimString { text, .. }) => text,
        other => {
            let error = other.as_ref().err().map(tracing::field::display);
            debug!(%server, error, "it is not known whether the server evicts keys");
            return;
        }
    };
    if let Some(policy) = evicts(info) {
        warn!(
            %server,
            policy,
            "the server evicts keys when its memory is full, so limits would start afresh: set maxmemory-policy noeviction"
        );
    }
}

/// Returns the eviction policy in an `INFO memory` reply, if keys can be evicted.
fn evicts(info: &str) -> Option<&str> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let has_bound = field("maxmemory").is_some_and(|bytes| bytes != "0");
    field("maxmemory_policy").filter(|policy| has_bound && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_with_maxmemory_and_an_eviction_policy_evict() {
        let info =
            |bound: &str, policy: &str| format!("# Memory\r\nmaxmemory:{bound}\r\nmaxmemory_policy:{policy}\r\n");
        for (bound, policy, expected) in [
            ("0", "allkeys-lru", None),
            ("1048576", "noeviction", None),
            ("1048576", "volatile-ttl", Some("volatile-ttl")),
            ("1048576", "allkeys-lfu", Some("allkeys-lfu")),
        ] {
            assert_eq!(evicts(&info(bound, policy)), expected);
        }
        assert_eq!(evicts(""), None);
    }
}
