//! Test certificates, and TLS connections that use them.

use std::{
    fs, io,
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tonic::transport::{Channel, Endpoint};

use super::{TIMEOUT, http::Client};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the CA.
    pub pem: String,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

/// The contents of a certificate.
pub struct Leaf {
    params: CertificateParams,
}

impl Leaf {
    /// A valid certificate for this host.
    pub fn host(name: &str) -> Self {
        Self::named(vec![SanType::DnsName(name.try_into().expect("a name"))])
    }

    /// A valid certificate with this URI.
    pub fn uri(uri: &str) -> Self {
        Self::named(vec![SanType::URI(uri.try_into().expect("a URI"))])
    }

    /// A valid certificate with this common name only.
    pub fn common(name: &str) -> Self {
        let mut leaf = Self::named(Vec::new());
        leaf.params.distinguished_name.push(DnType::CommonName, name);
        leaf
    }

    fn named(names: Vec<SanType>) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.subject_alt_names = names;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2100, 1, 1);
        Self { params }
    }

    /// Makes a certificate as `openssl req -x509` does: self-signed, and a CA (CA:TRUE).
    pub fn self_signed(mut self) -> Pair {
        self.params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let cert = self.params.self_signed(&key).expect("a certificate").pem();
        Pair { cert, key: key.serialize_pem() }
    }

    /// Sets the time until it expires.
    pub fn lasting(mut self, time: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch");
        self.params.not_after = date_time_ymd(1970, 1, 1) + now + time;
        self
    }

    /// Makes it expire at the start of this year.
    pub fn until(mut self, year: i32) -> Self {
        self.params.not_after = date_time_ymd(year, 1, 1);
        self
    }
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn sign(&self, leaf: Leaf) -> Pair {
        let key = KeyPair::generate().expect("a key");
        let cert = leaf.params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { cert, key: key.serialize_pem() }
    }
}

impl Pair {
    /// Writes certificate and key to files with this name, each atomically.
    pub fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (cert, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        put(&cert, &self.cert);
        put(&key, &self.key);
        (cert, key)
    }

    /// Returns the certificate in DER.
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate")
    }
}

/// Writes a file atomically, so that no reader gets half of it.
pub fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("written");
    fs::rename(new, path).expect("renamed");
}

fn roots(authority: &Authority) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("a certificate")).expect("an authority");
    roots
}

/// Makes a client configuration that trusts this CA and presents this certificate.
fn config(authority: &Authority, shown: Option<&Pair>, protocol: &[u8]) -> ClientConfig {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots(authority));
    let mut config = match shown {
        None => config.with_no_client_auth(),
        Some(Pair { cert, key }) => {
            let chain =
                CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>().expect("certificates");
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            config.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

/// Makes an acceptor with this certificate; with `clients` it requires client certificates of that CA.
pub fn acceptor(pair: &Pair, clients: Option<&Authority>) -> TlsAcceptor {
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let provider = Arc::new(ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)), provider).build();
            config.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let mut config = config.with_single_cert(vec![pair.der()], key).expect("a pair");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

/// Connects over TLS for gRPC to a service named `localhost`.
pub async fn channel(
    address: &str,
    authority: &Authority,
    shown: Option<&Pair>,
) -> Result<Channel, tonic::transport::Error> {
    let connector = TlsConnector::from(Arc::new(config(authority, shown, b"h2")));
    let address = address.to_owned();
    let connect = tower::service_fn(move |_| {
        let (connector, address) = (connector.clone(), address.clone());
        async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            io::Result::Ok(TokioIo::new(connector.connect(localhost(), stream).await?))
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connect).await
}

/// Connects over TLS for HTTP/1.1 to a service named `localhost`.
pub fn http_client(address: &str, authority: &Authority, shown: Option<&Pair>) -> io::Result<Client> {
    Ok(Client::over(stream(address, config(authority, shown, b"http/1.1"))?))
}

fn stream(address: &str, config: ClientConfig) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let connection = ClientConnection::new(Arc::new(config), localhost()).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

/// Returns the certificate that a service presents to a new connection.
pub fn shown_by(address: &str, authority: &Authority) -> io::Result<CertificateDer<'static>> {
    let mut stream = stream(address, config(authority, None, b"h2"))?;
    stream.conn.complete_io(&mut stream.sock)?;
    let shown = stream.conn.peer_certificates().and_then(|chain| chain.first());
    shown.map(|own| own.clone().into_owned()).ok_or_else(|| io::Error::other("no certificate"))
}
