//! The `weir` program from outside: every test starts the real binary and sees what a user sees.

#![allow(clippy::expect_used)]

mod abuse;
mod bad_peers;
mod bad_requests;
mod bench;
mod bounds;
mod commands;
mod cookbook;
mod descriptors;
mod envoy_json;
mod exactness;
mod explorer;
mod grpc;
mod health;
mod http_checks;
mod http_life;
mod http_requests;
mod http_story;
mod legacy;
mod life;
mod lint;
mod memory_full;
mod metrics;
mod metrics_table;
mod migrate;
mod near_cache;
mod nested_table;
mod policies;
mod readiness;
mod reload;
mod request_ids;
mod rolling;
#[path = "../stores/servers/mod.rs"]
mod servers;
mod settings;
mod shared_store;
mod simulate;
mod simulate_compare;
mod simulate_log;
mod simulate_shared;
mod snapshot;
mod sockets;
mod support;
mod surfaces;
mod tls;
mod tls_reload;
mod tokens;
mod tokens_reload;
mod tracing;
