//! States in Redis or Valkey, shared by every replica: one script decides plans where their states are.

pub mod connection;
pub mod dial;
mod greeting;
pub mod login;
pub mod manager;
pub mod sentinel;
pub mod settings;
pub mod tls;
