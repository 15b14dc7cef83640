//! Queries of the holds on a plan's states, and background renewals of leases.

use super::{
    Io, RedisStore, RenewalPlan,
    cross_slot::groups,
    encode::Part,
    reply::Decided,
    scan::{read, values},
    slots::slot_of,
};
use crate::{
    Failure,
    scan::{Hold, by_owner},
};
use weir_core::{
    hold::{Grant, Renewal},
    plan::{Decisions, Level, Plan},
};

impl RedisStore {
    /// Reads the holds on each level of a plan, anchor by anchor, without deciding or writing anything.
    ///
    /// # Errors
    /// [`Failure`] when the store has no answer.
    pub async fn holds(&self, plan: &Plan<'_>) -> Result<Vec<Vec<Hold>>, Failure> {
        let (mut holds, now) = (vec![Vec::new(); plan.levels().len()], self.clock().now());
        for group in groups(plan) {
            let hash = [&self.prefix[..], plan.levels()[group[0]].anchor_path()].concat();
            let fields: Vec<_> = group.iter().map(|index| field(&plan.levels()[*index])).collect();
            let deadline = self.io.deadline();
            let values = self.io.run(move |io| async move {
                let fields = fields.iter().map(Vec::as_slice);
                let hmget: Vec<_> = [b"HMGET".as_slice(), &hash].into_iter().chain(fields).collect();
                read::<Vec<Option<Vec<u8>>>>(io.servers.command(&hash, &hmget, deadline).await?)
            });
            for (index, value) in group.into_iter().zip(values.await?) {
                holds[index] = by_owner(values::holds(&value.unwrap_or_default(), now));
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

/// Returns the hash field of a level's state.
fn field(level: &Level<'_>) -> Vec<u8> {
    [&level.path()[level.anchor_path().len()..], level.limit.ident()].concat()
}

/// Returns the grant in the answer to this renewal.
pub(super) fn granted(decided: &Decided, renewal: &Renewal) -> Result<Grant, Failure> {
    Ok(Grant { sequence: renewal.sequence, ..decided.grant.ok_or_else(no_grant)? })
}

pub(super) fn no_grant() -> Failure {
    Failure::Lost("the answer has no grant".into())
}
