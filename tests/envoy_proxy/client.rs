//! A client of the proxy, with one connection.

use crate::support::http::{self, Answer};

pub struct Client(http::Client);

impl Client {
    pub fn connect(address: &str) -> Self {
        Self(http::Client::connect(address).expect("the proxy accepts connections"))
    }

    /// Gets `/` with these headers.
    pub fn get(&mut self, headers: &[(&str, &str)]) -> Answer {
        self.0.ask("GET /", headers, b"").expect("an answer in time")
    }

    /// Gets `/` with these headers `times` times. Returns the statuses.
    pub fn statuses(&mut self, times: usize, headers: &[(&str, &str)]) -> Vec<u16> {
        (0..times).map(|_| self.get(headers).status).collect()
    }
}
