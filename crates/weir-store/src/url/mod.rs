//! Where counts live, as one text: the scheme tells how the servers are found.

mod parse;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use weir_settings::Secret;

/// Characters that need no `%` in a user, a master's name or a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Where counts live. [`fmt::Display`], [`fmt::Debug`] and [`Serialize`] show no password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum StoreUrl {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(RedisUrl),
}

/// Which servers, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    /// How the servers are found.
    pub topology: Topology,
    /// Whether the scheme asks for TLS (`rediss`). Settings may ask for it too.
    pub tls: bool,
    /// Credentials for the servers. Settings override them.
    pub credentials: Option<Credentials>,
    /// The database; 0 on a Cluster.
    pub database: u32,
}

/// How servers are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Single(Address),
    /// The master that Sentinels name.
    Sentinel {
        /// The Sentinels, at least one.
        sentinels: Vec<Address>,
        /// The master's name at the Sentinels.
        master: String,
    },
    /// A Cluster.
    Cluster {
        /// Nodes that tell of all others, at least one.
        seeds: Vec<Address>,
    },
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host, by name or number (IPv6 without brackets), and a port.
    Tcp {
        /// The host.
        host: String,
        /// The port, not 0.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// A user and its password.
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
