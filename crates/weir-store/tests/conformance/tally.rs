//! Counts of generated cases, to detect a generator that misses some.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::{
    algorithm::rates,
    domain::{Charge, Micros},
    plan::{Decisions, Plan},
};

use super::{
    fixture::{Check, Fixture},
    generator::{Step, TraceOptions},
};

#[derive(Debug, Default)]
pub struct Tally {
    last: Micros,
    /// Counts by algorithm.
    levels: BTreeMap<&'static str, Levels>,
    /// Counts of steps by special property.
    steps: BTreeMap<&'static str, u64>,
}

/// Counts of one algorithm's levels.
#[derive(Debug, Default)]
struct Levels {
    charged: u64,
    refused: u64,
    refunded: u64,
    peeked: u64,
}

const SPECIAL: [&str; 15] = [
    "the clock steps back",
    "limits change",
    "a reset of something",
    "a reset of nothing",
    "several anchors",
    "several anchors, refused, all or nothing",
    "several anchors, a refund is refused",
    "several levels on one state",
    "costs of both signs",
    "charges what is denied",
    "never",
    "a shadow refuses",
    "a dry run passes",
    "a dry run is refused",
    "several anchors, a dry run is refused",
];

impl Tally {
    fn met(&mut self, what: &'static str, it_is: bool) {
        debug_assert!(SPECIAL.contains(&what));
        *self.steps.entry(what).or_default() += u64::from(it_is);
    }

    pub fn begin(&mut self, now: Micros, step: &Step) {
        self.met("the clock steps back", now < self.last);
        self.met("limits change", matches!(step, Step::Change(changed) if !changed.is_empty()));
        self.last = now;
    }

    pub fn count_reset(&mut self, existed: bool) {
        self.met("a reset of something", existed);
        self.met("a reset of nothing", !existed);
    }

    pub fn count(&mut self, fixture: &Fixture, check: &Check, plan: &Plan<'_>, decisions: &Decisions) {
        let levels = plan.levels();
        let shadow = |index: usize| levels[index].limit.shadow;
        let refused = decisions.iter().enumerate().any(|(index, decision)| !decision.allowed && !shadow(index));
        let anchors: BTreeSet<_> = levels.iter().map(|level| level.anchor_path()).collect();
        let several = anchors.len() > 1;
        self.met("several anchors", several);
        self.met("several anchors, refused, all or nothing", several && refused && plan.charge == Charge::AllOrNothing);
        self.met(
            "several anchors, a refund is refused",
            several && refused && levels.iter().any(|level| level.cost < 0),
        );
        self.met("several levels on one state", (0..levels.len()).any(|index| plan.state_of(index) != index));
        let sign = |sign: i64| levels.iter().any(|level| level.cost.signum() == sign);
        self.met("costs of both signs", sign(1) && sign(-1));
        self.met("charges what is denied", refused && levels.iter().any(|level| level.params().charges_denied()));
        self.met("never", decisions.iter().any(|decision| decision.never));
        let shadow_refuses = decisions.iter().enumerate().any(|(index, decision)| !decision.allowed && shadow(index));
        self.met("a shadow refuses", shadow_refuses);
        self.met("a dry run passes", plan.dry_run && !refused);
        self.met("a dry run is refused", plan.dry_run && refused);
        self.met("several anchors, a dry run is refused", plan.dry_run && refused && several);
        for ((_, rule, cost), decision) in check.levels.iter().zip(decisions) {
            let levels = self.levels.entry(fixture.rules[*rule].algorithm()).or_default();
            levels.refused += u64::from(!decision.allowed);
            levels.charged += u64::from(*cost > 0 && decision.allowed && !refused && !plan.dry_run);
            levels.refunded += u64::from(*cost < 0);
            levels.peeked += u64::from(*cost == 0);
        }
    }

    /// Fails if any case occurred less than once in twenty traces.
    pub fn assert_that_all_was_tried(&self, traces: u64, options: TraceOptions) {
        for entry in rates() {
            let levels = self.levels.get(entry.name).unwrap_or_else(|| panic!("no {} was met", entry.name));
            let Levels { charged, refused, refunded, peeked } = levels;
            assert!([charged, refused, refunded, peeked].into_iter().all(|met| *met * 20 > traces), "{self:#?}");
        }
        let excluded = |what: &str| !options.several_anchors && what.starts_with("several anchors");
        for what in SPECIAL.into_iter().filter(|what| !excluded(what)) {
            let met = self.steps.get(what).copied().unwrap_or_default();
            assert!(met * 20 > traces, "{what}: {self:#?}");
        }
    }
}
