//! This replica's part of each limit's rate, which it holds of the store.
//!
//! Every so often a level is renewed: how much its holders demand, then how much of its rate this replica keeps and wants.
//! Over a shared store the rate is divided among the replicas in proportion to their demand; what a replica has beyond that
//! it gives back once its holders have let go of it. In memory it has all.

use std::sync::Arc;

use weir_core::{
    domain::{Micros, OnStoreFailure, time::SECOND},
    hold::{DRIFT_PPM, Grant, HoldId, Renewal},
    quota::{LevelId, Load, Terms},
};
use weir_store::{Store, StoreError};

use crate::limiter::{
    Limiter,
    quota::{HeldPart, QuotaLevel, WHOLE_DEMAND},
};

/// Most renewals in a row, over a shared store and in memory: what is free is granted half at a time.
const MAX_IN_A_ROW: (usize, usize) = (10, 40);
/// A part of the rate that is not worth asking for.
const WORTH: u64 = 256;
/// Parts of the rate that a replica may have beyond its share before it gives back.
const BEYOND: u64 = 32;
/// The time between two renewals: a second, more where there are many levels.
const RENEW_EVERY: (Micros, Micros) = (SECOND, 5 * SECOND);
const RENEW_EVERY_FOR_EACH: Micros = 500;
/// The time until a renewal that is to bring what the last one did not.
const RENEW_SOON: Micros = SECOND / 2;
/// How long demand is remembered that is not renewed.
const DEMAND_TTL: Micros = 2 * RENEW_EVERY.1;

/// A level, and what is held of it.
#[derive(Debug)]
pub struct HeldLevel {
    /// Its number in the divider.
    pub id: LevelId,
    /// The limit.
    pub level: Arc<QuotaLevel>,
    /// What holds while the store does not answer.
    pub on_store_failure: OnStoreFailure,
    /// When it is renewed next.
    pub due: Micros,
    rate: Held,
    demand: Held,
}

/// Units held of one bucket of the store.
#[derive(Clone, Copy, Debug)]
struct Held {
    id: HoldId,
    sequence: u64,
    units: u64,
    /// Until then, for sure.
    until: Micros,
    /// At most so much until then: the store has lost what was held, perhaps of others too, whose holders go on.
    most: (u64, Micros),
}

/// A level that is being renewed.
#[derive(Debug)]
pub struct Renewing {
    level: Arc<QuotaLevel>,
    rate: Held,
    demand: Held,
    load: Load,
}

/// What became of that.
#[derive(Debug)]
pub struct Renewed {
    rate: Held,
    demand: Held,
    /// The part of the rate that this replica is to have.
    target: u64,
    /// The store did not answer.
    pub is_lost: bool,
}

impl Held {
    /// Nothing yet.
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

/// How long a part of a rate is held: longer than its holders use it, when the store is not reached for a renewal.
pub(super) fn hold_ttl(terms: &Terms) -> Micros {
    terms.ttl + terms.lag + RENEW_EVERY.1
}

impl HeldLevel {
    /// A level of which nothing is held, due at once. `number` tells it from others of this owner.
    pub fn new(
        id: LevelId,
        level: Arc<QuotaLevel>,
        on_store_failure: OnStoreFailure,
        (owner, number): (u64, u64),
    ) -> Self {
        let (rate, demand) = (Held::new(owner, 2 * number), Held::new(owner, 2 * number + 1));
        Self { id, level, on_store_failure, due: 0, rate, demand }
    }

    /// Begins a renewal, whose end must be told; it is not due meanwhile.
    pub fn renew(&mut self, load: Load) -> Renewing {
        self.due = Micros::MAX;
        Renewing { level: Arc::clone(&self.level), rate: self.rate, demand: self.demand, load }
    }

    /// The end of a renewal: what may be divided from now on, among so many levels in all.
    pub fn renewed(&mut self, renewed: &Renewed, levels: usize, terms: &Terms, now: Micros) -> u64 {
        (self.rate, self.demand) = (renewed.rate, renewed.demand);
        let (units, target) = (self.rate.units, renewed.target);
        let every = (RENEW_EVERY_FOR_EACH * levels as Micros).clamp(RENEW_EVERY.0, RENEW_EVERY.1);
        let has_enough = units + self.level.rate / WORTH >= target;
        let gives_back = units > target + self.level.rate / BEYOND;
        self.due = now + if renewed.is_lost || (has_enough && !gives_back) { every } else { RENEW_SOON };
        if renewed.is_lost && now + terms.lag + every >= self.rate.until && !self.outlasts() {
            // It is free before long.
            return 0;
        }
        if gives_back && !renewed.is_lost { target } else { units }
    }

    /// Whether its shares stay while the store does not answer, for longer than they are held.
    fn outlasts(&self) -> bool {
        matches!(self.on_store_failure, OnStoreFailure::Local | OnStoreFailure::Allow)
    }

    /// What is held of it.
    pub fn held(&self) -> u64 {
        self.rate.units
    }
}

impl Renewing {
    /// Renews the level. `is_shared`: other replicas have parts of it.
    pub async fn run<S: Store>(
        mut self,
        limiter: &Limiter<S>,
        is_shared: bool,
        terms: &Terms,
        clock: impl Fn() -> Micros,
    ) -> Renewed {
        let rate = self.level.rate;
        let (target, mut is_lost) = match self.target(limiter, is_shared, &clock).await {
            Ok(target) => (target, false),
            Err(_) => (self.rate.units, true),
        };
        let bounded = |most: (u64, Micros)| if clock() < most.1 { target.min(most.0) } else { target };
        let mut target = bounded(self.rate.most);
        let (most, worth) = if is_shared { (MAX_IN_A_ROW.0, rate / WORTH) } else { (MAX_IN_A_ROW.1, 0) };
        for _ in 0..if is_lost { 0 } else { most } {
            let kept = self.rate.units.min(target.max(self.load.live));
            let renewal = self.rate.renewal(kept, target.saturating_sub(kept), hold_ttl(terms));
            let sent = clock();
            match limiter.renew(&self.level, HeldPart::Rate, &renewal).await {
                Ok(grant) => {
                    self.rate.granted(&renewal, &grant, sent);
                    if !grant.is_kept && kept > 0 {
                        self.rate.most = (kept, sent + terms.ttl + terms.lag);
                        target = bounded(self.rate.most);
                    }
                    if self.rate.units + worth >= target || grant.units == 0 && grant.is_kept {
                        break;
                    }
                }
                Err(_) => {
                    is_lost = true;
                    break;
                }
            }
        }
        Renewed { rate: self.rate, demand: self.demand, target, is_lost }
    }

    /// The part of the rate that this replica is to have.
    async fn target<S: Store>(
        &mut self,
        limiter: &Limiter<S>,
        is_shared: bool,
        clock: &impl Fn() -> Micros,
    ) -> Result<u64, StoreError> {
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
        // Those that are back get what is free, before others shrink for them.
        Ok((share + self.load.back).min(rate))
    }

    /// Lets the store have everything back after `ttl`.
    pub async fn give_back<S: Store>(mut self, limiter: &Limiter<S>, ttl: Micros) {
        let demand = self.demand.renewal(0, 0, 1);
        let rate = if ttl > 0 { self.rate.renewal(self.rate.units, 0, ttl) } else { self.rate.renewal(0, 0, 1) };
        // What does not arrive is over in time.
        let _ = limiter.renew(&self.level, HeldPart::Demand, &demand).await;
        let _ = limiter.renew(&self.level, HeldPart::Rate, &rate).await;
    }
}
