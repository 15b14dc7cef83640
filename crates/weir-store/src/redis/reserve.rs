//! Reservations in a shared store: each anchor of the plan keeps a record for its own levels.

use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};

use super::{
    Fate, Group, Mode, RedisStore, Refusal, Undecided,
    cross_slot::{answered, idempotency, merge},
    reply::Answer,
};
use crate::Verdict;
use weir_core::{
    hold::{Idempotency, Outcome, Reservation, ReservationStep},
    plan::Plan,
};

impl RedisStore {
    /// Carries out a reservation's step. If anchors decide separately, a reservation that some refuse is undone at the
    /// others; until the undo arrives they hold its units, at most for its TTL.
    pub(super) async fn reserve(&self, plan: &Plan<'_>, reservation: &Reservation<'_>) -> Result<Verdict, Undecided> {
        let groups = self.groups(plan);
        let mut answers = match reservation.step {
            ReservationStep::Commit { .. } | ReservationStep::Cancel => self.settle(plan, &groups, reservation).await,
            _ => self.ask_all(plan, &groups, Mode::Reserve(reservation)).await,
        };
        let claimed = if reservation.step.is_new() && groups.len() > 1 {
            self.claim(plan, &groups, &mut answers, Mode::ClaimReservation(reservation)).await
        } else {
            Ok(())
        };
        let is_refused = answers.iter().any(refuses);
        let failure = answers.iter().find_map(|answer| answer.as_ref().err().cloned()).or(claimed.err());
        let is_made = !is_refused && failure.is_none();
        let mut undone: SmallVec<[usize; 2]> = SmallVec::new();
        if reservation.step.is_new() && !is_made && groups.len() > 1 {
            // The reservation of an earlier attempt must not be undone. Once one is known to exist, an anchor without
            // an answer may have it too.
            let is_repeated = answers.iter().flatten().any(|decided| decided.idempotency == Idempotency::Repeated);
            let may_hold: Vec<usize> = (0..groups.len())
                .filter(|index| match &answers[*index] {
                    Ok(decided) => !refuses(&answers[*index]) && decided.idempotency != Idempotency::Repeated,
                    Err(_) => !is_repeated,
                })
                .collect();
            let holders: Vec<Group> = may_hold.iter().map(|index| groups[*index].clone()).collect();
            let undo = Mode::UndoReservation(reservation.name);
            for (index, answer) in may_hold.into_iter().zip(self.ask_all(plan, &holders, undo).await) {
                if let (Ok(decided), Ok(stands)) = (&mut answers[index], answer) {
                    // Another attempt may have claimed it.
                    if !matches!(stands.reservation, Some(Outcome::Reserved { .. })) {
                        undone.push(index);
                    }
                    decided.at = stands.at;
                    // Report the levels as after the undo, except shadow levels that would have refused.
                    let levels = decided.decisions.iter_mut().zip(stands.decisions);
                    levels.filter(|(told, _)| told.allowed).for_each(|(told, stands)| *told = stands);
                }
            }
        }
        let decided = answered(&groups, &answers);
        let at = decided.iter().map(|(_, answer)| answer.at).max().unwrap_or_default();
        let outcome = decided.iter().filter_map(|(_, answer)| answer.reservation).reduce(joined);
        let outcome = if is_refused { Some(Outcome::Refused) } else { outcome };
        let idempotency = idempotency(decided.iter().map(|(_, answer)| answer.idempotency));
        let (decisions, reservation) = (merge(plan, &decided), outcome.map(Box::new));
        let verdict = Verdict { decisions, at, reservation, idempotency, ..Verdict::default() };
        let Some(failure) = failure else { return Ok(verdict) };
        let mut fates = smallvec![Fate::Unknown; plan.levels().len()];
        for (number, (group, answer)) in groups.iter().zip(&answers).enumerate() {
            let fate = match answer {
                Err(failure) => Fate::after(failure),
                Ok(_) if undone.contains(&number) => Fate::NotCharged,
                Ok(_) => Fate::Unknown,
            };
            group.iter().for_each(|index| fates[*index] = fate);
        }
        let refusal = is_refused.then(|| Refusal::new(verdict, &groups, &answers));
        Err(Undecided { failure, fates, refusal })
    }

    /// Settles a reservation, first at the deepest anchor. The others get the settlement that it knows, so concurrent
    /// settlements, and those after one that did not reach all anchors, charge the same everywhere.
    async fn settle(&self, plan: &Plan<'_>, groups: &[Group], reservation: &Reservation<'_>) -> Vec<Answer> {
        let depth = |number: &usize| groups[*number].first().map(|index| plan.levels()[*index].anchor_path().len());
        let Some(deepest) = (0..groups.len()).max_by_key(depth) else { return Vec::new() };
        let first = self.ask(plan, &groups[deepest], Mode::Reserve(reservation), self.io.deadline()).await;
        let step = match first.as_ref().map(|decided| decided.reservation) {
            Ok(Some(Outcome::Settled { actual, .. })) => ReservationStep::Commit { actual },
            Ok(_) => reservation.step,
            Err(failure) => return groups.iter().map(|_| Err(failure.clone())).collect(),
        };
        let mut others = groups.to_vec();
        others.remove(deepest);
        let mut answers = self.ask_all(plan, &others, Mode::Reserve(&Reservation { step, ..*reservation })).await;
        answers.insert(deepest, first);
        answers
    }

    async fn ask_all(&self, plan: &Plan<'_>, groups: &[Group], mode: Mode<'_>) -> Vec<Answer> {
        let deadline = self.io.deadline();
        join_all(groups.iter().map(|group| self.ask(plan, group, mode, deadline))).await
    }
}

fn refuses(answer: &Answer) -> bool {
    answer.as_ref().is_ok_and(|decided| decided.reservation == Some(Outcome::Refused))
}

/// Merges the outcomes of two anchors. An earlier attempt may have reached only one of them.
fn joined(one: Outcome, other: Outcome) -> Outcome {
    use Outcome::{Extended, Reserved, Settled, Unknown};
    match (one, other) {
        (Reserved { expires_after: a }, Reserved { expires_after: b }) => Reserved { expires_after: a.min(b) },
        (Extended { expires_after: a }, Extended { expires_after: b }) => Extended { expires_after: a.min(b) },
        (Settled { before: true, .. }, settled @ Settled { .. }) => settled,
        (Unknown, known) | (known, Unknown) => known,
        (one, _) => one,
    }
}
