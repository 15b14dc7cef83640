//! Idempotent requests: a client retries a request with an id that was not answered, and is charged once.

use super::{Outcome, Record, Reservation, Reservations, reservation};
use crate::{
    domain::{Decision, Micros},
    plan::{Decisions, Plan, passes, peek},
};

/// The id of a request, by which a store recognizes a repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The client's id.
    pub name: Box<[u8]>,
    /// A fingerprint that distinguishes this request from another one with the same id.
    pub fingerprint: [u8; 8],
    /// Time for which the answer is remembered, in microseconds.
    pub window: Micros,
}

/// Whether a request repeats an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idempotency {
    /// A first request, or one without an id.
    #[default]
    First,
    /// A repeated request: the answer is the earlier one, and nothing is charged.
    Repeated,
    /// A request with the id of another one. Nothing is decided.
    Conflict,
}

/// Decides a plan on levels whose units may be held, with its reservation and its request id.
pub fn decide_with_holds(
    plan: &Plan<'_>,
    states: &mut impl Reservations,
    now: Micros,
) -> (Decisions, Option<Outcome>, Idempotency) {
    super::expire(plan, states, now);
    let is_new = plan.reservation.is_none_or(|reservation| reservation.step.is_new());
    let Some(request) = plan.request.filter(|_| is_new) else {
        let (decisions, outcome) = reservation::decide(plan, states, now);
        return (decisions, outcome, Idempotency::First);
    };
    let stand =
        |states: &_| (0..plan.levels().len()).map(|index| peek(plan, states, index, now)).collect::<Decisions>();
    let refused = plan.reservation.map(|_| Outcome::Refused);
    match states.record(&request.name).filter(|record| record.expires() > now) {
        Some(Record::Answered { fingerprint, levels, has_passed, decisions, is_reserved, until })
            if fingerprint == request.fingerprint && is_reserved == plan.reservation.is_some() =>
        {
            let is_same = levels == levels_digest(plan, 0..plan.levels().len());
            let decisions = if is_same {
                decisions.to_vec().into()
            } else {
                under_other_limits(plan, stand(states), has_passed, until - now)
            };
            let left = |reservation: Reservation<'_>| {
                let open = states.record(reservation.name).filter(|record| record.expires() > now);
                Outcome::Reserved { expires_after: open.map_or(0, |record| record.left(now)) }
            };
            (decisions, plan.reservation.map(left), Idempotency::Repeated)
        }
        Some(_) => (stand(states), refused, Idempotency::Conflict),
        // The answer is forgotten, but not the reserved units.
        None if plan.reservation.is_some_and(|it| reservation::made(states, it.name, now).is_some()) => {
            let (decisions, outcome) = reservation::decide(plan, states, now);
            (decisions, outcome, Idempotency::Repeated)
        }
        None => {
            let (decisions, outcome) = reservation::decide(plan, states, now);
            let is_reserved = matches!(outcome, Some(Outcome::Reserved { .. }));
            // A request that charges nothing is decided again, so there are at most as many records
            // as admitted requests.
            let has_charged = is_reserved || outcome.is_none() && plan.charges(&decisions);
            // Without space for the answer it is not remembered: a record never refuses a request.
            if has_charged && states.reserve_record(None) {
                let answered = Record::Answered {
                    fingerprint: request.fingerprint,
                    levels: levels_digest(plan, 0..plan.levels().len()),
                    has_passed: is_reserved || plan.is_shadow || passes(plan, &decisions),
                    decisions: decisions[..].into(),
                    is_reserved,
                    until: now + request.window,
                };
                states.put_record(&request.name, answered);
            }
            (decisions, outcome, Idempotency::First)
        }
    }
}

/// Returns a digest of the levels with these indexes: the states, and whether they are in shadow mode. Recorded decisions
/// are the answer only for the same levels; others would judge them by their own names and modes.
pub fn levels_digest(plan: &Plan<'_>, indexes: impl Iterator<Item = usize>) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[u8::from(plan.is_shadow)]);
    for level in indexes.map(|index| &plan.levels()[index]) {
        for part in [level.path(), level.limit.ident(), &[u8::from(level.limit.shadow)]] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    let mut digest = [0; 8];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

/// Turns previews of limits that the policy has since into an answer that passes or refuses as the recorded one, for as
/// long as it is recorded.
fn under_other_limits(plan: &Plan<'_>, mut previews: Decisions, has_passed: bool, left: Micros) -> Decisions {
    for (level, preview) in plan.levels().iter().zip(&mut previews) {
        if has_passed {
            *preview = Decision { allowed: true, retry_after: None, never: false, ..*preview };
        } else if preview.allowed && !level.limit.shadow {
            *preview = Decision { allowed: false, retry_after: Some(left), ..*preview };
        }
    }
    previews
}
