//! gRPC as far as a load needs it, on HTTP/2 itself: a client that makes messages of all it reads costs more than the
//! service that it is to measure.

pub mod answers;
pub mod dial;
pub mod exchange;
pub mod line;
pub mod patience;

/// Bytes before each message: a flag, and the length.
pub const PREFIX: usize = 5;
