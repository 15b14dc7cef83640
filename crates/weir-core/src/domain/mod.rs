//! The vocabulary of the core: time, keys, requests, decisions, and the aggregation of the decisions of several
//! levels. Pure: no I/O, no clock, no transport.

mod aggregate;
mod decision;
pub mod key;
pub mod request;
pub mod time;
mod unit;

pub use aggregate::{Summary, aggregate};
pub use decision::Decision;
pub use key::{Key, KeyError};
pub use request::{Charge, OnStoreFailure, RequestError, StepInput};
pub use time::{Clock, ManualClock, Micros};
pub use unit::Unit;
