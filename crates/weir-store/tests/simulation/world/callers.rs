//! Callers that come back: with an id for which they have no answer, or with what they hold, to whichever replica is there.

use std::sync::Arc;

use weir_core::{
    domain::{Key, Micros},
    hold::{OnExpiry, Step},
};

use super::World;
use crate::{
    case::Scene,
    event::Event,
    replica::{Answer, Check, Kind, Outcome},
};

/// Units that a reservation holds, and those that it uses.
pub const HELD: i64 = 10;
pub const USED: u64 = 3;
/// How long it is to be held.
const TTL: Micros = 200_000;
/// After so many attempts a caller gives up.
const ATTEMPTS: u64 = 12;

/// One caller.
pub struct Caller {
    user: usize,
    key: Key,
    stage: Stage,
    /// The attempts at this stage; one that is overtaken is not waited for.
    attempts: u64,
    is_answered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Asks, with an id, or for a reservation.
    Asks,
    /// Holds what it was given until then.
    Holds { until: Micros },
    /// Asks for a reservation to be held for longer.
    Extends,
    /// Settles its reservation.
    Settles,
    /// Has all that it wanted, has given up, or died.
    Done,
}

impl World {
    /// A new caller asks at this place.
    pub fn call(&mut self, number: u64, user: usize, key: Key, seat: usize) {
        self.callers.insert(number, Caller { user, key, stage: Stage::Asks, attempts: 0, is_answered: true });
        self.attempt(number, seat);
    }

    /// One attempt at what a caller wants next.
    fn attempt(&mut self, number: u64, seat: usize) {
        let release = self.case.scene == Scene::Slots || number.is_multiple_of(2);
        let on_expiry = if release { OnExpiry::Release } else { OnExpiry::Keep };
        let Some(caller) = self.callers.get_mut(&number) else { return };
        let kind = match caller.stage {
            Stage::Asks if self.case.scene == Scene::Repeated => Kind::Identified,
            Stage::Asks => Kind::Reservation(Step::Reserve { ttl: TTL, on_expiry }, HELD),
            Stage::Extends => Kind::Reservation(Step::Extend { ttl: TTL }, HELD),
            Stage::Settles => Kind::Reservation(Step::Commit { actual: USED }, HELD),
            Stage::Holds { .. } | Stage::Done => return,
        };
        caller.attempts += 1;
        caller.is_answered = false;
        if caller.stage == Stage::Settles {
            self.record.released(number, self.now);
        }
        let (attempts, user, key) = (caller.attempts, caller.user, caller.key.clone());
        self.after(2 * self.case.command_timeout, Event::Again(number, attempts));
        let (policy, clock) = (Arc::clone(&self.policy), Arc::clone(&self.clock));
        if !self.is_running(seat) || self.seats[seat].draining_since.is_some() {
            return;
        }
        if let Some(replica) = &mut self.seats[seat].replica {
            replica.check(Check { number, user, key, kind, policy, clock });
        }
    }

    /// A caller has waited, or held what it has for a while.
    pub fn again(&mut self, number: u64, attempt: u64) {
        let Some(caller) = self.callers.get_mut(&number) else { return };
        if caller.attempts != attempt {
            return;
        }
        match caller.stage {
            Stage::Holds { until } => {
                let dies = self.random.once_in(6);
                let next = if dies || self.now >= until {
                    Stage::Done
                } else if self.random.once_in(3) {
                    Stage::Extends
                } else {
                    Stage::Settles
                };
                (caller.stage, caller.attempts) = (next, 0);
            }
            // What holds slots does not ask for them again: it would take others.
            Stage::Asks if self.case.scene != Scene::Repeated => caller.stage = Stage::Done,
            _ if caller.is_answered || caller.attempts >= ATTEMPTS => caller.stage = Stage::Done,
            _ => {}
        }
        let seat = self.random.below(self.seats.len());
        self.attempt(number, seat);
        self.drive(seat);
    }

    /// What a caller makes of its answer.
    pub fn answered(&mut self, answer: &Answer) {
        let Some(caller) = self.callers.get_mut(&answer.check).filter(|caller| !caller.is_answered) else { return };
        match (caller.stage, &answer.outcome) {
            (Stage::Asks | Stage::Extends, Outcome::Held { lasts }) => {
                let until = answer.began + lasts;
                (caller.stage, caller.attempts, caller.is_answered) = (Stage::Holds { until }, 0, true);
                self.record.held(answer, until);
                let holds = self.random.within(0, TTL);
                self.after(holds, Event::Again(answer.check, 0));
            }
            // It is tried again when the time of the attempt is over.
            (_, Outcome::Failed(_) | Outcome::Degraded { .. }) => {}
            (_, _) => (caller.stage, caller.is_answered) = (Stage::Done, true),
        }
    }
}
