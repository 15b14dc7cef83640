//! Reaching Redis: real servers of each kind, and what is told of those that cannot be used.

mod auth;
mod kinds;
mod pool;
mod sentinel;
mod server;
mod tls;
