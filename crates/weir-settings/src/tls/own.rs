//! Peer certificates that are themselves in the CA bundle.
//!
//! `openssl req -x509` makes a self-signed certificate with CA:TRUE. webpki rejects such a certificate as the peer's
//! own, even if it is in the CA bundle. A certificate that is there byte for byte is accepted here. Its validity and
//! its name are still verified, and in the handshake that the peer has its key.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use x509_parser::{parse_x509_certificate, time::ASN1Time};

/// The certificates of a CA bundle, one of which may be the peer's own.
#[derive(Debug)]
pub struct OwnAuthorities(Vec<CertificateDer<'static>>);

impl OwnAuthorities {
    /// Makes the list of these certificates.
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Self {
        Self(certificates)
    }

    /// Whether this is one of them; if so, checks its validity at this time.
    ///
    /// # Errors
    /// It has expired, or is not valid yet.
    pub fn verify(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<bool, Error> {
        if !self.0.contains(certificate) {
            return Ok(false);
        }
        let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let now = i64::try_from(now.as_secs()).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
        let now = now.ok_or(Error::FailedToGetCurrentTime)?;
        match parsed.validity() {
            validity if now < validity.not_before => Err(CertificateError::NotValidYet.into()),
            validity if now > validity.not_after => Err(CertificateError::Expired.into()),
            _ => Ok(true),
        }
    }
}

/// A verifier of servers by the certificates of a CA bundle: accepts these and those that they sign.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    signed: Arc<WebPkiServerVerifier>,
    own: OwnAuthorities,
}

impl ServerVerifier {
    /// Makes the verifier of these certificates, which are also in `roots`.
    pub(crate) fn new(roots: RootCertStore, certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self { signed: signed.map_err(|error| error.to_string())?, own: OwnAuthorities::new(certificates) })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.own.verify(own, now)? {
            verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.signed.verify_server_cert(own, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
