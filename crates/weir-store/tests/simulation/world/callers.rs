//! Callers with several requests: retries with the same ID, extensions and settlements, on any replica.

use std::sync::Arc;

use weir_core::{
    domain::{Key, Micros},
    hold::{OnExpiry, ReservationStep},
};

use super::World;
use crate::{
    case::Scene,
    event::Event,
    replica::{Answer, Check, Kind, Outcome},
};

/// Units that a reservation holds, and units that it uses.
pub const HELD: i64 = 10;
pub const USED: u64 = 3;
/// TTL of a reservation.
const TTL: Micros = 200_000;
/// Number of attempts after which a caller gives up.
const ATTEMPTS: u64 = 12;

pub struct Caller {
    user: usize,
    key: Key,
    stage: Stage,
    /// Number of attempts at this stage; timeouts of earlier attempts are ignored.
    attempts: u64,
    is_answered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Sends a check with an ID, or a reservation.
    Asks,
    /// Holds units or a slot until this time.
    Holds { until: Micros },
    /// Extends the reservation.
    Extends,
    /// Settles the reservation.
    Settles,
    /// Has completed, has given up, or has died.
    Done,
}

impl World {
    /// Starts a new caller at this replica.
    pub fn call(&mut self, number: u64, user: usize, key: Key, seat: usize) {
        self.callers.insert(number, Caller { user, key, stage: Stage::Asks, attempts: 0, is_answered: true });
        self.attempt(number, seat);
    }

    /// Sends the next request of a caller.
    fn attempt(&mut self, number: u64, seat: usize) {
        let release = self.case.scene == Scene::Slots || number.is_multiple_of(2);
        let on_expiry = if release { OnExpiry::Release } else { OnExpiry::Keep };
        let Some(caller) = self.callers.get_mut(&number) else { return };
        let kind = match caller.stage {
            Stage::Asks if self.case.scene == Scene::Repeated => Kind::Identified,
            Stage::Asks => Kind::Reservation(ReservationStep::Reserve { ttl: TTL, on_expiry }, HELD),
            Stage::Extends => Kind::Reservation(ReservationStep::Extend { ttl: TTL }, HELD),
            Stage::Settles => Kind::Reservation(ReservationStep::Commit { actual: USED }, HELD),
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

    /// Continues with a caller whose timeout or holding time is over.
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
            // A slot is not requested again: the caller would take another one.
            Stage::Asks if self.case.scene != Scene::Repeated => caller.stage = Stage::Done,
            _ if caller.is_answered || caller.attempts >= ATTEMPTS => caller.stage = Stage::Done,
            _ => {}
        }
        let seat = self.random.below(self.seats.len());
        self.attempt(number, seat);
        self.drive(seat);
    }

    /// Handles an answer to a caller.
    pub fn answered(&mut self, answer: &Answer) {
        let Some(caller) = self.callers.get_mut(&answer.check).filter(|caller| !caller.is_answered) else { return };
        match (caller.stage, &answer.outcome) {
            (Stage::Asks | Stage::Extends, Outcome::Held { lasts }) => {
                let until = answer.started + lasts;
                (caller.stage, caller.attempts, caller.is_answered) = (Stage::Holds { until }, 0, true);
                self.record.held(answer, until);
                let holds = self.random.within(0, TTL);
                self.after(holds, Event::Again(answer.check, 0));
            }
            // The caller retries after its timeout.
            (_, Outcome::Failed(_) | Outcome::Degraded { .. }) => {}
            (_, _) => (caller.stage, caller.is_answered) = (Stage::Done, true),
        }
    }
}
