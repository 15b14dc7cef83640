//! From a target to connections: addresses, names, TLS, and a pool that keeps one connection to each address.

mod connection;
mod dial;
mod pool;
mod target;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod verifier;

pub(crate) use connection::{Connection, Lost};
pub(crate) use dial::Dialer;
pub(crate) use pool::{Avoid, Pool};
pub(crate) use target::Target;
#[cfg(feature = "tls")]
pub use tls::Tls;
