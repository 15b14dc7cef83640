//! A client's lease of one key: when to request it, the request, and the effects of an answer.
//!
//! A [`Holder`] for a client, which learns the terms from the service, and whose policy may change while it holds
//! units.

use super::{Balance, Grant, HOLD_OFF_MAX, HoldId, Holder, LeaseTerms, Offer, OnShortage, Renewal};
use crate::domain::{Micros, time::SECOND};

/// Interval over which checks of a key without terms are counted.
const SLOT: Micros = 100_000;
/// Checks per interval from which a lease is worth its renewals.
const HOT: u32 = 3;
/// Time until a lease is requested again for a key that cannot be leased, or whose terms are not answered.
const ASK_AGAIN_AFTER: Micros = SECOND;

/// A client's request, sent with the check that is decided in the same step (see `LeaseRequest` of the API).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The client's number of the lease.
    pub lease: u64,
    /// The number of the request within the lease.
    pub sequence: u64,
    /// Units spent since the lease started.
    pub spent: u64,
    /// Units kept.
    pub kept: u64,
    /// Units wanted in addition.
    pub want: u64,
    /// The generation that the client knows; 0 for none.
    pub generation: u64,
    /// The cost of the check; 0 without a check.
    pub cost: i64,
}

/// The answer to a [`LeaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseAnswer {
    /// As in the request.
    pub lease: u64,
    /// As in the request.
    pub sequence: u64,
    /// Whether the check was refused.
    pub is_refused: bool,
    /// The grant; `None` if nothing is settled.
    pub grant: Option<Grant>,
    /// The terms; `None` if the key cannot be leased.
    pub offer: Option<Offer>,
}

/// The handling of a check that the balance cannot pay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckAction {
    /// Refuse it without a request.
    Refuse {
        /// Time until the service is asked again.
        retry_after: Micros,
    },
    /// Send an ordinary check, and pass its answer to [`ClientLease::checked`].
    Check,
    /// Send this request.
    Request(LeaseRequest),
}

#[derive(Clone, Debug)]
enum State {
    /// The key has no terms, or cannot be leased.
    Cold { slot: Micros, checks: u32 },
    /// The terms have been requested.
    Requested { sent: Micros, cost: i64 },
    /// The key can be leased.
    Held { holder: Box<Holder>, generation: u64 },
}

/// A client's lease of one key. Its owner calls it from one thread at a time, with the time of its monotonic clock.
/// The units to spend are in a separate [`Balance`]: call [`Balance::spend`] first, then this state machine if the
/// result requires it.
#[derive(Clone, Debug)]
pub struct ClientLease {
    state: State,
    /// The number of the newest lease, or of the request for terms.
    lease: u64,
    /// Time until which no lease is requested.
    quiet_until: Micros,
}

impl Default for ClientLease {
    fn default() -> Self {
        let state = State::Cold { slot: Micros::MIN, checks: 0 };
        Self { state, lease: 0, quiet_until: Micros::MIN }
    }
}

impl ClientLease {
    /// Decides how to handle a check that the balance cannot pay for ([`Spend::Short`](super::Spend::Short)).
    pub fn short(&mut self, balance: &Balance, cost: i64, now: Micros) -> CheckAction {
        if let State::Held { holder, generation } = &mut self.state {
            return match holder.short(balance, cost, now) {
                OnShortage::Refuse { retry_after } => CheckAction::Refuse { retry_after },
                OnShortage::Store(None) => CheckAction::Check,
                OnShortage::Store(Some(renewal)) => CheckAction::Request(request(&renewal, *generation, cost)),
            };
        }
        let is_requested = matches!(self.state, State::Requested { sent, .. } if now < sent + ASK_AGAIN_AFTER);
        if cost <= 0 || is_requested || !self.is_hot(now) {
            return CheckAction::Check;
        }
        self.lease += 1;
        self.state = State::Requested { sent: now, cost };
        let (spent, kept, want, generation) = (0, 0, 0, 0);
        CheckAction::Request(LeaseRequest { lease: self.lease, sequence: 1, spent, kept, want, generation, cost })
    }

    /// Counts a check of a key without terms, and returns whether the key is worth a lease.
    fn is_hot(&mut self, now: Micros) -> bool {
        let slot = now.div_euclid(SLOT);
        let before = match self.state {
            State::Cold { slot: own, checks } if own == slot => checks,
            _ => 0,
        };
        self.state = State::Cold { slot, checks: before.saturating_add(1) };
        before + 1 >= HOT && now >= self.quiet_until
    }

