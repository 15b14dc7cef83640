//! The holder: when to request how many units, and how to decide in between.

use std::mem;

use super::{DRIFT_PPM, Grant, HOLD_OFF_MAX, HoldId, Renewal, balance::Balance, demand::Demand};
use crate::{
    algorithm::Params,
    domain::{Micros, StepInput},
};

/// The terms of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerms {
    /// Time from a renewal to the deadline, by the authority's clock.
    pub ttl: Micros,
    /// Time for which the units of a hold should last at the present demand.
    pub horizon: Micros,
    /// Time for which the holder refuses on its own after a refusal of the authority. In four times of it no more
    /// comes back than fits the limit, so that nothing is lost to later requests.
    pub hold_off: Micros,
    /// Units that come back in that time. If no more are free the limit is reached, and a holder that has spent its
    /// share asks no sooner than one that was refused.
    pub scarce: u64,
}

impl LeaseTerms {
    /// Returns the terms of holds that last for `ttl`, and for two fifths of it at the present demand, under these
    /// limits: a holder refuses on its own for at most 10 ms, or a quarter of the least
    /// [`window`](crate::algorithm::Algorithm::window).
    pub fn of<'p>(limits: impl IntoIterator<Item = &'p Params>, ttl: Micros) -> Self {
        let mut terms = Self::lasting(ttl);
        let peek = StepInput { now: 0, cost: 0, max_wait: None, phase: 0 };
        for params in limits {
            let (limit, window) = (params.step(None, &peek).0.limit, params.window());
            terms.hold_off = terms.hold_off.min(window / 4);
            let back = u128::from(limit) * u128::from(HOLD_OFF_MAX.min(window / 4).unsigned_abs());
            terms.scarce = terms.scarce.min((back / u128::from(window.unsigned_abs().max(1))) as u64);
        }
        terms
    }

    /// Returns the terms without any limits.
    pub(super) fn lasting(ttl: Micros) -> Self {
        Self { ttl, horizon: 2 * ttl / 5, hold_off: HOLD_OFF_MAX, scarce: u64::MAX }
    }

    /// Returns the time from sending a renewal until the units that it brought must be spent, by the holder's clock.
    fn usable(&self) -> Micros {
        self.ttl - (self.ttl * DRIFT_PPM + 999_999) / 1_000_000
    }

    /// Returns the time until which a holder that learns of a refusal at `now` refuses on its own. A busy store answers
    /// late, and would stay busy if the time counted from the request; an old refusal means nothing.
    fn held_off_until(&self, sent: Micros, now: Micros) -> Micros {
        (now + self.hold_off).min(sent + 4 * self.hold_off)
    }
}

/// The handling of a request that the balance cannot pay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnShortage {
    /// Refuse it, since the authority has refused no more than this shortly before.
    Refuse {
        /// Time until the authority is asked again.
        retry_after: Micros,
    },
    /// Let the store decide it, and serve the renewal, if any, in the same step.
    Store(Option<Renewal>),
}

/// The holder of one key's lease. Its owner calls it from one thread at a time, with the time of its monotonic clock.
///
/// Units are spent from a [`Balance`]; the units left in it determine how many were spent. The fields record what the
/// authority was told; only an answer to the pending renewal changes them.
#[derive(Clone, Debug)]
pub struct Holder {
    id: HoldId,
    terms: LeaseTerms,
    sequence: u64,
    pub(super) pending: Option<Pending>,
    /// Time until which the authority may hold units for this holder that are neither in the balance nor spent: taken
    /// back, or granted by a renewal that was lost. The next renewal that is answered returns them.
    unsettled_until: Micros,
    /// All units ever put in the balance and not taken back unspent. Those that are not in it are spent.
    taken: u64,
    /// Units taken back unspent since the last renewal that was answered.
    taken_back: u64,
    demand: Demand,
    /// Units spent that the demand includes.
    counted: u64,
    refused: Option<Refused>,
    /// Time until which no units are requested, since too many others hold some of a level.
    full_until: Micros,
}

/// A renewal in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) renewal: Renewal,
    pub(super) sent: Micros,
    /// Cost of the request that it was sent with; 0 for none.
    cost: i64,
}

impl Pending {
    /// Whether no units are held once it is served.
    fn only_returns(&self) -> bool {
        self.renewal.kept == 0 && self.renewal.want == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    cost: i64,
    until: Micros,
}

impl Holder {
    /// Creates a holder without units.
    pub fn new(id: HoldId, terms: LeaseTerms, now: Micros) -> Self {
        let mut demand = Demand::default();
        demand.count(0, now);
        Self {
            id,
            terms,
            sequence: 0,
            pending: None,
            unsettled_until: Micros::MIN,
            taken: 0,
            taken_back: 0,
            demand,
            counted: 0,
            refused: None,
            full_until: Micros::MIN,
        }
    }

