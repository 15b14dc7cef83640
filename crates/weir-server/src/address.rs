//! Addresses to listen on or to connect to.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use socket2::TcpKeepalive;

/// TCP keepalive that detects a dead peer within a minute, also on an idle connection.
pub(crate) const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10)).with_retries(3);

/// Maximum length of a unix socket's path in bytes: `sun_path` also holds a terminating zero byte.
const MAX_PATH_BYTES: usize = 107;

/// An address as it is configured: `host:port` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Listen {
    /// A host, by name or IP address, and a port; port 0 takes any free port.
    Tcp(String),
    /// A unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Returns the address of a port on the loopback interface.
    pub fn loopback(port: u16) -> Self {
        Self::Tcp(format!("127.0.0.1:{port}"))
    }

    /// Whether only one of both can be listened on, as far as can be decided without name resolution: a wildcard
    /// address includes all others.
    pub fn overlaps(&self, other: &Self) -> bool {
        let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
        let socket = |listen: &Self| match listen {
            Self::Tcp(address) => address.parse::<SocketAddr>().ok().filter(|socket| socket.port() > 0),
            Self::Unix(_) => None,
        };
        match (socket(self), socket(other)) {
            (Some(own), Some(other)) if own.port() == other.port() => {
                own == other || covers(own.ip(), other.ip()) || covers(other.ip(), own.ip())
            }
            _ => self == other && !self.to_string().ends_with(":0"),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            // The form of a URL with an empty host is accepted too.
            return match path.strip_prefix("//").unwrap_or(path) {
                "" => Err(format!("`{text}` names no path")),
                path if path.len() > MAX_PATH_BYTES => {
                    Err(format!("`{text}`: the path of a socket can have at most {MAX_PATH_BYTES} bytes"))
                }
                path => Ok(Self::Unix(path.into())),
            };
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self::Tcp(text.to_owned())),
            _ => Err(format!("`{text}` is not an address; write host:port, such as 127.0.0.1:8081, or unix:PATH")),
        }
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
