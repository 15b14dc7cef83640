//! This replica's part of each limit's rate, held in the store.
//!
//! Each level is renewed periodically: first the demand of its holders, then the part of the rate that this replica
//! keeps and wants. Over a shared store the rate is divided among the replicas in proportion to their demand. A replica
//! returns units beyond its share once its holders do not use them any more. In memory it has the whole rate.

use std::sync::Arc;

use weir_core::{
    domain::{Micros, OnStoreFailure, time::SECOND},
    hold::{DRIFT_PPM, Grant, HoldId, Renewal},
    quota::{LevelId, Load, QuotaTiming},
};
use weir_store::{Failure, Store};

use super::QuotaMode;
use crate::limiter::{
    Limiter,
    quota::{HeldPart, QuotaLevel, WHOLE_DEMAND},
};

/// Maximum number of renewals in a row, over a shared store and in memory: each grants half of the free units.
const MAX_IN_A_ROW: (usize, usize) = (10, 40);
/// A part below 1/`WORTH` of the rate is not worth another renewal.
const WORTH: u64 = 256;
/// A replica returns units when it has more than 1/`BEYOND` of the rate beyond its share.
const BEYOND: u64 = 32;
/// Minimum and maximum time between two renewals of a level; in between, `RENEW_EVERY_FOR_EACH` times the number of
/// levels.
const RENEW_EVERY: (Micros, Micros) = (SECOND, 5 * SECOND);
const RENEW_EVERY_FOR_EACH: Micros = 500;
/// Number of lost renewals in a row after which the store counts as unavailable.
const UNAVAILABLE_AFTER: u32 = 2;
/// Time until the next renewal if the last one did not reach its target.
const RENEW_SOON: Micros = SECOND / 2;
/// Time for which a demand is remembered that is not renewed.
const DEMAND_TTL: Micros = 2 * RENEW_EVERY.1;

/// A level, and the units held of it.
#[derive(Debug)]
pub struct HeldLevel {
    /// Its id in the divider.
    pub id: LevelId,
    /// The limit.
    pub level: Arc<QuotaLevel>,
    /// The policy's rule while the store is unavailable.
    pub on_store_failure: OnStoreFailure,
    /// Time of its next renewal.
    pub due: Micros,
    /// Number of renewals in a row for which the store was unavailable.
    unavailable: u32,
    rate: StoreHold,
    demand: StoreHold,
}

/// Units held of one bucket of the store.
#[derive(Clone, Copy, Debug)]
struct StoreHold {
    id: HoldId,
    sequence: u64,
    units: u64,
    /// Time until which they are certainly held.
    until: Micros,
    /// Upper bound on the target, and its end: the store has lost the hold, and perhaps other replicas', whose holders
    /// still use them.
    most: (u64, Micros),
}

/// A level that is being renewed.
#[derive(Debug)]
pub struct Renewing {
    level: Arc<QuotaLevel>,
    rate: StoreHold,
    demand: StoreHold,
    load: Load,
}

/// The outcome of a renewal.
#[derive(Debug)]
pub struct Renewed {
    level: Arc<QuotaLevel>,
    rate: StoreHold,
    demand: StoreHold,
    /// The part of the rate that this replica should have.
    target: u64,
    /// Units that may be divided although a full store has no room to hold them.
    uncounted: u64,
    /// Why the store did not answer, if so.
    pub lost: Option<Failure>,
}

impl StoreHold {
    /// Returns a hold without units.
    fn new(owner: u64, number: u64) -> Self {
        Self { id: HoldId { owner, number }, sequence: 0, units: 0, until: 0, most: (0, 0) }
    }

    fn renewal(&mut self, kept: u64, want: u64, ttl: Micros) -> Renewal {
        self.sequence += 1;
        Renewal { id: self.id, sequence: self.sequence, spent: 0, kept, want, ttl }
    }

    fn granted(&mut self, renewal: &Renewal, grant: &Grant, sent: Micros) {
        self.units = grant.units + if grant.is_kept { renewal.kept } else { 0 };
        self.until = sent + renewal.ttl - renewal.ttl * DRIFT_PPM / 1_000_000;
    }
}

/// Returns the TTL of the hold on a rate: longer than holders use it if a renewal does not reach the store.
pub(super) fn hold_ttl(timing: &QuotaTiming) -> Micros {
    timing.ttl + timing.lag + RENEW_EVERY.1
}

impl HeldLevel {
    /// Returns a level without held units, due immediately. `number` is unique among the levels of this owner.
    pub fn new(
        id: LevelId,
        level: Arc<QuotaLevel>,
        on_store_failure: OnStoreFailure,
        (owner, number): (u64, u64),
    ) -> Self {
        let (rate, demand) = (StoreHold::new(owner, 2 * number), StoreHold::new(owner, 2 * number + 1));
        Self { id, level, on_store_failure, due: 0, unavailable: 0, rate, demand }
    }

    /// Starts a renewal. The level is not due until [`Self::renewed`] is called with the outcome.
    pub fn renew(&mut self, load: Load) -> Renewing {
        self.due = Micros::MAX;
        let renewing = Renewing { level: Arc::clone(&self.level), rate: self.rate, demand: self.demand, load };
        // If this one is cut off, or overtaken because the level ends, the next one does not look like its repetition.
        self.rate.sequence += MAX_IN_A_ROW.1 as u64;
        self.demand.sequence += 1;
        renewing
    }

