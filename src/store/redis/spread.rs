//! Plans whose levels have several anchors, where those are not decided in one step: each anchor for itself, and what a
//! refusal must not charge taken back.

use smallvec::SmallVec;

use super::reply::Decided;
use crate::{
    domain::{Charge, Micros},
    plan::{Decisions, Plan},
};

/// The levels of one anchor, by their indexes in the plan.
pub type Group = SmallVec<[usize; 4]>;

/// The levels of a plan by anchor, in order.
pub fn groups(plan: &Plan<'_>) -> SmallVec<[Group; 2]> {
    let mut groups: SmallVec<[Group; 2]> = SmallVec::new();
    for (index, level) in plan.levels().iter().enumerate() {
        let anchor = level.anchor_path();
        match groups.iter_mut().find(|group| plan.levels()[group[0]].anchor_path() == anchor) {
            Some(group) => group.push(index),
            None => groups.push(SmallVec::from_slice(&[index])),
        }
    }
    groups
}

/// What to take back from the levels of one group, which were charged at a moment of its server's clock.
#[derive(Debug, PartialEq, Eq)]
pub struct Undo {
    /// Which levels.
    pub levels: Group,
    /// When they were charged.
    pub charged_at: Micros,
}

/// The answers of all groups as those of the plan.
pub fn merge(plan: &Plan<'_>, groups: &[Group], answers: &[Decided]) -> Decisions {
    let mut decisions: Decisions = plan.levels().iter().map(|_| crate::domain::Decision::pass(0, 0, 0)).collect();
    for (group, answer) in groups.iter().zip(answers) {
        for (index, decision) in group.iter().zip(&answer.decisions) {
            decisions[*index] = *decision;
        }
    }
    decisions
}

/// What must be taken back, where a level of one group refuses and those of another were charged. Limits that charge what
/// is denied keep it.
pub fn undos(plan: &Plan<'_>, groups: &[Group], answers: &[Decided]) -> Vec<Undo> {
    let counts = |index: usize| !plan.levels()[index].limit.shadow;
    let decisions = merge(plan, groups, answers);
    let refuses = |index: usize| counts(index) && !decisions[index].allowed;
    if !(0..decisions.len()).any(refuses) {
        return Vec::new();
    }
    let charged = |group: &Group, index: usize| {
        let level = &plan.levels()[index];
        // A group that refuses has charged nothing of what passes, but under `independent` what counts.
        let here = !group.iter().any(|index| refuses(*index));
        let only_if_allowed = plan.charge == Charge::AllOrNothing || !counts(index);
        here && only_if_allowed && decisions[index].allowed && level.cost > 0 && !level.params().charges_denied()
    };
    let undo = |(group, answer): (&Group, &Decided)| {
        let levels: Group = group.iter().copied().filter(|index| charged(group, *index)).collect();
        (!levels.is_empty()).then_some(Undo { levels, charged_at: answer.at })
    };
    groups.iter().zip(answers).filter_map(undo).collect()
}
