//! A server that accepts connections and never answers.

use std::net::{Ipv4Addr, TcpListener};

/// The system accepts for it and takes what is sent; nobody ever reads it.
pub struct Silent(TcpListener);

impl Silent {
    /// Listens on a free port.
    pub fn start() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"))
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.0.local_addr().expect("it listens").port()
    }

    /// Its form of `store.url`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }
}
