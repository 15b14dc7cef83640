//! Telemetry of the service: metrics, spans, hot keys.

pub mod auth;
pub mod hot_keys;
mod logfmt;
pub mod meters;
pub mod metrics;
mod names;
pub mod overrides;
#[cfg(target_os = "linux")]
mod process;
pub mod rlqs;
mod series;
pub mod spans;
pub mod tracing;
mod traffic;

pub use auth::AuthMeter;
pub use hot_keys::{HotKey, HotKeys, Sighting};
pub use meters::{Counts, LimitCounts, Meters};
pub use metrics::{Metrics, MetricsSettings};
pub use overrides::OverrideMeter;
pub use rlqs::RlqsMeter;
pub use series::{LeaseCall, LimitMeter, ReservationCall, ReservationUnits, Transport};
pub use spans::{Spans, TracingSettings};
pub use traffic::{RecordedCheck, Terms, Traffic};