    /// Decides how to handle a request that the balance cannot pay for.
    pub fn short(&mut self, balance: &Balance, cost: i64, now: Micros) -> OnShortage {
        self.count(balance, cost.max(0).unsigned_abs(), now);
        let is_pending = self.is_pending(balance, now);
        if let Some(Refused { until, .. }) = self.refused.filter(|refused| cost >= refused.cost) {
            // Then one request goes to the authority, and the others wait for its answer at most as long again.
            let until = if is_pending && now >= until { until + self.terms.hold_off } else { until };
            if now < until {
                return OnShortage::Refuse { retry_after: until - now };
            }
        }
        let want = self.demand.within(self.terms.horizon);
        if is_pending || now < self.full_until || (want < 2 && balance.units() == 0) {
            return OnShortage::Store(None);
        }
        // The held units go back with the request, which may need them.
        self.take_back(balance.empty(), now);
        OnShortage::Store(Some(self.renewal(balance, 0, want, cost, now)))
    }

    /// Returns a renewal to send when the balance is low or its check is due; no request waits for it.
    pub fn low(&mut self, balance: &Balance, now: Micros) -> Option<Renewal> {
        if self.is_pending(balance, now) {
            return None;
        }
        self.count(balance, 0, now);
        if balance.is_over(now) {
            self.take_back(balance.empty(), now);
        }
        let target = self.demand.within(self.terms.horizon);
        let held = balance.units();
        // Fewer than two units are not worth a hold, and far more than needed are of use to others.
        if target < 2 || held > 2 * target {
            self.take_back(balance.take_above(if target < 2 { 0 } else { target }), now);
        }
        if target < 2 && !self.is_unsettled(now) {
            balance.unwatch();
            return None;
        }
        let kept = balance.units();
        let want = if target < 2 { 0 } else { target.saturating_sub(kept) };
        Some(self.renewal(balance, kept, want, 0, now))
    }

    /// Returns the renewal that [`Balance::spend`] would trigger, in case nothing is spent. Must be called at
    /// intervals shorter than half of a hold's TTL.
    pub fn due(&mut self, balance: &Balance, now: Micros) -> Option<Renewal> {
        if balance.is_due(now) { self.low(balance, now) } else { None }
    }

    /// Stops the holder, and returns a renewal that gives back its units.
    pub fn close(&mut self, balance: &Balance, now: Micros) -> Option<Renewal> {
        balance.unwatch();
        self.take_back(balance.empty(), now);
        (self.pending.is_some() || self.is_unsettled(now)).then(|| self.renewal(balance, 0, 0, 0, now))
    }

    /// Handles the authority's answer. `is_refused`: the request sent with the renewal was refused. Returns the units
    /// that count as spent since their deadline passed.
    pub fn answered(&mut self, balance: &Balance, grant: &Grant, is_refused: bool, now: Micros) -> u64 {
        let Some(Pending { renewal, sent, cost }) = self.pending.take_if(|it| it.renewal.sequence == grant.sequence)
        else {
            return 0;
        };
        let taken_back = mem::take(&mut self.taken_back);
        self.unsettled_until = Micros::MIN;
        let burnt = if grant.is_kept { 0 } else { renewal.kept + taken_back };
        if !grant.is_kept {
            // Burnt, including the units spent of it since.
            balance.empty();
            self.counted = self.counted.min(renewal.spent);
            self.taken = renewal.spent;
        }
        if grant.is_recalled {
            self.take_back(balance.empty(), now);
        }
        self.taken += grant.units;
        let usable = self.terms.usable();
        balance.fill(grant.units, sent + usable);
        // Only a place is missing, and the authority has refused nothing.
        let is_full = grant.is_full(&renewal) && balance.units() == 0;
        let is_scarce = !is_full && grant.units < renewal.want && grant.units + grant.free <= self.terms.scarce;
        if is_full {
            self.full_until = now + self.terms.ttl;
            balance.unwatch();
        } else {
            // If none are available, asking again before more are needed is useless.
            balance.watch(if is_scarce { 0 } else { balance.units() / 2 }, sent + usable / 2);
        }
        self.refused = None;
        if is_refused {
            self.refuse(cost, (sent + grant.refused_for).max(self.terms.held_off_until(sent, now)));
        } else if is_scarce {
            self.refuse(1, self.terms.held_off_until(sent, now));
        }
        burnt
    }

    /// Records that the store refused a request sent without a renewal.
    pub fn refused(&mut self, cost: i64, sent: Micros, now: Micros) {
        self.refuse(cost, self.terms.held_off_until(sent, now));
    }

    fn refuse(&mut self, cost: i64, until: Micros) {
        if cost > 0 && self.refused.is_none_or(|refused| refused.until < until) {
            self.refused = Some(Refused { cost, until });
        }
    }

