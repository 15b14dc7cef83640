//! TLS for connections: certificates from files that may be replaced while Weir runs.

use std::net::SocketAddr;

use deadpool_redis::redis::{
    ClientTlsConfig, ErrorKind, RedisError, RedisFuture, TlsCertificates, io::AsyncDNSResolver,
};
use tokio::net::lookup_host;

use super::settings::TlsSettings;
use weir_settings::tls::{Paths, Texts, server_name};

/// The files as they are now, if they can be used. Blocks while it reads them.
///
/// # Errors
/// A sentence that names the file.
pub fn read(TlsSettings { ca, cert, key, .. }: &TlsSettings) -> Result<Texts, String> {
    let paths = Paths { ca, cert, key };
    let texts = paths.read()?;
    // Tried here, because the crate's errors do not name the file.
    paths.config(&texts)?;
    Ok(texts)
}

/// Whether the files can be used, and the name of the servers.
///
/// # Errors
/// A sentence that names the file, or what the name of the servers should be.
pub fn check(settings: &TlsSettings) -> Result<(), String> {
    if !settings.server_name.is_empty() {
        server_name(&settings.server_name)?;
    }
    read(settings).map(drop)
}

/// The files' texts as the crate takes them. Without a CA certificate it trusts those of the system.
pub fn certificates(texts: &Texts) -> TlsCertificates {
    let client_tls = texts.cert.clone().zip(texts.key.clone());
    TlsCertificates {
        client_tls: client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
        root_cert: texts.ca.clone(),
    }
}

/// Resolves this host whatever name is asked for: the crate asks for the name that the server's certificate must bear.
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
