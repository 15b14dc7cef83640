//! Plans whose levels have several anchors, where those are not decided in one step: each anchor for itself, and what a
//! refusal must not charge taken back.

use smallvec::SmallVec;

use super::{
    Fate,
    reply::{Answer, Change, Decided},
};
use weir_core::{
    domain::{Charge, Decision, Micros},
    hold::Repeat,
    plan::{Decisions, Level, Plan, firsts},
};

/// The levels of one anchor, by their indexes in the plan.
pub(super) type Group = SmallVec<[usize; 4]>;

/// The levels of a plan by anchor, in order.
pub(super) fn groups(plan: &Plan<'_>) -> SmallVec<[Group; 2]> {
    let firsts = firsts(plan.levels().iter().map(Level::anchor_path));
    let mut groups: SmallVec<[Group; 2]> = SmallVec::new();
    let mut numbers: SmallVec<[usize; 4]> = SmallVec::new();
    for (index, first) in firsts.iter().enumerate() {
        if index == *first {
            numbers.push(groups.len());
            groups.push(Group::new());
        } else {
            numbers.push(numbers[*first]);
        }
        groups[numbers[index]].push(index);
    }
    groups
}

/// The changes of one group, to be undone since another refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Undo<'a> {
    /// Its levels.
    pub group: &'a Group,
    /// The change of each one's state, and the units to be given back.
    pub levels: Vec<(Change, i64)>,
    /// When that was, by its server's clock.
    pub charged_at: Micros,
}

/// The answers of all groups as those of the plan.
pub(super) fn merge(plan: &Plan<'_>, answers: &[(&Group, &Decided)]) -> Decisions {
    let mut decisions: Decisions = plan.levels().iter().map(|_| Decision::pass(0, 0, 0)).collect();
    for (group, answer) in answers {
        for (index, decision) in group.iter().zip(&answer.decisions) {
            decisions[*index] = *decision;
        }
    }
    decisions
}

/// Whether anchors have met a request before, as one: where it reached only some of them, those that it missed decide now.
pub(super) fn repeat(answers: impl IntoIterator<Item = Repeat>) -> Repeat {
    let joined = |one, other| match (one, other) {
        (Repeat::Conflict, _) | (_, Repeat::Conflict) => Repeat::Conflict,
        (Repeat::Again, Repeat::Again) => Repeat::Again,
        _ => Repeat::First,
    };
    answers.into_iter().reduce(joined).unwrap_or_default()
}

/// The undos for these groups when the request is refused elsewhere.
pub(crate) fn undos<'a>(plan: &Plan<'_>, answers: &[(&'a Group, &Decided)]) -> Vec<Undo<'a>> {
    let refuses = |(index, decision): (&usize, &Decision)| !plan.levels()[*index].limit.shadow && !decision.allowed;
    let charged = |index: usize, decision: &Decision| {
        if is_undone(plan, index) && decision.allowed && !plan.dry_run { plan.levels()[index].cost.max(0) } else { 0 }
    };
    // A group that refuses has settled that by itself.
    let unaware = |(group, answer): &&(&'a Group, &Decided)| {
        // What was charged by an earlier request of the same id has been taken back then.
        answer.repeat == Repeat::First
            && !group.iter().zip(&answer.decisions).any(refuses)
            && group.iter().any(|index| is_undone(plan, *index))
    };
    let undo = |(group, answer): &(&'a Group, &Decided)| {
        let levels = group.iter().zip(&answer.decisions).zip(&answer.changes);
        let levels = levels.map(|((index, decision), change)| (change.clone(), charged(*index, decision)));
        Undo { group, levels: levels.collect(), charged_at: answer.at }
    };
    answers.iter().filter(unaware).map(undo).collect()
}

/// What became of each level of a plan of which not every group answered, and whose charges stay.
pub(super) fn fates(plan: &Plan<'_>, groups: &[Group], answers: &[Answer]) -> SmallVec<[Fate; 4]> {
    let mut fates: SmallVec<[Fate; 4]> = plan.levels().iter().map(|_| Fate::Unknown).collect();
    for (group, answer) in groups.iter().zip(answers) {
        let decided = match answer {
            Ok(decided) => decided,
            Err(failure) => {
                group.iter().for_each(|index| fates[*index] = Fate::after(failure));
                continue;
            }
        };
        let refuses = |(index, said): (&usize, &Decision)| !plan.levels()[*index].limit.shadow && !said.allowed;
        let is_refused = group.iter().zip(&decided.decisions).any(refuses);
        for (index, said) in group.iter().zip(&decided.decisions) {
            let is_spared = is_undone(plan, *index);
            let charges_denied = plan.levels()[*index].params().charges_denied() && !(is_spared && said.allowed);
            let is_charged = (said.allowed && !(is_refused && is_spared)) || charges_denied;
            fates[*index] = if is_charged { Fate::Charged } else { Fate::NotCharged };
        }
    }
    fates
}

/// Whether a refusal by another level changes what becomes of this one. What charges refused requests keeps its charge, unless
/// only those that refuse are charged.
pub(crate) fn is_undone(plan: &Plan<'_>, index: usize) -> bool {
    if plan.charge == Charge::OverLimitOnly {
        return true;
    }
    let level = &plan.levels()[index];
    (plan.charge == Charge::AllOrNothing || level.limit.shadow) && !level.params().charges_denied()
}
