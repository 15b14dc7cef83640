//! Telemetry of the service: metrics, spans, hot keys.

pub mod auth;
pub mod controls;
pub mod hot_keys;
mod log_writer;
mod logfmt;
pub mod metrics;
mod names;
pub mod overrides;
pub mod policy_counters;
#[cfg(target_os = "linux")]
mod process;
mod recent_checks;
pub mod rlqs;
mod series;
pub mod spans;
pub mod tracing;

pub use auth::AuthMetrics;
pub use hot_keys::{HotKey, HotKeys, Sample};
pub use metrics::{Metrics, MetricsSettings};
pub use overrides::OverrideMetrics;
pub use policy_counters::{Counts, PolicyCounters};
pub use recent_checks::{RecentChecks, RecordedCheck, Terms};
pub use rlqs::{RlqsMetrics, RlqsRejections};
pub use series::{CallKind, LeaseCall, LimitCounters, ReservationCall, ReservationUnits};
pub use spans::{Spans, TracingSettings};