    /// Handles a renewal that will not be answered. Whether it was served is unknown: the next one settles it.
    pub fn lost(&mut self, balance: &Balance, sequence: u64) {
        if let Some(pending) = self.pending.take_if(|pending| pending.renewal.sequence == sequence) {
            self.may_hold(&pending);
            // A store that cannot be reached fails immediately, so renewals are delayed.
            let delay = if pending.only_returns() { self.terms.ttl / 4 } else { self.terms.hold_off };
            balance.watch(0, pending.sent + delay);
        }
    }

    /// Returns the units that the authority may hold for it: those in the balance, and those taken back since the last
    /// renewal that was answered.
    pub fn unsettled(&self, balance: &Balance) -> u64 {
        balance.units() + self.taken_back
    }

    /// Whether it can be forgotten.
    pub fn is_idle(&mut self, balance: &Balance, now: Micros) -> bool {
        self.count(balance, 0, now);
        !self.is_pending(balance, now)
            && balance.units() == 0
            && !self.is_unsettled(now)
            && self.demand.within(self.terms.horizon) == 0
    }

    fn is_unsettled(&self, now: Micros) -> bool {
        now < self.unsettled_until
    }

    /// Whether a renewal is in flight. One that is not answered before its units would be useless is lost.
    fn is_pending(&mut self, balance: &Balance, now: Micros) -> bool {
        let ttl = self.terms.ttl;
        if let Some(pending) = self.pending.take_if(|pending| now >= pending.sent + ttl) {
            self.may_hold(&pending);
            balance.watch(0, Micros::MIN);
        }
        self.pending.is_some()
    }

    /// Records that a renewal without an answer may have been served, at the latest when it was given up. One that only
    /// returns units leaves none: it extends nothing, so that the renewals of a key without demand end.
    fn may_hold(&mut self, lost: &Pending) {
        if !lost.only_returns() {
            self.unsettled_until = self.unsettled_until.max(lost.sent + 2 * self.terms.ttl);
        }
    }

    fn take_back(&mut self, units: u64, now: Micros) {
        if units > 0 {
            self.taken -= units;
            self.taken_back += units;
            self.unsettled_until = self.unsettled_until.max(now + self.terms.ttl);
        }
    }

    fn renewal(&mut self, balance: &Balance, kept: u64, want: u64, cost: i64, now: Micros) -> Renewal {
        balance.unwatch();
        self.sequence += 1;
        let spent = self.taken - kept;
        let renewal = Renewal { id: self.id, sequence: self.sequence, spent, kept, want, ttl: self.terms.ttl };
        self.pending = Some(Pending { renewal, sent: now, cost });
        renewal
    }

    fn count(&mut self, balance: &Balance, units: u64, now: Micros) {
        let spent = self.taken.saturating_sub(balance.units());
        self.demand.count(units + spent.saturating_sub(self.counted), now);
        self.counted = spent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::time::SECOND,
        hold::{RenewalTotals, Spend},
    };

    /// A holder stops before the deadline of the authority, however their clocks drift within the bound.
    #[test]
    fn a_hold_is_used_for_less_than_it_lasts() {
        for ttl in (1..2_000).chain([250_000, 60_000_000]) {
            let terms = LeaseTerms { ttl, horizon: 0, hold_off: 0, scarce: 0 };
            let by_the_authority = i128::from(terms.usable()) * i128::from(1_000_000 + DRIFT_PPM) / 1_000_000;
            assert!(by_the_authority < i128::from(ttl), "{ttl}");
        }
    }

    #[test]
    fn units_left_at_the_deadline_are_reported_as_burnt_unless_they_were_given_back() {
        for is_kept in [true, false] {
            let (balance, terms) = (Balance::default(), LeaseTerms::lasting(SECOND));
            let mut holder = Holder::new(HoldId { owner: 1, number: 1 }, terms, 0);
            let OnShortage::Store(Some(first)) = holder.short(&balance, 100, 0) else { panic!("no renewal") };
            let grant = |sequence, is_kept| {
                let (is_recalled, refused_for, settled) = (false, 0, RenewalTotals::default());
                Grant { sequence, units: 10, free: 100, is_kept, is_recalled, refused_for, settled }
            };
            assert_eq!(holder.answered(&balance, &grant(first.sequence, false), false, 0), 0);
            assert_eq!(balance.spend(4, 1), Spend::Spent);
            // The process was paused.
            let renewal = holder.due(&balance, 3 * SECOND).unwrap();
            assert_eq!((renewal.spent, renewal.kept), (4, 0));
            let burnt = holder.answered(&balance, &grant(renewal.sequence, is_kept), false, 3 * SECOND);
            assert_eq!(burnt, if is_kept { 0 } else { 6 });
        }
    }
}
