//! Cross-slot plans: levels with several anchors that cannot be decided in one script call. Each anchor decides
//! separately, and a refusal undoes the charges at the others. A refund cannot be undone, since its units may be charged
//! by others at any moment, so refunds that a refusal would drop are made once all anchors have passed.

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use tokio::time::Instant;
use weir_core::{
    domain::{Charge, Decision, Micros, OnStoreFailure},
    hold::Idempotency,
    plan::{Decisions, Level, Plan, firsts},
};
use weir_telemetry::{Causes, request};

use super::{
    Fate, Mode, RedisStore, Refusal, Undecided,
    reply::{Answer, Decided, StateChange},
};
use crate::{Failure, Verdict};

/// The levels of one anchor, by their indexes in the plan.
pub(super) type Group = SmallVec<[usize; 4]>;

/// Groups a plan's levels by anchor, in order.
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

/// Moves the levels whose refunds wait for the decision of the others to groups of their own, at the end. Returns the
/// groups, and how many of them decide.
fn defer_refunds(plan: &Plan<'_>, groups: &[Group]) -> (SmallVec<[Group; 2]>, usize) {
    // A charge of the same state comes after the refund, as in one script call.
    let is_charged = |state| {
        let mut levels = plan.levels().iter().enumerate();
        levels.any(|(index, level)| level.cost > 0 && plan.state_of(index) == state)
    };
    let waits = |index: &usize| {
        let cost = match plan.charge {
            Charge::AllOrNothing => plan.total_cost(*index),
            Charge::OverLimitOnly if is_charged(plan.state_of(*index)) => 0,
            Charge::OverLimitOnly | Charge::Independent => plan.levels()[*index].cost,
        };
        // A dry run refunds nothing. Any refund is dropped if another anchor has the id from another request.
        !plan.dry_run && cost < 0 && (plan.request.is_some() || is_undone(plan, *index))
    };
    let part = |waiting: bool| {
        let part = move |group: &Group| group.iter().copied().filter(|index| waits(index) == waiting).collect();
        groups.iter().map(part).filter(|part: &Group| !part.is_empty())
    };
    let mut parts: SmallVec<[Group; 2]> = part(false).collect();
    let deciding = parts.len();
    parts.extend(part(true));
    // Refunds alone are refused by none.
    let deciding = if deciding == 0 && plan.request.is_none() { parts.len() } else { deciding };
    (parts, deciding)
}

/// Returns the plan with a preview in place of these levels.
fn previewing<'a>(plan: &Plan<'a>, groups: &[Group]) -> Plan<'a> {
    let mut previewing = plan.clone();
    previewing.change_levels(|levels| groups.iter().flatten().for_each(|index| levels[*index].cost = 0));
    previewing
}

impl RedisStore {
    /// Decides a plan with one request per anchor, and another one for refunds. The time of the verdict is the latest of
    /// theirs.
    pub(super) async fn decide_cross_slot(
        &self,
        plan: &Plan<'_>,
        groups: &[Group],
        deadline: Instant,
    ) -> Result<Verdict, Undecided> {
        let (groups, deciding) = defer_refunds(plan, groups);
        let (deciders, refunds) = groups.split_at(deciding);
        let asked = deciders.iter().map(|group| self.ask(plan, group, Mode::ReportChanges, deadline));
        let mut answers = if refunds.is_empty() {
            join_all(asked).await
        } else {
            let previewing = previewing(plan, refunds);
            let previews = refunds.iter().map(|group| self.ask(&previewing, group, Mode::Decide, deadline));
            let (answers, previews) = join(join_all(asked), join_all(previews)).await;
            answers.into_iter().chain(previews).collect()
        };
        let claimed = self.claim(plan, deciders, &mut answers[..deciding], Mode::Claim).await;
        let is_conflict = answers.iter().flatten().any(|answer| answer.idempotency == Idempotency::Conflict);
        let decided = answered(deciders, &answers);
        let refused = is_conflict || decided.iter().any(|(group, answer)| refuses(plan, group, answer));
        let mut failure = answers.iter().find_map(|answer| answer.as_ref().err().cloned()).or(claimed.err());
        // If the fallback may admit the request, the charges made so far stay.
        let fails = |failure: &Failure| {
            failure.is_overload() || matches!(plan.on_store_failure, OnStoreFailure::Deny | OnStoreFailure::Error)
        };
        let is_over = refused || failure.as_ref().is_some_and(fails);
        let undone =
            if is_over { self.undo_charges(plan, &undos(plan, &decided, is_conflict)).await } else { Vec::new() };
        // After a failure the fallback may refuse a request that charges too.
        let refunded = !is_over && (failure.is_none() || deciders.is_empty());
        if refunded {
            let deadline = self.io.deadline();
            let previews = refunds.iter().zip(&mut answers[deciding..]).filter(|(_, preview)| preview.is_ok());
            let made = previews.map(async |(group, answer)| {
                match self.ask(plan, group, Mode::Decide, deadline).await {
                    // The request has passed and charges others, so it is answered.
                    Err(failure) if !deciders.is_empty() => self.stays_charged(group.len(), &failure),
                    made => *answer = made,
                }
            });
            join_all(made).await;
            failure = failure.or_else(|| answers.iter().find_map(|answer| answer.as_ref().err().cloned()));
        }
        let decided = answered(&groups, &answers);
        let mut decisions = merge(plan, &decided);
        undone.into_iter().for_each(|(index, decision)| decisions[index] = decision);
        let at = decided.iter().map(|(_, answer)| answer.at).max().unwrap_or_default();
        let idempotency = idempotency(decided.iter().map(|(_, answer)| answer.idempotency));
        let verdict = Verdict { decisions, at, idempotency, ..Verdict::default() };
        let Some(failure) = failure else { return Ok(verdict) };
        let refusal = refused.then(|| Refusal::new(verdict, &groups, &answers));
        let mut fates = fates(plan, &groups, &answers);
        if !refunded {
            refunds.iter().flatten().for_each(|index| fates[*index] = Fate::NotCharged);
        }
        Err(Undecided { failure, fates, refusal })
    }

