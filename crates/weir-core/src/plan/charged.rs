//! The units that a decided plan has charged.

use super::{Plan, step::passes};
use crate::domain::{Charge, Decision};

impl Plan<'_> {
    /// Whether these decisions have changed the remaining units of any level, by a charge or a refund.
    pub(crate) fn charges(&self, decisions: &[Decision]) -> bool {
        let refunds = self.levels.iter().any(|level| level.cost < 0) && !self.dry_run;
        refunds || self.charged(decisions).any(|units| units > 0)
    }

    /// Returns the units that each level has charged by these decisions, in the order of the levels. A refund counts
    /// as 0, and a concurrency limit counts the slots that a reservation takes.
    pub fn charged<'p>(&'p self, decisions: &'p [Decision]) -> impl Iterator<Item = u64> + 'p {
        let (passes, dry_run) = (passes(self, decisions), self.dry_run);
        self.levels.iter().zip(decisions).map(move |(level, decision)| {
            let alone = self.charge == Charge::Independent && !level.limit.shadow;
            let spared = self.charge == Charge::OverLimitOnly && decision.allowed;
            let is_charged = (decision.allowed && (passes || alone)) || (level.params().charges_denied() && !spared);
            let units = if is_charged && !dry_run { u64::try_from(level.cost).unwrap_or(0) } else { 0 };
            let takes_none = level.limit.params.as_concurrency().is_some() && self.reservation.is_none();
            if takes_none { 0 } else { level.held_units(units) }
        })
    }
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::{
        domain::Key,
        plan::{Limit, Origin},
        testing::parse,
    };

    /// Whether the level allows, whether it is in shadow mode, and its `charge_denied`.
    type Case = (bool, bool, bool);

    fn charged(charge: Charge, cost: i64, cases: &[Case]) -> Vec<u64> {
        let key = Key::new("", &["k"]).unwrap();
        let limit = |(_, shadow, charge_denied): &Case| {
            let fields =
                [("count", "9"), ("period", "1s"), ("charge_denied", if *charge_denied { "true" } else { "false" })];
            Limit::new(Origin::Policy, None, "k", 0, *shadow, parse("fixed_window", &fields))
        };
        let limits: Vec<_> = cases.iter().map(limit).collect();
        let levels: SmallVec<_> =
            limits.iter().map(|limit| super::super::Level::new(&key, 1, 1, limit, cost)).collect();
        let decision = |(allowed, ..): &Case| {
            if *allowed { Decision::pass(9, 1, 1) } else { Decision::refuse(9, 0, Some(1), 1) }
        };
        let decisions: Vec<_> = cases.iter().map(decision).collect();
        Plan::new(levels, charge, None).charged(&decisions).collect()
    }

    #[test]
    fn a_refusal_charges_only_what_charges_what_is_denied() {
        const ALL: Charge = Charge::AllOrNothing;
        assert_eq!(charged(ALL, 3, &[(true, false, false), (true, false, false)]), [3, 3]);
        assert_eq!(charged(ALL, 3, &[(true, false, false), (false, false, false)]), [0, 0]);
        assert_eq!(charged(ALL, 3, &[(true, false, true), (false, false, false)]), [3, 0]);
        assert_eq!(charged(ALL, 3, &[(true, false, false), (false, false, true)]), [0, 3]);
        // A refusing shadow level does not stop the others and is not charged.
        assert_eq!(charged(ALL, 3, &[(true, false, false), (false, true, false)]), [3, 0]);
        for cost in [0, -3] {
            assert_eq!(charged(ALL, cost, &[(true, false, false), (true, false, true)]), [0, 0]);
        }
    }

    #[test]
    fn over_limit_only_charges_only_the_refusing_limits() {
        const OVER: Charge = Charge::OverLimitOnly;
        assert_eq!(charged(OVER, 2, &[(true, false, true), (true, false, true)]), [2, 2]);
        assert_eq!(charged(OVER, 2, &[(true, false, true), (false, false, true), (false, false, false)]), [0, 2, 0]);
    }

    #[test]
    fn independent_levels_charge_for_themselves_and_shadows_with_the_request() {
        const EACH: Charge = Charge::Independent;
        assert_eq!(charged(EACH, 2, &[(true, false, false), (false, false, false), (true, true, false)]), [2, 0, 0]);
        assert_eq!(charged(EACH, 2, &[(true, false, false), (true, true, false), (false, true, false)]), [2, 2, 0]);
    }
}
