use std::{
    collections::HashSet,
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use tokio::net::lookup_host;

use crate::Error;

/// The addresses of a service, as configured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target(Vec<Address>);

#[derive(Clone, Debug, PartialEq)]
enum Address {
    Tcp { host: Arc<str>, port: u16 },
    Unix(Arc<Path>),
}

/// The address of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    /// A socket address, and the configured host name, which the server's certificate must have.
    Tcp(SocketAddr, Arc<str>),
    #[cfg_attr(not(unix), allow(dead_code))]
    Unix(Arc<Path>),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address, _) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let schemes = ["dns:///", "dns:", "ipv4:", "ipv6:"];
        let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
        rest.split(',').map(|address| address.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return Ok(Self::Unix(PathBuf::from(path).into()));
        }
        let wrong = || Error::Configuration(format!("`{text}` is not an address: write host:port or unix:PATH"));
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.filter(|host| host.parse::<IpAddr>().is_ok()).unwrap_or(host);
        if host.is_empty() || host.contains(['/', '[', ']', ' ']) || (bare.is_none() && host.contains(':')) {
            return Err(wrong());
        }
        Ok(Self::Tcp { host: host.into(), port })
    }
}

impl Target {
    /// Whether any address is a name, which may resolve to other servers later.
    pub(crate) fn has_names(&self) -> bool {
        let is_name =
            |address: &Address| matches!(address, Address::Tcp { host, .. } if host.parse::<IpAddr>().is_err());
        self.0.iter().any(is_name)
    }

    /// Resolves all addresses. Fails if one name cannot be resolved, since a partial result would remove the servers of
    /// that name.
    pub(crate) async fn resolve(&self) -> io::Result<HashSet<Location>> {
        let mut found = HashSet::new();
        for address in &self.0 {
            match address {
                Address::Unix(path) => drop(found.insert(Location::Unix(Arc::clone(path)))),
                Address::Tcp { host, port } => {
                    let addresses = lookup_host((&**host, *port)).await?;
                    found.extend(addresses.map(|address| Location::Tcp(address, Arc::clone(host))));
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        let unix = |path: &str| Address::Unix(Path::new(path).into());
        for (text, expected) in [
            ("h:1", vec![tcp("h", 1)]),
            ("dns:///h:1", vec![tcp("h", 1)]),
            ("[::1]:1", vec![tcp("::1", 1)]),
            ("ipv4:127.0.0.1:1, 127.0.0.1:2", vec![tcp("127.0.0.1", 1), tcp("127.0.0.1", 2)]),
            ("unix:/run/weir", vec![unix("/run/weir")]),
            ("unix:///run/weir,h:2", vec![unix("/run/weir"), tcp("h", 2)]),
        ] {
            assert_eq!(text.parse(), Ok(Target(expected)), "{text}");
        }
        for wrong in ["", "h", "8081", ":1", "h:x", "::1:1", "http://h:1", "h:1,", "[h]:1"] {
            assert!(matches!(wrong.parse::<Target>(), Err(Error::Configuration(_))), "{wrong}");
        }
    }
}
