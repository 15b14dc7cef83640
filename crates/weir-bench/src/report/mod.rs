//! The report, as text and as JSON.

mod text;

use std::{collections::BTreeMap, fmt, time::Duration};

use hdrhistogram::Histogram;
use serde::Serialize;
use weir_core::proto::code_name;

use super::{
    pacing::ScheduleStats,
    recorder::{Counts, Errors},
    wire::connection::Lost,
};

/// CPU use of the generator's threads above which the generator counts as the bottleneck.
const BUSY: f64 = 0.95;
/// Share of unsent calls above which the report warns; those due at the very end are always unsent.
const UNSENT: f64 = 0.001;
/// p99 of the delay of the schedule, in microseconds, above which the report warns.
const BEHIND_US: f64 = 1_000.0;
/// Difference between the requested and the measured share of refusals above which the report warns.
const REFUSALS_OFF: f64 = 0.02;

/// The parameters of a load, sufficient to repeat it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoadInfo {
    pub address: String,
    pub call: &'static str,
    /// Checks per second of an open loop; absent: a closed loop.
    #[serde(rename = "rate_checks_per_s")]
    pub rate: Option<f64>,
    pub threads: usize,
    pub connections: usize,
    pub streams: usize,
    pub window: Option<usize>,
    pub batch: Option<usize>,
    pub domain: String,
    pub key: String,
    pub keys: u64,
    pub distribution: String,
    pub limit: Option<String>,
    pub levels: Option<usize>,
    pub cost: i64,
    pub refusals: f64,
    pub summary_only: bool,
    pub seed: u64,
}

/// The CPU time of a process during the measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CpuTime {
    /// CPU time per answered check, in microseconds.
    pub us_per_check: f64,
    /// Average number of cores in use.
    pub cores: f64,
}

/// The results of a measurement.
pub(crate) struct Measured {
    pub recorder: Counts,
    /// Deviations from the schedule of an open loop.
    pub schedule: Option<ScheduleStats>,
    pub lost: Lost,
    /// Checks before the load that exhausted limits.
    pub before: u64,
    /// Time during which calls were started.
    pub duration: Duration,
    /// Time from the start of the measurement to the last answer, at least `duration`.
    pub elapsed: Duration,
    /// CPU time of this process, and of the service if its process is known.
    pub generator: Duration,
    pub server: Option<Duration>,
    pub interrupted: bool,
}

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    load: LoadInfo,
    duration_s: f64,
    elapsed_s: f64,
    interrupted: bool,
    checks: u64,
    checks_per_s: f64,
    calls: u64,
    calls_per_s: f64,
    allowed: u64,
    refused: u64,
    degraded: u64,
    errors: Failed,
    /// Checks that are in none of the other counts.
    not_measured: NotMeasured,
    latency_us: Latency,
    open_loop: Option<OpenLoop>,
    generator: CpuTime,
    server: Option<CpuTime>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Failed {
    total: u64,
    by_code: BTreeMap<&'static str, Errors>,
}

#[derive(Debug, Serialize)]
struct NotMeasured {
    before: u64,
    warm_up: u64,
}

#[derive(Debug, Serialize)]
struct OpenLoop {
    calls_due: u64,
    calls_unsent: u64,
    most_waiting: u64,
    sent_late_us: Latency,
    schedule_behind_us: Latency,
}

/// Percentiles and mean, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    mean: f64,
    pub p50: f64,
    p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    p99_9: f64,
    #[serde(rename = "p99.99")]
    p99_99: f64,
    pub max: f64,
}

/// Converts nanoseconds to microseconds, rounded to a tenth.
fn us(nanos: f64) -> f64 {
    (nanos / 100.0).round() / 10.0
}

impl Latency {
    /// Reads the percentiles of a histogram of nanoseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |percentile| us(histogram.value_at_percentile(percentile) as f64);
        Self {
            mean: us(histogram.mean()),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p99_9: at(99.9),
            p99_99: at(99.99),
            max: us(histogram.max() as f64),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p90, p99, p99_9, p99_99, max, .. } = *self;
        let [p50, p90, p99, p99_9, p99_99, max] = [p50, p90, p99, p99_9, p99_99, max].map(readable);
        write!(f, "p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p99_9}  p99.99 {p99_99}  max {max}")
    }
}

