//! Replicas, their callers, the store and the network between them, in virtual time on one thread. One seed determines
//! all events.

mod callers;
mod failovers;
mod faults;
mod leases;
mod servers;
mod transport;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use weir_core::{
    domain::{Key, Micros, time::SECOND},
    testing::Random,
};

pub use self::callers::{HELD, USED};
use self::{
    callers::Caller,
    leases::{Asked, LeaseClient},
    transport::Connection,
};
use super::{
    case::{Case, Policy},
    event::{Event, Expected, Fault},
    network::Simulated,
    record::{MOST_TTL, Record},
    redis::Redis,
    replica::{Check, Kind, Replica, START},
    topology::Topology,
};

/// Maximum number of checks that wait for a paused replica.
const MAX_KEPT_WAITING: usize = 200;
/// Resolution of virtual time, like the runtimes' timers.
const TICK: Micros = 1_000;
/// Time from the last fault to the first checks of the recovery, which still meet dead connections.
const RECOVERY: Micros = SECOND;
/// Number of checks during the recovery, their interval, and the number of first ones that the store need not decide.
const FINAL_CHECKS: u64 = 50;
const FINAL_CHECK_INTERVAL: Micros = 50_000;
const MAY_FAIL: u64 = 40;
/// Time from the last fault until all limits have recovered from the checks before: the longest TTL of a hold, and a
/// second.
const RECOVERED: Micros = RECOVERY + FINAL_CHECKS as Micros * FINAL_CHECK_INTERVAL + MOST_TTL + SECOND;
/// Time for the recovery and the end.
const STOPPING: Micros = RECOVERED + 3 * SECOND;

/// A slot for a replica process, possibly empty.
#[derive(Default)]
pub struct Seat {
    pub replica: Option<Replica>,
    pub life: u64,
    rate: i64,
    paused_until: Micros,
    /// Checks that arrived while the replica was paused.
    kept_waiting: usize,
    cut_until: Micros,
    /// The time until which messages may be late or lost.
    troubled_until: Micros,
    draining_since: Option<Micros>,
}

pub struct World {
    pub case: Case,
    pub random: Random,
    pub now: Micros,
    clock: Arc<AtomicI64>,
    /// By time, and at equal times in the order of scheduling.
    events: BTreeMap<(Micros, u64), Event>,
    number: u64,
    pub seats: Vec<Seat>,
    connections: BTreeMap<u64, Connection>,
    pub redis: Redis,
    /// Whether a failover is scheduled.
    fails_over: bool,
    /// The time at which a key last moved between servers.
    moved_at: Micros,
    pub policy: Arc<Policy>,
    lives: u64,
    checks: u64,
    callers: BTreeMap<u64, Caller>,
    clients: Vec<LeaseClient>,
    asked: BTreeMap<u64, Asked>,
    is_healed: bool,
    /// The steps of a directed test.
    directed: Vec<fn(&mut Self)>,
    pub record: Record,
}

