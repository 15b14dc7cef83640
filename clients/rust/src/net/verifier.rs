//! Server certificates that are in the CA file themselves.
//!
//! `openssl req -x509` makes a self-signed certificate with CA:TRUE. webpki rejects that as a server's own certificate
//! even if it is in the CA file. This verifier accepts a certificate that is in the CA file byte for byte, after
//! checking its validity period, its name, and in the handshake that the server has its key.
//!
//! `weir-settings` and `weir-server` have the same rule for the service. It is implemented again here, since these
//! crates would add the service's settings, files and runtimes to a client for 40 lines.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use x509_parser::{parse_x509_certificate, time::ASN1Time};

/// Verifies servers by a CA file: certificates that its CAs signed, and certificates in the file.
#[derive(Debug)]
pub(super) struct Verifier {
    signed: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Makes a verifier from these certificates, which are also in `roots`.
    pub(super) fn new(
        roots: RootCertStore,
        own: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { signed, own })
    }
}

/// Checks that a certificate is valid at this moment.
fn verify_time(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    let now = now.ok_or(Error::FailedToGetCurrentTime)?;
    match parsed.validity() {
        validity if now < validity.not_before => Err(CertificateError::NotValidYet.into()),
        validity if now > validity.not_after => Err(CertificateError::Expired.into()),
        _ => Ok(()),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.own.contains(end_entity) {
            return self.signed.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        }
        verify_time(end_entity, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)?;
        Ok(ServerCertVerified::assertion())
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
