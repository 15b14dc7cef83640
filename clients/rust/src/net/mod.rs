//! Network layer: target addresses, name resolution, TLS, and a pool with one connection to each address.

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
