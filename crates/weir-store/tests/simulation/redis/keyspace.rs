//! Hashes that expire, for the script's commands, with a history for the observer.

use std::collections::{BTreeMap, HashMap};

use rmpv::Value;
use weir_core::{
    domain::{Micros, key::END},
    testing::Random,
};

use super::{accounts::Accounts, msgpack};

/// Maximum age of lost writes.
pub const MAX_LAG: Micros = 500_000;

#[derive(Clone, Debug, Default)]
pub struct Hash {
    pub fields: BTreeMap<Vec<u8>, Vec<u8>>,
    expires: Option<Micros>,
}

/// The prefix of fields that are records of requests, not states.
const RECORDS: &[u8] = b"\xfd";

impl Hash {
    fn states(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(|(field, _)| !field.starts_with(RECORDS)).map(|(_, value)| &value[..])
    }
}

/// Units granted to a hold of one level.
#[derive(Clone, Debug)]
pub struct Granted {
    pub at: Micros,
    /// The number of the granting server.
    pub server: usize,
    pub field: (Vec<u8>, Vec<u8>),
    pub units: u64,
    pub deadline: Micros,
}

impl Granted {
    /// Whether the level's name starts with this prefix.
    pub fn is_of(&self, name: &[u8]) -> bool {
        [&self.field.0[..], &self.field.1].concat().starts_with(name)
    }
}

/// A hold of one level, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub id: Vec<u8>,
    pub sequence: u64,
    pub spent: u64,
    pub units: u64,
    pub granted: u64,
    pub deadline: Micros,
}

/// The data of one server.
#[derive(Clone, Debug, Default)]
struct Data {
    hashes: BTreeMap<Vec<u8>, Hash>,
    /// The hashes before each of the latest writes.
    journal: Vec<(Micros, Vec<u8>, Option<Hash>)>,
    /// Whether another server has taken over: this data is obsolete.
    is_superseded: bool,
}

impl Data {
    fn rewind(&mut self, since: Micros) {
        while self.journal.last().is_some_and(|(at, ..)| *at > since) {
            let Some((_, key, before)) = self.journal.pop() else { break };
            match before {
                Some(hash) => self.hashes.insert(key, hash),
                None => self.hashes.remove(&key),
            };
        }
        self.journal.clear();
    }
}

/// The data of all servers.
pub struct Keyspace {
    pub now: Micros,
    servers: Vec<Data>,
    /// The number of the server that runs the current command.
    pub current: usize,
    /// Whether the current server rejects writes.
    pub is_read_only: bool,
    random: Random,
    /// All grants, for the observer.
    pub granted: Vec<Granted>,
    /// Number of writes to each hash, for the observer.
    pub writes: HashMap<Vec<u8>, u64>,
    /// Units that owners spend from leases, for the observer.
    pub accounts: Accounts,
    /// The first write that violates an invariant.
    pub violation: Option<String>,
}

impl Keyspace {
    pub fn new(servers: usize, random: Random) -> Self {
        let (now, current, is_read_only, granted, writes, accounts, violation) = Default::default();
        let servers = vec![Data::default(); servers];
        Self { now, servers, current, is_read_only, random, granted, writes, accounts, violation }
    }

    fn data(&mut self) -> &mut Data {
        &mut self.servers[self.current]
    }

    /// Returns the valid hashes of all servers.
    fn hashes(&self) -> impl Iterator<Item = (&Vec<u8>, &Hash)> {
        self.servers.iter().filter(|data| !data.is_superseded).flat_map(|data| &data.hashes)
    }

    /// Makes `to` take over from `from`, with the data that was written until `since`.
    pub fn promote(&mut self, from: usize, to: usize, since: Micros) {
        self.servers[to] = self.servers[from].clone();
        self.servers[to].rewind(since);
        self.servers[from].is_superseded = true;
    }

    pub fn is_superseded(&self, server: usize) -> bool {
        self.servers[server].is_superseded
    }

    /// Returns the keys of a server.
    pub fn keys_of(&self, server: usize) -> Vec<Vec<u8>> {
        self.servers[server].hashes.keys().cloned().collect()
    }

    /// Moves one key to another server.
    pub fn migrate(&mut self, key: &[u8], from: usize, to: usize) {
        if let Some(hash) = self.servers[from].hashes.remove(key) {
            self.servers[to].hashes.insert(key.to_vec(), hash);
        }
    }

    pub fn get(&mut self, key: &[u8]) -> Option<&Hash> {
        let now = self.now;
        if self.data().hashes.get(key).is_some_and(|hash| hash.expires.is_some_and(|at| at <= now)) {
            self.remove(key);
        }
        self.data().hashes.get(key)
    }

    fn edit(&mut self, key: &[u8]) -> &mut Hash {
        let (now, before) = (self.now, self.get(key).cloned());
        let data = self.data();
        data.journal.push((now, key.to_vec(), before));
        data.hashes.entry(key.to_vec()).or_default()
    }

    pub fn remove(&mut self, key: &[u8]) -> bool {
        let now = self.now;
        let data = self.data();
        let Some(before) = data.hashes.remove(key) else { return false };
        data.journal.push((now, key.to_vec(), Some(before.clone())));
        for (field, value) in before.fields.iter().filter(|(field, _)| !field.starts_with(RECORDS)) {
            self.account(key, field, &holds(value), &[]);
        }
        true
    }

    pub fn set(&mut self, key: &[u8], field: &[u8], value: Vec<u8>) -> bool {
        self.observe(key, field, &value);
        self.edit(key).fields.insert(field.to_vec(), value).is_none()
    }

