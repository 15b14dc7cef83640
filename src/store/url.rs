//! Where counts live, as one text: the scheme tells how the servers are found.

use std::{fmt, path::PathBuf, str::FromStr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::settings::Secret;

/// The port of a server whose URL names none.
const PORT: u16 = 6379;
/// The port of a Sentinel whose URL names none.
const SENTINEL_PORT: u16 = 26379;
/// Most Sentinels or seeds that a URL may name.
pub const MAX_ADDRESSES: usize = 64;
/// What needs no `%` in a user, a master's name or a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

const KNOWN: &str = "`memory`, `redis://`, `rediss://`, `redis+unix://`, `redis-sentinel://` and `redis-cluster://`";

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
    /// Who Weir is to the servers. Settings stand above it.
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
        /// Whom to ask, at least one.
        sentinels: Vec<Address>,
        /// What they call the master.
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

/// Who a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The user; empty: `default`.
    pub user: String,
    /// The password; empty: none.
    pub password: Secret,
}

impl FromStr for StoreUrl {
    type Err = String;

    /// Errors are a sentence about what is wrong. They hold nothing of the text but its scheme, for a password may stand
    /// anywhere in what is wrong.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        let Some((scheme, rest)) = text.split_once("://") else { return Err(unknown(text)) };
        let url = match scheme {
            "redis" | "rediss" => RedisUrl { tls: scheme == "rediss", ..single(rest)? },
            "redis+unix" => unix(rest)?,
            "redis-sentinel" => sentinel(rest)?,
            "redis-cluster" => cluster(rest)?,
            _ => return Err(unknown(scheme)),
        };
        Ok(Self::Redis(url))
    }
}

fn unknown(text: &str) -> String {
    let scheme = text.split(':').next().unwrap_or_default();
    let is_scheme = scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter));
    match scheme {
        "" => format!("a store is named by one of {KNOWN}"),
        _ if !is_scheme => format!("this is no store; known are {KNOWN}"),
        _ => format!("there is no store `{scheme}`; known are {KNOWN}"),
    }
}

fn single(rest: &str) -> Result<RedisUrl, String> {
    let (credentials, rest) = user_info(rest)?;
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    if host.contains(',') {
        return Err("redis:// names one server; several are for redis-sentinel:// and redis-cluster://".to_owned());
    }
    Ok(RedisUrl {
        topology: Topology::Single(address(host, PORT)?),
        tls: false,
        credentials,
        database: self::database(database)?,
    })
}

fn unix(rest: &str) -> Result<RedisUrl, String> {
    // A path may hold an @, so what stands before the path ends at the first slash after one.
    let (credentials, rest) = match rest.split_once("@/") {
        Some((info, _)) if !rest.starts_with('/') => (Some(info), &rest[info.len() + 1..]),
        _ => (None, rest),
    };
    let credentials = credentials.map(self::credentials).transpose()?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = decoded(path, "path")?;
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err("redis+unix:// is followed by the absolute path of a socket".to_owned());
    }
    let database = match query.strip_prefix("db=") {
        _ if query.is_empty() => 0,
        Some(database) => self::database(database)?,
        None => return Err("the only parameter of redis+unix:// is `db`".to_owned()),
    };
    Ok(RedisUrl { topology: Topology::Single(Address::Unix(path.into())), tls: false, credentials, database })
}

fn sentinel(rest: &str) -> Result<RedisUrl, String> {
    let (credentials, rest) = user_info(rest)?;
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (master, database) = path.split_once('/').unwrap_or((path, ""));
    let master = decoded(master, "name of the master")?;
    if master.is_empty() {
        return Err("redis-sentinel:// lacks the name of the master: h:p,h:p/MASTER".to_owned());
    }
    let sentinels = addresses(hosts, SENTINEL_PORT)?;
    let topology = Topology::Sentinel { sentinels, master };
    Ok(RedisUrl { topology, tls: false, credentials, database: self::database(database)? })
}

fn cluster(rest: &str) -> Result<RedisUrl, String> {
    let (credentials, rest) = user_info(rest)?;
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    if !matches!(database, "" | "0") {
        return Err("a Cluster has only database 0, so redis-cluster:// takes none".to_owned());
    }
    let topology = Topology::Cluster { seeds: addresses(hosts, PORT)? };
    Ok(RedisUrl { topology, tls: false, credentials, database: 0 })
}

/// What stands before the last `@`, and what comes after it: passwords are pasted without being encoded.
fn user_info(rest: &str) -> Result<(Option<Credentials>, &str), String> {
    match rest.rsplit_once('@') {
        Some((info, rest)) => Ok((Some(credentials(info)?), rest)),
        None => Ok((None, rest)),
    }
}

fn credentials(info: &str) -> Result<Credentials, String> {
    let (user, password) = info.split_once(':').unwrap_or((info, ""));
    let password = decoded(password, "password")?;
    Ok(Credentials { user: decoded(user, "user")?, password: password.into() })
}

fn decoded(text: &str, what: &str) -> Result<String, String> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(format!("the {what} is not UTF-8 when its % escapes are decoded")),
    }
}

fn addresses(hosts: &str, port: u16) -> Result<Vec<Address>, String> {
    let addresses = hosts.split(',').map(|host| address(host, port)).collect::<Result<Vec<_>, _>>()?;
    if addresses.len() > MAX_ADDRESSES {
        return Err(format!("{} servers are named; at most {MAX_ADDRESSES} may be", addresses.len()));
    }
    Ok(addresses)
}

fn address(text: &str, default_port: u16) -> Result<Address, String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => match text.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) if port.starts_with(':') => (host, port.get(1..)),
            _ => return Err("an IPv6 address stands in brackets, and a port behind them".to_owned()),
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("a host is missing".to_owned());
    }
    if host.contains(|letter: char| letter.is_whitespace() || letter.is_control() || "?#%".contains(letter)) {
        return Err("a host has letters that no host has; parameters are not known here".to_owned());
    }
    let port = match port {
        None => default_port,
        Some(port) if port.contains(':') => return Err("an IPv6 address stands in brackets".to_owned()),
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err("a port is a number from 1 to 65535".to_owned()),
        },
    };
    Ok(Address::Tcp { host: host.to_owned(), port })
}

fn database(text: &str) -> Result<u32, String> {
    match text {
        "" => Ok(0),
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map_err(|_| "the database is too large a number".to_owned())
        }
        _ => Err("the database is not a number".to_owned()),
    }
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
