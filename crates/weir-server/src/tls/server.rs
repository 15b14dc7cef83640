//! The TLS configuration of a port: its certificate, and the client certificates that it accepts.

use std::{fmt, sync::Arc, time::SystemTime};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime},
    server::{
        NoServerSessionStorage, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use weir_settings::tls::{
    OwnAuthorities,
    pem::{self, about},
    roots,
};

use super::{CertificateIdentity, ClientAuth, ListenerTls, NamePattern};

/// The TLS files of a port, read together.
#[derive(Clone)]
pub struct TlsFiles {
    /// The rustls configuration.
    pub config: Arc<ServerConfig>,
    /// Expiry of the certificate.
    pub end: SystemTime,
    clients: Option<Arc<ClientVerifier>>,
}

/// The client certificates that a port accepts.
#[derive(Debug)]
struct ClientVerifier {
    /// The text of the CA bundle, to detect changes.
    ca: Vec<u8>,
    names: Vec<NamePattern>,
    authorities: Arc<dyn ClientCertVerifier>,
    own: OwnAuthorities,
}

/// The error for a valid certificate whose names are not listed.
#[derive(Debug)]
struct NotListed;

impl fmt::Display for NotListed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none of the certificate's names is in client_names")
    }
}

impl std::error::Error for NotListed {}

impl TlsFiles {
    /// Reads the files of a port for these application protocols (ALPN). Blocks on file I/O. If the CA bundle is the
    /// same as in `before`, its verifier is shared, so that both can be compared.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read(settings: &ListenerTls, protocols: &[&[u8]], before: Option<&Self>) -> Result<Self, String> {
        let text = |path| pem::read(path).map(Option::unwrap_or_default);
        let (cert, key) = (text(&settings.cert)?, text(&settings.key)?);
        let chain = pem::certificates(&settings.cert, &cert)?;
        let end = CertificateIdentity::of(&chain[0]).map_err(|error| about(&settings.cert, error))?.end;
        let key = pem::key(&settings.key, &key)?;
        let clients = settings.asks_clients().then(|| ClientVerifier::read(settings, before)).transpose()?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = match &clients {
            Some(clients) => config.with_client_cert_verifier(Arc::clone(clients) as Arc<dyn ClientCertVerifier>),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                about(&settings.key, format_args!("not the key of the certificate in {}", settings.cert.display()))
            }
            error => about(&settings.key, error),
        })?;
        if clients.is_some() {
            // A resumed session is not verified again, although its certificate may have expired.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Self { config: Arc::new(config), end, clients })
    }

    /// Whether the certificate has expired.
    pub fn has_ended(&self) -> bool {
        self.end <= SystemTime::now()
    }

    /// Whether both accept the same client certificates.
    pub(crate) fn accepts_same(&self, other: &Self) -> bool {
        match (&self.clients, &other.clients) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Whether a client with this chain, its own certificate first, is accepted now.
    pub(crate) fn accepts(&self, chain: &[CertificateDer<'_>]) -> bool {
        match (&self.clients, chain.split_first()) {
            (Some(clients), Some((own, others))) => clients.verify_client_cert(own, others, UnixTime::now()).is_ok(),
            _ => true,
        }
    }
}

impl ClientVerifier {
    fn read(settings: &ListenerTls, before: Option<&TlsFiles>) -> Result<Arc<Self>, String> {
        let ca = pem::read(&settings.client_ca)?.unwrap_or_default();
        if let Some(same) = before.and_then(|before| before.clients.as_ref()).filter(|before| before.ca == ca) {
            return Ok(Arc::clone(same));
        }
        let roots = Arc::new(roots(&settings.client_ca, &ca)?);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::new(ring::default_provider()));
        let builder = match settings.client_auth {
            ClientAuth::Required => builder,
            ClientAuth::Optional => builder.allow_unauthenticated(),
        };
        let authorities = builder.build().map_err(|error| about(&settings.client_ca, error))?;
        let own = OwnAuthorities::new(pem::certificates(&settings.client_ca, &ca)?);
        Ok(Arc::new(Self { ca, names: settings.client_names.clone(), authorities, own }))
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = match self.own.verify(own, now)? {
            true => ClientCertVerified::assertion(),
            false => self.authorities.verify_client_cert(own, others, now)?,
        };
        let identity = CertificateIdentity::of(own).map_err(|_| CertificateError::BadEncoding)?;
        if self.names.is_empty() || identity.matches_any(&self.names) {
            Ok(verified)
        } else {
            Err(CertificateError::Other(OtherError(Arc::new(NotListed))).into())
        }
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.root_hint_subjects()
    }

    fn offer_client_auth(&self) -> bool {
        self.authorities.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.authorities.client_auth_mandatory()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
