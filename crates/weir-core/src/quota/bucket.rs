//! One bucket: the division of its rate among its holders.

use slab::Slab;

use super::{
    BURST_PARTS, BucketId, Change, Load, MemberId, QuotaTiming, Steps, UNITS_PER_REQUEST, max_min,
    member::{Member, debit},
    share::max_min_with_surplus,
};
use crate::domain::Micros;

/// Hysteresis: other shares shrink when a holder lacks at least 1/32 of its share.
const HYSTERESIS: u64 = 32;
/// A returning Envoy is confirmed once its usage less this part of it (1/4) fits.
const MAX_SHORTFALL_DIVISOR: u64 = 4;
/// The holders' joint usage is from assignments alone unless it exceeds the rate by more than this
/// part of it (1/8): measured rates vary, and stored tokens come on top.
const MAX_EXCESS_DIVISOR: u64 = 8;
/// Maximum change of the rate, as a factor in either direction, with which holders keep their token buckets.
const MAX_RATE_CHANGE: u64 = 4;
/// Divisors of an even share: a newcomer demands at least 1/4 of it, and any other holder 1/50.
const NEWCOMERS_FLOOR: u64 = 4;
const FLOOR: u64 = 50;

/// The holders of a bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    /// Its lowest level.
    pub(super) level: usize,
    /// The least rate of all its limits.
    pub(super) rate: u64,
    /// The rate that it had without holders, of which their token buckets are parts.
    first_rate: u64,
    pub(super) steps: Steps,
    pub(super) members: Slab<Member>,
    demand: u64,
}

/// The rate that the levels above a bucket leave for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Headroom {
    /// The rate that is certainly not in use.
    pub(super) free: u64,
    /// Whether more may be in use than is granted, since the grant has shrunk.
    pub(super) is_over: bool,
    /// Whether another bucket below the same levels lacks rate.
    pub(super) is_wanted: bool,
}

/// The result of a division.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Divided {
    /// Increase of the rate that may be in use.
    pub(super) more: u64,
    /// Whether anything changes by time alone.
    pub(super) is_unsettled: bool,
    /// Whether holders lack more than the others of the same bucket can spare.
    pub(super) lacks: bool,
}

impl Divided {
    /// Adds the result of a sibling.
    pub(super) fn add(&mut self, other: Self) {
        self.more += other.more;
        self.is_unsettled |= other.is_unsettled;
        self.lacks |= other.lacks;
    }
}

impl Bucket {
    pub(super) fn new(level: usize, rate: u64) -> Self {
        Self { level, rate, first_rate: rate, steps: Steps::of(rate), members: Slab::default(), demand: 0 }
    }

    /// Whether its holders may keep their assignments at another rate: these are in the steps of the first one, and the
    /// token buckets, which stay, are parts of it.
    pub(super) fn keeps_holders_at(&self, rate: u64) -> bool {
        let (least, most) = (self.first_rate / MAX_RATE_CHANGE, self.first_rate * MAX_RATE_CHANGE);
        Steps::of(rate) == self.steps && (least..=most).contains(&rate)
    }

    /// Returns the rate that its holders demand, as last measured.
    pub(super) fn demand(&self) -> u64 {
        self.demand
    }

    /// Drops expired rates and holders, and returns the sums over the rest.
    pub(super) fn measure(&mut self, timing: &QuotaTiming, now: Micros) -> Load {
        let (mut gone, mut live) = (Vec::new(), 0);
        for (id, member) in self.members.iter_mut() {
            if member.settle(timing, now) {
                live += member.live;
            } else {
                gone.push(id);
            }
        }
        for id in gone {
            self.members.try_remove(id);
        }
        if self.uses_more_than_assigned() {
            self.members.iter_mut().for_each(|(_, member)| member.waits_until = member.waits_until.min(now));
        }
        let demanded: u64 = self.demands(now).iter().map(|(_, quanta)| quanta * self.steps.quantum).sum();
        self.demand = demanded + self.live_of_others(now);
        Load { demand: self.demand, live, returning: self.returning(now) }
    }

