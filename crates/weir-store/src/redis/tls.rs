//! TLS of connections: certificates from files that may be replaced at run time.

use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;

use super::settings::TlsSettings;
use weir_settings::tls::{Texts, server_name};

/// The certificates for connections, equal if the files have the same contents.
pub struct Certificates {
    texts: Texts,
    config: Arc<ClientConfig>,
}

impl Certificates {
    /// Reads the files and checks that they are usable. Without a CA certificate, uses the operating system's. Blocks
    /// on disk I/O.
    ///
    /// # Errors
    /// A message with the file's path.
    pub(super) fn read(settings: &TlsSettings) -> Result<Self, String> {
        let paths = settings.paths();
        let texts = paths.read()?;
        let config = Arc::new(paths.config(&texts)?);
        Ok(Self { texts, config })
    }

    pub(super) fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }
}

impl PartialEq for Certificates {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

/// Checks that the certificate files and the server name are usable.
///
/// # Errors
/// A message with the file's path, or about the server name.
pub fn check(settings: &TlsSettings) -> Result<(), String> {
    if !settings.server_name.is_empty() {
        server_name(&settings.server_name)?;
    }
    Certificates::read(settings).map(drop)
}
