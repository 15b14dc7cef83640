//! Faults of servers: restarts, failovers with Sentinels and in a Cluster, and slot migrations.

use weir_core::domain::{Key, Micros, time::SECOND};

use super::World;
use crate::{
    event::{Event, Step},
    network::State,
    redis::{MAX_LAG, Migration, PREFIX, Role, announcement},
    replica::START,
    topology::Topology,
};

/// Time after a failover for which replicas may still be affected by it.
const UNSETTLED: Micros = 2 * SECOND;
/// Number of slots that migrate together, on each side of a key's slot.
const WIDTH: u16 = 3_000;

impl World {
    pub fn stop_store(&mut self) {
        match self.case.topology {
            Topology::Alone => self.restart_store(),
            Topology::Sentinels | Topology::Cluster(_) => self.fail_over(),
        }
    }

    fn restart_store(&mut self) {
        let downtime = self.random.pick(&[1_000, 30_000, 300_000, 1_000_000]);
        self.stop_server(0, downtime);
        if !self.chance(self.case.faults.lose_data) {
            self.record.fault("store starts with its data");
            return self.redis.restart(0, None);
        }
        let lag = self.random.magnitude(MAX_LAG);
        let all = self.random.once_in(3);
        self.record.fault(if all { "store starts without data" } else { "store starts without the last writes" });
        let since = (!all).then_some(self.now - lag);
        let held = self.redis.keyspace.borrow().held_at(0);
        self.redis.restart(0, Some(since.map(|since| START + since)));
        self.record.lost(self.now, (0, 0), since, &held, &self.redis);
    }

    fn stop_server(&mut self, server: usize, downtime: Micros) {
        let is_silent = self.random.once_in(3);
        (self.redis.servers[server].is_up, self.redis.servers[server].is_silent) = (false, is_silent);
        (0..self.seats.len()).for_each(|seat| self.trouble(seat, downtime));
        self.end_connections(server, !is_silent);
        self.after(downtime, Event::Server(Step::Start(server)));
    }

