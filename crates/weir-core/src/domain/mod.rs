//! The words everything else is written in: time, keys, what is asked, what is decided, and how the decisions
//! of several levels become one. Pure: no I/O, no clock is read, no transport is known.

mod aggregate;
pub mod ask;
mod decision;
pub mod key;
pub mod time;
mod unit;

pub use aggregate::{Summary, aggregate};
pub use ask::{Ask, AskError, Charge, OnStoreFailure};
pub use decision::Decision;
pub use key::{Key, KeyError};
pub use time::{Clock, ManualClock, Micros};
pub use unit::Unit;
