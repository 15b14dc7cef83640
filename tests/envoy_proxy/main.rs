//! A real Envoy that calls a real Weir before it forwards requests to a small upstream.
//!
//! `./test` installs Envoy if it is missing; `examples/envoy/get-envoy` installs only that.

#![allow(clippy::expect_used)]

mod client;
mod config;
mod crowd;
mod gateway;
mod headers;
mod hits;
mod outage;
mod passing;
mod proxy;
mod scene;
#[allow(dead_code)]
#[path = "../blackbox/support/mod.rs"]
mod support;
mod tokens;
mod upstream;
