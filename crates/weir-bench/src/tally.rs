//! What is counted.

use std::collections::BTreeMap;

use hdrhistogram::{AdditionError, CreationError, Histogram};
use parking_lot::Mutex;

use super::{
    turns::Nanos,
    wire::answers::{Answers, Fault},
};

/// The finest difference between two latencies, and the longest one, in nanoseconds.
const FINEST_NS: u64 = 100;
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// Longest message of an error that is kept, in characters.
const MAX_MESSAGE: usize = 200;

/// Latencies in nanoseconds, to three digits.
///
/// # Errors
/// Never; the bounds are fixed.
pub fn histogram() -> Result<Histogram<u64>, CreationError> {
    Histogram::new_with_bounds(FINEST_NS, LONGEST_NS, DIGITS)
}

/// Errors of one code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Checks that got it.
    pub count: u64,
    /// What the first one said.
    pub first: String,
}

/// What calls came to.
#[derive(Debug)]
pub struct Tally {
    /// Checks that began before the measurement, whatever became of them.
    pub warm_up: u64,
    /// Calls that ended; on a stream each check is one.
    pub calls: u64,
    /// Checks that may pass.
    pub allowed: u64,
    /// Checks that may not.
    pub refused: u64,
    /// Checks decided without the shared store.
    pub degraded: u64,
    /// Checks without an answer, by the code's number.
    pub errors: BTreeMap<i32, Errors>,
    /// From when a call was meant to begin to its end.
    pub latency: Histogram<u64>,
    /// From when it was meant to begin to when it was sent.
    pub late: Histogram<u64>,
    /// When the last call ended.
    pub last: Nanos,
}

impl Tally {
    /// Nothing was counted yet.
    ///
    /// # Errors
    /// Never; the bounds of histograms are fixed.
    pub fn new() -> Result<Self, CreationError> {
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

    /// Checks with an answer.
    pub fn answered(&self) -> u64 {
        self.allowed + self.refused
    }

    /// Checks without one.
    pub fn failed(&self) -> u64 {
        self.errors.values().map(|errors| errors.count).sum()
    }

    fn ended(&mut self, Call { due, sent, ended }: Call, answers: Answers) {
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

    /// What another one has counted, too.
    ///
    /// # Errors
    /// Never; all histograms have the same bounds.
    pub fn add(&mut self, other: &Self) -> Result<(), AdditionError> {
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

    /// Counts from nothing again.
    pub fn clear(&mut self) {
        let Self { warm_up, calls, allowed, refused, degraded, errors, latency, late, last } = self;
        for count in [warm_up, calls, allowed, refused, degraded, last] {
            *count = 0;
        }
        errors.clear();
        latency.clear();
        late.clear();
    }
}

/// The moments of a call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// When it was meant to begin.
    pub due: Nanos,
    /// When it began.
    pub sent: Nanos,
    /// When it ended.
    pub ended: Nanos,
}

/// The tally of one thread, which another one takes away from time to time.
pub struct Meter {
    tally: Mutex<Tally>,
    /// What was meant to begin earlier is warm-up.
    measured_from: Nanos,
}

impl Meter {
    /// # Errors
    /// Never; the bounds of histograms are fixed.
    pub fn new(measured_from: Nanos) -> Result<Self, CreationError> {
        Ok(Self { tally: Mutex::new(Tally::new()?), measured_from })
    }

    /// Counts calls that have ended, each with its number of checks.
    pub fn ended(&self, calls: impl IntoIterator<Item = (Call, u64, Answers)>) {
        let mut tally = self.tally.lock();
        for (call, checks, answers) in calls {
            if call.due < self.measured_from {
                tally.warm_up += checks;
            } else {
                tally.ended(call, answers);
            }
        }
    }

    /// Takes away what was counted, and leaves `empty` in its place.
    pub fn swap(&self, empty: &mut Tally) {
        std::mem::swap(&mut *self.tally.lock(), empty);
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
    fn calls_are_counted_from_when_they_were_meant_to_begin() {
        let meter = Meter::new(1_000_000).unwrap();
        let refused = || Answers { refused: 1, ..Answers::default() };
        meter.ended([
            (call(999_999, 2_000_000, 9_000_000), 7, refused()),
            (call(1_000_000, 3_000_000, 9_000_000), 1, refused()),
        ]);
        let mut tally = Tally::new().unwrap();
        meter.swap(&mut tally);
        assert_eq!((tally.warm_up, tally.calls, tally.refused, tally.answered(), tally.last), (7, 1, 1, 1, 9_000_000));
        assert!(tally.latency.equivalent(tally.latency.max(), 8_000_000), "{}", tally.latency.max());
        assert!(tally.late.equivalent(tally.late.max(), 2_000_000), "{}", tally.late.max());
        meter.swap(&mut tally);
        assert_eq!(tally.calls, 0, "what was taken away is gone");
    }

    #[test]
    fn errors_are_counted_by_their_code_with_what_the_first_one_said() {
        let faults =
            vec![(2, Fault::new(Code::Unavailable, "gone\n")), (1, Fault::new(Code::NotFound, "x".repeat(300)))];
        let (mut one, mut other) = (Tally::new().unwrap(), Tally::new().unwrap());
        one.ended(call(0, 0, 1), Answers { faults, allowed: 3, degraded: 1, ..Answers::default() });
        other.ended(call(0, 0, 1), Answers::failed(5, Fault::new(Code::Unavailable, "later")));
        one.add(&other).unwrap();
        assert_eq!((one.calls, one.allowed, one.degraded, one.failed()), (2, 3, 1, 8));
        assert_eq!(one.errors[&14], Errors { count: 7, first: "gone".to_owned() });
        assert_eq!(one.errors[&5].first.len(), MAX_MESSAGE);
        one.clear();
        assert_eq!((one.failed(), one.latency.len(), one.allowed), (0, 0, 0));
    }
}
