//! PEM files of settings: certificates and keys. Every error names the file, and none shows its contents.

use std::{
    fmt,
    path::Path,
    time::{Duration, SystemTime},
};

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error, PemObject},
};
use x509_parser::parse_x509_certificate;

use crate::file;

/// Maximum size of a PEM file, in bytes.
const MAX_PEM_BYTES: u64 = 4 << 20;

/// Reads a file; `None` for an empty path.
///
/// # Errors
/// A sentence that names the file.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let named = file::is_set(path).then_some(path);
    named.map(|path| file::read(path, MAX_PEM_BYTES).map_err(|error| about(path, error))).transpose()
}

/// Parses the certificates of a file, at least one.
///
/// # Errors
/// A sentence that names the file.
pub fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found.map_err(|error| about(path, reason(&error)))? {
        none if none.is_empty() => Err(about(path, "it contains no certificate")),
        found => Ok(found),
    }
}

/// Returns the last valid second of each certificate of a file.
///
/// # Errors
/// A sentence that names the file.
pub fn expiries(path: &Path, pem: &[u8]) -> Result<Vec<SystemTime>, String> {
    let expiry = |certificate: &CertificateDer<'_>| {
        let (_, parsed) = parse_x509_certificate(certificate).map_err(|error| about(path, error))?;
        let seconds = u64::try_from(parsed.validity().not_after.timestamp()).unwrap_or_default();
        Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    };
    certificates(path, pem)?.iter().map(expiry).collect()
}

/// Parses the private key of a file.
///
/// # Errors
/// A sentence that names the file.
pub fn key(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let is_encrypted = String::from_utf8_lossy(pem).contains("BEGIN ENCRYPTED PRIVATE KEY");
        let what =
            if is_encrypted { "the private key is encrypted; `openssl pkey` decrypts it" } else { reason(&error) };
        about(path, format_args!("no private key: {what}"))
    })
}

/// Describes an error without quoting the file.
fn reason(error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => "it is cut off: a section has no end",
        Error::IllegalSectionStart { .. } => "the line that starts a section is incomplete",
        Error::Base64Decode(_) => "a section is not Base64",
        Error::NoItemsFound => "nothing of that kind is in it",
        _ => "it cannot be read",
    }
}

/// Formats a sentence about a problem with a file.
pub fn about(path: &Path, what: impl fmt::Display) -> String {
    format!("{}: {what}", path.display())
}
