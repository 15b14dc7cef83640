//! Quotas: a limit's rate, divided among holders that spend it without asking the server.
//!
//! The holders of a **bucket** (Envoys, by their streams) report their hits periodically. The
//! [`Divider`] assigns each of them a rate, valid until it is replaced or expires. It has neither
//! I/O nor a clock: reports, joins, departures and ticks go in, [`Change`]s come out.
//!
//! A bucket is below a chain of **levels**, the limits on its path, root first. Each level has a budget, the rate
//! that the authority has granted to this replica.
//!
//! **The invariant.** The sum of the rates that may be in use below a level never exceeds its budget. A rate may be
//! in use from when it is sent until [`QuotaTiming::lag`] after a lower one is sent on the same stream, or until it
//! expires if the holder is gone. So no rate grows before another has shrunk.
//!
//! **Shares** are max-min fair by demand. Spare rate is spread evenly, so that growing demand is
//! served before the next report. Newcomers have a floor until two reports have established their
//! demand. A share shrinks in favor of another holder only when that one lacks at least 1/32 of its
//! own.

mod bucket;
mod divider;
mod member;
mod share;
#[cfg(test)]
mod tests;

pub use divider::Divider;
pub use share::max_min;

use crate::domain::{Micros, time::SECOND};

/// Units of a rate for one request a second: rates are in thousandths of a request a second.
pub const UNITS_PER_REQUEST: u64 = 1_000;
/// Maximum rate.
pub const MAX_RATE: u64 = 1 << 32;
/// Divisor of a second: the token buckets of holders that join together may store the requests of the whole limit for
/// 1/10 s.
const BURST_PARTS: u64 = 10;

/// A level of one divider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LevelId(usize);

/// A bucket of one divider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(usize);

/// A holder of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(usize);

impl MemberId {
    /// Returns the number itself: small, and used again after its holder has gone.
    pub fn index(self) -> usize {
        self.0
    }
}

/// The timing of assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaTiming {
    /// Time after which an assignment expires that is not renewed.
    pub ttl: Micros,
    /// Time within which a holder applies a new assignment, as long as its stream lives.
    pub lag: Micros,
    /// Minimum time between two divisions because of reports.
    pub interval: Micros,
    /// Time within which every holder reports.
    pub reports: Micros,
    /// Time without hits after which a holder is forgotten.
    pub idle: Micros,
}

impl Default for QuotaTiming {
    fn default() -> Self {
        Self { ttl: 15 * SECOND, lag: SECOND / 2, interval: SECOND / 2, reports: 6 * SECOND, idle: 300 * SECOND }
    }
}

/// The rate and the burst that one holder may spend without asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// In thousandths of a request a second, a multiple of the bucket's [`Steps::quantum`]; 0 for nothing.
    pub rate: u64,
    /// Requests that its token bucket may store. Constant while it spends.
    pub burst: u64,
}

/// A new assignment of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The bucket.
    pub bucket: BucketId,
    /// Its holder.
    pub member: MemberId,
    /// The assignment from now on.
    pub assignment: Assignment,
}

/// Totals over the holders below a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The rate that its holders demand.
    pub demand: u64,
    /// The rate that may be in use.
    pub live: u64,
    /// The rate needed to confirm returning holders, which continue on their own for a while: their
    /// usage, and their full token buckets.
    pub returning: u64,
}

/// The hits that a holder reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Hits that it allowed.
    pub allowed: u64,
    /// Hits that it denied.
    pub denied: u64,
    /// Time since its previous report, as stated by the holder; 0 in the first report of its life.
    pub elapsed: Micros,
}

impl Usage {
    /// Whether there were no hits.
    pub fn is_idle(&self) -> bool {
        self.allowed == 0 && self.denied == 0
    }
}

/// The status of a bucket's holder. Rates are in thousandths of a request a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderStatus {
    /// The holder.
    pub member: MemberId,
    /// Its assigned rate; `None` if none is assigned yet.
    pub assigned: Option<u64>,
    /// The rate of requests that it allowed, by its last report.
    pub allowed: u64,
    /// The rate of requests that it denied, by its last report.
    pub denied: u64,
    /// Whether its stream has ended: its rate counts until it expires.
    pub has_left: bool,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// Nothing is assigned yet; the assignment comes as a [`Change`].
    Waits,
    /// The assignment is renewed from now.
    Renewed(Assignment),
    /// No hits for too long: the holder is forgotten.
    Abandoned,
}

/// The steps in which a limit's rate can be assigned: whole requests in a whole number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The fill time of an assignment, in seconds: 1, or more below a hundred requests a second.
    pub fill_seconds: u64,
    /// The step: rates are multiples of this.
    pub quantum: u64,
}

impl Steps {
    /// Returns the steps of a limit of this rate: at least a hundred, as far as a fill time of 1,000 seconds allows.
    pub fn of(rate: u64) -> Self {
        let at_least = |requests_a_second| rate >= requests_a_second * UNITS_PER_REQUEST;
        let fill_seconds = if at_least(100) {
            1
        } else if at_least(10) {
            10
        } else if at_least(1) {
            100
        } else {
            1_000
        };
        Self { fill_seconds, quantum: UNITS_PER_REQUEST / fill_seconds }
    }

    /// Returns the requests per fill time at this rate.
    pub fn requests(&self, rate: u64) -> u64 {
        rate / self.quantum
    }
}
