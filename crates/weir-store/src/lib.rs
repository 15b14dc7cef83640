//! State storage and atomic plan decisions: in this process's memory, or in Redis or Valkey shared by replicas, with
//! the fallback for outages.

#![cfg_attr(not(test), warn(unreachable_pub))]

mod any;
mod clock;
pub mod documents;
pub mod failure;
pub mod lease;
pub mod memory;
pub mod metrics;
pub mod near_cache;
pub mod outage_charges;
pub mod platform;
pub mod redis;
pub mod scan;
mod settings;
mod shared;
pub mod url;

use std::ops::BitOrAssign;

use futures_util::future::BoxFuture;

use weir_core::{
    domain::{Key, Micros, OnStoreFailure},
    hold::{Grant, Idempotency, Outcome, Renewal},
    plan::{Decisions, Plan},
};

pub use any::AnyStore;
pub use clock::SystemClock;
pub use failure::Failure;
pub use memory::MemoryStore;
pub use settings::StoreSettings;
pub use shared::SharedStore;
pub use url::StoreUrl;

/// A store of states that decides plans.
pub trait Store: Send + Sync + 'static {
    /// Decides a plan in one atomic step, all levels at one instant of the store's clock, and fills in `verdict`, which
    /// must be [`Verdict::default`]; or returns the remote store that decides it.
    fn decide<'s, 'v>(&'s self, plan: &Plan<'_>, verdict: &'v mut Verdict) -> Decide<'s, 'v>;

    /// Whether the store decides the plan in one atomic step, which holds on its units require.
    fn decides_in_one_step(&self, _plan: &Plan<'_>) -> bool {
        true
    }

    /// Deletes every state of exactly this key, and with `subtree` of all keys below it. `anchor` is the anchor of its
    /// domain.
    ///
    /// # Errors
    /// [`Failure`] when it is unknown whether the store carried it out.
    fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> impl Future<Output = Result<ResetDone, Failure>> + Send;

    /// Serves a renewal of a hold for a plan without cost ([`weir_core::hold`]).
    ///
    /// # Errors
    /// [`Failure`] when the store did not serve it or its reply was lost. The next renewal makes up for it.
    fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> impl Future<Output = Result<Grant, Failure>> + Send;
}

/// The result of [`Store::decide`].
#[must_use = "a plan that waits is not decided yet"]
pub enum Decide<'s, 'v> {
    /// Decided. A reference, because moving a verdict takes a noticeable part of a decision's time.
    Ready(&'v Verdict),
    /// Not started: this remote store decides the plan.
    Waiting(&'s dyn Remote),
}

/// A store in another process.
pub trait Remote: Send + Sync {
    /// Decides a plan, in one round trip where that suffices.
    ///
    /// # Errors
    /// [`Failure`] when the store has no answer. A refusal is a verdict.
    fn verdict<'a>(&'a self, plan: &'a Plan<'_>) -> BoxFuture<'a, Result<Verdict, Failure>>;
}

/// A store's decision on a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The decision of each level, in the order of the plan's levels.
    pub decisions: Decisions,
    /// Decided without the shared store.
    pub degraded: bool,
    /// Decided locally from units that this replica has leased.
    pub leased: bool,
    /// The outcome of the plan's reservation; `None` also if a degraded answer made none.
    pub reservation: Option<Box<Outcome>>,
    /// Whether this repeats the answer to an earlier request with the same id.
    pub idempotency: Idempotency,
    /// The grant of the plan's renewal; `None` also if it was not served.
    pub grant: Option<Box<Grant>>,
    /// Time of the decision, by the clock of the deciding store.
    pub at: Micros,
    /// Whether each level's decision is a refusal from the near cache, by position; empty: none is.
    pub near: Box<[bool]>,
}

/// The effect of one level's decision, for counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Units charged; 0 for a refund.
    pub charged: u64,
    /// Whether it is a refusal from the near cache.
    pub is_near: bool,
}

impl Verdict {
    /// Returns the effect of each level's decision, in order.
    pub fn effects<'v>(&'v self, plan: &'v Plan<'_>) -> impl Iterator<Item = Effect> + 'v {
        let is_decided = !self.degraded || plan.on_store_failure == OnStoreFailure::Local;
        let is_charged = is_decided && self.idempotency == Idempotency::First;
        let takes_slots = matches!(self.reservation.as_deref(), Some(Outcome::Reserved { .. }));
        let charged = plan.levels().iter().zip(plan.charged(&self.decisions));
        charged.enumerate().map(move |(index, (level, units))| {
            let is_near = self.near.get(index).copied().unwrap_or(false);
            let is_slot = level.limit.params.as_concurrency().is_some();
            let counts = is_charged && !is_near && (takes_slots || !is_slot);
            Effect { charged: if counts { units } else { 0 }, is_near }
        })
    }
}

/// The outcome of a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetDone {
    /// The key itself had an unexpired state.
    pub existed: bool,
    /// The key, or with `subtree` a key below it, had an unexpired state. After a scan, expired states count too.
    pub removed: bool,
    /// The key is above the anchor, so every server was scanned for keys below it. That is not atomic: keys written
    /// during the scan may remain.
    pub scanned: bool,
}

impl BitOrAssign for ResetDone {
    fn bitor_assign(&mut self, other: Self) {
        self.existed |= other.existed;
        self.removed |= other.removed;
        self.scanned |= other.scanned;
    }
}
