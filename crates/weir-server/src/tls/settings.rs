//! The TLS settings of a port.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::NamePattern;
use weir_core::domain::time::SECOND;
use weir_settings::{Time, file::is_set};

use crate::Listen;

/// TLS settings of a port. Without a certificate TLS is off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerTls {
    /// The certificate (PEM), with its intermediate certificates.
    pub cert: PathBuf,
    /// The certificate's private key (PEM).
    pub key: PathBuf,
    /// CA bundle (PEM) that verifies client certificates; without it none is requested.
    pub client_ca: PathBuf,
    /// Whether clients need a certificate, if `client_ca` is set.
    pub client_auth: ClientAuth,
    /// Names of which a client certificate must have one; empty: any name.
    pub client_names: Vec<NamePattern>,
    /// Timeout of a handshake.
    pub handshake_timeout: Time,
    /// Maximum number of handshakes in progress; for a further one the oldest is evicted.
    pub max_handshakes: usize,
}

/// Whether clients need a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// A client certificate is required.
    #[default]
    Required,
    /// A client certificate is optional, but verified when sent.
    Optional,
}

impl Default for ListenerTls {
    fn default() -> Self {
        Self {
            cert: PathBuf::new(),
            key: PathBuf::new(),
            client_ca: PathBuf::new(),
            client_auth: ClientAuth::default(),
            client_names: Vec::new(),
            handshake_timeout: Time::seconds(10),
            max_handshakes: 256,
        }
    }
}

impl ListenerTls {
    /// Whether the port uses TLS.
    pub fn is_on(&self) -> bool {
        is_set(&self.cert)
    }

    /// Whether client certificates are requested.
    pub fn asks_clients(&self) -> bool {
        self.is_on() && is_set(&self.client_ca)
    }

    /// Returns the configured files.
    pub fn files(&self) -> Vec<PathBuf> {
        [&self.cert, &self.key, &self.client_ca].into_iter().filter(|path| is_set(path)).cloned().collect()
    }

    /// Checks bounds and contradictions, for a port with this address and maximum number of connections; `section` is
    /// the name of the section of these settings.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn check(&self, section: &str, listen: &Listen, max_connections: usize) -> Result<(), String> {
        let holds = |condition: bool, otherwise: &str| {
            if condition { Ok(()) } else { Err(format!("{section}.{otherwise}")) }
        };
        holds(is_set(&self.cert) == is_set(&self.key), "cert and key: either both are set or none")?;
        holds(
            self.is_on() || !is_set(&self.client_ca),
            "client_ca is set, but no certificate of the port's own (cert, key)",
        )?;
        let names = self.client_names.is_empty() || self.asks_clients();
        holds(names, "client_names is set, but client_ca is not, so no client certificate is requested")?;
        let unix = matches!(listen, Listen::Unix(_));
        holds(!(unix && self.is_on()), "cert: a unix socket is not encrypted; the rights of its directory guard it")?;
        let times = SECOND / 10..=60 * SECOND;
        holds(times.contains(&self.handshake_timeout.0), "handshake_timeout must be 100ms to 60s")?;
        holds((1..=100_000).contains(&self.max_handshakes), "max_handshakes must be 1 to 100000")?;
        // Otherwise silent clients could take all connections.
        let leaves_slots = !self.is_on() || self.max_handshakes < max_connections;
        holds(leaves_slots, "max_handshakes must be less than max_connections of the port")
    }
}
