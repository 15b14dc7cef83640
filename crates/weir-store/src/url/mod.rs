//! Store URLs. The scheme selects the topology.

mod parse;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use weir_settings::Secret;

/// Characters that must be percent-encoded in a user, a master's name or a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The location of the states. [`fmt::Display`], [`fmt::Debug`] and [`Serialize`] hide the password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(RedisUrl),
}

/// Servers, credentials and database of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// The topology of the servers.
    pub topology: Topology,
    /// Whether the scheme requires TLS (`rediss`). Settings may require it too.
    pub tls: bool,
    /// Credentials for the servers. Settings override them.
    pub credentials: Option<Credentials>,
    /// The database; 0 on a Cluster.
    pub database: u32,
}

/// The topology of servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single(Address),
    /// The master that Sentinels report.
    Sentinel {
        /// The Sentinels, at least one.
        sentinels: Vec<Address>,
        /// The master's name at the Sentinels.
        master: String,
    },
    /// A Cluster.
    Cluster {
        /// Nodes from which the others are discovered, at least one.
        seeds: Vec<Address>,
    },
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host name or IP address (IPv6 without brackets), and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port, not 0.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// A user and password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user; empty: `default`.
    pub user: String,
    /// The password; empty: none.
    pub password: Secret,
}

impl TryFrom<String> for StoreUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<StoreUrl> for String {
    fn from(url: StoreUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Redis(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &self.topology {
            Topology::Single(Address::Unix(_)) => "redis+unix",
            Topology::Single(_) if self.tls => "rediss",
            Topology::Single(_) => "redis",
            Topology::Sentinel { .. } => "redis-sentinel",
            Topology::Cluster { .. } => "redis-cluster",
        };
        write!(f, "{scheme}://")?;
        if let Some(Credentials { user, password }) = &self.credentials {
            let colon = if password.is_empty() { "" } else { ":" };
            write!(f, "{}{colon}{password}@", utf8_percent_encode(user, ENCODED))?;
        }
        match &self.topology {
            Topology::Single(Address::Unix(path)) => {
                write!(f, "{}?db={}", utf8_percent_encode(&path.to_string_lossy(), ENCODED), self.database)
            }
            Topology::Single(address) => write!(f, "{address}/{}", self.database),
            Topology::Sentinel { sentinels, master } => {
                list(f, sentinels)?;
                write!(f, "/{}/{}", utf8_percent_encode(master, NON_ALPHANUMERIC), self.database)
            }
            Topology::Cluster { seeds } => list(f, seeds),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, addresses: &[Address]) -> fmt::Result {
    for (at, address) in addresses.iter().enumerate() {
        write!(f, "{}{address}", if at == 0 { "" } else { "," })?;
    }
    Ok(())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
