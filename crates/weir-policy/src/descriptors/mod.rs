//! Domains in the format of envoyproxy/ratelimit: [`mod@file`] reads it, [`rule`] is what it says beside its limits, and
//! [`mod@resolve`] finds what a request's descriptor meets.
//!
//! Such a domain is a tree like any other. An entry of a descriptor is two segments: its key is found by name; its value by
//! name, else by the first pattern that fits, else by the descriptor without a value. Only the limits of the last entry's
//! node count.

mod descriptor;
pub mod file;
mod metadata;
mod rate_limit;
pub mod resolve;
pub mod rule;
pub(crate) mod yaml;

#[cfg(test)]
mod tests;

pub use resolve::{Met, resolve};
pub use rule::{Descriptors, Rule, RuleLimit, Written};