/// Formats microseconds in a readable unit.
pub(crate) fn readable(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0}us"),
        us if us < 1_000_000.0 => format!("{:.2}ms", us / 1e3),
        us => format!("{:.2}s", us / 1e6),
    }
}

impl CpuTime {
    fn of(used: Duration, elapsed: Duration, checks: u64) -> Self {
        let used_us = used.as_secs_f64() * 1e6;
        let rounded = |value: f64| (value * 1e3).round() / 1e3;
        Self {
            us_per_check: rounded(used_us / checks.max(1) as f64),
            cores: rounded(used.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)),
        }
    }
}

impl Report {
    /// Makes the report of a load.
    pub(crate) fn new(load: LoadInfo, measured: &Measured) -> Self {
        let Measured { recorder, elapsed, .. } = measured;
        let (answered, failed) = (recorder.answered(), recorder.failed());
        let per_second = |count: u64| (count as f64 / elapsed.as_secs_f64().max(1e-9) * 10.0).round() / 10.0;
        let by_code = recorder.errors.iter().map(|(code, errors)| (code_name(*code), errors.clone()));
        let open_loop = measured.schedule.as_ref().map(|schedule| OpenLoop {
            calls_due: schedule.due,
            calls_unsent: schedule.unsent,
            most_waiting: schedule.most_waiting,
            sent_late_us: Latency::of(&recorder.late),
            schedule_behind_us: Latency::of(&schedule.behind),
        });
        let mut report = Self {
            duration_s: measured.duration.as_secs_f64(),
            elapsed_s: elapsed.as_secs_f64(),
            interrupted: measured.interrupted,
            checks: answered + failed,
            checks_per_s: per_second(answered),
            calls: recorder.calls,
            calls_per_s: per_second(recorder.calls),
            allowed: recorder.allowed,
            refused: recorder.refused,
            degraded: recorder.degraded,
            errors: Failed { total: failed, by_code: by_code.collect() },
            not_measured: NotMeasured { before: measured.before, warm_up: recorder.warm_up },
            latency_us: Latency::of(&recorder.latency),
            open_loop,
            generator: CpuTime::of(measured.generator, *elapsed, answered),
            server: measured.server.map(|used| CpuTime::of(used, *elapsed, answered)),
            warnings: Vec::new(),
            load,
        };
        report.warnings = report.warnings(&measured.lost);
        report
    }

    /// Whether at least one check was answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.allowed + self.refused > 0
    }

    /// Returns the reasons why the figures may be misleading.
    fn warnings(&self, lost: &Lost) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.is_answered() {
            warnings.push("no check was answered".to_owned());
        }
        if lost.count > 0 {
            warnings.push(format!("connections were lost ({} times), the last one: {}", lost.count, lost.last));
        }
        if let Some(open) = &self.open_loop {
            let unsent = open.calls_unsent as f64 / open.calls_due.max(1) as f64;
            if unsent > UNSENT {
                warnings.push(format!(
                    "{} calls ({:.1}%) were due and never sent because no stream was free: the service does not keep up \
                     with the rate, or there are too few streams; the latencies do not include them",
                    open.calls_unsent,
                    unsent * 100.0
                ));
            }
            if open.schedule_behind_us.p99 > BEHIND_US {
                warnings.push(format!(
                    "the generator itself was late by {} at p99, which the latencies include: it needs more --threads or its \
                     own machine",
                    readable(open.schedule_behind_us.p99)
                ));
            }
        }
        let busy = self.generator.cores / self.load.threads as f64;
        if busy > BUSY {
            warnings.push(format!(
                "the generator used {:.0}% of its threads' CPU: the figures may show its own limit; give it more --threads",
                busy * 100.0
            ));
        }
        let share = self.refused as f64 / (self.allowed + self.refused).max(1) as f64;
        if self.load.refusals > 0.0 && self.is_answered() && (share - self.load.refusals).abs() > REFUSALS_OFF {
            warnings.push(format!(
                "{:.1}% were refused instead of {:.1}%: limits refilled meanwhile, refused other checks too, or there were few checks",
                share * 100.0,
                self.load.refusals * 100.0
            ));
        }
        warnings
    }
}
