//! The network: bytes from replicas arrive late, in parts, or not at all; and the store's end of connections.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use weir_core::domain::Micros;
use weir_store::url::Address;

use super::World;
use crate::{
    event::Event,
    network::{Call, End, State},
    redis::{Server, Session, server_at, take_command},
    replica::START,
};

fn is_dead(server: &Server) -> bool {
    !server.is_up && server.is_silent
}

/// A connection, as known to the store and the network.
pub struct Connection {
    end: Arc<Mutex<End>>,
    seat: usize,
    pub session: Session,
    up: VecDeque<Option<Vec<u8>>>,
    down: VecDeque<Result<Vec<u8>, State>>,
    /// Arrival times of the latest messages: later ones never overtake them.
    up_at: Micros,
    down_at: Micros,
    pub received: Vec<u8>,
    observed: Vec<u8>,
    pub is_open: bool,
    /// Whether nothing arrives any more, without an error at either end.
    is_stalled: bool,
}

impl Connection {
    fn new(end: Arc<Mutex<End>>, seat: usize, server: usize) -> Self {
        let (up, down, received, observed) = Default::default();
        let session = Session::at(server);
        Self {
            end,
            seat,
            session,
            up,
            down,
            up_at: 0,
            down_at: 0,
            received,
            observed,
            is_open: false,
            is_stalled: false,
        }
    }
}

impl World {
    pub fn collect(&mut self, seat: usize) {
        let Some(replica) = &self.seats[seat].replica else { return };
        let calls = replica.machine.take_calls();
        self.carry_out(seat, calls);
    }

    pub fn carry_out(&mut self, seat: usize, calls: Vec<Call>) {
        for call in calls {
            match call {
                Call::Dial(end, address) => {
                    let id = end.lock().id;
                    let Address::Tcp { host, .. } = address else { panic!("{address} is not of a server") };
                    self.connections.insert(id, Connection::new(end, seat, server_at(&host)));
                    let delay = self.delay(seat);
                    self.after(delay, Event::Dialed(id));
                }
                Call::Write(id) => self.sent(id),
                Call::Close(id) => self.send_up(id, None),
            }
        }
    }

    /// Takes and sends the bytes that a replica has written to a connection.
    fn sent(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let bytes = connection.end.lock().take_sent();
        connection.observed.extend_from_slice(&bytes);
        while let Some(words) = take_command(&mut connection.observed) {
            self.record.sent(&words, self.now);
        }
        if bytes.len() > 1 && self.chance(self.case.faults.split) {
            let (first, rest) = bytes.split_at(1 + self.random.below(bytes.len() - 1));
            self.send_up(id, Some(first.to_vec()));
            self.send_up(id, Some(rest.to_vec()));
        } else if !bytes.is_empty() {
            self.send_up(id, Some(bytes));
        }
    }

    fn delay(&mut self, seat: usize) -> Micros {
        let latency = self.case.latency;
        if !self.chance(self.case.faults.long_delay) {
            return self.random.within(latency, 2 * latency);
        }
        let delay = self.random.magnitude(400_000);
        self.trouble(seat, delay);
        self.record.fault("long delay");
        latency + delay
    }

    pub fn trouble(&mut self, seat: usize, time: Micros) {
        let until = &mut self.seats[seat].troubled_until;
        *until = (*until).max(self.now + time);
    }

    fn send_up(&mut self, id: u64, bytes: Option<Vec<u8>>) {
        let Some(seat) = self.connections.get(&id).map(|connection| connection.seat) else { return };
        let at = self.now + self.delay(seat);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.up.push_back(bytes);
        connection.up_at = connection.up_at.max(at);
        let delay = connection.up_at - self.now;
        self.after(delay, Event::Up(id));
    }

