//! The `weir` program from outside: every test starts the real binary and sees what a user sees.

mod bad_peers;
mod bad_requests;
mod commands;
mod exactness;
mod health;
mod life;
mod lint;
mod memory_full;
mod metrics;
mod nested_table;
mod policies;
mod reload;
mod settings;
mod simulate;
mod snapshot;
mod sockets;
mod support;
