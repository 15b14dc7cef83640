//! Telemetry, beside the floors: what the service tells of itself. It knows of the parts below no more than their names.

pub mod auth;
pub mod hot_keys;
pub mod meters;
pub mod metrics;
pub mod spans;
pub mod tracing;

pub use auth::AuthMeter;
pub use hot_keys::{HotKey, HotKeys, Sighting};
pub use meters::{Counts, LimitCounts, LimitMeter, Meters, Outcome, Transport};
pub use metrics::{Metrics, MetricsSettings};
pub use spans::{Spans, TracingSettings};
pub use weir_telemetry::{Histogram, LogLimit, request as trail};
