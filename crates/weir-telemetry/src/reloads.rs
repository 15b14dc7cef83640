//! Metrics of file reloads.

use metrics::{Counter, Gauge};

use crate::{Metric, Registry};

/// Reloads of files by result, and whether the last one succeeded. Both series exist from the start, so that the first
/// reload is an increase.
pub struct Reloads {
    counted: [Counter; 2],
    in_force: Gauge,
}

impl Reloads {
    /// Makes the metrics: `total` counts reloads by the label `result`; `in_force` is 1 while the
    /// files on disk are applied.
    pub fn new(registry: &Registry, total: Metric, in_force: Metric, labels: &[(&'static str, &str)]) -> Self {
        let counted = ["error", "success"].map(|result| {
            let labels: Vec<_> = labels.iter().copied().chain([("result", result)]).collect();
            registry.counter(total, &labels)
        });
        let in_force = registry.gauge(in_force, labels);
        in_force.set(1.0);
        Self { counted, in_force }
    }

    /// Counts a reload.
    pub fn count(&self, success: bool) {
        self.counted[usize::from(success)].increment(1);
        self.in_force.set(f64::from(u8::from(success)));
    }
}
