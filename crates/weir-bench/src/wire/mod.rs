//! A minimal gRPC client on `h2`: a client that decodes whole messages costs more CPU than the service it measures.

pub mod answers;
pub mod connection;
pub mod dial;
pub mod exchange;
pub mod timeout;

/// Length of gRPC's message prefix in bytes: a compression flag and the length.
pub const PREFIX: usize = 5;
