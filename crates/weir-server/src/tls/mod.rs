//! Certificates: what is in files of them, who they are for, and what is made of them on either side of a
//! connection.

pub mod client;
mod handshake;
pub mod names;
pub mod pem;
pub mod server;
pub mod settings;

use std::path::Path;

use rustls::RootCertStore;

pub use handshake::{Clients, Tls};
pub use names::{Bearer, NamePattern};
pub use server::Loaded;
pub use settings::{ClientAuth, ListenerTls};

/// The authorities of a file.
fn roots(path: &Path, text: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(path, text)? {
        roots.add(certificate).map_err(|error| pem::about(path, error))?;
    }
    Ok(roots)
}