    /// If the answers would admit a request by the charges of an earlier attempt, claims these charges, so that they
    /// are not undone if that attempt is refused at another anchor. Charges that were already undone are made again
    /// now.
    ///
    /// # Errors
    /// A claim got no answer; that answer is unchanged.
    pub(super) async fn claim(
        &self,
        plan: &Plan<'_>,
        groups: &[Group],
        answers: &mut [Answer],
        mode: Mode<'_>,
    ) -> Result<(), Failure> {
        // The fallback for an unavailable anchor may admit the request too.
        let may_pass = matches!(plan.on_store_failure, OnStoreFailure::Allow | OnStoreFailure::Local);
        let admits = |(group, answer): (&Group, &Answer)| match answer {
            Ok(decided) => !refuses(plan, group, decided) && decided.idempotency != Idempotency::Conflict,
            Err(_) => may_pass,
        };
        if plan.dry_run || !groups.iter().zip(&*answers).all(admits) {
            return Ok(());
        }
        let deadline = self.io.deadline();
        let is_repeat =
            |answer: &Answer| answer.as_ref().is_ok_and(|decided| decided.idempotency == Idempotency::Repeated);
        let repeats = groups.iter().zip(answers).filter(|(_, answer)| is_repeat(answer));
        let claims = repeats.map(async |(group, answer)| {
            *answer = Ok(self.ask(plan, group, mode, deadline).await?);
            Ok(())
        });
        join_all(claims).await.into_iter().collect()
    }

    /// Undoes charges, and returns the new decisions of their levels. Charges that cannot be undone stay and are
    /// counted.
    async fn undo_charges(&self, plan: &Plan<'_>, undos: &[Undo<'_>]) -> Vec<(usize, Decision)> {
        let deadline = self.io.deadline();
        let asked = undos.iter().map(|undo| self.ask(plan, undo.group, Mode::Undo(undo), deadline));
        let mut decisions = Vec::new();
        for (undo, answer) in undos.iter().zip(join_all(asked).await) {
            match answer {
                Ok(answer) => {
                    self.metrics.undo_failures.increment(answer.left_charged);
                    let levels = undo.group.iter().copied().zip(answer.decisions);
                    decisions.extend(levels.filter(|(index, _)| is_undone(plan, *index)));
                }
                Err(failure) => {
                    self.stays_charged(undo.levels.iter().filter(|(_, units)| *units > 0).count(), &failure);
                }
            }
        }
        decisions
    }

    /// Records that charges of some levels could not be taken back.
    fn stays_charged(&self, levels: usize, failure: &Failure) {
        self.metrics.undo_failures.increment(levels as u64);
        tracing::debug!(
            request_id = request::request_id(),
            trace_id = request::trace_id(),
            error = %Causes(failure),
            "a charge could not be taken back"
        );
    }
}

/// The changes of one group, to be undone because another group refused, or has the id from another request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Undo<'a> {
    pub group: &'a Group,
    /// Whether all changes are undone, also those that a refusal would leave.
    pub is_whole: bool,
    /// The change of each level's state, and the units to refund.
    pub levels: Vec<(StateChange, i64)>,
    /// Time of the charges, by the server's clock.
    pub charged_at: Micros,
}

