//! The stores against real servers, which the tests start and stop themselves.

mod harness;
mod servers;
