//! Parsing of store URLs. Errors contain no part of the text except its scheme or a `host:port`, since a password may
//! be anywhere in an invalid URL.

use std::str::FromStr;

use percent_encoding::percent_decode_str;

use super::{Address, Credentials, RedisUrl, StoreUrl, Topology};

/// Default port of a server.
const PORT: u16 = 6379;
/// Default port of a Sentinel.
const SENTINEL_PORT: u16 = 26379;
/// Most Sentinels or seeds in a URL.
const MAX_ADDRESSES: usize = 64;

const KNOWN: &str = "`memory`, `redis://`, `rediss://`, `redis+unix://`, `redis-sentinel://` and `redis-cluster://`";

impl FromStr for StoreUrl {
    type Err = String;

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
    // A host and a port cannot contain a password.
    let address = text.split_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    match scheme {
        _ if is_scheme && address.is_some() => {
            format!("`{text}` has no scheme; for a Redis server write `redis://{text}`")
        }
        "" => format!("a store's URL begins with one of {KNOWN}"),
        _ if !is_scheme => format!("not the URL of a store; known are {KNOWN}"),
        _ => format!("unknown store `{scheme}`; known are {KNOWN}"),
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
    // A path may contain an @, so the credentials end at the first `@/`.
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

/// Splits off the text before the last `@`, because users paste passwords without encoding them.
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
            _ => return Err("an IPv6 address must be in brackets, followed by the port".to_owned()),
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if port.is_some_and(|port| port.contains(':')) {
        return Err("an IPv6 address must be in brackets, followed by the port".to_owned());
    }
    if host.is_empty() {
        return Err("a host is missing".to_owned());
    }
    if host.contains(|letter: char| letter.is_whitespace() || letter.is_control() || "?#%".contains(letter)) {
        return Err("the host has invalid characters; this URL takes no parameters".to_owned());
    }
    let port = match port {
        None => default_port,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err("a port must be a number from 1 to 65535".to_owned()),
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
