//! The stores against real servers, which the tests start and stop themselves.

mod conformance;
mod harness;
mod servers;