    pub fn unset(&mut self, key: &[u8], field: &[u8]) -> bool {
        if !self.get(key).is_some_and(|hash| hash.fields.contains_key(field)) {
            return false;
        }
        let hash = self.edit(key);
        let value = hash.fields.remove(field).unwrap_or_default();
        if hash.fields.is_empty() {
            self.data().hashes.remove(key);
        }
        if !field.starts_with(RECORDS) {
            self.account(key, field, &holds(&value), &[]);
        }
        true
    }

    /// Returns the milliseconds until a hash expires; -1: no expiry, -2: no such hash.
    pub fn ttl(&mut self, key: &[u8]) -> i64 {
        let now = self.now;
        self.get(key).map_or(-2, |hash| hash.expires.map_or(-1, |at| (at - now) / 1_000))
    }

    pub fn expire(&mut self, key: &[u8], millis: i64) -> bool {
        if self.get(key).is_none() {
            return false;
        }
        let at = self.now + millis * 1_000;
        self.edit(key).expires = Some(at);
        true
    }

    /// Returns random fields, at most `count`.
    pub fn some_fields(&mut self, key: &[u8], count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let hash = self.get(key).cloned().unwrap_or_default();
        let mut fields: Vec<_> = hash.fields.into_iter().collect();
        while fields.len() > count {
            let index = self.random.below(fields.len());
            fields.swap_remove(index);
        }
        fields
    }

    /// Discards all writes of a server after `since`; `None`: all data.
    pub fn lose(&mut self, server: usize, since: Option<Micros>) {
        match since {
            None => self.servers[server] = Data::default(),
            Some(since) => self.servers[server].rewind(since),
        }
    }

    /// Drops the history that no data loss can reach.
    pub fn trim(&mut self) {
        let least = self.now - 2 * MAX_LAG;
        for data in &mut self.servers {
            let old = data.journal.partition_point(|(at, ..)| *at < least);
            data.journal.drain(..old);
        }
    }

    /// Returns a server's holds, with the names of their levels.
    pub fn held_at(&self, server: usize) -> Vec<(Vec<u8>, Held)> {
        let fields = self.servers[server].hashes.iter().flat_map(|(key, hash)| {
            let states = hash.fields.iter().filter(|(field, _)| !field.starts_with(RECORDS));
            states.map(move |(field, value)| ([&key[..], field].concat(), value))
        });
        fields.flat_map(|(name, value)| holds(value).into_iter().map(move |held| (name.clone(), held))).collect()
    }

    /// Returns the holds of all levels.
    pub fn held(&self) -> Vec<Held> {
        self.hashes().flat_map(|(_, hash)| hash.states()).flat_map(holds).collect()
    }

    /// Returns the holds of levels whose names start with this prefix.
    pub fn held_of(&self, name: &[u8]) -> Vec<Held> {
        let hashes = self.hashes().filter_map(|(key, hash)| Some((name.strip_prefix(&key[..])?, hash)));
        let fields =
            hashes.flat_map(|(rest, hash)| hash.fields.iter().filter(move |(field, _)| field.starts_with(rest)));
        fields.flat_map(|(_, value)| holds(value)).collect()
    }

    /// Returns the used units of the only level of a hash, whose state is a window.
    pub fn used(&self, key: &[u8]) -> u64 {
        let servers = self.servers.iter().filter(|data| !data.is_superseded);
        let values = servers.filter_map(|data| data.hashes.get(key)).flat_map(Hash::states);
        let used = |value| msgpack::all(value)?.get(1)?.as_array()?.get(1)?.as_f64();
        values.filter_map(used).sum::<f64>() as u64
    }

    fn observe(&mut self, key: &[u8], field: &[u8], value: &[u8]) {
        *self.writes.entry(key.to_vec()).or_default() += 1;
        if field.starts_with(RECORDS) {
            return;
        }
        let before =
            self.get(key).and_then(|hash| hash.fields.get(field)).map(|value| holds(value)).unwrap_or_default();
        let (now, server, after) = (self.now, self.current, holds(value));
        self.account(key, field, &before, &after);
        for held in after {
            let is_known = before.iter().any(|old| old.id == held.id && old.sequence == held.sequence);
            if held.granted > 0 && !is_known {
                let field = (key.to_vec(), field.to_vec());
                self.granted.push(Granted { at: now, server, field, units: held.granted, deadline: held.deadline });
            }
        }
    }

    /// Records a change of a level's holds.
    fn account(&mut self, key: &[u8], field: &[u8], before: &[Held], after: &[Held]) {
        let name = [key, field].concat();
        let path = name.split(|byte| *byte == END).next().unwrap_or_default();
        if let Err(why) = self.accounts.changed(self.now, path, before, after) {
            self.violation.get_or_insert(format!("{}: {why}", String::from_utf8_lossy(path)));
        }
    }
}

/// Parses the holds of a stored value: its third part.
fn holds(value: &[u8]) -> Vec<Held> {
    let parts = msgpack::all(value).unwrap_or_default();
    let Some(ledger) = parts.get(2).and_then(Value::as_array) else { return Vec::new() };
    let held = |hold: &Value| {
        let Some([id, sequence, spent, units, granted, deadline, ..]) = hold.as_array().map(Vec::as_slice) else {
            panic!("{hold:?} is no hold")
        };
        let number = |item: &Value| item.as_f64().expect("a number");
        Held {
            id: id.as_slice().expect("a text").to_vec(),
            sequence: number(sequence) as u64,
            spent: number(spent) as u64,
            units: number(units) as u64,
            granted: number(granted) as u64,
            deadline: number(deadline) as Micros,
        }
    };
    ledger.iter().map(held).collect()
}
