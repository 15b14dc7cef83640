//! Faults of replicas, and planned events: resets, new policies, drains.

use std::sync::Arc;

use weir_core::domain::{Key, time::SECOND};

use super::{Seat, World};
use crate::{
    event::{Event, Fault},
    replica::START,
};

impl World {
    pub fn drain(&mut self, seat: usize) {
        if self.seats[seat].replica.is_some() {
            self.seats[seat].draining_since.get_or_insert(self.now);
        }
    }

    pub fn stop_if_drained(&mut self, seat: usize) -> Result<(), String> {
        let Seat { draining_since: Some(since), troubled_until, life, .. } = self.seats[seat] else { return Ok(()) };
        let Some(replica) = &mut self.seats[seat].replica else { return Ok(()) };
        replica.finish();
        if !replica.has_finished() {
            return Ok(());
        }
        self.record.is_unknown(life, replica.units_of_unknown_fate());
        let lost = replica.lost_at_the_end();
        if troubled_until < since && self.redis.is_well() && lost > 0 {
            return Err(format!("{}: stopped since {since}, it has lost {lost} units of an outage", self.now));
        }
        if troubled_until + SECOND / 2 < since && self.redis.is_well() {
            let owner = replica.owner().to_be_bytes();
            let held = self.redis.keyspace.borrow().held();
            let held = held.iter().filter(|held| held.units > 0 && held.deadline > START + self.now);
            let left: u64 = held.filter(|held| held.id.starts_with(&owner)).map(|held| held.units).sum();
            // Units spent since the last renewal are charged at the deadline.
            let spent = self.record.leased_since(life, self.now - self.case.ttl);
            if left > spent * self.case.levels.len() as u64 {
                return Err(format!(
                    "{}: stopped since {since}, it has not given back {left}, {spent} spent",
                    self.now
                ));
            }
            self.record.clean_stop();
        }
        self.end(seat, true);
        if !self.is_healed {
            self.after(10_000, Event::Resume(seat));
        }
        Ok(())
    }

    /// Ends a replica. If its machine survives, its connections are closed.
    fn end(&mut self, seat: usize, closes: bool) {
        let Some(replica) = &mut self.seats[seat].replica else { return };
        replica.kill();
        let calls = replica.machine.take_last_calls();
        if closes {
            self.carry_out(seat, calls);
        }
        let place = &mut self.seats[seat];
        (place.replica, place.draining_since, place.kept_waiting) = (None, None, 0);
    }

    pub fn fault(&mut self, fault: Fault) {
        let seat = self.random.below(self.seats.len());
        match fault {
            Fault::Cut => {
                let time = self.random.within(1_000, 600_000);
                self.seats[seat].cut_until = self.now + time;
                self.trouble(seat, time);
                self.record.fault("partition");
            }
            Fault::Pause => {
                let time = self.random.within(1_000, 600_000);
                self.seats[seat].paused_until = self.now + time;
                self.trouble(seat, time);
                self.after(time, Event::Resume(seat));
                self.record.fault(if time > self.case.ttl { "pause longer than a ttl" } else { "pause" });
            }
            Fault::Crash => {
                let (closes, time) = (self.random.once_in(2), self.random.within(0, 300_000));
                self.end(seat, closes);
                self.seats[seat].paused_until = 0;
                self.after(time, Event::Resume(seat));
                self.record.fault(if closes { "process killed" } else { "machine lost" });
                self.kill_client();
            }
            Fault::Drain => {
                self.drain(seat);
                self.record.fault("drain");
            }
            Fault::Reset => self.reset(seat),
            Fault::NewPolicy => {
                self.policy = Arc::new(self.case.policy(self.policy.version + 1));
                if let Some((definition, within)) = self.case.changed(self.policy.version) {
                    self.record.changed(self.now, definition, within);
                }
                // Units held under the old policy are not refunded.
                (0..self.seats.len()).for_each(|seat| self.trouble(seat, self.case.ttl));
                self.record.fault("new policy");
            }
            Fault::StoreStops => self.stop_store(),
            Fault::MoveSlots => self.move_slots(),
        }
        let mut intervals = self.case.faults.intervals().into_iter();
        if let Some((_, every)) = intervals.find(|(other, _)| *other == fault) {
            self.fault_after(every, fault);
        }
    }

    fn reset(&mut self, seat: usize) {
        if !self.is_running(seat) || self.seats[seat].draining_since.is_some() {
            return;
        }
        // A reset above the anchor discards holds.
        let depth = if self.case.anchor == 1 { 1 + self.random.below(2) } else { 2 };
        let (user, subtree) = (self.random.below(self.case.users), self.random.once_in(2));
        let segments = ["t".to_owned(), format!("u{user}")];
        let segments: Vec<_> = segments.iter().take(depth).map(String::as_str).collect();
        let key = Key::new("", &segments).expect("a key");
        if let Some(replica) = &self.seats[seat].replica {
            replica.reset(key, self.case.anchor, subtree);
        }
        self.record.fault("reset");
        self.drive(seat);
    }
}
