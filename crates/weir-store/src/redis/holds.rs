//! Queries of the holds on a plan's states, and background renewals of leases.

use super::{
    Io, RedisStore, RenewalPlan,
    cross_slot::groups,
    encode::{Part, holds_call},
    reply::{Answers, Decided},
    slots::slot_of,
};
use crate::{
    Failure, StoreError,
    scan::{Hold, by_owner},
};
use weir_core::{
    hold::{Grant, Renewal},
    plan::{Decisions, Plan},
};

impl RedisStore {
    /// Reads the holds on each level of a plan, anchor by anchor, without deciding or writing anything.
    ///
    /// # Errors
    /// [`StoreError`] when the store has no answer.
    pub async fn holds(&self, plan: &Plan<'_>) -> Result<Vec<Vec<Hold>>, StoreError> {
        let (mut holds, now) = (vec![Vec::new(); plan.levels().len()], self.io.servers.time().virtual_now());
        for group in groups(plan) {
            let hash = [&self.prefix[..], plan.levels()[group[0]].anchor_path()].concat();
            let (call, levels) = (holds_call(now, plan, &group), group.len());
            let deadline = self.io.deadline();
            let read = self.io.run(move |io| async move {
                Answers::holds(&io.servers.script(&[&hash], &call, deadline).await?.0, levels)
            });
            for (index, held) in group.into_iter().zip(read.await?) {
                holds[index] = by_owner(held);
            }
        }
        Ok(holds)
    }

    /// Sends a background renewal. Returns the levels' decisions and the grant.
    ///
    /// # Errors
    /// [`Failure`] when it was not served, or that is unknown.
    pub(crate) async fn send_renewal(
        io: &Io,
        plan: &RenewalPlan,
        renewal: &Renewal,
    ) -> Result<(Decisions, Grant), Failure> {
        let part = || Part::renewal(plan, renewal, io.servers.time());
        let decided = io.servers.ask(|| slot_of(plan.key()), io.deadline(), part).await?;
        let grant = granted(&decided, renewal)?;
        Ok((decided.decisions, grant))
    }
}

/// Returns the grant in the answer to this renewal.
pub(super) fn granted(decided: &Decided, renewal: &Renewal) -> Result<Grant, Failure> {
    let none = || Failure::Lost("the answer has no grant".into());
    Ok(Grant { sequence: renewal.sequence, ..decided.grant.ok_or_else(none)? })
}
