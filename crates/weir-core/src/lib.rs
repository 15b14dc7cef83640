//! Exact rate limiting: keys, twelve algorithms, and one decision for several limits on a key.
//!
//! Pure: no I/O, no clock, no threads, no transport. Time is a parameter, and a step takes a state and returns the
//! next one, so a program can store states anywhere. A limiter in twenty lines:
//!
//! ```
//! use std::collections::HashMap;
//!
//! use weir_core::{
//!     algorithm::{Bounds, Params, State, find},
//!     domain::StepInput,
//! };
//!
//! struct Limiter {
//!     params: Params,
//!     states: HashMap<String, State>,
//! }
//!
//! impl Limiter {
//!     fn allows(&mut self, key: &str, now: i64) -> bool {
//!         let input = StepInput { now, cost: 1, max_wait: None, phase: 0 };
//!         let (decision, next) = self.params.step(self.states.get(key), &input);
//!         if let Some(next) = next {
//!             self.states.insert(key.to_owned(), next);
//!         }
//!         decision.allowed
//!     }
//! }
//!
//! // Two at once, then one each second; moments are in microseconds.
//! let fields: &[(&str, &str)] = &[("burst", "1"), ("count", "1"), ("period", "1s")];
//! let gcra = find("gcra").expect("an algorithm of the list");
//! let params = (gcra.parse)(fields, &Bounds::default())?;
//! let mut limiter = Limiter { params, states: HashMap::new() };
//! assert!(limiter.allows("alex", 0) && limiter.allows("alex", 0));
//! assert!(!limiter.allows("alex", 999_999));
//! assert!(limiter.allows("alex", 1_000_000));
//! # Ok::<(), weir_core::algorithm::ParamError>(())
//! ```

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), warn(unreachable_pub))]

/// The messages of `weir.v1`, generated from `proto/weir/v1`, where they are documented.
#[cfg(feature = "proto")]
#[allow(missing_docs, clippy::all, clippy::unwrap_used, rustdoc::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/weir.v1.rs"));

    /// The encoded file descriptors, for reflection.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/weir_descriptor.bin"));

    /// The names of gRPC's status codes, by number.
    const CODE_NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];

    /// Returns the name of a gRPC status code (google.rpc.Code), or `UNKNOWN` for any other number.
    pub fn code_name(code: i32) -> &'static str {
        let name = usize::try_from(code).ok().and_then(|code| CODE_NAMES.get(code));
        name.copied().unwrap_or("UNKNOWN")
    }
}

pub mod domain;

pub mod algorithm;

pub mod plan;

pub mod quota;

pub mod hold;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
