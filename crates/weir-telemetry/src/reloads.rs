//! How often files were loaded again.

use metrics::{Counter, Gauge};

use crate::Registry;

/// Reloads of files by result, and whether the last one succeeded. Both series are there from the start, so that the first reload is
/// seen as an increase.
pub struct Reloads {
    counted: [Counter; 2],
    in_force: Gauge,
}

impl Reloads {
    /// Counted by `total` with the label `result`; `in_force` is 1 while what is on disk is in force.
    pub fn new(
        registry: &Registry,
        total: &'static str,
        in_force: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Self {
        let counted = ["error", "success"].map(|result| {
            let labels: Vec<_> = labels.iter().copied().chain([("result", result)]).collect();
            registry.counter(total, &labels)
        });
        let in_force = registry.gauge(in_force, labels);
        in_force.set(1.0);
        Self { counted, in_force }
    }

    /// They were loaded again, or could not be.
    pub fn count(&self, success: bool) {
        self.counted[usize::from(success)].increment(1);
        self.in_force.set(f64::from(u8::from(success)));
    }
}
