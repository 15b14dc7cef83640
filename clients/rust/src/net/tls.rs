use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::verifier::Verifier;

/// The TLS settings of connections. The files are read for each new connection, so certificates rotate without a
/// restart.
///
/// ```
/// let tls = weir_client::Tls::new().ca("/etc/weir/ca.pem").identity("/etc/weir/client.pem", "/etc/weir/client.key");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "it does nothing until it is given to a client"]
pub struct Tls {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl Tls {
    /// Makes settings that trust the system's CA certificates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts only the certificates of this PEM file; the server's own may be one of them.
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// mTLS: presents this certificate with this private key, both PEM files.
    pub fn identity(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((cert.into(), key.into()));
        self
    }

    /// Sets the name that the server's certificate must have. Default: the host of the target.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Reads the files and builds the configuration.
    pub(crate) fn config(&self) -> io::Result<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let config = match &self.ca {
            None => config.with_root_certificates(system_roots()?),
            Some(ca) => {
                let verifier = read(ca, |pem| verifier(pem, provider))?;
                config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let mut config = match &self.identity {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = read(cert, |pem| CertificateDer::pem_slice_iter(pem).collect())?;
                let key = read(key, PrivateKeyDer::from_pem_slice)?;
                config.with_client_auth_cert(chain, key).map_err(io::Error::other)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    pub(super) async fn connect(&self, stream: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(self.server_name.as_deref().unwrap_or(host).to_owned());
        let name = name.map_err(io::Error::other)?;
        TlsConnector::from(Arc::new(self.config()?)).connect(name, stream).await
    }
}

fn system_roots() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(io::Error::other("the system has no CA certificate"));
    }
    Ok(roots)
}

/// Builds the verifier from a CA file.
fn verifier(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Verifier, Box<dyn Error>> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone())?;
    }
    Ok(Verifier::new(roots, certificates, provider)?)
}

fn read<T, E: Into<Box<dyn Error>>>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T, E>) -> io::Result<T> {
    let named = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let pem = fs::read(path).map_err(|error| named(&error))?;
    parse(&pem).map_err(|error| named(&error.into()))
}
