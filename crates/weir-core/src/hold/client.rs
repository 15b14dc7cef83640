//! A client's lease of one key: when to ask for it, by which request, and what an answer changes.
//!
//! A [`Holder`] for those who learn the terms from the store's replicas, and whose policy may change while they hold.

use super::{Balance, Grant, HOLD_OFF_MAX, HoldId, Holder, Offer, OnShortage, Renewal, Terms};
use crate::domain::{Micros, time::SECOND};

/// The time in which checks of a key without terms are counted.
const SLOT: Micros = 100_000;
/// Checks within that time from which on a lease is worth its renewals.
const HOT: u32 = 3;
/// How long a key is not asked for again that cannot be leased, or whose terms are not answered.
const ASK_AGAIN_AFTER: Micros = SECOND;

/// What a client sends, with the check that is decided in the same step (see `LeaseRequest` of the API).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The client's number of the lease.
    pub lease: u64,
    /// The number of the request in it.
    pub sequence: u64,
    /// Units spent since the lease began.
    pub spent: u64,
    /// Units kept.
    pub kept: u64,
    /// Units wanted in addition.
    pub want: u64,
    /// The generation under which it asks; 0: none is known.
    pub generation: u64,
    /// What the check costs; 0: there is none.
    pub cost: i64,
}

/// What it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseAnswer {
    /// As in the request.
    pub lease: u64,
    /// As in the request.
    pub sequence: u64,
    /// The check was refused.
    pub is_refused: bool,
    /// What is granted; `None`: nothing is settled.
    pub grant: Option<Grant>,
    /// The terms; `None`: the key cannot be leased.
    pub offer: Option<Offer>,
}

/// How a check is decided that the balance cannot pay for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCheck {
    /// Refused, without asking.
    Refuse {
        /// Until it is asked again.
        retry_after: Micros,
    },
    /// By an ordinary check, whose answer is to be told ([`ClientLease::checked`]).
    Check,
    /// By this request.
    Ask(LeaseRequest),
}

#[derive(Clone, Debug)]
enum State {
    /// Nothing is known of the key, or it cannot be leased.
    Cold { slot: Micros, checks: u32 },
    /// The terms are asked for.
    Requested { sent: Micros, cost: i64 },
    /// It can be leased.
    Held { holder: Box<Holder>, generation: u64 },
}

/// A client's lease of one key; its owner calls it for one thread at a time, with the time of its monotonic clock. What may be
/// spent is in a [`Balance`] beside it: first [`Balance::spend`], and this machine where that says so.
#[derive(Clone, Debug)]
pub struct ClientLease {
    state: State,
    /// The number of the newest lease, or of the request for terms.
    lease: u64,
    /// Until then the key is not asked for.
    quiet_until: Micros,
}

impl Default for ClientLease {
    fn default() -> Self {
        let state = State::Cold { slot: Micros::MIN, checks: 0 };
        Self { state, lease: 0, quiet_until: Micros::MIN }
    }
}

impl ClientLease {
    /// A check that the balance cannot pay for ([`Spend::Short`](super::Spend::Short)).
    pub fn short(&mut self, balance: &Balance, cost: i64, now: Micros) -> OnCheck {
        if let State::Held { holder, generation } = &mut self.state {
            return match holder.short(balance, cost, now) {
                OnShortage::Refuse { retry_after } => OnCheck::Refuse { retry_after },
                OnShortage::Store(None) => OnCheck::Check,
                OnShortage::Store(Some(renewal)) => OnCheck::Ask(request(&renewal, *generation, cost)),
            };
        }
        let is_requested = matches!(self.state, State::Requested { sent, .. } if now < sent + ASK_AGAIN_AFTER);
        if cost <= 0 || is_requested || !self.is_hot(now) {
            return OnCheck::Check;
        }
        self.lease += 1;
        self.state = State::Requested { sent: now, cost };
        let (spent, kept, want, generation) = (0, 0, 0, 0);
        OnCheck::Ask(LeaseRequest { lease: self.lease, sequence: 1, spent, kept, want, generation, cost })
    }

