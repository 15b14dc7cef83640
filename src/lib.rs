//! Weir is a rate-limit service: it decides whether a request is allowed.
//!
//! A request passes these layers in order: a transport decodes it, the [`limiter`] resolves the limits on the key's
//! path in the policy ([`weir_policy`]), the store ([`weir_store`]) decides them in one atomic step, and the answer is
//! aggregated and encoded. The modules below are in reading order, each using only those above it; `ARCHITECTURE.md`
//! has the map.

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

pub mod monitoring;

pub mod config;

pub mod explorer;

pub mod app;

pub mod cli;
