//! Counts and latencies of calls.

use std::collections::BTreeMap;

use hdrhistogram::{AdditionError, CreationError, Histogram};
use parking_lot::Mutex;
use serde::Serialize;

use super::{
    pacing::Nanos,
    wire::answers::{Answers, Fault},
};

/// Resolution and maximum of latencies, in nanoseconds.
const FINEST_NS: u64 = 100;
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// Maximum length of an error message, in characters.
const MAX_MESSAGE: usize = 200;

/// Makes a histogram of nanoseconds with three significant digits.
///
/// # Errors
/// Never; the bounds are fixed.
pub(crate) fn histogram() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(FINEST_NS, LONGEST_NS, DIGITS)
}

/// The errors of one code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Errors {
    /// Number of checks that failed with it.
    pub count: u64,
    /// The message of the first one.
    pub first: String,
}

/// Counts and latencies of calls.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Checks that started before the measurement, regardless of their outcome.
    pub warm_up: u64,
    /// Calls that ended; on a stream each check is one.
    pub calls: u64,
    /// Checks that were allowed.
    pub allowed: u64,
    /// Checks that were refused.
    pub refused: u64,
    /// Checks decided without the shared store.
    pub degraded: u64,
    /// Checks that failed, by gRPC status code.
    pub errors: BTreeMap<i32, Errors>,
    /// Time from the due time of a call to its end, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Time from the due time of a call until it was sent, in nanoseconds.
    pub late: Histogram<u64>,
    /// Time of the end of the last call.
    pub last: Nanos,
}

impl Counts {
    /// Makes zero counts.
    ///
    /// # Errors
    /// Never; the bounds of histograms are fixed.
    pub(crate) fn new() -> Result<Self, CreationError> {
        Ok(Self {
            warm_up: 0,
            calls: 0,
            allowed: 0,
            refused: 0,
            degraded: 0,
            errors: BTreeMap::new(),
            latency: histogram()?,
            late: histogram()?,
            last: 0,
        })
    }

    /// Returns the number of checks with an answer.
    pub(crate) fn answered(&self) -> u64 {
        self.allowed + self.refused
    }

    /// Returns the number of checks that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().map(|errors| errors.count).sum()
    }

    fn add_call(&mut self, Call { due, sent, ended }: Call, answers: Answers) {
        self.calls += 1;
        self.allowed += answers.allowed;
        self.refused += answers.refused;
        self.degraded += answers.degraded;
        for (count, Fault { code, message }) in answers.faults {
            let errors = self.errors.entry(code as i32).or_insert_with(|| {
                let first = message.chars().filter(|letter| !letter.is_control()).take(MAX_MESSAGE).collect();
                Errors { count: 0, first }
            });
            errors.count += count;
        }
        self.latency.saturating_record(ended.saturating_sub(due));
        self.late.saturating_record(sent.saturating_sub(due));
        self.last = self.last.max(ended);
    }

    /// Adds other counts.
    ///
    /// # Errors
    /// Never; all histograms have the same bounds.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), AdditionError> {
        self.warm_up += other.warm_up;
        self.calls += other.calls;
        self.allowed += other.allowed;
        self.refused += other.refused;
        self.degraded += other.degraded;
        for (code, errors) in &other.errors {
            let own = self.errors.entry(*code).or_insert_with(|| Errors { count: 0, first: errors.first.clone() });
            own.count += errors.count;
        }
        self.last = self.last.max(other.last);
        self.latency.add(&other.latency)?;
        self.late.add(&other.late)
    }

    /// Resets to zero.
    pub(crate) fn clear(&mut self) {
        let Self { warm_up, calls, allowed, refused, degraded, errors, latency, late, last } = self;
        for count in [warm_up, calls, allowed, refused, degraded, last] {
            *count = 0;
        }
        errors.clear();
        latency.clear();
        late.clear();
    }
}

/// The times of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Time at which it was due.
    pub due: Nanos,
    /// Time at which it was sent.
    pub sent: Nanos,
    /// Time at which it ended.
    pub ended: Nanos,
}

/// The counts of one thread, which the collector swaps for empty ones.
pub(crate) struct Recorder {
    counts: Mutex<Counts>,
    /// Start of the measurement; calls due earlier are warm-up.
    measured_from: Nanos,
}

impl Recorder {
    /// Makes a recorder with zero counts.
    ///
    /// # Errors
    /// Never; the bounds of histograms are fixed.
    pub(crate) fn new(measured_from: Nanos) -> Result<Self, CreationError> {
        Ok(Self { counts: Mutex::new(Counts::new()?), measured_from })
    }

    /// Records calls that have ended, each with its number of checks.
    pub(crate) fn record(&self, calls: impl IntoIterator<Item = (Call, u64, Answers)>) {
        let mut counts = self.counts.lock();
        for (call, checks, answers) in calls {
            if call.due < self.measured_from {
                counts.warm_up += checks;
            } else {
                counts.add_call(call, answers);
            }
        }
    }

    /// Takes the counts, and leaves `empty` in their place.
    pub(crate) fn swap(&self, empty: &mut Counts) {
        std::mem::swap(&mut *self.counts.lock(), empty);
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn call(due: Nanos, sent: Nanos, ended: Nanos) -> Call {
        Call { due, sent, ended }
    }

    #[test]
    fn latency_is_measured_from_the_scheduled_start() {
        let recorder = Recorder::new(1_000_000).unwrap();
        let refused = || Answers { refused: 1, ..Answers::default() };
        recorder.record([
            (call(999_999, 2_000_000, 9_000_000), 7, refused()),
            (call(1_000_000, 3_000_000, 9_000_000), 1, refused()),
        ]);
        let mut counts = Counts::new().unwrap();
        recorder.swap(&mut counts);
        assert_eq!(
            (counts.warm_up, counts.calls, counts.refused, counts.answered(), counts.last),
            (7, 1, 1, 1, 9_000_000)
        );
        assert!(counts.latency.equivalent(counts.latency.max(), 8_000_000), "{}", counts.latency.max());
        assert!(counts.late.equivalent(counts.late.max(), 2_000_000), "{}", counts.late.max());
        recorder.swap(&mut counts);
        assert_eq!(counts.calls, 0, "the counts were taken");
    }

    #[test]
    fn errors_are_counted_by_code_with_the_first_message() {
        let faults =
            vec![(2, Fault::new(Code::Unavailable, "gone\n")), (1, Fault::new(Code::NotFound, "x".repeat(300)))];
        let (mut one, mut other) = (Counts::new().unwrap(), Counts::new().unwrap());
        one.add_call(call(0, 0, 1), Answers { faults, allowed: 3, degraded: 1, ..Answers::default() });
        other.add_call(call(0, 0, 1), Answers::failed(5, Fault::new(Code::Unavailable, "later")));
        one.add(&other).unwrap();
        assert_eq!((one.calls, one.allowed, one.degraded, one.failed()), (2, 3, 1, 8));
        assert_eq!(one.errors[&14], Errors { count: 7, first: "gone".to_owned() });
        assert_eq!(one.errors[&5].first.len(), MAX_MESSAGE);
        one.clear();
        assert_eq!((one.failed(), one.latency.len(), one.allowed), (0, 0, 0));
    }
}
