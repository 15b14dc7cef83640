//! The TLS of clients: the CA certificates that they trust, and the certificate that they present.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use serde::{Deserialize, Serialize};

use super::{
    own::ServerVerifier,
    pem::{self, about},
};
use crate::file::is_set;

/// TLS settings of client connections. Paths are of PEM files, read for each new connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// Whether connections use TLS; the scheme `rediss://` of a store enables it too.
    pub enabled: bool,
    /// CA bundle that verifies servers; empty: the system's.
    pub ca: PathBuf,
    /// The client certificate, with its intermediate certificates.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The name that servers' certificates must have; empty: the host of the connection.
    pub server_name: String,
}

impl TlsSettings {
    /// Returns the paths of its files.
    pub fn paths(&self) -> Paths<'_> {
        Paths { ca: &self.ca, cert: &self.cert, key: &self.key }
    }

    /// Returns the name of the first setting other than `enabled` that is set.
    pub fn first_set(&self) -> Option<&'static str> {
        let paths = [("ca", &self.ca), ("cert", &self.cert), ("key", &self.key)];
        let set = paths.into_iter().find(|(_, path)| is_set(path)).map(|(name, _)| name);
        set.or((!self.server_name.is_empty()).then_some("server_name"))
    }
}

/// Paths of PEM files; an empty path means none.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'a> {
    /// CA bundle that verifies servers; default: the system's.
    pub ca: &'a Path,
    /// The client certificate, with its intermediate certificates.
    pub cert: &'a Path,
    /// Its private key.
    pub key: &'a Path,
}

/// The contents of the TLS files.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// The CA certificates.
    pub ca: Option<Vec<u8>>,
    /// The client certificate.
    pub cert: Option<Vec<u8>>,
    /// Its private key.
    pub key: Option<Vec<u8>>,
}

impl Paths<'_> {
    /// Reads the files. Blocks on file I/O.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read(&self) -> Result<Texts, String> {
        Ok(Texts { ca: pem::read(self.ca)?, cert: pem::read(self.cert)?, key: pem::read(self.key)? })
    }

    /// Makes the TLS configuration from these file contents.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn config(&self, texts: &Texts) -> Result<ClientConfig, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = match texts.ca.as_deref() {
            None => config.with_root_certificates(system_roots()?),
            Some(ca) => {
                let verifier = ServerVerifier::new(super::roots(self.ca, ca)?, pem::certificates(self.ca, ca)?);
                let verifier = verifier.map_err(|error| about(self.ca, error))?;
                config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let (Some(cert), Some(key)) = (&texts.cert, &texts.key) else { return Ok(config.with_no_client_auth()) };
        let (chain, key) = (pem::certificates(self.cert, cert)?, pem::key(self.key, key)?);
        config.with_client_auth_cert(chain, key).map_err(|error| about(self.cert, error))
    }
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be parsed are skipped: a system often has one, and the others suffice.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let none = "the system has no trusted CA certificates; set `ca`";
    if roots.is_empty() { Err(none.to_owned()) } else { Ok(roots) }
}

/// Parses the name of a server as its certificate has it.
///
/// # Errors
/// A sentence, if it is not such a name.
pub fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned()).map_err(|_| format!("`{name}` is not a host name"))
}
