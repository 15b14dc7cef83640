//! Domains in the format of envoyproxy/ratelimit: [`mod@file`] reads it, [`rule`] holds the options
//! next to the limits, and [`mod@resolve`] matches the descriptors of requests.
//!
//! Such a domain is a tree like any other. An entry of a descriptor is two segments. Its key is matched exactly; its
//! value is matched exactly, else by the first pattern that fits, else by the descriptor without a value. Only the
//! limits of the last entry's node apply.

mod descriptor;
pub mod file;
mod metadata;
mod rate_limit;
pub mod resolve;
pub mod rule;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

pub use resolve::{Match, resolve};
pub use rule::{Descriptors, Rule, RuleLimit, ValuePattern};
