//! TLS for connections: certificates from files that may be replaced while Weir runs.

use std::sync::Arc;

use tokio_rustls::rustls::ClientConfig;

use super::settings::TlsSettings;
use weir_settings::tls::{Texts, server_name};

/// The certificates of connections, equal where the files say the same.
pub struct Certificates {
    texts: Texts,
    config: Arc<ClientConfig>,
}

impl Certificates {
    /// The files as they are now, if they can be used; without a CA certificate those of the system. Blocks meanwhile.
    ///
    /// # Errors
    /// A sentence that names the file.
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

/// Whether the files can be used, and the name of the servers.
///
/// # Errors
/// A sentence that names the file, or what the name of the servers should be.
pub fn check(settings: &TlsSettings) -> Result<(), String> {
    if !settings.server_name.is_empty() {
        server_name(&settings.server_name)?;
    }
    Certificates::read(settings).map(drop)
}
