//! Where states live, and what decides a plan over them in one step: this process's memory, or Redis and Valkey, which replicas
//! share, with what answers while they fail.

#![cfg_attr(not(test), warn(unreachable_pub))]

mod any;
mod clock;
pub mod documents;
pub mod failure;
pub mod lease;
pub mod machine;
pub mod memory;
pub mod metrics;
pub mod near;
pub mod outage_charges;
pub mod redis;
pub mod scan;
mod settings;
mod shared;
pub mod url;

use futures_util::future::BoxFuture;
use thiserror::Error;

use weir_core::{
    domain::{Key, Micros, OnStoreFailure},
    hold::{Grant, Outcome, Renewal, Repeat},
    plan::{Decisions, Plan},
};

pub use any::AnyStore;
pub use clock::SystemClock;
pub use failure::Failure;
pub use memory::MemoryStore;
pub use settings::StoreSettings;
pub use shared::SharedStore;
pub use url::StoreUrl;

/// Keeps states and decides plans over them.
pub trait Store: Send + Sync + 'static {
    /// Decides a plan, all its levels at one moment of the store's clock, in one step, and fills in `verdict`, which is
    /// [`Verdict::default`] before; or names the remote store that does.
    fn decide<'s, 'v>(&'s self, plan: &Plan<'_>, verdict: &'v mut Verdict) -> Decide<'s, 'v>;

    /// Whether it decides a plan in one step, so that units can be held of it.
    fn decides_in_one_step(&self, _plan: &Plan<'_>) -> bool {
        true
    }

    /// Forgets every state of exactly this key, and with `subtree` of all keys below it. `anchor` is its domain's.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot tell.
    fn reset(&self, key: &Key, anchor: u8, subtree: bool)
    -> impl Future<Output = Result<ResetDone, StoreError>> + Send;

    /// Serves a renewal of units that are held of a plan without cost, which is one level ([`weir_core::hold`]).
    ///
    /// # Errors
    /// [`StoreError`] when the store did not, or its answer is lost. The next renewal makes up for it.
    fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> impl Future<Output = Result<Grant, StoreError>> + Send;
}

/// A store's answer to a plan.
#[must_use = "a plan that waits is not decided yet"]
pub enum Decide<'s, 'v> {
    /// Decided. By reference: moving a verdict takes as long as a part of the decision.
    Ready(&'v Verdict),
    /// Not begun: this store decides it.
    Waiting(&'s dyn Remote),
}

/// A store in another process.
pub trait Remote: Send + Sync {
    /// Decides a plan, in one round trip where one is enough.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot tell. A refusal is a verdict.
    fn verdict<'a>(&'a self, plan: &'a Plan<'_>) -> BoxFuture<'a, Result<Verdict, StoreError>>;
}

/// A store's decision on a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The decision of each level, in their order.
    pub decisions: Decisions,
    /// Decided without the shared store.
    pub degraded: bool,
    /// Decided from units that this replica holds of the shared store, without asking it.
    pub leased: bool,
    /// What became of the plan's reservation; `None` also where a degraded answer has made none.
    pub reservation: Option<Box<Outcome>>,
    /// Whether it is the answer to an earlier request of the same id.
    pub repeat: Repeat,
    /// What the plan's renewal was granted; `None` also where it was not served.
    pub grant: Option<Box<Grant>>,
    /// The moment of the decision, by the clock of who decided.
    pub at: Micros,
    /// The levels whose refusals the near cache remembered, by their position; empty: none.
    pub near: Box<[bool]>,
}

/// What a level's decision has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Units charged; refunds count as none.
    pub charged: u64,
    /// It is a refusal that the near cache remembered.
    pub is_near: bool,
}

impl Verdict {
    /// What each level's decision has done, in their order.
    pub fn effects<'v>(&'v self, plan: &'v Plan<'_>) -> impl Iterator<Item = Effect> + 'v {
        let is_decided = !self.degraded || plan.on_store_failure == OnStoreFailure::Local;
        let is_charged = is_decided && self.repeat == Repeat::First;
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
    /// The key itself had a state that had not expired.
    pub existed: bool,
    /// The key, or with `subtree` a key below it, had a state that had not expired. After a scan expired ones count too.
    pub removed: bool,
    /// The key is above the anchor, so every server was searched for what is below it, which is not one step: keys that
    /// were written meanwhile may remain.
    pub scanned: bool,
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        if failure.is_overload() { Self::Overloaded(failure) } else { Self::Unavailable(failure) }
    }
}

/// Why a store could not answer.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The shared store cannot be asked, or its reply is lost.
    #[error("the store does not answer")]
    Unavailable(#[source] Failure),
    /// More waits for the shared store than may, or than it can do in time. That is not an outage.
    #[error("too many requests wait for the store")]
    Overloaded(#[source] Failure),
}
