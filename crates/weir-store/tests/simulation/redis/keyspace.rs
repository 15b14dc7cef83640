//! Hashes that expire, as a script's commands see them; and what an observer may know of their past.

use std::collections::{BTreeMap, HashMap};

use weir_core::{domain::Micros, testing::Random};

use super::msgpack::Item;

/// How far back a loss of data may reach.
pub const MAX_LAG: Micros = 500_000;

#[derive(Clone, Debug, Default)]
pub struct Hash {
    pub fields: BTreeMap<Vec<u8>, Vec<u8>>,
    expires: Option<Micros>,
}

/// What the fields begin with that are records of requests, not states.
const RECORDS: &[u8] = b"\xfd";

impl Hash {
    fn states(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(|(field, _)| !field.starts_with(RECORDS)).map(|(_, value)| &value[..])
    }
}

/// Units that were granted to a hold of one level.
#[derive(Clone, Debug)]
pub struct Granted {
    pub at: Micros,
    pub field: (Vec<u8>, Vec<u8>),
    pub units: u64,
    pub deadline: Micros,
}

/// A hold of one level, as it is stored.
#[derive(Clone, Debug)]
pub struct Held {
    pub id: Vec<u8>,
    pub sequence: u64,
    pub units: u64,
    pub granted: u64,
    pub deadline: Micros,
}

/// All hashes.
pub struct Keyspace {
    pub now: Micros,
    hashes: BTreeMap<Vec<u8>, Hash>,
    random: Random,
    /// The hashes as they were before each of the latest writes.
    journal: Vec<(Micros, Vec<u8>, Option<Hash>)>,
    /// Every grant, for the observer.
    pub granted: Vec<Granted>,
    /// How often each hash was written, for the observer.
    pub writes: HashMap<Vec<u8>, u64>,
}

impl Keyspace {
    pub fn new(random: Random) -> Self {
        let (now, hashes, journal, granted, writes) = Default::default();
        Self { now, hashes, random, journal, granted, writes }
    }

    pub fn get(&mut self, key: &[u8]) -> Option<&Hash> {
        if self.hashes.get(key).is_some_and(|hash| hash.expires.is_some_and(|at| at <= self.now)) {
            self.remove(key);
        }
        self.hashes.get(key)
    }

    fn edit(&mut self, key: &[u8]) -> &mut Hash {
        let before = self.get(key).cloned();
        self.journal.push((self.now, key.to_vec(), before));
        self.hashes.entry(key.to_vec()).or_default()
    }

    pub fn remove(&mut self, key: &[u8]) -> bool {
        let before = self.hashes.remove(key);
        let was_there = before.is_some();
        if was_there {
            self.journal.push((self.now, key.to_vec(), before));
        }
        was_there
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
        hash.fields.remove(field);
        if hash.fields.is_empty() {
            self.hashes.remove(key);
        }
        true
    }

    /// Milliseconds until a hash expires; -1: it does not, -2: there is none.
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

    /// Some fields, at most `count`.
    pub fn some_fields(&mut self, key: &[u8], count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let hash = self.get(key).cloned().unwrap_or_default();
        let mut fields: Vec<_> = hash.fields.into_iter().collect();
        while fields.len() > count {
            let index = self.random.below(fields.len());
            fields.swap_remove(index);
        }
        fields
    }

    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.hashes.keys().cloned().collect()
    }

    /// Forgets everything that was written after `since`; `None`: everything.
    pub fn lose(&mut self, since: Option<Micros>) {
        match since {
            None => self.hashes.clear(),
            Some(since) => {
                while self.journal.last().is_some_and(|(at, ..)| *at > since) {
                    let Some((_, key, before)) = self.journal.pop() else { break };
                    match before {
                        Some(hash) => self.hashes.insert(key, hash),
                        None => self.hashes.remove(&key),
                    };
                }
            }
        }
        self.journal.clear();
    }

    /// Forgets what is older than any loss reaches.
    pub fn trim(&mut self) {
        let least = self.now - 2 * MAX_LAG;
        let old = self.journal.partition_point(|(at, ..)| *at < least);
        self.journal.drain(..old);
    }

    /// What is held of every level.
    pub fn held(&self) -> Vec<Held> {
        self.hashes.values().flat_map(Hash::states).flat_map(holds).collect()
    }

    /// What is held of the levels whose names begin so.
    pub fn held_of(&self, name: &[u8]) -> Vec<Held> {
        let hashes = self.hashes.iter().filter_map(|(key, hash)| Some((name.strip_prefix(&key[..])?, hash)));
        let fields =
            hashes.flat_map(|(rest, hash)| hash.fields.iter().filter(move |(field, _)| field.starts_with(rest)));
        fields.flat_map(|(_, value)| holds(value)).collect()
    }

    /// The units used of the only level of a hash, whose state is a window.
    pub fn used(&self, key: &[u8]) -> u64 {
        let values = self.hashes.get(key).into_iter().flat_map(Hash::states);
        let used = |value| Item::all(value)?.get(1)?.items()?.get(1)?.number();
        values.filter_map(used).sum::<f64>() as u64
    }

    fn observe(&mut self, key: &[u8], field: &[u8], value: &[u8]) {
        *self.writes.entry(key.to_vec()).or_default() += 1;
        if field.starts_with(RECORDS) {
            return;
        }
        let before =
            self.get(key).and_then(|hash| hash.fields.get(field)).map(|value| holds(value)).unwrap_or_default();
        let now = self.now;
        for held in holds(value) {
            let is_known = before.iter().any(|old| old.id == held.id && old.sequence == held.sequence);
            if held.granted > 0 && !is_known {
                let field = (key.to_vec(), field.to_vec());
                self.granted.push(Granted { at: now, field, units: held.granted, deadline: held.deadline });
            }
        }
    }
}

/// The holds in a stored value: its third part.
fn holds(value: &[u8]) -> Vec<Held> {
    let parts = Item::all(value).unwrap_or_default();
    let Some(ledger) = parts.get(2).and_then(Item::items) else { return Vec::new() };
    let held = |hold: &Item| {
        let Some([Item::Text(id), sequence, _, units, granted, deadline, ..]) = hold.items() else {
            panic!("{hold:?} is no hold")
        };
        let number = |item: &Item| item.number().expect("a number");
        Held {
            id: id.clone(),
            sequence: number(sequence) as u64,
            units: number(units) as u64,
            granted: number(granted) as u64,
            deadline: number(deadline) as Micros,
        }
    };
    ledger.iter().map(held).collect()
}