impl World {
    pub fn new(case: Case, random: &Random) -> Self {
        let mut world = Self {
            redis: Redis::new(case.topology, random.fork(1)),
            record: Record::new(&case),
            policy: Arc::new(case.policy(1)),
            random: random.fork(2),
            seats: (0..case.replicas).map(|_| Seat::default()).collect(),
            case,
            now: 0,
            clock: Arc::default(),
            events: BTreeMap::new(),
            number: 0,
            connections: BTreeMap::new(),
            fails_over: false,
            moved_at: 0,
            lives: 0,
            checks: 0,
            callers: BTreeMap::new(),
            clients: Vec::new(),
            asked: BTreeMap::new(),
            is_healed: false,
            directed: Vec::new(),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        (0..self.case.clients).for_each(|_| self.start_client());
        for seat in 0..self.seats.len() {
            let first = self.random.within(0, 1_000);
            self.after(first, Event::Resume(seat));
            self.after(first + 1_000, Event::Check(seat));
        }
        self.after(TICK, Event::Tick);
        self.after(0, Event::Load);
        for (fault, every) in self.case.faults.intervals() {
            self.fault_after(every, fault);
        }
        if !self.case.recovers {
            return;
        }
        self.after(self.case.length, Event::Heal);
        for number in 0..FINAL_CHECKS {
            let after = RECOVERY + number as Micros * FINAL_CHECK_INTERVAL;
            let expected = if number < MAY_FAIL { Expected::Anything } else { Expected::Decision };
            self.after(self.case.length + after, Event::LastChecks(expected));
        }
        self.after(self.case.length + RECOVERED, Event::LastChecks(Expected::Admission));
        self.after(self.case.length + RECOVERED + SECOND, Event::Stop);
    }

    /// Runs to the end, or to the first violation that is detected immediately.
    pub fn run(mut self) -> Result<Record, String> {
        let end = self.case.length + if self.case.recovers { STOPPING + SECOND } else { 0 };
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > end {
                break;
            }
            self.proceed(at);
            self.record.event(self.now, event);
            self.handle(event)?;
            self.record.violation()?;
            self.redis.violation()?;
        }
        self.record.judge(&self.redis, &self.case)?;
        Ok(self.record)
    }

    /// Advances the clock: no two events have the same time.
    fn proceed(&mut self, at: Micros) {
        self.now = at.max(self.now + 1);
        self.clock.store(self.now, Relaxed);
    }

    pub fn after(&mut self, delay: Micros, event: Event) {
        self.number += 1;
        self.events.insert((self.now + delay, self.number), event);
    }

    fn fault_after(&mut self, every: Micros, fault: Fault) {
        if every > 0 && !self.is_healed {
            let delay = self.random.within(every / 2, every * 3 / 2);
            self.after(delay, Event::Fault(fault));
        }
    }

