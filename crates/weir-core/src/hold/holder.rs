//! The holder: when to ask for how much, and what to do meanwhile.

use super::{DRIFT_PPM, Grant, HOLD_OFF_MAX, HoldId, Renewal, balance::Balance, demand::Demand};
use crate::{
    algorithm::Params,
    domain::{Ask, Micros},
};

/// How leases are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// From a renewal to the deadline, by the authority's clock.
    pub ttl: Micros,
    /// A hold is to last for so long at the present demand.
    pub horizon: Micros,
    /// After a refusal of the authority the holder refuses by itself for so long. No more comes back in four times of it than
    /// fits the limit, so that none is lost to those who ask next.
    pub hold_off: Micros,
    /// Units that come back in that time. Where no more is free the limit is reached, and who has spent its share asks no
    /// sooner than one who was refused.
    pub scarce: u64,
}

impl Terms {
    /// Holds that last for `ttl`, and for two fifths of it at the present demand, under these limits: a holder refuses by
    /// itself for at most 10 ms, or a quarter of the least [`window`](crate::algorithm::Algorithm::window).
    pub fn of<'p>(limits: impl IntoIterator<Item = &'p Params>, ttl: Micros) -> Self {
        let mut terms = Self::lasting(ttl);
        let peek = Ask { now: 0, cost: 0, max_wait: None, phase: 0 };
        for params in limits {
            let (most, window) = (params.step(None, &peek).0.limit, params.window());
            terms.hold_off = terms.hold_off.min(window / 4);
            let back = u128::from(most) * u128::from(HOLD_OFF_MAX.min(window / 4).unsigned_abs());
            terms.scarce = terms.scarce.min((back / u128::from(window.unsigned_abs().max(1))) as u64);
        }
        terms
    }

    /// Those without any limits.
    pub(super) fn lasting(ttl: Micros) -> Self {
        Self { ttl, horizon: 2 * ttl / 5, hold_off: HOLD_OFF_MAX, scarce: u64::MAX }
    }

    /// From when a renewal was sent to when what it brought must be spent, by the holder's clock.
    fn usable(&self) -> Micros {
        self.ttl - (self.ttl * DRIFT_PPM + 999_999) / 1_000_000
    }

    /// Until when the holder refuses by itself that hears now of a refusal. A busy store answers late, and would stay busy if
    /// the time were counted from the question; a refusal that is old tells nothing.
    fn held_off_until(&self, sent: Micros, now: Micros) -> Micros {
        (now + self.hold_off).min(sent + 4 * self.hold_off)
    }
}

/// How a request is decided that the balance cannot pay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnShortage {
    /// Refused, as the authority has refused no more than this shortly before: try again after so long.
    Refuse {
        /// Until the authority is asked again.
        retry_after: Micros,
    },
    /// The store decides it, and serves the renewal in the same step where there is one.
    Store(Option<Renewal>),
}

/// The holder of one key's lease; its owner calls it for one thread at a time, with the time of its monotonic clock.
///
/// It spends from a [`Balance`], of which it knows by the units that are left how many were spent. Fields say what the
/// authority was told; only an answer to the pending renewal changes them.
#[derive(Clone, Debug)]
pub struct Holder {
    id: HoldId,
    terms: Terms,
    sequence: u64,
    pub(super) pending: Option<Pending>,
    /// The last renewal was lost, and may have been served.
    is_unsettled: bool,
    /// All units that were ever put in the balance and not taken back unspent. Those that are not in it are spent.
    taken: u64,
    demand: Demand,
    /// Units spent that the demand knows of.
    counted: u64,
    refused: Option<Refused>,
}

/// A renewal under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) renewal: Renewal,
    pub(super) sent: Micros,
    /// What the request cost that it came with; 0: none.
    cost: i64,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    cost: i64,
    until: Micros,
}

impl Holder {
    /// A holder of nothing.
    pub fn new(id: HoldId, terms: Terms, now: Micros) -> Self {
        let mut demand = Demand::default();
        demand.count(0, now);
        Self { id, terms, sequence: 0, pending: None, is_unsettled: false, taken: 0, demand, counted: 0, refused: None }
    }

    /// A request came that the balance cannot pay for.
    pub fn short(&mut self, balance: &Balance, cost: i64, now: Micros) -> OnShortage {
        self.count(balance, cost.max(0).unsigned_abs(), now);
        let is_pending = self.is_pending(balance, now);
        if let Some(Refused { until, .. }) = self.refused.filter(|refused| cost >= refused.cost) {
            // Then one asks for all, which wait for its answer at most as long again.
            let until = if is_pending && now >= until { until + self.terms.hold_off } else { until };
            if now < until {
                return OnShortage::Refuse { retry_after: until - now };
            }
        }
        let want = self.demand.within(self.terms.horizon);
        if is_pending || (want < 2 && balance.units() == 0) {
            return OnShortage::Store(None);
        }
        // What is held goes back with the request, which may need it.
        self.taken -= balance.empty();
        OnShortage::Store(Some(self.renewal(balance, 0, want, cost, now)))
    }

