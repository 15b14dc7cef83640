//! PEM files of settings, and the TLS configuration of clients.

mod client;
mod own;
pub mod pem;

use std::path::Path;

use rustls::RootCertStore;

pub use client::{Paths, Texts, TlsSettings, server_name};
pub use own::OwnAuthorities;

/// Parses the CA certificates of a file.
///
/// # Errors
/// A sentence that names the file.
pub fn roots(path: &Path, text: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(path, text)? {
        roots.add(certificate).map_err(|error| pem::about(path, error))?;
    }
    Ok(roots)
}
