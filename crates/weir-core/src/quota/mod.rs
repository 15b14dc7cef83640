//! Quotas: a limit's rate divided among those who spend it without asking.
//!
//! The holders of a **bucket** (Envoys, by their streams) report now and then how much they were asked for. The [`Divider`]
//! tells each of them a rate of its own, which holds until it is replaced or its time is over. It has neither I/O nor a clock:
//! reports, joins, departures and ticks in, [`Change`]s out.
//!
//! A bucket lies below a chain of **levels**, the limits on its path, root first. Each level has a budget, the rate that the
//! authority has granted to this replica.
//!
//! **The invariant.** The rates that may be in use below a level are never more than its budget together. A rate may be in use
//! from when it is sent, until [`Terms::lag`] after a lower one is sent on the same stream, or until its time is over where the
//! holder is gone. So nothing grows before something else has shrunk.
//!
//! **Shares** are max-min fair by demand. What is not demanded is spread evenly, so that demand that grows finds room before the
//! next report. Newcomers have a floor until two reports have told their demand. A share is changed only when a holder lacks
//! more than 1/32 of its own.

mod bucket;
mod divider;
mod member;
mod share;
#[cfg(test)]
mod tests;

pub use divider::Divider;
pub use share::max_min;

use crate::domain::{Micros, time::SECOND};

/// Rates are in thousandths of a request a second.
pub const UNITS_PER_REQUEST: u64 = 1_000;
/// Largest rate.
pub const MAX_RATE: u64 = 1 << 32;
/// Part of a second whose requests of the whole limit the token buckets of holders that join together may store.
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
    /// The number by itself: small, and used again when its holder has gone.
    pub fn index(self) -> usize {
        self.0
    }
}

/// How rates are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long an assignment holds that is not renewed.
    pub ttl: Micros,
    /// A holder follows a new assignment within this time, as long as its stream lives.
    pub lag: Micros,
    /// Least time between two divisions because of reports.
    pub interval: Micros,
    /// Within this time every holder reports.
    pub reports: Micros,
    /// A holder that is not asked for anything for so long is forgotten.
    pub idle: Micros,
}

impl Default for Terms {
    fn default() -> Self {
        Self { ttl: 15 * SECOND, lag: SECOND / 2, interval: SECOND / 2, reports: 6 * SECOND, idle: 300 * SECOND }
    }
}

/// What one holder may spend by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// In thousandths of a request a second, a multiple of the bucket's [`Steps::quantum`]; 0: nothing.
    pub rate: u64,
    /// Requests that it may store. They never change while it spends.
    pub burst: u64,
}

/// A new assignment of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The bucket.
    pub bucket: BucketId,
    /// Its holder.
    pub member: MemberId,
    /// What it has from now on.
    pub assignment: Assignment,
}

/// What is below a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// What its holders demand.
    pub demand: u64,
    /// What they may be using.
    pub live: u64,
    /// What those use that are back and hold nothing of this replica: they go on by themselves, for a while.
    pub back: u64,
}

/// The hits that a holder reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Those that it allowed.
    pub allowed: u64,
    /// Those that it denied.
    pub denied: u64,
    /// Since when, as the holder says; 0 in the first report of its life.
    pub elapsed: Micros,
}

/// A holder of a bucket, as it stands. Rates are in thousandths of a request a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The holder.
    pub member: MemberId,
    /// Its assignment; `None`: none yet.
    pub assigned: Option<u64>,
    /// Requests that it allowed, by its last report.
    pub allowed: u64,
    /// Requests that it denied, by its last report.
    pub denied: u64,
    /// Whether its stream has ended: it keeps what it has until that is over.
    pub has_left: bool,
}

/// The answer to a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is assigned yet; it comes as a [`Change`].
    Waits,
    /// The assignment goes on from now.
    Renewed(Assignment),
    /// Nothing was asked for long: the holder is forgotten.
    Abandoned,
}

/// The steps in which a limit's rate can be told: whole requests in a whole number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The time in which an assignment's requests come, in seconds: 1, more below a hundred requests a second.
    pub fill_seconds: u64,
    /// Rates are multiples of this.
    pub quantum: u64,
}

impl Steps {
    /// Those of a limit of this rate: at least a hundred, down to a thousand seconds.
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

    /// The requests that come in the fill time at this rate.
    pub fn requests(&self, rate: u64) -> u64 {
        rate / self.quantum
    }
}