    /// Ends a renewal, with `levels` levels in all. Returns the units that may be divided from now on; `None` if the
    /// renewal was of an earlier level of this name, whose units have been returned.
    pub fn renewed(&mut self, renewed: &Renewed, levels: usize, timing: &QuotaTiming, now: Micros) -> Option<u64> {
        if self.rate.id != renewed.rate.id {
            return None;
        }
        (self.rate, self.demand) = (renewed.rate, renewed.demand);
        let (units, target) = (self.rate.units + renewed.uncounted, renewed.target);
        let is_lost = renewed.lost.is_some();
        match &renewed.lost {
            None => self.unavailable = 0,
            Some(failure) => self.unavailable += u32::from(!failure.is_overload()),
        }
        let every = (RENEW_EVERY_FOR_EACH * levels as Micros).clamp(RENEW_EVERY.0, RENEW_EVERY.1);
        let has_enough = units + self.level.rate / WORTH >= target;
        let gives_back = units > target + self.level.rate / BEYOND;
        self.due = now + if is_lost || (has_enough && !gives_back) { every } else { RENEW_SOON };
        if !Arc::ptr_eq(&renewed.level, &self.level) {
            // The policy has changed meanwhile.
            self.due = now;
        }
        let budget = if self.outlasts() && units == 0 && self.unavailable >= UNAVAILABLE_AFTER {
            // This replica counts alone, as for checks. A single loss is not an outage.
            self.level.rate
        } else if is_lost && now + timing.lag + every >= self.rate.until && !self.outlasts() {
            // Its hold expires soon.
            0
        } else if gives_back && !is_lost {
            target
        } else {
            units
        };
        Some(budget.min(self.level.rate))
    }

    /// Whether its assignments do not depend on the store while that is unavailable.
    fn outlasts(&self) -> bool {
        matches!(self.on_store_failure, OnStoreFailure::Local | OnStoreFailure::Allow)
    }

    /// Returns the units held of its rate.
    pub fn held(&self) -> u64 {
        self.rate.units
    }
}

impl Renewing {
    /// Renews the level. `is_shared`: other replicas hold parts of it.
    pub async fn run<S: Store>(
        mut self,
        limiter: &Limiter<S>,
        mode: QuotaMode,
        timing: &QuotaTiming,
        clock: impl Fn() -> Micros,
    ) -> Renewed {
        let rate = self.level.rate;
        let (target, mut lost) = match self.target(limiter, mode.is_shared, &clock).await {
            Ok(target) => (target, None),
            Err(failure) => (self.rate.units, Some(failure)),
        };
        let bounded = |most: (u64, Micros)| if clock() < most.1 { target.min(most.0) } else { target };
        let (mut target, mut uncounted) = (bounded(self.rate.most), 0);
        let (most, worth) = if mode.is_shared { (MAX_IN_A_ROW.0, rate / WORTH) } else { (MAX_IN_A_ROW.1, 0) };
        for _ in 0..if lost.is_some() { 0 } else { most } {
            let kept = self.rate.units.min(target.max(self.load.live));
            let renewal = self.rate.renewal(kept, target.saturating_sub(kept), hold_ttl(timing));
            let sent = clock();
            match limiter.renew(&self.level, HeldPart::Rate, &renewal).await {
                Ok(grant) => {
                    self.rate.granted(&renewal, &grant, sent);
                    if !grant.is_kept && kept > 0 {
                        self.rate.most = (kept, sent + timing.ttl + timing.lag);
                        target = bounded(self.rate.most);
                    }
                    if self.rate.units + worth >= target || grant.units == 0 && (grant.is_kept || kept == 0) {
                        // Of free units at least one is granted, unless the store has no room for the hold.
                        if mode.passes_when_full && grant.units == 0 {
                            uncounted = grant.free.min(target.saturating_sub(self.rate.units));
                        }
                        break;
                    }
                }
                Err(failure) => {
                    lost = Some(failure);
                    break;
                }
            }
        }
        Renewed { level: self.level, rate: self.rate, demand: self.demand, target, uncounted, lost }
    }

    /// Returns the part of the rate that this replica should have.
    async fn target<S: Store>(
        &mut self,
        limiter: &Limiter<S>,
        is_shared: bool,
        clock: &impl Fn() -> Micros,
    ) -> Result<u64, Failure> {
        let rate = self.level.rate;
        if !is_shared {
            return Ok(rate);
        }
        let own = (u128::from(self.load.demand.min(rate)) * u128::from(WHOLE_DEMAND)).div_ceil(u128::from(rate.max(1)))
            as u64;
        let kept = self.demand.units.min(own);
        let renewal = self.demand.renewal(kept, own - kept, DEMAND_TTL);
        let sent = clock();
        let grant = limiter.renew(&self.level, HeldPart::Demand, &renewal).await?;
        self.demand.granted(&renewal, &grant, sent);
        let all = QuotaLevel::demand_of_all(grant.free).max(own).max(1);
        let share = (u128::from(rate) * u128::from(own) / u128::from(all)) as u64;
        // Holders that returned get the free units, before others shrink for them.
        Ok((share + self.load.returning).min(rate))
    }

    /// Returns all units to the store: the demand immediately, the rate after `ttl`.
    pub async fn return_units<S: Store>(mut self, limiter: &Limiter<S>, ttl: Micros) {
        let demand = self.demand.renewal(0, 0, 1);
        let rate = if ttl > 0 { self.rate.renewal(self.rate.units, 0, ttl) } else { self.rate.renewal(0, 0, 1) };
        // If this fails, the holds expire.
        let _ = limiter.renew(&self.level, HeldPart::Demand, &demand).await;
        let _ = limiter.renew(&self.level, HeldPart::Rate, &rate).await;
    }
}
