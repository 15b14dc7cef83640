//! One holder of a bucket.

use super::{Assignment, HolderStatus, MemberId, QuotaTiming, Steps, UNITS_PER_REQUEST, Usage};
use crate::domain::{Micros, time::SECOND};

/// Minimum time over which demand is measured.
const MEASURED_OVER_MIN: Micros = SECOND / 4;
/// Reports after which the demand is established: the first one covers only a moment.
const REPORTS_UNTIL_KNOWN: u8 = 2;

/// A priority above every demand.
const HOLDER_PRIORITY: u64 = 1 << 48;

#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The rates of hits and of allowed hits, by its last report.
    demand: u64,
    pub(super) allowed: u64,
    reports: u8,
    /// Time until which it may continue on an assignment of another replica or an earlier stream; it takes no part
    /// before.
    pub(super) waits_until: Micros,
    reported: Micros,
    last_hit: Micros,
    /// The assigned rate; `None` without an assignment.
    pub(super) assigned: Option<u64>,
    /// Requests that its token bucket may store; 0 until it may spend.
    burst: u64,
    /// A higher rate that may still be in use, and until when.
    former: (u64, Micros),
    /// The rate that its full token bucket counts as when it starts, and until when.
    debit: (u64, Micros),
    /// Expiry of its last assignment.
    expires: Micros,
    pub(super) has_left: bool,
    /// The rate that counts against the budget now.
    pub(super) live: u64,
}

impl Member {
    /// Creates a holder by its first report. One that has spent for a while may have an assignment from elsewhere; one
    /// that denies all has none to continue on.
    pub(super) fn new(usage: &Usage, timing: &QuotaTiming, now: Micros) -> Self {
        let is_returning = usage.elapsed > 0 && (usage.allowed > 0 || usage.denied == 0);
        // Envoy cuts the time to whole seconds: 4 s may be 4.999 s.
        let elapsed = usage.elapsed.saturating_add(SECOND);
        Self {
            demand: rate(usage.allowed + usage.denied, elapsed),
            allowed: rate(usage.allowed, elapsed),
            reports: 1,
            waits_until: if is_returning { now + timing.ttl } else { now },
            reported: now,
            last_hit: now,
            assigned: None,
            burst: 0,
            former: (0, now),
            debit: (0, now),
            expires: now + timing.ttl,
            has_left: false,
            live: 0,
        }
    }

    /// Records another report. `false`: it had no hits for too long.
    pub(super) fn report(&mut self, usage: &Usage, timing: &QuotaTiming, now: Micros) -> bool {
        let hits = usage.allowed + usage.denied;
        let elapsed = (now - self.reported).max(MEASURED_OVER_MIN);
        (self.demand, self.allowed) = (rate(hits, elapsed), rate(usage.allowed, elapsed));
        self.reported = now;
        self.reports = self.reports.saturating_add(1);
        if hits > 0 {
            self.last_hit = now;
        }
        now - self.last_hit < timing.idle
    }

    /// Renews its assignment from now.
    pub(super) fn renew(&mut self, timing: &QuotaTiming, now: Micros) -> Option<Assignment> {
        let rate = self.assigned?;
        self.expires = now + timing.ttl;
        Some(Assignment { rate, burst: self.burst })
    }

    /// Returns its demand in quanta: a tenth more than its hits, since they vary; at least `known_floor`, or `floor`
    /// for a newcomer.
    pub(super) fn demand(&self, steps: Steps, known_floor: u64, floor: u64) -> u64 {
        let floor = if self.reports < REPORTS_UNTIL_KNOWN { floor } else { known_floor };
        (self.demand + self.demand / 10).div_ceil(steps.quantum).max(floor)
    }

    /// Returns its priority for one of too few steps; above 0. A holder keeps its step while it has hits, and while
    /// its full token bucket counts, since no other holder can start with the step until then. The
    /// others are ordered by demand, in quanta.
    pub(super) fn priority(&self, quanta: u64) -> u64 {
        let keeps = self.rate() > 0 && (self.demand > 0 || self.debit.0 > 0);
        quanta + if keeps { HOLDER_PRIORITY } else { 0 }
    }

