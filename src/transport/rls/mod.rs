//! Envoy's rate-limit service: what Envoy asks before it lets a request pass.

pub mod settings;

pub use settings::{EnvoySettings, Headers};
