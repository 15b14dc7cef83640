//! Connections to Redis: real servers of each kind, and the errors for unusable ones.

#![allow(clippy::expect_used)]

mod auth;
mod kinds;
mod pool;
mod replicas;
mod sentinel;
mod server;
mod tls;
