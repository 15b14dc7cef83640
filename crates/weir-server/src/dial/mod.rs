//! Client connections to a gRPC service or a collector of spans. All of them are opened here.

#[cfg(feature = "cli")]
mod options;
mod unexpected;

use std::{fmt, io, path::Path, str::FromStr, sync::Arc};

use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

use weir_settings::tls::{Paths, server_name};

#[cfg(feature = "cli")]
pub use options::Options;

use crate::{Listen, address::KEEPALIVE};
pub use unexpected::Hints;
use unexpected::{Plain, Unexpected, explained};

/// An address in the user's notation: `host:port`, `https://host:port`, `http://host:port` or `unix:PATH`.
#[derive(Clone, Debug)]
pub struct Address {
    listen: Listen,
    /// Whether the address requires TLS (`https://`) or excludes it (`http://`); `None`: neither.
    encrypted: Option<bool>,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (encrypted, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (Some(true), rest.trim_end_matches('/')),
            (_, Some(rest)) => (Some(false), rest.trim_end_matches('/')),
            _ => (None, text),
        };
        if let Some((scheme, _)) = rest.split_once("://").filter(|(scheme, _)| *scheme != "unix") {
            return Err(format!(
                "`{scheme}://` is not a scheme of a service; write host:port, https://host:port or unix:PATH"
            ));
        }
        let listen = rest.parse().map_err(|why| refined(rest).unwrap_or(why))?;
        if encrypted.is_some() && matches!(listen, Listen::Unix(_)) {
            return Err(format!("`{text}`: a unix socket is written unix:PATH"));
        }
        Ok(Self { listen, encrypted })
    }
}

/// Returns the fault of an address, if it is clear.
fn refined(text: &str) -> Option<String> {
    let is_host = |text: &str| !text.is_empty() && !text.contains(['/', ':', ' ']);
    match text.rsplit_once(':') {
        None if text.parse::<u16>().is_ok() => Some(format!("`{text}` has no host; write localhost:{text}")),
        None if is_host(text) => Some(format!("`{text}` has no port; write {text}:8081")),
        Some(("", port)) if port.parse::<u16>().is_ok() => Some(format!("`{text}` has no host; write localhost{text}")),
        Some((host, port)) if is_host(host) => {
            Some(format!("`{text}`: the port `{port}` is not a number from 1 to 65535"))
        }
        _ => None,
    }
}

impl Address {
    /// Whether a connection to it may use TLS.
    #[cfg(feature = "cli")]
    pub(crate) fn may_be_encrypted(&self) -> bool {
        self.encrypted != Some(false) && matches!(self.listen, Listen::Tcp(_))
    }
}

/// The ALPN protocol of gRPC.
pub const HTTP_2: &str = "h2";

/// CA bundle, client certificate, server name and protocol of a TLS connection.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    /// The PEM files.
    pub paths: Paths<'a>,
    /// The server name to expect; empty: the host of the address.
    pub server_name: &'a str,
    /// The ALPN protocol.
    pub alpn: &'static str,
    /// Hints for errors.
    pub hints: Hints,
}

impl Trust<'_> {
    fn is_set(&self) -> bool {
        let Paths { ca, cert, key } = self.paths;
        [ca, cert, key].iter().any(|path| *path != Path::new("")) || !self.server_name.is_empty()
    }
}

/// The destination of connections: an address, with TLS or without.
#[derive(Clone)]
pub struct Destination {
    listen: Listen,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    alpn: &'static str,
    hints: Hints,
    unexpected: Unexpected,
}

/// A byte stream.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

impl Destination {
    /// Makes the destination of an address. It uses TLS if the address requires it, or by default if `trust` has any
    /// value. Reads files.
    ///
    /// # Errors
    /// A sentence that names the option or the file.
    pub fn new(address: &Address, trust: Trust<'_>) -> Result<Self, String> {
        let Trust { alpn, hints, .. } = trust;
        let (listen, unexpected) = (address.listen.clone(), Unexpected::default());
        if !address.encrypted.unwrap_or(trust.is_set()) {
            return if trust.is_set() {
                Err(format!("http://{listen} is not encrypted; use https:// with the --tls-… options"))
            } else {
                Ok(Self { listen, tls: None, alpn, hints, unexpected })
            };
        }
        let Listen::Tcp(host) = &listen else { return Err("--tls-…: a unix socket is not encrypted".to_owned()) };
        let host = host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = server_name(if trust.server_name.is_empty() { host } else { trust.server_name })?;
        let mut config = trust.paths.read().and_then(|texts| trust.paths.config(&texts))?;
        config.alpn_protocols = vec![alpn.into()];
        Ok(Self { listen, tls: Some((Arc::new(config).into(), name)), alpn, hints, unexpected })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The connection or its TLS handshake fails.
    pub async fn connect(&self) -> io::Result<Box<dyn Transport>> {
        let stream = match &self.listen {
            Listen::Tcp(address) => TcpStream::connect(address).await?,
            Listen::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        };
        stream.set_nodelay(true)?;
        SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
        Ok(match &self.tls {
            Some((connector, name)) => {
                let connected = connector.connect(name.clone(), stream).await;
                Box::new(connected.map_err(|error| explained(error, self.hints))?)
            }
            None if self.alpn != HTTP_2 => Box::new(stream),
            None => Box::new(Plain::new(stream, self.authority(), self.hints, Arc::clone(&self.unexpected))),
        })
    }

    /// Returns why the service cannot be called without TLS, if a connection has shown that.
    pub fn unexpected(&self) -> Option<&str> {
        self.unexpected.get().map(String::as_str)
    }

    /// Returns the scheme of its URIs.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Returns the authority of its URIs.
    pub fn authority(&self) -> &str {
        match &self.listen {
            Listen::Tcp(address) => address,
            // A unix socket has no authority; HTTP/2 must carry one.
            Listen::Unix(_) => "localhost",
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls.is_some() { "https://" } else { "" })?;
        self.listen.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination(address: &str, name: &str) -> Result<String, String> {
        let none = Path::new("");
        let hints = Hints { requires_tls: str::to_owned, without_tls: "", ca: "", server_name: "" };
        let trust = Trust { paths: Paths { ca: none, cert: none, key: none }, server_name: name, alpn: HTTP_2, hints };
        Ok(Destination::new(&address.parse()?, trust)?.to_string())
    }

    #[test]
    fn tls_is_enabled_by_the_address_or_an_option() {
        for (address, expected) in
            [("h:1", "h:1"), ("http://h:1/", "h:1"), ("unix:/s", "unix:/s"), ("[::1]:2", "[::1]:2")]
        {
            assert_eq!(destination(address, "").as_deref(), Ok(expected));
        }
        for (address, name, error_text) in [
            ("http://h:1", "n", "http://h:1 is not encrypted"),
            ("unix:/s", "n", "a unix socket is not encrypted"),
            ("https://unix:/s", "", "a unix socket is written unix:PATH"),
            ("https://h", "", "`h` has no port; write h:8081"),
            ("8081", "", "`8081` has no host; write localhost:8081"),
            (":8081", "", "`:8081` has no host; write localhost:8081"),
            ("h:99999", "", "the port `99999` is not a number"),
            ("grpc://h:1", "", "`grpc://` is not a scheme"),
            ("a/b", "", "`a/b` is not an address"),
            ("https://h:1", "a b", "`a b` is not a host name"),
        ] {
            let error = destination(address, name).unwrap_err();
            assert!(error.contains(error_text), "{address}: {error}");
        }
    }
}
