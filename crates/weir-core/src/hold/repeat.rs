//! Requests with ids of their own: who has no answer asks again, and is charged once.

use super::{Outcome, Record, Reservation, Reservations, reservation};
use crate::{
    domain::Micros,
    plan::{Decisions, Plan, no_room, peek},
};

/// The id of a request, by which a store knows it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// The caller's id.
    pub name: Box<[u8]>,
    /// What tells this request from another one of the same id.
    pub fingerprint: [u8; 8],
    /// How long the answer is remembered, in microseconds.
    pub window: Micros,
}

/// Whether a store has met a request before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// It has not, or is not told the request's id.
    #[default]
    First,
    /// It has: this is the answer of that time, and nothing is charged.
    Again,
    /// It has met another request under this id. Nothing is decided.
    Conflict,
}

/// Decides a plan on levels of which units may be held, whatever it asks for.
pub fn decide_held(
    plan: &Plan<'_>,
    states: &mut impl Reservations,
    now: Micros,
) -> (Decisions, Option<Outcome>, Repeat) {
    super::expire(plan, states, now);
    let is_new = plan.reservation.is_none_or(|reservation| reservation.step.is_new());
    let Some(request) = plan.request.filter(|_| is_new) else {
        let (decisions, outcome) = reservation::decide(plan, states, now);
        return (decisions, outcome, Repeat::First);
    };
    let stand =
        |states: &_| (0..plan.levels().len()).map(|index| peek(plan, states, index, now)).collect::<Decisions>();
    let refused = plan.reservation.map(|_| Outcome::Refused);
    match states.record(&request.name).filter(|record| record.expires() > now) {
        Some(Record::Answered { fingerprint, decisions, is_reserved, .. })
            if fingerprint == request.fingerprint && is_reserved == plan.reservation.is_some() =>
        {
            // Where the policy has other limits since, how these stand.
            let is_same = decisions.len() == plan.levels().len();
            let decisions = if is_same { decisions.to_vec().into() } else { stand(states) };
            let left = |reservation: Reservation<'_>| {
                let open = states.record(reservation.name).filter(|record| record.expires() > now);
                Outcome::Reserved { expires_after: open.map_or(0, |record| record.left(now)) }
            };
            (decisions, plan.reservation.map(left), Repeat::Again)
        }
        Some(_) => (stand(states), refused, Repeat::Conflict),
        None if !states.make_room(&[]) => (stand(states).iter().map(no_room).collect(), refused, Repeat::First),
        None => {
            let (decisions, outcome) = reservation::decide(plan, states, now);
            let is_reserved = matches!(outcome, Some(Outcome::Reserved { .. }));
            // What charges nothing is decided again, so that there are no more records than the limits admit requests.
            let has_charged = is_reserved || outcome.is_none() && plan.charges(&decisions);
            if has_charged {
                let (fingerprint, until) = (request.fingerprint, now + request.window);
                let decisions = decisions[..].into();
                states.put_record(&request.name, Record::Answered { fingerprint, decisions, is_reserved, until });
            }
            (decisions, outcome, Repeat::First)
        }
    }
}
