//! States in Redis or Valkey, shared by every replica: one script decides plans where their states are.

pub mod connection;
