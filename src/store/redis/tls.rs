//! Encrypted connections: whom to trust and what to show, from files that may be replaced while Weir runs.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio_rustls::TlsConnector;

use super::settings::TlsSettings;
use weir_settings::tls::{Paths, Texts, server_name};

use crate::store::url::Address;

/// Makes encrypted connections.
pub struct Tls {
    settings: TlsSettings,
    /// What the files said when they were last read, and what was made of it.
    latest: Mutex<Option<(Texts, Arc<ClientConfig>)>>,
}

impl Tls {
    /// With these files, not read before a connection is made.
    pub fn new(settings: TlsSettings) -> Self {
        Self { settings, latest: Mutex::new(None) }
    }

    /// What the files, as they are now, make of connections. Blocks while it reads them. Without a file of authorities the
    /// system's are read, once for as long as the other files stay the same.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn connector(&self) -> Result<TlsConnector, String> {
        let TlsSettings { ca, cert, key, .. } = &self.settings;
        let paths = Paths { ca, cert, key };
        let texts = paths.read()?;
        if let Some((_, config)) = self.latest.lock().as_ref().filter(|(latest, _)| *latest == texts) {
            return Ok(Arc::clone(config).into());
        }
        let config = Arc::new(paths.config(&texts)?);
        *self.latest.lock() = Some((texts, Arc::clone(&config)));
        Ok(config.into())
    }

    /// Whether the files can be used.
    ///
    /// # Errors
    /// A sentence that names the file, or what the name of the servers should be.
    pub fn check(&self) -> Result<(), String> {
        let name = &self.settings.server_name;
        if !name.is_empty() {
            server_name(name)?;
        }
        self.connector().map(drop)
    }

    /// The name that the certificate of the server at `address` must bear.
    ///
    /// # Errors
    /// A sentence when there is no such name.
    pub fn name_of(&self, address: &Address) -> Result<ServerName<'static>, String> {
        match address {
            _ if !self.settings.server_name.is_empty() => server_name(&self.settings.server_name),
            Address::Tcp { host, .. } => server_name(host),
            Address::Unix(_) => Err("a unix socket is not encrypted".to_owned()),
        }
    }
}
