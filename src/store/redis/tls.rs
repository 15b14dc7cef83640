//! TLS for connections: certificates from files that may be replaced while Weir runs.

use std::net::SocketAddr;

use deadpool_redis::redis::{
    ClientTlsConfig, ErrorKind, RedisError, RedisFuture, TlsCertificates, io::AsyncDNSResolver,
};
use tokio::net::lookup_host;

use super::settings::TlsSettings;
use crate::tls::client::{Paths, Texts, server_name};

/// The certificates of encrypted connections.
pub struct Tls {
    settings: TlsSettings,
}

impl Tls {
    /// Of these files, which are not read before a connection is made.
    pub fn new(settings: TlsSettings) -> Self {
        Self { settings }
    }

    /// The files as they are now, which can be used. Blocks while it reads them.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read(&self) -> Result<Texts, String> {
        let TlsSettings { ca, cert, key, .. } = &self.settings;
        let paths = Paths { ca, cert, key };
        let texts = paths.read()?;
        // What the crate makes of them does not tell which file is wrong.
        paths.config(&texts)?;
        Ok(texts)
    }

    /// Whether the files can be used, and the name of the servers.
    ///
    /// # Errors
    /// A sentence that names the file, or what the name of the servers should be.
    pub fn check(&self) -> Result<(), String> {
        let name = &self.settings.server_name;
        if !name.is_empty() {
            server_name(name)?;
        }
        self.read().map(drop)
    }

    /// The name that the certificates of servers must bear, where it is not the host that is called.
    pub fn server_name(&self) -> Option<&str> {
        Some(self.settings.server_name.as_str()).filter(|name| !name.is_empty())
    }
}

/// The files' texts as the crate takes them. Without a CA certificate it trusts those of the system.
pub fn certificates(texts: &Texts) -> TlsCertificates {
    let client_tls = texts.cert.clone().zip(texts.key.clone());
    TlsCertificates {
        client_tls: client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
        root_cert: texts.ca.clone(),
    }
}

/// Finds one host whatever name is looked up: the crate calls the host by the name that its certificate must bear.
pub struct Host(pub String);

impl AsyncDNSResolver for Host {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let found: Vec<_> = lookup_host((self.0.as_str(), port)).await?.collect();
            if found.is_empty() {
                return Err(RedisError::from((ErrorKind::InvalidClientConfig, "the host has no address")));
            }
            Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}
