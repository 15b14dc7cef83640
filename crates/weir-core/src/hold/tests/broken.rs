//! Deliberate breaks of the protocol.

use super::{store::Store, world::World};
use crate::hold::{Grant, Ledger, Renewal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    SpendAfterTheDeadline,
    CountTheTtlFromTheReply,
    CompareWallClocks,
    DrainWhatIsHeld,
    ResetForgetsWhatIsHeld,
    ExpiryGivesBack,
    GiveBackAndKeep,
    TakeALateReply,
    KeepWhatIsBurnt,
    HearAnOvertakenRenewal,
    HearARenewalTwice,
    GrantMoreThanIsFree,
    HoldTheLastLevelAlone,
    ForgetWhatWasSpent,
}

impl World<'_> {
    /// Whether a holder that ignores deadlines has units left after the deadline.
    pub(super) fn spends_on(&self, index: usize) -> bool {
        let balance = &self.replicas[index].balance;
        self.is(Break::SpendAfterTheDeadline) && balance.units() > 0 && balance.is_over(self.local(index))
    }

    pub(super) fn break_expiry(&mut self) {
        if self.is(Break::ExpiryGivesBack) || self.is(Break::DrainWhatIsHeld) {
            for ledger in &mut self.store.ledgers {
                let left = ledger.holds.iter().filter(|hold| hold.deadline > self.now).copied().collect();
                *ledger = Ledger::of(left);
            }
        }
    }

    pub(super) fn break_before(&mut self, renewal: &mut Renewal) {
        let broken = self.case.broken;
        for ledger in &mut self.store.ledgers {
            for hold in ledger.holds.iter_mut().filter(|hold| hold.id == renewal.id) {
                match broken {
                    Some(Break::HearAnOvertakenRenewal) => hold.sequence = hold.sequence.min(renewal.sequence - 1),
                    Some(Break::HearARenewalTwice) if hold.sequence == renewal.sequence => hold.sequence -= 1,
                    Some(Break::ForgetWhatWasSpent) => {
                        let spent = renewal.spent.saturating_sub(hold.spent).min(hold.units);
                        hold.spent += spent;
                        hold.units -= spent;
                    }
                    Some(Break::DrainWhatIsHeld) => hold.spent = renewal.spent,
                    _ => {}
                }
            }
        }
    }

    pub(super) fn break_after(&mut self, before: &Store, grant: &Grant, renewal: &Renewal) {
        match self.case.broken {
            Some(Break::DrainWhatIsHeld) => self.store.charge_granted(&self.limits, grant.units),
            Some(Break::HoldTheLastLevelAlone) => {
                // The first level does not record any hold.
                self.store.ledgers[0] = before.ledgers[0].clone();
            }
            Some(Break::GrantMoreThanIsFree) if grant.units > 0 => {
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
