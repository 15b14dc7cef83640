//! Encrypted connections: whom to trust and what to show, from files that may be replaced while Weir runs.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use super::settings::TlsSettings;
use crate::store::url::Address;

/// Longest PEM file in bytes.
const MAX_PEM_BYTES: u64 = 4 << 20;

/// Makes encrypted connections.
pub struct Tls {
    settings: TlsSettings,
    /// What the files said when they were last read, and what was made of it.
    latest: Mutex<Option<(Files, Arc<ClientConfig>)>>,
}

/// The texts of the files that are configured.
#[derive(Clone, Default, PartialEq, Eq)]
struct Files {
    ca: Option<Vec<u8>>,
    cert: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
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
        let files = Files::read(&self.settings)?;
        if let Some((_, config)) = self.latest.lock().as_ref().filter(|(latest, _)| *latest == files) {
            return Ok(Arc::clone(config).into());
        }
        let config = Arc::new(config(&self.settings, &files)?);
        *self.latest.lock() = Some((files, Arc::clone(&config)));
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

fn server_name(name: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(name.to_owned()).map_err(|_| format!("`{name}` is no name of a host"))
}

impl Files {
    fn read(settings: &TlsSettings) -> Result<Self, String> {
        let read = |path: &Path| {
            let named = (!path.as_os_str().is_empty()).then_some(path);
            named.map(|path| contents(path).map_err(|error| about(path, error))).transpose()
        };
        Ok(Self { ca: read(&settings.ca)?, cert: read(&settings.cert)?, key: read(&settings.key)? })
    }
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_PEM_BYTES {
        return Err(io::Error::other(format!("over {MAX_PEM_BYTES} bytes")));
    }
    Ok(bytes)
}

fn about(path: &Path, what: impl std::fmt::Display) -> String {
    format!("{}: {what}", path.display())
}

fn config(settings: &TlsSettings, files: &Files) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(&settings.ca, files.ca.as_deref())?);
    let (Some(cert), Some(key)) = (&files.cert, &files.key) else { return Ok(config.with_no_client_auth()) };
    let chain = certificates(&settings.cert, cert)?;
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| about(&settings.key, format_args!("no private key: {error}")))?;
    config.with_client_auth_cert(chain, key).map_err(|error| about(&settings.cert, error))
}

fn roots(path: &Path, pem: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(pem) = pem else {
        // Those that cannot be read are left out: a system often has one such, and the others do.
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        return if roots.is_empty() {
            Err("the system trusts no authority; set store.redis.tls.ca".into())
        } else {
            Ok(roots)
        };
    };
    for certificate in certificates(path, pem)? {
        roots.add(certificate).map_err(|error| about(path, error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found.map_err(|error| about(path, error))? {
        none if none.is_empty() => Err(about(path, "no certificate in it")),
        found => Ok(found),
    }
}
