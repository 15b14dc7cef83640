//! The TLS of listeners: certificates and their names, handshakes, and revocation.

mod handshake;
mod names;
mod server;
mod settings;

pub use handshake::{Clients, Tls};
pub use names::{Bearer, NamePattern};
pub use server::Loaded;
pub use settings::{ClientAuth, ListenerTls};
