//! A gRPC and HTTP listener for long-running services, independent of their protocol: a runtime for each core, bounds
//! on connections and requests, TLS with reloadable files, connections that are closed gracefully (GOAWAY), and a
//! drain. It interprets neither paths nor messages: a [`Serve`] answers.

#![cfg_attr(not(test), warn(unreachable_pub))]

mod activity;
mod address;
#[cfg(feature = "cli")]
pub mod cli;
mod close;
mod concurrency;
mod connected;
mod connection;
mod connection_slots;
pub mod dial;
mod drain;
mod ending;
mod fair_queue;
mod http;
mod lifetime;
mod linger;
mod listener;
pub mod metrics;
mod rate;
mod server;
mod slots;
pub mod tls;
mod traffic;
mod unread;
mod workers;

pub use activity::InFlight;
pub use address::Listen;
pub use close::CloseSignal;
pub use concurrency::{ConcurrencyLimit, Permit};
pub use connected::{Connected, Overload};
pub use connection_slots::max_open;
pub use drain::{Drain, ShutdownSettings};
pub use http::MAX_HELD_REQUEST_BYTES;
pub use lifetime::CloseReason;
pub use listener::Listener;
pub use rate::{Pace, Rate};
pub use server::{ConnectionSettings, Serve, Server};
pub use slots::{Full, Slot, Slots};
pub use traffic::Traffic;
pub use unread::{AnswerBytes, FREE_UNREAD_BYTES, MAX_UNREAD_BYTES, SMALL_ANSWER_BYTES, UnreadAnswer};
pub use workers::{RuntimeKind, Worker, Workers};
