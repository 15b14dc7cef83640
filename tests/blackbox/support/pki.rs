//! Certificates made for a test, and connections by them.

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

/// One who vouches for others.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub pem: String,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

/// What a certificate is to say.
pub struct Leaf {
    params: CertificateParams,
}

impl Leaf {
    /// A good one for this host.
    pub fn host(name: &str) -> Self {
        Self::named(vec![SanType::DnsName(name.try_into().expect("a name"))])
    }

    /// A good one with this URI.
    pub fn uri(uri: &str) -> Self {
        Self::named(vec![SanType::URI(uri.try_into().expect("a URI"))])
    }

    /// A good one with this common name alone.
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

    /// What `openssl req -x509` makes: signed by its own key, and an authority (CA:TRUE).
    pub fn self_signed(mut self) -> Pair {
        self.params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let cert = self.params.self_signed(&key).expect("a certificate").pem();
        Pair { cert, key: key.serialize_pem() }
    }

    /// The same, over so long from now.
    pub fn lasting(mut self, time: Duration) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch");
        self.params.not_after = date_time_ymd(1970, 1, 1) + now + time;
        self
    }

    /// The same, over at the beginning of this year.
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
    /// Writes both to files of this name, each at once.
    pub fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (cert, key) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
        put(&cert, &self.cert);
        put(&key, &self.key);
        (cert, key)
    }

    /// The certificate as it goes over the wire.
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate")
    }
}

/// Writes a file at once, so that no reader sees half of it.
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

/// What a client trusts and shows.
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

/// What takes connections with this certificate, of clients that have one of this authority, where it is given.
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

/// An encrypted connection for gRPC to a service that is `localhost`.
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

/// An encrypted connection for HTTP/1.1 to a service that is `localhost`.
pub fn http_client(address: &str, authority: &Authority, shown: Option<&Pair>) -> io::Result<Client> {
    Ok(Client::over(stream(address, config(authority, shown, b"http/1.1"))?))
}

fn stream(address: &str, config: ClientConfig) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let connection = ClientConnection::new(Arc::new(config), localhost()).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

/// The certificate that a service shows to who connects now.
pub fn shown_by(address: &str, authority: &Authority) -> io::Result<CertificateDer<'static>> {
    let mut stream = stream(address, config(authority, None, b"h2"))?;
    stream.conn.complete_io(&mut stream.sock)?;
    let shown = stream.conn.peer_certificates().and_then(|chain| chain.first());
    shown.map(|own| own.clone().into_owned()).ok_or_else(|| io::Error::other("no certificate"))
}
