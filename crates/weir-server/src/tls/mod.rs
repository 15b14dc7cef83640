//! The TLS of listeners: certificates and their names, handshakes, and revocation.

mod handshake;
mod names;
mod server;
mod settings;

pub use handshake::{CertificateClients, Tls};
pub use names::{CertificateIdentity, NamePattern};
pub use server::TlsFiles;
pub use settings::{ClientAuth, ListenerTls};
