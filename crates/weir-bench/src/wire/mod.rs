//! A minimal gRPC client on `h2`. A client that decodes whole messages would use more CPU time than the service under
//! test.

pub(crate) mod answers;
pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod exchange;
pub(crate) mod timeout;

/// Length of gRPC's message prefix in bytes: a compression flag and the length.
pub(crate) const PREFIX: usize = 5;