    fn chance(&mut self, times: u32) -> bool {
        times > 0 && !self.is_healed && self.random.once_in(times)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick => return self.tick(),
            Event::Check(seat) => self.check(seat),
            Event::Again(number, attempt) => self.again(number, attempt),
            Event::Late(number) => self.late(number),
            Event::Load => {
                for seat in 0..self.seats.len() {
                    self.seats[seat].rate = self.random.pick(&self.case.rates.clone());
                }
                let next = self.random.within(20_000, 150_000);
                self.after(next, Event::Load);
            }
            Event::Dialed(id) => self.dialed(id),
            Event::Up(id) => self.up(id),
            Event::Down(id) => self.down(id),
            Event::Resume(seat) => self.resume(seat),
            Event::Fault(fault) if !self.is_healed => self.fault(fault),
            Event::Fault(_) => {}
            Event::Server(step) => self.server(step),
            Event::Directed(index) => self.directed[index](self),
            Event::Heal => {
                self.is_healed = true;
                if self.case.topology == Topology::Alone {
                    self.redis.servers[0].is_up = true;
                }
                for seat in 0..self.seats.len() {
                    (self.seats[seat].cut_until, self.seats[seat].paused_until) = (0, 0);
                    self.resume(seat);
                }
                let proceeds = |seat: &&Seat| seat.draining_since.is_none();
                self.record.healed(self.seats.iter().filter(proceeds).map(|seat| seat.life));
            }
            Event::LastChecks(expected) => {
                for seat in 0..self.seats.len() {
                    self.resume(seat);
                    self.record.expect(self.checks + 1, expected);
                    self.ask(seat);
                }
            }
            Event::Stop => (0..self.seats.len()).for_each(|seat| self.drain(seat)),
        }
        Ok(())
    }

    fn is_running(&self, seat: usize) -> bool {
        self.seats[seat].replica.is_some() && self.seats[seat].paused_until <= self.now
    }

    /// Runs a replica up to the current time.
    fn drive(&mut self, seat: usize) {
        if !self.is_running(seat) {
            return;
        }
        let Some(replica) = &mut self.seats[seat].replica else { return };
        replica.run_until(self.now);
        let (answers, owner) = (replica.take_answers(), replica.owner());
        let life = self.seats[seat].life;
        for answer in answers {
            if !self.clients.is_empty() && !self.told(&answer) {
                continue;
            }
            self.record.covered(owner, &answer, &self.redis);
            self.answered(&answer);
            self.record.answer(life, answer);
        }
        self.collect(seat);
    }

    fn tick(&mut self) -> Result<(), String> {
        for seat in 0..self.seats.len() {
            self.drive(seat);
            self.stop_if_drained(seat)?;
        }
        self.tick_clients();
        self.redis.keyspace.borrow_mut().trim();
        self.after(if self.is_healed { 5 * TICK } else { TICK }, Event::Tick);
        Ok(())
    }

    fn check(&mut self, seat: usize) {
        let rate = self.seats[seat].rate;
        if self.is_healed {
            return;
        }
        if rate == 0 || self.seats[seat].replica.is_none() || self.seats[seat].draining_since.is_some() {
            return self.after(5_000, Event::Check(seat));
        }
        let gap = self.random.within(0, 2_000_000 / rate);
        self.after(gap, Event::Check(seat));
        if !self.is_running(seat) {
            // The operating system buffers requests until the process continues.
            self.seats[seat].kept_waiting += usize::from(self.seats[seat].kept_waiting < MAX_KEPT_WAITING);
            return;
        }
        self.ask(seat);
        if self.chance(self.case.faults.abandon) {
            let index = self.random.below(1_000);
            if let Some(replica) = &mut self.seats[seat].replica {
                replica.abandon(index);
            }
            self.trouble(seat, 2 * self.case.ttl);
            self.record.fault("abandoned call");
        }
    }

    fn ask(&mut self, seat: usize) {
        self.begin_check(seat);
        self.drive(seat);
    }

    fn begin_check(&mut self, seat: usize) {
        let user = self.random.below(self.case.users);
        self.begin_check_of(user, seat);
    }

    fn begin_check_of(&mut self, user: usize, seat: usize) {
        self.checks += 1;
        let number = self.checks;
        let key = match self.case.scene {
            scene if scene.has_own_keys() => Key::new("", &["c", &number.to_string()]),
            _ => Key::new("", &["t", &format!("u{user}")]),
        };
        let key = key.expect("a key");
        self.record.asked(number, user, &key, self.now);
        if self.case.scene.has_callers() {
            return self.call(number, user, key, seat);
        }
        if !self.clients.is_empty() {
            return self.check_by_client(number, user, seat);
        }
        let (policy, clock) = (Arc::clone(&self.policy), Arc::clone(&self.clock));
        if let Some(replica) = &mut self.seats[seat].replica {
            replica.check(Check { number, user, key, kind: Kind::Plain, policy, clock });
        }
    }

    /// Continues a paused replica, or starts a new one in place of one that has ended.
    fn resume(&mut self, seat: usize) {
        if self.seats[seat].replica.is_none() {
            self.lives += 1;
            let lead = self.random.within(-10 * SECOND, 10 * SECOND);
            let random = self.random.fork(1_000 + self.lives);
            let machine = Simulated::new(START + self.now + lead, self.lives << 20, random);
            let drift = if self.case.faults.drift { self.random.within(-9_900, 9_900) } else { 0 };
            let replica = Replica::start(&self.case, machine, self.now, drift);
            let place = &mut self.seats[seat];
            (place.replica, place.life, place.draining_since) = (Some(replica), self.lives, None);
        } else if self.is_running(seat) {
            for _ in 0..std::mem::take(&mut self.seats[seat].kept_waiting) {
                self.begin_check(seat);
            }
        }
        self.drive(seat);
    }
}
