//! Plans whose levels have several anchors, where those are not decided in one step: each anchor for itself, and what a
//! refusal must not charge taken back.

use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::Instant;
use weir_core::{
    domain::{Charge, Decision, Micros, OnStoreFailure},
    hold::Repeat,
    plan::{Decisions, Level, Plan, firsts},
};
use weir_telemetry::request;

use super::{
    Fate, Mode, RedisStore, Undecided,
    reply::{Answer, Change, Decided},
};
use crate::{Failure, Verdict};

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

impl RedisStore {
    /// Decides a plan whose anchors are asked each for itself; the moment is the last of theirs.
    pub(super) async fn decide_cross_slot(
        &self,
        plan: &Plan<'_>,
        groups: &[Group],
        deadline: Instant,
    ) -> Result<Verdict, Undecided> {
        let asked = groups.iter().map(|group| self.ask(plan, group, Mode::Tell, deadline));
        let mut answers = join_all(asked).await;
        let claimed = self.claim(plan, groups, &mut answers, Mode::Claim).await;
        let answered = groups.iter().zip(&answers);
        let decided: Vec<_> = answered.filter_map(|(group, answer)| Some((group, &**answer.as_ref().ok()?))).collect();
        if let Some(failure) = answers.iter().find_map(|answer| answer.as_ref().err()).or(claimed.as_ref().err()) {
            // Where what is answered instead may pass, it has been charged for as far as it could be.
            if failure.is_overload() || matches!(plan.on_store_failure, OnStoreFailure::Deny | OnStoreFailure::Error) {
                self.take_back(plan, &undos(plan, &decided)).await;
            }
            return Err(Undecided { failure: failure.clone(), fates: fates(plan, groups, &answers) });
        }
        let mut decisions = merge(plan, &decided);
        let at = decided.iter().map(|(_, answer)| answer.at).max().unwrap_or_default();
        let refused = decided.iter().any(|(group, answer)| refuses(plan, group, answer));
        let repeat = repeat(decided.iter().map(|(_, answer)| answer.repeat));
        if refused || repeat == Repeat::Conflict {
            for (index, decision) in self.take_back(plan, &undos(plan, &decided)).await {
                decisions[index] = decision;
            }
        }
        Ok(Verdict { decisions, at, repeat, ..Verdict::default() })
    }

    /// Where a request would be admitted by what an earlier attempt of it was charged, sees to it that this is not taken back, as that
    /// attempt may be refused elsewhere. Where it has been, the request is charged now.
    ///
    /// # Errors
    /// Where that cannot be seen to; such an answer stays.
    pub(super) async fn claim(
        &self,
        plan: &Plan<'_>,
        groups: &[Group],
        answers: &mut [Answer],
        mode: Mode<'_>,
    ) -> Result<(), Failure> {
        // What is decided without an anchor may pass too.
        let may_pass = matches!(plan.on_store_failure, OnStoreFailure::Allow | OnStoreFailure::Local);
        let admits = |(group, answer): (&Group, &Answer)| match answer {
            Ok(decided) => !refuses(plan, group, decided),
            Err(_) => may_pass,
        };
        if plan.dry_run || !groups.iter().zip(&*answers).all(admits) {
            return Ok(());
        }
        let deadline = self.io.deadline();
        let is_repeat = |answer: &Answer| answer.as_ref().is_ok_and(|decided| decided.repeat == Repeat::Again);
        let repeats = groups.iter().zip(answers).filter(|(_, answer)| is_repeat(answer));
        let claims = repeats.map(async |(group, answer)| {
            *answer = Ok(self.ask(plan, group, mode, deadline).await?);
            Ok(())
        });
        join_all(claims).await.into_iter().collect()
    }

    /// Takes charges back; what the levels concerned say then. What cannot be taken back stays charged, and is counted.
    async fn take_back(&self, plan: &Plan<'_>, undos: &[Undo<'_>]) -> Vec<(usize, Decision)> {
        let deadline = self.io.deadline();
        let asked = undos.iter().map(|undo| self.ask(plan, undo.group, Mode::Undo(undo), deadline));
        let mut decisions = Vec::new();
        for (undo, answer) in undos.iter().zip(join_all(asked).await) {
            match answer {
                Ok(answer) => {
                    self.meter.not_taken_back.fetch_add(answer.left_charged, Ordering::Relaxed);
                    let levels = undo.group.iter().copied().zip(answer.decisions);
                    decisions.extend(levels.filter(|(index, _)| is_undone(plan, *index)));
                }
                Err(failure) => {
                    let charges = undo.levels.iter().filter(|(_, units)| *units > 0).count() as u64;
                    self.meter.not_taken_back.fetch_add(charges, Ordering::Relaxed);
                    tracing::debug!(
                        request_id = request::request_id(),
                        trace_id = request::trace_id(),
                        error = &failure as &dyn std::error::Error,
                        "a charge could not be taken back"
                    );
                }
            }
        }
        decisions
    }
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
    let charged = |index: usize, decision: &Decision| {
        if is_undone(plan, index) && decision.allowed && !plan.dry_run { plan.levels()[index].cost.max(0) } else { 0 }
    };
    // A group that refuses has settled that by itself.
    let unaware = |(group, answer): &&(&'a Group, &Decided)| {
        // What was charged by an earlier request of the same id has been taken back then.
        answer.repeat == Repeat::First
            && !refuses(plan, group, answer)
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
        let is_refused = refuses(plan, group, decided);
        for (index, said) in group.iter().zip(&decided.decisions) {
            let is_spared = is_undone(plan, *index);
            let charges_denied = plan.levels()[*index].params().charges_denied() && !(is_spared && said.allowed);
            let is_charged = (said.allowed && !(is_refused && is_spared)) || charges_denied;
            fates[*index] = if is_charged { Fate::Charged } else { Fate::NotCharged };
        }
    }
    fates
}

/// Whether one of these levels refuses the request.
fn refuses(plan: &Plan<'_>, group: &Group, answer: &Decided) -> bool {
    group.iter().zip(&answer.decisions).any(|(index, said)| !plan.levels()[*index].limit.shadow && !said.allowed)
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