    /// Divides at most `share` among the holders.
    pub(super) fn divide(
        &mut self,
        bucket: BucketId,
        share: u64,
        Headroom { mut free, is_over, is_wanted }: Headroom,
        (timing, now): (&QuotaTiming, Micros),
        changes: &mut Vec<Change>,
    ) -> Divided {
        let (steps, quantum) = (self.steps, self.steps.quantum);
        let step = |rate: u64| rate / HYSTERESIS;
        let demands = self.demands(now);
        let burst = self.burst();
        // Returning holders take precedence over growing ones.
        let kept = self.live_of_others(now).max(self.returning(now).min(free));
        let divided = share.saturating_sub(kept);
        let quanta: Vec<u64> = demands.iter().map(|(_, quanta)| *quanta).collect();
        // Used if there are fewer steps than holders.
        let priorities: Vec<u64> =
            demands.iter().map(|(id, quanta)| self.members.get(*id).map_or(0, |it| it.priority(*quanta))).collect();
        let targets_of = |divided: u64| -> Vec<(usize, u64)> {
            let (amount, are_scarce) = (divided / quantum, divided / quantum < quanta.len() as u64);
            let targets = max_min_with_surplus(amount, if are_scarce { &priorities } else { &quanta });
            demands.iter().map(|(id, _)| *id).zip(targets.into_iter().map(|quanta| quanta * quantum)).collect()
        };
        let fair = targets_of(divided);
        let (starting, headroom) = self.starters(&fair, divided, debit(burst, steps));
        let targets = targets_of(divided - (starting.min(headroom) * debit(burst, steps)).min(divided / 2));
        let are_too_many = divided >= quantum && self.rate / quantum <= demands.len() as u64;

        let (mut lacking, mut releasing) = (0, 0);
        for ((id, target), quanta) in targets.iter().zip(&quanta) {
            let Some(member) = self.members.get(*id) else { continue };
            let rate = member.rate();
            releasing += member.live - rate;
            // A target beyond the demand does not shrink the shares of others.
            let needed = (*target).min(quanta * quantum);
            lacking += match rate {
                0 if *target == 0 => 0,
                0 => target + debit(burst, steps),
                _ if needed >= rate + step(rate) => needed - rate,
                _ => 0,
            };
        }
        let (mut more, mut released) = (0, 0);
        let mut push = |id, assignment| changes.push(Change { bucket, member: MemberId(id), assignment });
        if is_over || is_wanted || lacking > free + releasing {
            for (id, target) in &targets {
                let Some(member) = self.members.get_mut(*id) else { continue };
                let rate = member.rate();
                if rate > *target {
                    // The former rate still counts, so nothing is free yet.
                    released += rate - target;
                    push(*id, member.assign(*target, timing, now));
                }
            }
        }
        let mut wants = Vec::new();
        for ((id, target), (_, fair)) in targets.iter().zip(&fair) {
            let Some(member) = self.members.get_mut(*id) else { continue };
            let (rate, before) = (member.rate(), member.live);
            if rate > 0 {
                // All of the free rate is handed out; only shrinking has a threshold.
                wants.push(target.saturating_sub(rate) / quantum);
                continue;
            }
            wants.push(0);
            let first = (*target).min(free.saturating_sub(debit(burst, steps)) / quantum * quantum);
            if first > 0 {
                push(*id, member.start(first, burst, steps, timing, now));
            } else if member.must_be_denied(are_too_many && (*fair == 0 || headroom == 0), timing, now) {
                push(*id, member.assign(0, timing, now));
            }
            free -= member.live - before;
            more += member.live - before;
        }
        let gains = max_min(free / quantum, &wants);
        for (((id, _), gain), want) in targets.iter().zip(gains).zip(wants) {
            let Some(member) = self.members.get_mut(*id) else { continue };
            let (gain, want, before) = (gain * quantum, want * quantum, member.live);
            if gain > 0 && gain >= want.min(step(member.rate())) {
                push(*id, member.assign(member.rate() + gain, timing, now));
                free -= member.live - before;
                more += member.live - before;
            }
        }
        // A returning holder is confirmed once most of its usage fits.
        for (id, member) in self.members.iter_mut() {
            if !member.is_returning(now) {
                continue;
            }
            let used = member.used(steps);
            let rate = used.min(free.saturating_sub(debit(burst, steps)) / quantum * quantum);
            if rate >= used - used / MAX_SHORTFALL_DIVISOR {
                push(id, member.start(rate, burst, steps, timing, now));
                // By then all returning holders have reported their usage.
                member.waits_until = member.waits_until.min(now + timing.reports);
                free -= member.live;
                more += member.live;
            }
        }
        let is_unsettled = self.members.iter().any(|(_, member)| member.is_unsettled(now));
        Divided { more, is_unsettled, lacks: lacking > more + free + releasing + released }
    }

    /// Returns how many holders may start by their fair targets, and how many of them, with their
    /// full token buckets, fit in addition to a step for each current holder.
    fn starters(&self, fair: &[(usize, u64)], divided: u64, debit: u64) -> (u64, u64) {
        let rates =
            fair.iter().filter(|(_, target)| *target > 0).map(|(id, _)| self.members.get(*id).map_or(0, Member::rate));
        let (holding, starting): (Vec<u64>, Vec<u64>) = rates.partition(|rate| *rate > 0);
        let headroom = divided.saturating_sub(holding.len() as u64 * self.steps.quantum) / (self.steps.quantum + debit);
        (starting.len() as u64, headroom)
    }

    /// Returns the holders that take part, and their demands in quanta.
    fn demands(&self, now: Micros) -> Vec<(usize, u64)> {
        let parts = || self.members.iter().filter(|(_, member)| member.participates(now));
        let even = self.rate / self.steps.quantum / parts().count().max(1) as u64;
        let floors = ((even / FLOOR).max(1), (even / NEWCOMERS_FLOOR).max(1));
        parts().map(|(id, member)| (id, member.demand(self.steps, floors.0, floors.1))).collect()
    }

    /// Whether some holders pass hits without an assignment, as before their server has started. It
    /// is unknown which ones, so none continues on its own.
    fn uses_more_than_assigned(&self) -> bool {
        let living = self.members.iter().filter(|(_, member)| !member.has_left);
        living.map(|(_, member)| member.allowed).sum::<u64>() > self.rate + self.rate / MAX_EXCESS_DIVISOR
    }

    /// Returns the rate needed to confirm the returning holders that were not assigned a rate yet.
    fn returning(&self, now: Micros) -> u64 {
        let returning = self.members.iter().filter(|(_, member)| member.is_returning(now));
        returning.map(|(_, member)| member.used(self.steps) + debit(self.burst(), self.steps)).sum()
    }

    /// Returns the number of requests that the token bucket of a holder that starts now may store.
    fn burst(&self) -> u64 {
        (self.first_rate / UNITS_PER_REQUEST / BURST_PARTS / self.members.len().max(1) as u64).max(1)
    }

    /// Returns the rate that may be in use by holders that take no part.
    fn live_of_others(&self, now: Micros) -> u64 {
        self.members.iter().filter(|(_, member)| !member.participates(now)).map(|(_, member)| member.live).sum()
    }
}
