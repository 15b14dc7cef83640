//! Durations in fixed buckets. The exporter's own histograms keep every sample until they are scraped; these keep
//! nothing, and threads do not share a cache line.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// Upper bounds of the buckets in microseconds: from 10 µs to 10 s.
const BOUNDS_MICROS: [u64; 19] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// How many threads count apart; more share.
const STRIPES: usize = 16;

static NEXT_STRIPE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: usize = NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Histogram {
    stripes: [Stripe; STRIPES],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    /// One more than the bounds, for what is above them all.
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.iter().position(|bound| nanos <= bound * 1_000).unwrap_or(BOUNDS_MICROS.len());
        let stripe = &self.stripes[STRIPE.with(|stripe| *stripe)];
        stripe.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        stripe.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Writes the series of `name{labels}` in Prometheus text.
    pub fn render(&self, name: &str, labels: &str, out: &mut String) {
        let total = |of: &dyn Fn(&Stripe) -> &AtomicU64| -> u64 {
            self.stripes.iter().map(|stripe| of(stripe).load(Ordering::Relaxed)).sum()
        };
        let mut count = 0;
        for (index, bound) in BOUNDS_MICROS.iter().enumerate() {
            count += total(&|stripe| &stripe.buckets[index]);
            let bound = *bound as f64 / 1e6;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        count += total(&|stripe| &stripe.buckets[BOUNDS_MICROS.len()]);
        let sum = total(&|stripe| &stripe.sum_nanos) as f64 / 1e9;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::default();
        for micros in [1, 10, 11, 20_000_000] {
            histogram.record(Duration::from_micros(micros));
        }
        let mut text = String::new();
        histogram.render("d", "t=\"x\"", &mut text);
        for line in [
            "d_bucket{t=\"x\",le=\"0.00001\"} 2",
            "le=\"0.000025\"} 3",
            "le=\"10\"} 3",
            "le=\"+Inf\"} 4",
            "d_count{t=\"x\"} 4",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
