//! The network side of a service that knows nothing of what it serves: addresses, TLS on either end of a connection, and the
//! way to a listener.

mod address;
pub mod dial;
pub mod tls;
mod traffic;

pub use address::Listen;
pub use traffic::Traffic;