    pub fn end_connections(&mut self, server: usize, tells: bool) {
        let is_open = |connection: &super::Connection| connection.is_open && connection.session.server == server;
        let open: Vec<_> =
            self.connections.iter().filter(|(_, connection)| is_open(connection)).map(|(id, _)| *id).collect();
        for id in open {
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_open = false;
                connection.received.clear();
            }
            if tells {
                self.send_down(id, Err(State::Reset));
            }
        }
    }

    /// Picks a master and its replica, if the replica can take over.
    fn master_and_replica(&mut self) -> Option<(usize, usize)> {
        let servers = &self.redis.servers;
        let masters: Vec<_> = (0..servers.len()).filter(|server| servers[*server].role == Role::Master).collect();
        let master = self.random.pick(&masters);
        let replica = self.redis.slots.as_ref().map_or(1 - master.min(1), |slots| slots.other(master));
        let [from, to] = [master, replica].map(|server| &self.redis.servers[server]);
        let is_moving = self.redis.slots.as_ref().is_some_and(|slots| slots.migration.is_some());
        // The Sentinels agree on one failover before the next.
        let is_agreed = self.redis.sentinels().all(|it| self.redis.servers[it].role == Role::Sentinel(master));
        let is_free = !self.fails_over && !is_moving && is_agreed;
        let is_possible = is_free && from.is_up && to.is_up && to.role == Role::Replica;
        is_possible.then_some((master, replica))
    }

    fn fail_over(&mut self) {
        let Some((from, to)) = self.master_and_replica() else { return };
        self.fails_over = true;
        (0..self.seats.len()).for_each(|seat| self.trouble(seat, UNSETTLED));
        let loses = self.case.faults.lose_data > 0;
        let lag = if self.chance(self.case.faults.lose_data) { self.random.magnitude(MAX_LAG) } else { 0 };
        let (is_cluster, is_planned) = (self.redis.slots.is_some(), self.random.once_in(2));
        let promote = |lag| Event::Server(Step::Promote { from, to, lag });
        if is_planned && is_cluster {
            // The master delays all commands until its replica has all data.
            let time = self.random.within(1_000, 50_000);
            self.redis.servers[from].held_until = self.now + time + 1;
            self.after(time, promote(0));
            self.after(time, Event::Server(Step::Demote(from)));
            self.record.fault("planned failover of a Cluster");
        } else if is_planned || loses && self.random.once_in(3) {
            let (before, after) = if is_cluster { (300_000, 300_000) } else { (5_000, 3 * SECOND) };
            let promoted = self.random.within(0, before);
            self.after(promoted, promote(lag));
            let demoted = promoted + self.random.within(1_000, after);
            self.after(demoted, Event::Server(Step::Demote(from)));
            self.record.fault("failover of a master that lives");
        } else {
            let promoted = self.random.within(100_000, 600_000);
            let started = promoted + self.random.within(1_000, 600_000);
            self.stop_server(from, started);
            self.after(promoted, promote(lag));
            // The restarted server acts as master until it is demoted; in a Cluster it is demoted before it serves.
            let demoted = if is_cluster { started } else { started + self.random.within(1_000, 300_000) };
            self.after(demoted - 1, Event::Server(Step::Demote(from)));
            self.record.fault("failover of a master that is gone");
        }
    }

    pub fn server(&mut self, step: Step) {
        match step {
            Step::Start(server) => self.redis.servers[server].is_up = true,
            Step::Promote { from, to, lag } => {
                self.promote(from, to, lag);
                if self.redis.slots.is_some() { self.tell_nodes() } else { self.tell_sentinels(from, to) }
            }
            Step::Name { sentinel, master } => self.redis.servers[sentinel].role = Role::Sentinel(master),
            Step::Demote(server) => {
                self.redis.servers[server].role = Role::Replica;
                if let Some(slots) = &mut self.redis.slots {
                    slots.learn(server);
                } else if self.random.once_in(2) {
                    self.end_connections(server, true);
                }
            }
            Step::Learn(node) => {
                if let Some(slots) = &mut self.redis.slots {
                    slots.learn(node);
                }
            }
            Step::MoveKey => self.move_key(),
        }
    }

    pub fn promote(&mut self, from: usize, to: usize, lag: Micros) {
        self.fails_over = false;
        let since = (self.now - lag).max(self.moved_at);
        let held = self.redis.keyspace.borrow().held_at(from);
        self.redis.keyspace.borrow_mut().promote(from, to, START + since);
        self.redis.restart(to, None);
        self.redis.servers[to].role = Role::Master;
        self.record.lost(self.now, (from, to), Some(since), &held, &self.redis);
        if let Some(slots) = &mut self.redis.slots {
            slots.take_over(from, to);
        }
    }

    /// Lets the Sentinels learn of a promotion, which one of them may have announced.
    fn tell_sentinels(&mut self, from: usize, to: usize) {
        let announces = !self.random.once_in(4);
        if announces {
            let leader = self.redis.sentinels().nth(self.random.below(3)).expect("a Sentinel");
            self.announce(leader, from, to);
        }
        let mut agreed = 0;
        for sentinel in self.redis.sentinels() {
            let delay = self.random.within(10_000, 600_000);
            agreed = agreed.max(delay);
            self.after(delay, Event::Server(Step::Name { sentinel, master: to }));
        }
        self.record.is_left_by(
            self.case
                .left_within(announces)
                .map_or(Micros::MAX, |time| self.now + time + if announces { 0 } else { agreed }),
        );
    }

    /// Lets a Sentinel announce a promotion to its subscribers.
    pub fn announce(&mut self, sentinel: usize, from: usize, to: usize) {
        let hears = |connection: &super::Connection| {
            connection.is_open && connection.session.is_subscribed && connection.session.server == sentinel
        };
        let open = self.connections.iter().filter(|(_, connection)| hears(connection));
        let ids: Vec<_> = open.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.send_down(id, Ok(announcement(from, to))));
    }

    /// Lets the other nodes of a Cluster learn of a change.
    fn tell_nodes(&mut self) {
        for node in 0..self.redis.servers.len() {
            let delay = self.random.within(1_000, 200_000);
            self.after(delay, Event::Server(Step::Learn(node)));
        }
    }

    /// Starts to migrate the slots around a key to another master.
    pub fn move_slots(&mut self) {
        let key = match self.case.scene {
            scene if scene.has_own_keys() => Key::new("", &["c", &self.random.below(1_000).to_string()]),
            _ if self.case.anchor == 1 => Key::new("", &["t"]),
            _ => Key::new("", &["t", &format!("u{}", self.random.below(self.case.users))]),
        };
        let key = key.expect("a key");
        let key = [PREFIX, key.prefix(key.depth())].concat();
        let servers = &self.redis.servers;
        let masters: Vec<_> = (0..servers.len()).filter(|server| servers[*server].role == Role::Master).collect();
        let to = self.random.pick(&masters);
        let Some(slots) = &mut self.redis.slots else { return };
        let from = slots.owner_of(&key);
        let is_possible = [from, to].iter().all(|server| servers[*server].is_up)
            && !self.fails_over
            && slots.migration.is_none()
            && from != to
            && !self.redis.keyspace.borrow().is_superseded(to);
        if is_possible {
            let (first, last) = slots.around(&key, WIDTH);
            slots.migration = Some(Migration { first, last, from, to });
            self.record.fault("slots move");
            self.next_key();
        }
    }

    fn next_key(&mut self) {
        let delay = self.random.within(500, 20_000);
        self.after(delay, Event::Server(Step::MoveKey));
    }

    fn move_key(&mut self) {
        let Some(slots) = &mut self.redis.slots else { return };
        let Some(Migration { from, to, .. }) = slots.migration else { return };
        let mut keyspace = self.redis.keyspace.borrow_mut();
        let keys = slots.moving(keyspace.keys_of(from));
        self.moved_at = self.now;
        // Half of the keys move in one step, so that the last few are met during the migration.
        let some = (keys.len() / 2).max(1);
        keys.iter().take(some).for_each(|key| keyspace.migrate(key, from, to));
        drop(keyspace);
        if keys.is_empty() {
            slots.finish_migration();
            self.tell_nodes();
        } else {
            self.next_key();
        }
    }
}
