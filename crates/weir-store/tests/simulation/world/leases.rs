//! Clients that hold leases: they decide locally, and renew through any replica.

use std::sync::Arc;

use weir_core::{
    domain::{Key, Micros},
    hold::{Balance, CheckAction, ClientLease, HoldId, LeaseRequest, Spend},
};

use super::World;
use crate::{
    event::Event,
    replica::{Answer, Check, Kind, Outcome},
};

/// One client process.
pub struct LeaseClient {
    owner: u64,
    /// Clock drift in parts per million.
    drift: i64,
    /// The leases by user.
    leases: Vec<(ClientLease, Balance)>,
}

impl LeaseClient {
    fn now(&self, now: Micros) -> Micros {
        now + now * self.drift / 1_000_000
    }
}

/// A request for which a client awaits an answer.
#[derive(Clone, Copy)]
pub struct Asked {
    owner: u64,
    user: usize,
    sent: Micros,
    /// `None`: an ordinary check.
    request: Option<LeaseRequest>,
    is_repeated: bool,
}

impl World {
    /// Starts a client.
    pub fn start_client(&mut self) {
        let drift = if self.case.faults.drift { self.random.within(-4_900, 4_900) } else { 0 };
        let leases = (0..self.case.users).map(|_| Default::default()).collect();
        let owner = self.random.within(1, i64::MAX).unsigned_abs();
        self.clients.push(LeaseClient { owner, drift, leases });
    }

    /// Kills a client and starts another one.
    pub fn kill_client(&mut self) {
        if !self.clients.is_empty() {
            let at = self.random.below(self.clients.len());
            self.clients.swap_remove(at);
            self.start_client();
            self.record.fault("client killed");
        }
    }

    /// Lets one client check a user's key, with requests to this replica if it needs any.
    pub fn check_by_client(&mut self, number: u64, user: usize, seat: usize) {
        let at = self.random.below(self.clients.len());
        let client = &mut self.clients[at];
        let (now, owner) = (client.now(self.now), client.owner);
        let (lease, balance) = &mut client.leases[user];
        let request = match balance.spend(1, now) {
            Spend::Spent => None,
            Spend::Low => lease.low(balance, now),
            Spend::Short => {
                let request = match lease.short(balance, 1, now) {
                    CheckAction::Refuse { .. } => {
                        return self.decided(number, user, owner, Outcome::Refused { leased: true });
                    }
                    CheckAction::Check => None,
                    CheckAction::Request(request) => Some(request),
                };
                let asked = Asked { owner, user, sent: now, request, is_repeated: false };
                return self.send_to(number, asked, seat);
            }
        };
        self.decided(number, user, owner, Outcome::Admitted { at: self.now, leased: true });
        self.renew(owner, user, request);
    }

    fn decided(&mut self, check: u64, user: usize, owner: u64, outcome: Outcome) {
        let answer = Answer { check, user, started: self.now, ended: self.now, outcome, lease: None };
        self.record.covered(owner, &answer, &self.redis);
        self.record.answer(owner, answer);
    }

    /// Sends all due renewals.
    pub fn tick_clients(&mut self) {
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            let (now, owner) = (client.now(self.now), client.owner);
            let due = |(lease, balance): &mut (ClientLease, Balance)| lease.due(balance, now);
            let requests: Vec<_> = client.leases.iter_mut().map(due).collect();
            requests.into_iter().enumerate().for_each(|(user, request)| self.renew(owner, user, request));
        }
    }

    /// Sends a request that no check waits for.
    fn renew(&mut self, owner: u64, user: usize, request: Option<LeaseRequest>) {
        if request.is_some() {
            self.checks += 1;
            let seat = self.random.below(self.seats.len());
            self.send_to(self.checks, Asked { owner, user, sent: self.now, request, is_repeated: false }, seat);
        }
    }

    fn send_to(&mut self, number: u64, asked: Asked, seat: usize) {
        self.asked.insert(number, asked);
        self.after(2 * self.case.command_timeout, Event::Late(number));
        if asked.request.is_some() && !asked.is_repeated && self.chance(self.case.end_stream) {
            let soon = self.random.within(0, 4 * self.case.latency);
            self.after(soon, Event::Late(number));
            self.record.fault("request for a lease sent again");
        }
        if !self.is_running(seat) || self.seats[seat].draining_since.is_some() {
            return;
        }
        let Asked { owner, user, request, .. } = asked;
        let key = Key::new("", &["t", &format!("u{user}")]).expect("a key");
        let kind = request.map_or(Kind::Plain, |request| {
            let number = request.lease * self.case.users as u64 + user as u64;
            Kind::Lease(request, HoldId { owner, number })
        });
        let (policy, clock) = (Arc::clone(&self.policy), Arc::clone(&self.clock));
        if let Some(replica) = &mut self.seats[seat].replica {
            replica.check(Check { number, user, key, kind, policy, clock });
        }
    }

    /// Handles a client's timeout: the same request is sent to another replica, once.
    pub fn late(&mut self, number: u64) {
        let Some(asked) = self.asked.remove(&number) else { return };
        if let Some(LeaseRequest { lease, sequence, .. }) = asked.request {
            let seat = self.random.below(self.seats.len());
            if !asked.is_repeated {
                self.send_to(number, Asked { is_repeated: true, ..asked }, seat);
                return self.drive(seat);
            }
            if let Some((client, now)) = self.client(asked.owner) {
                let (machine, balance) = &mut client.leases[asked.user];
                machine.lost(balance, lease, sequence, now);
            }
        }
    }

    /// Handles an answer to a client. Returns whether the client was waiting for it.
    pub fn told(&mut self, answer: &Answer) -> bool {
        let Some(Asked { owner, user, sent, .. }) = self.asked.remove(&answer.check) else { return false };
        let grant = answer.lease.as_ref().and_then(|lease| lease.grant);
        self.record.figures.granted += grant.map_or(0, |grant| grant.units);
        let Some((client, now)) = self.client(owner) else { return false };
        let (machine, balance) = &mut client.leases[user];
        let returned = match &answer.lease {
            Some(lease) => machine.answered(balance, lease, now),
            None => {
                let is_refused = matches!(answer.outcome, Outcome::Refused { .. });
                machine.checked(1, is_refused, sent, now);
                None
            }
        };
        self.renew(owner, user, returned);
        true
    }

    /// Returns the client of this owner, if it is running, and its time.
    fn client(&mut self, owner: u64) -> Option<(&mut LeaseClient, Micros)> {
        let now = self.now;
        let client = self.clients.iter_mut().find(|client| client.owner == owner)?;
        let now = client.now(now);
        Some((client, now))
    }
}
