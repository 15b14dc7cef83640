//! A real Envoy that asks a real Weir before it lets requests through to a small upstream.
//!
//! `./test` installs Envoy where it is missing; `examples/envoy/get-envoy` does so alone.

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
mod rules;
mod scene;
#[allow(dead_code)]
#[path = "../blackbox/support/mod.rs"]
mod support;
mod tokens;
mod upstream;
