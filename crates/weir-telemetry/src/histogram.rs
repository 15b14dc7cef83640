//! Histograms of durations and sizes with fixed buckets. The exporter's own histograms keep every sample until they are
//! scraped; these keep none, and threads do not share a cache line.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::thread_shard::{self, SHARDS};

/// Maximum number of bounds; one more bucket counts values above them all.
const MAX_BOUNDS: usize = 24;

/// Unit and buckets of a histogram.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Upper bounds of the buckets.
    bounds: &'static [u64],
    /// Recorded units per exported unit.
    unit: f64,
}

/// Durations of work in memory: recorded in nanoseconds, exported in seconds, from 250 ns to 10 s.
pub const SHORT_DURATIONS: Scale = Scale { bounds: &NANOSECONDS, unit: 1e9 };

/// Durations over a network: recorded in nanoseconds, exported in seconds, from 10 µs to 10 s.
pub const DURATIONS: Scale = Scale { bounds: NANOSECONDS.split_at(5).1, unit: 1e9 };

const NANOSECONDS: [u64; MAX_BOUNDS] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
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
];

/// Whole numbers from 1 to 1,024.
pub const SIZES: Scale =
    Scale { bounds: &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1_024], unit: 1.0 };

/// A histogram.
#[derive(Debug)]
pub struct Histogram {
    scale: Scale,
    shards: Box<[Shard; SHARDS]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    buckets: [AtomicU64; MAX_BOUNDS + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Makes an empty histogram.
    pub fn new(scale: Scale) -> Self {
        Self { scale, shards: Box::new(std::array::from_fn(|_| Shard::default())) }
    }

    /// Records one duration.
    pub fn record(&self, duration: Duration) {
        self.record_times(duration, 1);
    }

    /// Records a duration `times` times.
    pub fn record_times(&self, duration: Duration, times: u32) {
        self.add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), times.into());
    }

    /// Records one number.
    pub fn record_number(&self, number: u64) {
        self.add(number, 1);
    }

    fn add(&self, number: u64, times: u64) {
        let bucket = self.scale.bounds.iter().position(|bound| number <= *bound).unwrap_or(self.scale.bounds.len());
        let shard = &self.shards[thread_shard::mine()];
        shard.buckets[bucket].fetch_add(times, Ordering::Relaxed);
        shard.sum.fetch_add(number.wrapping_mul(times), Ordering::Relaxed);
    }

    /// Returns the upper bounds of the buckets, in the exported unit; one more bucket counts values above them all.
    pub fn bounds(&self) -> impl ExactSizeIterator<Item = f64> {
        self.scale.bounds.iter().map(|bound| *bound as f64 / self.scale.unit)
    }

    /// Returns the count of each bucket, not cumulative.
    pub fn counts(&self) -> Vec<u64> {
        let count = |index: usize| self.shards.iter().map(|shard| shard.buckets[index].load(Ordering::Relaxed)).sum();
        (0..=self.scale.bounds.len()).map(count).collect()
    }

    /// Writes the series of `name{labels}` in Prometheus text.
    pub fn render(&self, name: &str, labels: &str, out: &mut String) {
        let counts = self.counts();
        let mut count = 0;
        for (bound, of_bucket) in self.bounds().zip(&counts) {
            count += of_bucket;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        count += counts[self.scale.bounds.len()];
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
        let short = Histogram::new(SHORT_DURATIONS);
        short.record(Duration::from_nanos(251));
        let mut text = String::new();
        short.render("d", "t=\"x\"", &mut text);
        assert!(
            text.starts_with("d_bucket{t=\"x\",le=\"0.00000025\"} 0\nd_bucket{t=\"x\",le=\"0.0000005\"} 1\n"),
            "{text}"
        );
    }
}
