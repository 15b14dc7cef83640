//! The `HELLO` command: identifies a server and verifies that it is of the expected kind.

use std::collections::HashMap;

use deadpool_redis::redis::{
    Cmd, ErrorKind, RedisError, RedisResult, Value, from_redis_value_ref, make_extension_error,
};

use crate::url::Topology;

/// Oldest supported Redis: it has `HELLO` and ACLs, on servers and Sentinels.
const OLDEST: (u32, u32) = (6, 2);

/// The mode of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMode {
    /// A single server, or one with replicas.
    Standalone,
    /// A node of a Cluster.
    Cluster,
    /// A Sentinel.
    Sentinel,
}

impl ServerMode {
    /// Returns the expected mode of the servers that hold the data.
    pub fn of(topology: &Topology) -> Self {
        match topology {
            Topology::Single(_) | Topology::Sentinel { .. } => Self::Standalone,
            Topology::Cluster { .. } => Self::Cluster,
        }
    }
}

/// Builds the command. The crate sends its own `HELLO` to authenticate, but hides the reply. This one also names the
/// connection, for which `CLIENT SETNAME` would need a permission.
pub fn command() -> Cmd {
    super::command::command(&[b"HELLO", b"3", b"SETNAME", b"weir"])
}

/// A server's reply to `HELLO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// `redis`, `valkey`, or another server that speaks the protocol.
    server: String,
    version: String,
    mode: String,
    /// Empty for Sentinels.
    role: String,
}

impl Hello {
    /// Parses the reply.
    ///
    /// # Errors
    /// The reply is not one to `HELLO`.
    pub fn read(reply: &Value) -> RedisResult<Self> {
        let fields: HashMap<String, Value> =
            from_redis_value_ref(reply).map_err(|_| wrong("the reply to HELLO cannot be read"))?;
        let text = |name| fields.get(name).and_then(|value| from_redis_value_ref(value).ok()).unwrap_or_default();
        Ok(Self { server: text("server"), version: text("version"), mode: text("mode"), role: text("role") })
    }

    /// Checks that the server has this mode, is new enough, and with `as_master` accepts writes.
    ///
    /// # Errors
    /// The actual kind of server; `READONLY` for a replica, since its role may change.
    pub fn check(&self, mode: ServerMode, as_master: bool) -> RedisResult<()> {
        if self.server == "redis" && version(&self.version).is_some_and(|version| version < OLDEST) {
            let (version, (major, minor)) = (&self.version, OLDEST);
            return Err(wrong(&format!("it runs Redis {version}; Redis {major}.{minor} or Valkey is needed")));
        }
        let other = match (mode, self.mode.as_str()) {
            (ServerMode::Standalone, "cluster") => "it is part of a Cluster; use redis-cluster://",
            (ServerMode::Cluster, "standalone") => "it is not part of a Cluster; use redis://",
            (ServerMode::Standalone | ServerMode::Cluster, "sentinel") => "it is a Sentinel; use redis-sentinel://",
            (ServerMode::Sentinel, "standalone" | "cluster") => "it is not a Sentinel but a server of data",
            _ if as_master && !matches!(self.role.as_str(), "master" | "primary") => {
                let why = format!("the server is a {}, not a master", self.role);
                return Err(make_extension_error("READONLY".to_owned(), Some(why)));
            }
            _ => return Ok(()),
        };
        Err(wrong(other))
    }
}

fn wrong(why: &str) -> RedisError {
    (ErrorKind::InvalidClientConfig, "another server", why.to_owned()).into()
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::command::describe;

    fn hello_of(server: &str, version: &str, mode: &str, role: &str) -> Hello {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = [("server", server), ("version", version), ("mode", mode), ("role", role)];
        let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (text(name), text(value))).collect();
        fields.extend([(text("proto"), Value::Int(3)), (text("modules"), Value::Array(Vec::new()))]);
        Hello::read(&Value::Map(fields)).unwrap()
    }

    fn judged(hello: &Hello, mode: ServerMode) -> Result<(), String> {
        hello.check(mode, mode != ServerMode::Sentinel).map_err(|error| describe(&error))
    }

    #[test]
    fn supported_servers_are_accepted() {
        for (server, version) in [("redis", "6.2.0"), ("redis", "7.0.15"), ("valkey", "8.1.0"), ("other", "1.0")] {
            assert_eq!(judged(&hello_of(server, version, "standalone", "master"), ServerMode::Standalone), Ok(()));
            assert_eq!(judged(&hello_of(server, version, "cluster", "master"), ServerMode::Cluster), Ok(()));
            assert_eq!(judged(&hello_of(server, version, "sentinel", ""), ServerMode::Sentinel), Ok(()));
        }
    }

    #[test]
    fn an_old_version_is_rejected_with_a_reason() {
        let error = judged(&hello_of("redis", "6.0.16", "standalone", "master"), ServerMode::Standalone).unwrap_err();
        assert!(error.contains("runs Redis 6.0.16"), "{error}");
    }

    #[test]
    fn a_replica_passes_for_the_topology() {
        let replica = hello_of("redis", "7.0.1", "standalone", "replica");
        assert_eq!(replica.check(ServerMode::Standalone, false), Ok(()));
    }
}
