//! Plans whose levels have several anchors, where those are not decided in one step: each anchor for itself, and what a
//! refusal must not charge taken back.

use smallvec::SmallVec;

use super::reply::{Change, Decided};
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

/// What one group has done before another refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Undo<'a> {
    /// Its levels.
    pub group: &'a Group,
    /// What became of the state of each, and the units that each was charged which must not be.
    pub levels: Vec<(Change, i64)>,
    /// When that was, by its server's clock.
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

/// What must be taken back, where a level of one group refuses and another group did not know that.
pub fn undos<'a>(plan: &Plan<'_>, groups: &'a [Group], answers: &[Decided]) -> Vec<Undo<'a>> {
    let levels = plan.levels();
    let decisions = merge(plan, groups, answers);
    let refuses = |index: usize| !levels[index].limit.shadow && !decisions[index].allowed;
    if !(0..levels.len()).any(refuses) {
        return Vec::new();
    }
    let charged = |index: usize| {
        if is_undone(plan, index) && decisions[index].allowed { levels[index].cost.max(0) } else { 0 }
    };
    let undo = |(group, answer): (&'a Group, &Decided)| Undo {
        group,
        levels: group.iter().zip(&answer.changes).map(|(index, change)| (change.clone(), charged(*index))).collect(),
        charged_at: answer.at,
    };
    // A group that refuses has settled that by itself.
    let unaware = |(group, _): &(&Group, &Decided)| {
        !group.iter().any(|index| refuses(*index)) && group.iter().any(|index| is_undone(plan, *index))
    };
    groups.iter().zip(answers).filter(unaware).map(undo).collect()
}

/// Whether a refusal by another level changes what becomes of this one. What charges refused requests keeps its charge.
pub fn is_undone(plan: &Plan<'_>, index: usize) -> bool {
    let level = &plan.levels()[index];
    (plan.charge == Charge::AllOrNothing || level.limit.shadow) && !level.params().charges_denied()
}