    /// The balance is low, or time has come to see whether it is: a renewal to send, for which no request waits.
    pub fn low(&mut self, balance: &Balance, now: Micros) -> Option<Renewal> {
        if self.is_pending(balance, now) {
            return None;
        }
        self.count(balance, 0, now);
        if balance.is_over(now) {
            self.taken -= balance.empty();
        }
        let target = self.demand.within(self.terms.horizon);
        let held = balance.units();
        // Less than two are not worth a hold, and much more than is needed is of use to others.
        if target < 2 || held > 2 * target {
            self.taken -= balance.take_above(if target < 2 { 0 } else { target });
        }
        if target < 2 && held == 0 {
            balance.unwatch();
            return None;
        }
        let kept = balance.units();
        let want = if target < 2 { 0 } else { target.saturating_sub(kept) };
        Some(self.renewal(balance, kept, want, 0, now))
    }

    /// To be called now and then, more often than half a hold lasts: what [`Balance::spend`] would tell, where nothing is spent.
    pub fn due(&mut self, balance: &Balance, now: Micros) -> Option<Renewal> {
        if balance.is_due(now) { self.low(balance, now) } else { None }
    }

    /// The owner stops: what is held is given back.
    pub fn close(&mut self, balance: &Balance, now: Micros) -> Option<Renewal> {
        balance.unwatch();
        let units = balance.empty();
        self.taken -= units;
        (units > 0 || self.pending.is_some() || self.is_unsettled).then(|| self.renewal(balance, 0, 0, 0, now))
    }

    /// The authority's answer, and whether the request that came with the renewal was refused.
    pub fn answered(&mut self, balance: &Balance, grant: &Grant, is_refused: bool, now: Micros) {
        let Some(Pending { renewal, sent, cost }) = self.pending.take_if(|it| it.renewal.sequence == grant.sequence)
        else {
            return;
        };
        if !grant.is_kept {
            // Burnt, with whatever was spent of it since.
            balance.empty();
            self.counted = self.counted.min(renewal.spent);
            self.taken = renewal.spent;
        }
        if grant.is_recalled {
            self.taken -= balance.empty();
        }
        self.is_unsettled = false;
        self.taken += grant.units;
        let usable = self.terms.usable();
        balance.fill(grant.units, sent + usable);
        let is_scarce = grant.units < renewal.want && grant.units + grant.free <= self.terms.scarce;
        // Where there is none to be had, asking again before it is needed brings nothing.
        balance.watch(if is_scarce { 0 } else { balance.units() / 2 }, sent + usable / 2);
        self.refused = None;
        if is_refused {
            self.refuse(cost, (sent + grant.refused_for).max(self.terms.held_off_until(sent, now)));
        } else if is_scarce {
            self.refuse(1, self.terms.held_off_until(sent, now));
        }
    }

    /// The store refused a request that was sent without a renewal.
    pub fn refused(&mut self, cost: i64, sent: Micros, now: Micros) {
        self.refuse(cost, self.terms.held_off_until(sent, now));
    }

    fn refuse(&mut self, cost: i64, until: Micros) {
        if cost > 0 && self.refused.is_none_or(|refused| refused.until < until) {
            self.refused = Some(Refused { cost, until });
        }
    }

    /// The renewal of this number will not be answered. Whether it was served is not known: the next one settles it.
    pub fn lost(&mut self, balance: &Balance, sequence: u64) {
        if let Some(pending) = self.pending.take_if(|pending| pending.renewal.sequence == sequence) {
            self.is_unsettled = true;
            // A store that is not asked at all fails at once, again and again.
            balance.watch(0, pending.sent + self.terms.hold_off);
        }
    }

    /// Whether it may be forgotten.
    pub fn is_idle(&mut self, balance: &Balance, now: Micros) -> bool {
        self.count(balance, 0, now);
        !self.is_pending(balance, now) && balance.units() == 0 && self.demand.within(self.terms.horizon) == 0
    }

    /// Whether a renewal is under way. One that is not answered until what it brings is of no use is lost.
    fn is_pending(&mut self, balance: &Balance, now: Micros) -> bool {
        let ttl = self.terms.ttl;
        if self.pending.take_if(|pending| now >= pending.sent + ttl).is_some() {
            balance.watch(0, Micros::MIN);
        }
        self.pending.is_some()
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

    /// A holder stops before the authority lets go, however their clocks drift.
    #[test]
    fn a_hold_is_used_for_less_than_it_lasts() {
        for ttl in (1..2_000).chain([250_000, 60_000_000]) {
            let terms = Terms { ttl, horizon: 0, hold_off: 0, scarce: 0 };
            let by_the_authority = i128::from(terms.usable()) * i128::from(1_000_000 + DRIFT_PPM) / 1_000_000;
            assert!(by_the_authority < i128::from(ttl), "{ttl}");
        }
    }
}
