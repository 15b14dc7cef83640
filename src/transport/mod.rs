//! The surfaces. Each decodes requests, calls the limiter, and encodes the answers. Surfaces differ only in decoding
//! and encoding.

pub mod admin;
pub mod api;
pub mod audit;
pub mod authentication;
pub mod calls;
pub mod check_service;
pub mod decision_json;
pub mod decode;
mod digest;
pub mod fields;
pub mod grpc;
pub mod guard;
pub mod headers;
pub mod hold_token;
pub mod http;
mod http_port;
pub mod idempotency;
pub mod incomplete_calls;
pub mod json;
mod limit_spec;
pub mod message;
pub mod observer;
pub mod rlqs;
pub mod rls;
pub mod routes;
pub mod status;

pub use authentication::Authentication;
pub use guard::{Guarded, Unauthenticated};
pub use http_port::HttpPort;
