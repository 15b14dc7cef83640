//! What a server says of itself when it is greeted, and whether that is the server that was meant.

use super::connection::Reply;
use crate::store::{
    Failure,
    failure::{RefusalCode, ServerError},
    url::{Address, Topology},
};

/// The oldest Redis that has all that is needed: `HELLO` on servers and Sentinels, and their ACLs.
const OLDEST: (u32, u32) = (6, 2);

/// How a server works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Alone, or with replicas.
    Standalone,
    /// A node of a Cluster.
    Cluster,
    /// A Sentinel.
    Sentinel,
}

impl Mode {
    /// How the servers of a topology that hold data must work.
    pub fn of(topology: &Topology) -> Self {
        match topology {
            Topology::Single(_) | Topology::Sentinel { .. } => Self::Standalone,
            Topology::Cluster { .. } => Self::Cluster,
        }
    }
}

/// A server's answer to `HELLO`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// `redis`, `valkey`, or what else speaks the protocol.
    server: String,
    version: String,
    mode: String,
    /// Sentinels have none.
    role: String,
}

impl Greeting {
    /// Reads the answer: names and values in turn.
    ///
    /// # Errors
    /// A sentence when this is none.
    pub fn read(reply: &Reply) -> Result<Self, &'static str> {
        let Reply::Array(fields) = reply else { return Err("HELLO is answered by something else") };
        let mut greeting = Self::default();
        for pair in fields.chunks_exact(2) {
            let [name, value] = pair else { continue };
            let place = match text(name).as_deref() {
                Some("server") => &mut greeting.server,
                Some("version") => &mut greeting.version,
                Some("mode") => &mut greeting.mode,
                Some("role") => &mut greeting.role,
                _ => continue,
            };
            *place = text(value).unwrap_or_default();
        }
        Ok(greeting)
    }

    /// Whether this is a server of such a kind, new enough, and with `as_master` one that takes writes.
    ///
    /// # Errors
    /// [`Failure::Connect`] when it is another server than the settings say; [`Failure::Refused`] when it is a replica,
    /// for that may change.
    pub fn check(&self, address: &Address, mode: Mode, as_master: bool) -> Result<(), Failure> {
        let wrong = |what: &str| Err(Failure::Connect(format!("{address} {what}").into()));
        if self.server == "redis" && version(&self.version).is_some_and(|version| version < OLDEST) {
            return wrong(&format!("runs Redis {}; Redis {}.{} or Valkey is needed", self.version, OLDEST.0, OLDEST.1));
        }
        match (mode, self.mode.as_str()) {
            (Mode::Standalone, "cluster") => return wrong("is part of a Cluster; use redis-cluster://"),
            (Mode::Cluster, "standalone") => return wrong("is not part of a Cluster; use redis://"),
            (Mode::Standalone | Mode::Cluster, "sentinel") => return wrong("is a Sentinel; use redis-sentinel://"),
            (Mode::Sentinel, "standalone" | "cluster") => return wrong("is not a Sentinel but a server of data"),
            _ => {}
        }
        if as_master && !matches!(self.role.as_str(), "master" | "primary") {
            let text = format!("READONLY {address} is a {}, not a master", self.role).into();
            return Err(Failure::Refused(ServerError { code: RefusalCode::ReadOnly, text }));
        }
        Ok(())
    }
}

/// A reply's text, where it is one.
pub fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::BulkString(bytes) | Reply::SimpleString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(server: &str, version: &str, mode: &str, role: &str) -> Greeting {
        let text = |text: &str| Reply::BulkString(text.as_bytes().to_vec());
        let fields = ["server", server, "version", version, "mode", mode, "role", role];
        let mut fields: Vec<_> = fields.into_iter().map(text).collect();
        fields.extend([text("proto"), Reply::Integer(2), text("modules"), Reply::Array(Vec::new())]);
        Greeting::read(&Reply::Array(fields)).unwrap()
    }

    fn judged(greeting: &Greeting, mode: Mode) -> Result<(), String> {
        let address = Address::Tcp { host: "h".to_owned(), port: 1 };
        greeting.check(&address, mode, mode != Mode::Sentinel).map_err(|failure| failure.to_string())
    }

    #[test]
    fn servers_that_can_do_it_are_taken() {
        for (server, version) in [("redis", "6.2.0"), ("redis", "7.0.15"), ("valkey", "8.1.0"), ("other", "1.0")] {
            assert_eq!(judged(&told(server, version, "standalone", "master"), Mode::Standalone), Ok(()));
            assert_eq!(judged(&told(server, version, "cluster", "master"), Mode::Cluster), Ok(()));
            assert_eq!(judged(&told(server, version, "sentinel", ""), Mode::Sentinel), Ok(()));
        }
    }

    #[test]
    fn others_are_told_apart() {
        for (greeting, wanted, expected) in [
            (told("redis", "6.0.16", "standalone", "master"), Mode::Standalone, "h:1 runs Redis 6.0.16"),
            (told("redis", "7.0.1", "cluster", "master"), Mode::Standalone, "use redis-cluster://"),
            (told("redis", "7.0.1", "standalone", "master"), Mode::Cluster, "use redis://"),
            (told("redis", "7.0.1", "sentinel", ""), Mode::Standalone, "use redis-sentinel://"),
            (told("redis", "7.0.1", "standalone", "master"), Mode::Sentinel, "not a Sentinel"),
            (told("redis", "7.0.1", "standalone", "replica"), Mode::Standalone, "READONLY h:1 is a replica"),
        ] {
            let error = judged(&greeting, wanted).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let replica = told("redis", "7.0.1", "standalone", "replica");
        assert_eq!(replica.check(&Address::Unix("/s".into()), Mode::Standalone, false), Ok(()));
        assert!(Greeting::read(&Reply::Null).is_err());
    }
}