    pub fn send_down(&mut self, id: u64, what: Result<Vec<u8>, State>) {
        let Some(seat) = self.connections.get(&id).map(|connection| connection.seat) else { return };
        let at = self.now + self.delay(seat);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.down.push_back(what);
        connection.down_at = connection.down_at.max(at);
        let delay = connection.down_at - self.now;
        self.after(delay, Event::Down(id));
    }

    /// Postpones an event of a partitioned connection to the end of the partition. Returns whether it did.
    fn is_late(&mut self, id: u64, event: Event) -> bool {
        let Some(connection) = self.connections.get(&id) else { return true };
        let mut until = self.seats[connection.seat].cut_until;
        if matches!(event, Event::Up(_)) {
            until = until.max(self.redis.servers[connection.session.server].held_until);
        }
        let is_cut = until > self.now;
        if is_cut {
            self.after(until - self.now, event);
        }
        is_cut
    }

    pub fn dialed(&mut self, id: u64) {
        if self.is_late(id, Event::Dialed(id)) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let server = &self.redis.servers[connection.session.server];
        let (is_up, is_silent) = (server.is_up, server.is_silent);
        connection.is_open = is_up;
        if is_up || !is_silent {
            self.send_down(id, Err(if is_up { State::Open } else { State::Refused }));
        }
    }

    pub fn up(&mut self, id: u64) {
        if self.is_late(id, Event::Up(id)) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(sent) = connection.up.pop_front() else { return };
        match sent {
            None => connection.is_open = false,
            Some(_) if connection.is_stalled || is_dead(&self.redis.servers[connection.session.server]) => {}
            Some(_) if !connection.is_open => self.send_down(id, Err(State::Reset)),
            Some(bytes) => self.received(id, bytes),
        }
    }

    /// Handles bytes that arrive at the store.
    fn received(&mut self, id: u64, bytes: Vec<u8>) {
        let seat = self.connections[&id].seat;
        let (is_lost, is_stalled) =
            (self.chance(self.case.faults.lose_connection), self.chance(self.case.faults.stall_connection));
        let before = self.random.once_in(2);
        if is_lost || is_stalled {
            self.trouble(seat, 100_000);
            self.record.fault(match (is_lost, before) {
                (true, true) => "connection lost before the command",
                (true, false) => "connection lost after the command",
                (false, true) => "stalled before the command",
                (false, false) => "stalled after the command",
            });
        }
        let ends = is_lost || is_stalled;
        let out = if ends && before { Vec::new() } else { self.serve(id, bytes) };
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_open &= !is_lost;
            connection.is_stalled |= is_stalled;
        }
        if is_lost {
            let state = if self.random.once_in(2) { State::Reset } else { State::Closed };
            self.send_down(id, Err(state));
        } else if !is_stalled && !out.is_empty() {
            self.send_down(id, Ok(out));
        }
    }

    fn serve(&mut self, id: u64, bytes: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(connection) = self.connections.get_mut(&id) else { return out };
        connection.received.extend_from_slice(&bytes);
        let (mut received, mut session) = (std::mem::take(&mut connection.received), connection.session);
        while let Some(words) = take_command(&mut received) {
            self.proceed(self.now + 1);
            self.redis.run(START + self.now, &mut session, &words, &mut out);
            if self.chance(self.case.faults.lose_scripts) {
                self.redis.restart(session.server, None);
                self.record.fault("scripts lost");
            }
        }
        self.record.served(self.now, &bytes, &out);
        if self.redis.superseded.contains_key(&(START + self.now)) {
            self.record.served_late(self.now, &self.redis);
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            (connection.received, connection.session) = (received, session);
        }
        out
    }

    pub fn down(&mut self, id: u64) {
        if self.is_late(id, Event::Down(id)) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let seat = connection.seat;
        match connection.down.pop_front() {
            _ if connection.is_stalled => {}
            Some(Ok(bytes)) => connection.end.lock().deliver(&bytes),
            Some(Err(state)) => connection.end.lock().become_state(state),
            None => {}
        }
        self.drive(seat);
    }
}