    /// Returns a request to send when the balance is low ([`Spend::Low`](super::Spend::Low)); no check waits for it.
    pub fn low(&mut self, balance: &Balance, now: Micros) -> Option<LeaseRequest> {
        let State::Held { holder, generation } = &mut self.state else { return None };
        holder.low(balance, now).map(|renewal| request(&renewal, *generation, 0))
    }

    /// Returns a request to send if one is due. Must be called every few milliseconds, at least four times per TTL of
    /// a lease.
    pub fn due(&mut self, balance: &Balance, now: Micros) -> Option<LeaseRequest> {
        let State::Held { holder, generation } = &mut self.state else { return None };
        holder.due(balance, now).map(|renewal| request(&renewal, *generation, 0))
    }

    /// Records the answer to an ordinary check.
    pub fn checked(&mut self, cost: i64, is_refused: bool, sent: Micros, now: Micros) {
        if let State::Held { holder, .. } = &mut self.state
            && is_refused
        {
            holder.refused(cost, sent, now);
        }
    }

    /// Handles an answer. May return a request that returns the units of a lease that is no longer
    /// renewed; handling its answer is optional.
    pub fn answered(&mut self, balance: &Balance, answer: &LeaseAnswer, now: Micros) -> Option<LeaseRequest> {
        if answer.lease != self.lease || matches!(self.state, State::Cold { .. }) {
            return None;
        }
        let mut returned = None;
        if let State::Held { holder, generation } = &mut self.state {
            let ends = answer.offer.map_or(answer.grant.is_none(), |offer| offer.generation != *generation);
            match &answer.grant {
                _ if ends => returned = holder.close(balance, now).map(|it| request(&it, *generation, 0)),
                Some(grant) => {
                    let _burnt = holder.answered(balance, grant, answer.is_refused, now);
                    return None;
                }
                None => {
                    holder.lost(balance, answer.sequence);
                    return None;
                }
            }
        }
        match answer.offer {
            Some(Offer { generation, terms }) => {
                self.lease += 1;
                let id = HoldId { owner: 0, number: self.lease };
                let mut holder = Holder::new(id, terms, now);
                if let State::Requested { sent, cost } = self.state
                    && answer.is_refused
                {
                    holder.refused(cost, sent, now);
                }
                self.state = State::Held { holder: Box::new(holder), generation };
            }
            None => self.forget(now + ASK_AGAIN_AFTER),
        }
        returned
    }

    fn forget(&mut self, quiet_until: Micros) {
        (self.state, self.quiet_until) = (Self::default().state, quiet_until);
    }

    /// Handles a request that is not answered, or answered by an error. Whether it was served is unknown, and does
    /// not matter.
    pub fn lost(&mut self, balance: &Balance, lease: u64, sequence: u64, now: Micros) {
        if lease != self.lease {
            return;
        }
        match &mut self.state {
            State::Held { holder, .. } => holder.lost(balance, sequence),
            State::Requested { .. } => self.forget(now + HOLD_OFF_MAX),
            State::Cold { .. } => {}
        }
    }

    /// Ends the lease, and returns a request that releases its units. Afterwards the lease is in
    /// its initial state.
    pub fn close(&mut self, balance: &Balance, now: Micros) -> Option<LeaseRequest> {
        let returned = match &mut self.state {
            State::Held { holder, generation } => holder.close(balance, now).map(|it| request(&it, *generation, 0)),
            _ => None,
        };
        self.forget(Micros::MIN);
        returned
    }

    /// Whether it can be forgotten.
    pub fn is_idle(&mut self, balance: &Balance, now: Micros) -> bool {
        match &mut self.state {
            State::Held { holder, .. } => holder.is_idle(balance, now),
            State::Requested { sent, .. } => now >= *sent + ASK_AGAIN_AFTER,
            State::Cold { slot, .. } => *slot != now.div_euclid(SLOT) && now >= self.quiet_until,
        }
    }
}

impl Offer {
    /// Creates an offer with these terms.
    pub fn new(generation: u64, ttl: Micros, hold_off: Micros, scarce: u64) -> Self {
        Self { generation, terms: LeaseTerms { hold_off, scarce, ..LeaseTerms::lasting(ttl) } }
    }
}

fn request(renewal: &Renewal, generation: u64, cost: i64) -> LeaseRequest {
    let Renewal { id, sequence, spent, kept, want, .. } = *renewal;
    LeaseRequest { lease: id.number, sequence, spent, kept, want, generation, cost }
}