    /// Returns the rate that it allows, rounded up to steps; at least one step.
    pub(super) fn used(&self, steps: Steps) -> u64 {
        self.allowed.div_ceil(steps.quantum).max(1) * steps.quantum
    }

    /// Whether it takes part in the division.
    pub(super) fn participates(&self, now: Micros) -> bool {
        !self.has_left && self.waits_until <= now
    }

    /// Whether it has no assignment yet, and continues for a while on one from elsewhere.
    pub(super) fn is_returning(&self, now: Micros) -> bool {
        !self.has_left && self.waits_until > now && self.assigned.is_none()
    }

    /// Whether anything about it changes by time alone.
    pub(super) fn is_unsettled(&self, now: Micros) -> bool {
        !self.participates(now) || self.assigned.is_none() || self.former.0 > 0 || self.debit.0 > 0
    }

    pub(super) fn status(&self, member: MemberId) -> HolderStatus {
        let Self { assigned, allowed, demand, has_left, .. } = *self;
        HolderStatus { member, assigned, allowed, denied: demand - allowed, has_left }
    }

    /// Returns its assigned rate, or 0.
    pub(super) fn rate(&self) -> u64 {
        self.assigned.unwrap_or(0)
    }

    /// Drops expired rates. `false`: it has left, and nothing of it counts.
    pub(super) fn settle(&mut self, timing: &QuotaTiming, now: Micros) -> bool {
        if self.former.1 <= now {
            self.former.0 = 0;
        }
        if self.debit.1 <= now {
            self.debit.0 = 0;
        }
        if self.expires + timing.lag <= now {
            if self.has_left {
                return false;
            }
            self.assigned = None;
        }
        self.count();
        true
    }

    /// Whether it must receive the answer that it has no share: there is none, or it has waited for
    /// the TTL.
    pub(super) fn must_be_denied(&self, has_no_share: bool, timing: &QuotaTiming, now: Micros) -> bool {
        self.assigned.is_none() && (has_no_share || self.waits_until + timing.ttl <= now)
    }

    /// Assigns another rate. A higher one before it counts until the lag has passed.
    pub(super) fn assign(&mut self, rate: u64, timing: &QuotaTiming, now: Micros) -> Assignment {
        let before = self.rate().max(self.former.0);
        if rate < before {
            self.former = (before, now + timing.lag);
        }
        if rate == 0 {
            self.burst = 0;
        }
        self.assigned = Some(rate);
        self.expires = now + timing.ttl;
        self.count();
        Assignment { rate, burst: self.burst }
    }

    /// Starts it with a full token bucket of `burst` requests, which counts as if they arrived within the fill time.
    pub(super) fn start(
        &mut self,
        rate: u64,
        burst: u64,
        steps: Steps,
        timing: &QuotaTiming,
        now: Micros,
    ) -> Assignment {
        self.burst = burst;
        // A full token bucket from shortly before may be stored, too.
        let until = now + steps.fill_seconds as Micros * SECOND + timing.lag;
        self.debit = (self.debit.0.max(debit(burst, steps)), until);
        self.assign(rate, timing, now)
    }

    /// Marks it as gone. Its rate counts until it expires, at the latest at `until`: also a former one, since the lower
    /// one may not have reached it.
    pub(super) fn leave(&mut self, until: Micros, timing: &QuotaTiming) {
        self.has_left = true;
        self.expires = self.expires.min(until);
        self.former.1 = self.expires + timing.lag;
    }

    fn count(&mut self) {
        self.live = self.rate().max(self.former.0) + self.debit.0;
    }
}

/// Returns the rate that a full token bucket of `burst` requests counts as.
pub(super) fn debit(burst: u64, steps: Steps) -> u64 {
    burst * steps.quantum
}

fn rate(hits: u64, elapsed: Micros) -> u64 {
    let rate =
        u128::from(hits) * u128::from(UNITS_PER_REQUEST) * SECOND as u128 / elapsed.unsigned_abs().max(1) as u128;
    rate.min(u128::from(super::MAX_RATE)) as u64
}
