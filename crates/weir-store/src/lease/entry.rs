//! The lease of one key: its balance, its holder, and the levels as of the last reply from the store.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::{Verdict, redis::RenewalPlan};
use weir_core::{
    domain::{Decision, Micros},
    hold::{Balance, Grant, HoldId, Holder, LeaseTerms, OnShortage, Renewal, Spend},
    plan::{Decisions, Plan},
};

pub(super) struct Lease {
    balance: Balance,
    /// `None` once closed. Units granted to it after that are burnt at their deadline.
    holder: Mutex<Option<Holder>>,
    levels: SmallVec<[LevelSnapshot; 4]>,
    /// The key's levels, as renewals send them.
    pub renewal_plan: RenewalPlan,
}

/// A level as of the last reply from the store. The fields are updated independently: they are only reported, no
/// decision depends on them.
#[derive(Default)]
struct LevelSnapshot {
    limit: AtomicU64,
    /// Units not granted to any holder.
    free: AtomicU64,
    /// When the level is full again, as if never used.
    reset_at: AtomicI64,
    /// When the refused request would pass; 0: the level did not refuse.
    retry_at: AtomicI64,
}

impl Lease {
    /// Creates a lease with an empty balance.
    pub(super) fn new(id: HoldId, plan: &Plan<'_>, renewal_plan: RenewalPlan, ttl: Micros, now: Micros) -> Self {
        let terms = LeaseTerms::of(plan.levels().iter().map(|level| level.params()), ttl);
        Self {
            balance: Balance::default(),
            holder: Mutex::new(Some(Holder::new(id, terms, now))),
            levels: plan.levels().iter().map(|_| LevelSnapshot::default()).collect(),
            renewal_plan,
        }
    }

    /// Spends units if the balance suffices.
    #[inline]
    pub(super) fn spend(&self, cost: i64, now: Micros) -> Spend {
        self.balance.spend(cost, now)
    }

    pub(super) fn units(&self) -> u64 {
        self.balance.units()
    }

    /// Returns the units that the store may hold for it; 0 once closed.
    pub(super) fn unsettled(&self) -> u64 {
        self.holder.lock().as_ref().map_or(0, |holder| holder.unsettled(&self.balance))
    }

    /// Returns the renewal that is due because the balance is low; `None` also while another thread holds the lock.
    pub(super) fn renewal_if_low(&self, now: Micros) -> Option<Renewal> {
        self.holder.try_lock()?.as_mut()?.low(&self.balance, now)
    }

    /// Returns the renewal that is due by time.
    pub(super) fn renewal_if_due(&self, now: Micros) -> Option<Renewal> {
        if self.balance.is_due(now) { self.holder.lock().as_mut()?.due(&self.balance, now) } else { None }
    }

    /// Decides how to handle a request that exceeds the balance; `None`: the lease is closed.
    pub(super) fn on_shortage(&self, cost: i64, now: Micros) -> Option<OnShortage> {
        Some(self.holder.lock().as_mut()?.short(&self.balance, cost, now))
    }

    /// Handles the store's reply to a request without a renewal.
    pub(super) fn decided(&self, cost: i64, sent: Micros, verdict: &Verdict, now: Micros) {
        self.learn(&verdict.decisions, 0, sent);
        if super::is_refused(verdict)
            && let Some(holder) = &mut *self.holder.lock()
        {
            holder.refused(cost, sent, now);
        }
    }

    /// Handles the store's reply to a renewal. Returns the units that count as spent since their deadline passed.
    pub(super) fn renewed(
        &self,
        decisions: &Decisions,
        grant: &Grant,
        (sent, now): (Micros, Micros),
        is_refused: bool,
    ) -> u64 {
        self.learn(decisions, grant.units, sent);
        let mut holder = self.holder.lock();
        holder.as_mut().map_or(0, |holder| holder.answered(&self.balance, grant, is_refused, now))
    }

    /// Handles a renewal without a reply.
    pub(super) fn lost(&self, renewal: &Renewal) {
        if let Some(holder) = &mut *self.holder.lock() {
            holder.lost(&self.balance, renewal.sequence);
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.holder.lock().is_some()
    }

    /// Closes the lease and returns the renewal that gives back the remaining units.
    pub(super) fn close(&self, now: Micros) -> Option<Renewal> {
        self.holder.lock().take()?.close(&self.balance, now)
    }

    /// Closes the lease if it is idle. Returns whether it is closed.
    pub(super) fn close_if_idle(&self, now: Micros) -> bool {
        let mut holder = self.holder.lock();
        if holder.as_mut().is_some_and(|holder| holder.is_idle(&self.balance, now)) {
            *holder = None;
        }
        holder.is_none()
    }

    fn learn(&self, decisions: &Decisions, granted: u64, sent: Micros) {
        for (level, decision) in self.levels.iter().zip(decisions) {
            level.limit.store(decision.limit, Relaxed);
            level.free.store(decision.remaining.saturating_sub(granted), Relaxed);
            level.reset_at.store(sent + decision.reset_after, Relaxed);
            level.retry_at.store(decision.retry_after.map_or(0, |after| sent + after), Relaxed);
        }
    }

    /// Returns the verdict for a request that the balance covered.
    pub(super) fn allowed(&self, now: Micros) -> Verdict {
        let held = self.balance.units();
        let decided = |level: &LevelSnapshot| {
            let free = level.free.load(Relaxed);
            let limit = level.limit.load(Relaxed);
            Decision::pass(limit, (held + free).min(limit), (level.reset_at.load(Relaxed) - now).max(0))
        };
        self.verdict(self.levels.iter().map(decided).collect(), now)
    }

    /// Whether the cost exceeds the last known limit of a level, so that it can never pass.
    pub(super) fn is_beyond_limit(&self, cost: i64) -> bool {
        let limits = self.levels.iter().map(|level| level.limit.load(Relaxed));
        limits.filter(|limit| *limit > 0).any(|limit| cost.unsigned_abs() > limit)
    }

    /// Returns the verdict for a request that this replica refuses without asking the store. The refusing levels are
    /// those that refused in the store's last reply, or else those with the fewest free units.
    pub(super) fn refused(&self, now: Micros, retry_after: Micros) -> Verdict {
        // Read once, since another thread may update the levels: at least one level must refuse.
        let stands = |level: &LevelSnapshot| (level.retry_at.load(Relaxed), level.free.load(Relaxed));
        let snapshots: SmallVec<[_; 4]> = self.levels.iter().map(stands).collect();
        let any_has_refused = snapshots.iter().any(|(retry_at, _)| *retry_at > 0);
        let least = snapshots.iter().map(|(_, free)| *free).min().unwrap_or_default();
        let decided = |(level, (retry_at, free)): (&LevelSnapshot, &(Micros, u64))| {
            let (limit, reset_at) = (level.limit.load(Relaxed), level.reset_at.load(Relaxed));
            let reset_after = (reset_at - now).max(0);
            if if any_has_refused { *retry_at > 0 } else { *free == least } {
                let retry_after = Some(retry_after.max(retry_at - now));
                let next_after = retry_after.filter(|_| *free == 0);
                Decision { next_after, ..Decision::refuse(limit, *free, retry_after, reset_after) }
            } else {
                Decision::pass(limit, *free, reset_after)
            }
        };
        self.verdict(self.levels.iter().zip(&snapshots).map(decided).collect(), now)
    }

    fn verdict(&self, decisions: Decisions, now: Micros) -> Verdict {
        Verdict { decisions, leased: true, at: now, ..Verdict::default() }
    }
}
