//! Telemetry primitives: counters and histograms whose threads share no cache line, the registry that renders them as
//! Prometheus text, the context of the current request, and a rate limit for log lines.

#![cfg_attr(not(test), warn(unreachable_pub))]

mod causes;
mod counters;
pub mod histogram;
mod log_limit;
mod registry;
mod reloads;
pub mod request;
pub mod text;
mod thread_shard;

pub use causes::Causes;
pub use counters::ShardedCounters;
pub use histogram::Histogram;
pub use log_limit::LogLimit;
pub use registry::{Metric, Registry, Render};
pub use reloads::Reloads;
