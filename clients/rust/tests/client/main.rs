//! The client against real services, which each test starts on its own sockets. `WEIR_BINARY` names the service's
//! program; by default it is the one that the workspace builds next to the tests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod checks;
mod coalescing;
mod cookbook;
mod errors;
mod guards;
mod leased;
mod leases;
mod middleware;
mod outages;
mod replicas;
mod reservations;
mod security;
mod slots;
mod support;
