//! What is held of a plan's states.

use tokio::time::Instant;

use super::{RedisStore, cross_slot::groups, encode::holds_call, reply::Answers};
use crate::StoreError;
use weir_core::{domain::Micros, plan::Plan};

/// Units of one level that an owner has been granted, in however many holds, and that are not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of a replica, drawn when it started; `None`: all callers with reservations.
    pub owner: Option<u64>,
    /// Units.
    pub units: u64,
    /// After so long the last of them expire.
    pub expires_after: Micros,
}

impl RedisStore {
    /// What is held of each level of a plan, read anchor by anchor: nothing is decided or written.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot tell.
    pub async fn holds(&self, plan: &Plan<'_>) -> Result<Vec<Vec<Held>>, StoreError> {
        let (mut holds, now) = (vec![Vec::new(); plan.levels().len()], self.clock.as_ref().map(|clock| clock.now()));
        for group in groups(plan) {
            let hash = [&self.prefix[..], plan.levels()[group[0]].anchor_path()].concat();
            let (call, levels) = (holds_call(now, plan, &group), group.len());
            let deadline = Instant::now() + self.command_timeout;
            let read = self.on_io(move |servers| async move {
                Answers::holds(&servers.script(&hash, &call, deadline).await?, levels)
            });
            for (index, held) in group.into_iter().zip(read.await?) {
                holds[index] = by_owner(held);
            }
        }
        Ok(holds)
    }
}

/// One for each owner, the first first: below a level an owner holds units of several keys.
fn by_owner(holds: Vec<Held>) -> Vec<Held> {
    let mut owners: Vec<Held> = Vec::new();
    for held in holds {
        match owners.iter_mut().find(|known| known.owner == held.owner) {
            Some(known) => {
                known.units += held.units;
                known.expires_after = known.expires_after.max(held.expires_after);
            }
            None => owners.push(held),
        }
    }
    owners
}
