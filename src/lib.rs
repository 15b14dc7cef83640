//! Weir decides whether a request may pass.
//!
//! One request goes from left to right: a transport decodes it, the [`limiter`] asks the policy ([`weir_policy`]) which
//! limits are on the key's path, the store ([`weir_store`]) decides them in one step, the answer is aggregated and encoded.
//! The modules below are in reading order, each using only those above it; `ARCHITECTURE.md` has the map.

#![cfg_attr(not(test), warn(unreachable_pub))]

/// The messages of `weir.v1` and a client of its service.
pub mod proto {
    pub use weir_core::proto::*;

    include!(concat!(env!("OUT_DIR"), "/weir.v1.rs"));
}

pub mod telemetry;

pub mod dial;

pub mod auth;

pub mod limiter;

pub mod xds;

pub mod overrides;

pub mod transport;

pub mod admin;

pub mod config;

pub mod explorer;

pub mod app;

pub mod cli;
