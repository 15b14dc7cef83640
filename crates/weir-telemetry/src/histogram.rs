//! Durations and sizes in fixed buckets. The exporter's own histograms keep every sample until they are scraped; these keep
//! nothing, and threads do not share a cache line.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::thread_shard::{self, SHARDS};

/// How many bounds a histogram has; one more bucket holds what is above them all.
const BOUNDS: usize = 19;

/// Unit and buckets of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Upper bounds of the buckets.
    bounds: [u64; BOUNDS],
    /// Recorded units per exported unit.
    unit: f64,
}

/// Recorded in nanoseconds, exported in seconds: from 10 µs to 10 s.
pub const DURATIONS: Scale = Scale {
    bounds: [
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        250_000_000,
        500_000_000,
        1_000_000_000,
        2_500_000_000,
        5_000_000_000,
        10_000_000_000,
    ],
    unit: 1e9,
};

/// Whole numbers from 1 to 1,024.
pub const SIZES: Scale =
    Scale { bounds: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1_024], unit: 1.0 };

/// A histogram.
#[derive(Debug)]
pub struct Histogram {
    scale: Scale,
    shards: Box<[Shard; SHARDS]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    buckets: [AtomicU64; BOUNDS + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// An empty histogram of such numbers.
    pub fn new(scale: Scale) -> Self {
        Self { scale, shards: Box::new(std::array::from_fn(|_| Shard::default())) }
    }

    /// Counts one duration.
    pub fn record(&self, duration: Duration) {
        self.record_number(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one number.
    pub fn record_number(&self, number: u64) {
        let bucket = self.scale.bounds.iter().position(|bound| number <= *bound).unwrap_or(BOUNDS);
        let shard = &self.shards[thread_shard::mine()];
        shard.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        shard.sum.fetch_add(number, Ordering::Relaxed);
    }

    /// The upper bounds of the buckets, in the exported unit; one more bucket holds what is above them all.
    pub fn bounds(&self) -> [f64; BOUNDS] {
        self.scale.bounds.map(|bound| bound as f64 / self.scale.unit)
    }

    /// What each bucket has counted.
    pub fn counts(&self) -> [u64; BOUNDS + 1] {
        let count = |index: usize| self.shards.iter().map(|shard| shard.buckets[index].load(Ordering::Relaxed)).sum();
        std::array::from_fn(count)
    }

    /// Writes the series of `name{labels}` in Prometheus text.
    pub fn render(&self, name: &str, labels: &str, out: &mut String) {
        let counts = self.counts();
        let mut count = 0;
        for (bound, of_bucket) in self.bounds().into_iter().zip(counts) {
            count += of_bucket;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        count += counts[BOUNDS];
        let sum: u64 = self.shards.iter().map(|shard| shard.sum.load(Ordering::Relaxed)).sum();
        let sum = sum as f64 / self.scale.unit;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(out, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::new(DURATIONS);
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