    /// Counts a check of a key without terms: whether it is worth a lease.
    fn is_hot(&mut self, now: Micros) -> bool {
        let slot = now.div_euclid(SLOT);
        let before = match self.state {
            State::Cold { slot: own, checks } if own == slot => checks,
            _ => 0,
        };
        self.state = State::Cold { slot, checks: before.saturating_add(1) };
        before + 1 >= HOT && now >= self.quiet_until
    }

    /// The balance is low ([`Spend::Low`](super::Spend::Low)): a request to send, for which no check waits.
    pub fn low(&mut self, balance: &Balance, now: Micros) -> Option<LeaseRequest> {
        let State::Held { holder, generation } = &mut self.state else { return None };
        holder.low(balance, now).map(|renewal| request(&renewal, *generation, 0))
    }

    /// To be called every few milliseconds, at least four times while a lease lasts.
    pub fn due(&mut self, balance: &Balance, now: Micros) -> Option<LeaseRequest> {
        let State::Held { holder, generation } = &mut self.state else { return None };
        holder.due(balance, now).map(|renewal| request(&renewal, *generation, 0))
    }

    /// An ordinary check was answered.
    pub fn checked(&mut self, cost: i64, is_refused: bool, sent: Micros, now: Micros) {
        if let State::Held { holder, .. } = &mut self.state
            && is_refused
        {
            holder.refused(cost, sent, now);
        }
    }

    /// A request was answered: a request to send, which gives back what was held under other terms. Its answer may be told
    /// like all others, or not.
    pub fn answered(&mut self, balance: &Balance, answer: &LeaseAnswer, now: Micros) -> Option<LeaseRequest> {
        if answer.lease != self.lease || matches!(self.state, State::Cold { .. }) {
            return None;
        }
        let mut given_back = None;
        if let State::Held { holder, generation } = &mut self.state {
            match (&answer.grant, &answer.offer) {
                (_, Some(offer)) if offer.generation != *generation => {
                    given_back = holder.close(balance, now).map(|renewal| request(&renewal, *generation, 0));
                }
                (Some(grant), _) => {
                    holder.answered(balance, grant, answer.is_refused, now);
                    return None;
                }
                (None, Some(_)) => {
                    holder.lost(balance, answer.sequence);
                    return None;
                }
                // It is not renewed any more, and burns.
                (None, None) => {
                    holder.close(balance, now);
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
        given_back
    }

    fn forget(&mut self, quiet_until: Micros) {
        (self.state, self.quiet_until) = (Self::default().state, quiet_until);
    }

    /// A request will not be answered, or was answered by an error. Whether it was served is not known, and need not be.
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

    /// The client ends: a request that gives back what is held. The lease is as new afterwards.
    pub fn close(&mut self, balance: &Balance, now: Micros) -> Option<LeaseRequest> {
        let given_back = match &mut self.state {
            State::Held { holder, generation } => holder.close(balance, now).map(|it| request(&it, *generation, 0)),
            _ => None,
        };
        self.forget(Micros::MIN);
        given_back
    }

    /// Whether it may be forgotten.
    pub fn is_idle(&mut self, balance: &Balance, now: Micros) -> bool {
        match &mut self.state {
            State::Held { holder, .. } => holder.is_idle(balance, now),
            State::Requested { sent, .. } => now >= *sent + ASK_AGAIN_AFTER,
            State::Cold { slot, .. } => *slot != now.div_euclid(SLOT) && now >= self.quiet_until,
        }
    }
}

impl Offer {
    /// An offer with these terms.
    pub fn new(generation: u64, ttl: Micros, hold_off: Micros, scarce: u64) -> Self {
        Self { generation, terms: Terms { hold_off, scarce, ..Terms::lasting(ttl) } }
    }
}

fn request(renewal: &Renewal, generation: u64, cost: i64) -> LeaseRequest {
    let Renewal { id, sequence, spent, kept, want, .. } = *renewal;
    LeaseRequest { lease: id.number, sequence, spent, kept, want, generation, cost }
}