/// Returns the groups that are decided, with their decisions.
pub(super) fn answered<'a>(groups: &'a [Group], answers: &'a [Answer]) -> Vec<(&'a Group, &'a Decided)> {
    let answered = groups.iter().zip(answers);
    answered.filter_map(|(group, answer)| Some((group, &**answer.as_ref().ok()?))).collect()
}

/// Merges the groups' answers into the plan's decisions.
pub(super) fn merge(plan: &Plan<'_>, answers: &[(&Group, &Decided)]) -> Decisions {
    let mut decisions: Decisions = plan.levels().iter().map(|_| Decision::pass(0, 0, 0)).collect();
    for (group, answer) in answers {
        for (index, decision) in group.iter().zip(&answer.decisions) {
            decisions[*index] = *decision;
        }
    }
    decisions
}

/// Merges the anchors' repeat states. If an earlier attempt reached only some anchors, the others decide now, so it is
/// the first.
pub(super) fn idempotency(answers: impl IntoIterator<Item = Idempotency>) -> Idempotency {
    let joined = |one, other| match (one, other) {
        (Idempotency::Conflict, _) | (_, Idempotency::Conflict) => Idempotency::Conflict,
        (Idempotency::Repeated, Idempotency::Repeated) => Idempotency::Repeated,
        _ => Idempotency::First,
    };
    answers.into_iter().reduce(joined).unwrap_or_default()
}

/// Returns the undos for these groups after a refusal elsewhere. After a conflict nothing is decided: even the effects
/// of a refusal are undone.
pub(crate) fn undos<'a>(plan: &Plan<'_>, answers: &[(&'a Group, &Decided)], is_conflict: bool) -> Vec<Undo<'a>> {
    // Levels that share a state are charged their total, which is undone at the first of them.
    let cost = |index: usize| match plan.charge {
        Charge::AllOrNothing if plan.state_of(index) == index => plan.total_cost(index),
        Charge::AllOrNothing => 0,
        Charge::Independent | Charge::OverLimitOnly => plan.levels()[index].cost.max(0),
    };
    let charged = |index: usize, decision: &Decision| {
        if is_undone(plan, index) && decision.allowed && !plan.dry_run { cost(index) } else { 0 }
    };
    // The earlier attempt with the same id has undone its own charges, and the script already handles the charges of a
    // group that itself refuses.
    let unaware = |(group, answer): &&(&'a Group, &Decided)| {
        let may_undo = || !refuses(plan, group, answer) && group.iter().any(|index| is_undone(plan, *index));
        answer.idempotency == Idempotency::First && (is_conflict || may_undo())
    };
    let undo = |(group, answer): &(&'a Group, &Decided)| {
        let levels = if is_conflict {
            let decided = plan.only(|index| group.contains(&index));
            let units = decided.charged(&answer.decisions).map(|units| units as i64);
            answer.whole_changes.iter().cloned().zip(units).collect()
        } else {
            let units = group.iter().zip(&answer.decisions).map(|(index, decision)| charged(*index, decision));
            answer.changes.iter().cloned().zip(units).collect()
        };
        Undo { group, is_whole: is_conflict, levels, charged_at: answer.at }
    };
    answers.iter().filter(unaware).map(undo).collect()
}

/// Returns the fate of each level when some groups did not answer, none refuses, and the charges stay.
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
        for (index, said) in group.iter().zip(&decided.decisions) {
            let is_charged = said.allowed || plan.levels()[*index].params().charges_denied();
            fates[*index] = if is_charged { Fate::Charged } else { Fate::NotCharged };
        }
    }
    fates
}

/// Whether one of these levels refuses the request.
fn refuses(plan: &Plan<'_>, group: &Group, answer: &Decided) -> bool {
    group.iter().zip(&answer.decisions).any(|(index, said)| !plan.levels()[*index].limit.shadow && !said.allowed)
}

/// Whether a refusal by another level undoes this level's charge. Limits that charge denied requests keep it, unless
/// the policy charges only the refusing limits (`OverLimitOnly`).
pub(crate) fn is_undone(plan: &Plan<'_>, index: usize) -> bool {
    let level = &plan.levels()[index];
    let keeps = |cost: i64| cost >= 0 && level.params().charges_denied();
    match plan.charge {
        Charge::OverLimitOnly => true,
        Charge::AllOrNothing => !keeps(plan.total_cost(index)),
        Charge::Independent => level.limit.shadow && !keeps(level.cost),
    }
}
