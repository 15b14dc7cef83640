//! Deliberate mutations of the protocol.

use super::{simulation::Simulation, store::Store};
use crate::hold::{Grant, Ledger, Renewal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    SpendAfterDeadline,
    StartTtlAtReply,
    CompareWallClocks,
    DrainOutstanding,
    ResetDropsHolds,
    RefundExpiredHolds,
    KeepReturnedUnits,
    AcceptLateReply,
    KeepBurntUnits,
    AcceptStaleRenewal,
    AcceptDuplicateRenewal,
    RecordHalfTheGrant,
    HoldLastLevelOnly,
    DropSpentUnits,
}

impl Simulation<'_> {
    /// Whether a holder that ignores deadlines has units left after the deadline.
    pub(super) fn spends_on(&self, index: usize) -> bool {
        let balance = &self.replicas[index].balance;
        self.is(Mutation::SpendAfterDeadline) && balance.units() > 0 && balance.is_over(self.local(index))
    }

    pub(super) fn mutate_expiry(&mut self) {
        if self.is(Mutation::RefundExpiredHolds) || self.is(Mutation::DrainOutstanding) {
            for ledger in &mut self.store.ledgers {
                let left = ledger.holds.iter().filter(|hold| hold.deadline > self.now).copied().collect();
                *ledger = Ledger::of(left);
            }
        }
    }

    pub(super) fn mutate_before(&mut self, renewal: &mut Renewal) {
        let mutation = self.case.mutation;
        for ledger in &mut self.store.ledgers {
            for hold in ledger.holds.iter_mut().filter(|hold| hold.id == renewal.id) {
                match mutation {
                    Some(Mutation::AcceptStaleRenewal) => hold.sequence = hold.sequence.min(renewal.sequence - 1),
                    Some(Mutation::AcceptDuplicateRenewal) if hold.sequence == renewal.sequence => hold.sequence -= 1,
                    Some(Mutation::DropSpentUnits) => {
                        let spent = renewal.spent.saturating_sub(hold.spent).min(hold.units);
                        hold.spent += spent;
                        hold.units -= spent;
                    }
                    Some(Mutation::DrainOutstanding) => hold.spent = renewal.spent,
                    _ => {}
                }
            }
        }
    }

    pub(super) fn mutate_after(&mut self, before: &Store, grant: &Grant, renewal: &Renewal) {
        match self.case.mutation {
            Some(Mutation::DrainOutstanding) => self.store.charge_granted(&self.limits, grant.units),
            Some(Mutation::HoldLastLevelOnly) => {
                // The first level does not record any hold.
                self.store.ledgers[0] = before.ledgers[0].clone();
            }
            Some(Mutation::RecordHalfTheGrant) if grant.units > 0 => {
                // The store forgets half of the units that it grants.
                for ledger in &mut self.store.ledgers {
                    for hold in ledger.holds.iter_mut().filter(|hold| hold.id == renewal.id) {
                        let less = grant.units / 2;
                        hold.units -= less.min(hold.units);
                    }
                }
            }
            _ => {}
        }
    }
}
