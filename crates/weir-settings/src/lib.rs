//! Reading of operators' files: bounded reads of regular files, YAML with line and column of each node, durations,
//! secrets that are never printed, and the detection of changed files.

#![cfg_attr(not(test), warn(unreachable_pub))]

pub mod document;
pub mod fields;
pub mod file;
pub mod problem;
mod secret;
pub mod suggest;
mod time;
#[cfg(feature = "tls")]
pub mod tls;
mod watch;

pub use problem::{Problem, Problems};
pub use secret::Secret;
pub use time::Time;
pub use watch::FileWatch;

/// Checks a condition on a setting.
///
/// # Errors
/// `otherwise`, a sentence that names the setting, if the condition does not hold.
pub fn ensure(condition: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}
