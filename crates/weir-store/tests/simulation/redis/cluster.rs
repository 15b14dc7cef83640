//! The slots of a Cluster: their owners, each node's view of them, and migrations.

use weir_store::redis::slots::{SLOTS, slot_of};

use super::{PORT, PREFIX, host, resp::Reply};

/// A range of slots under migration.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub first: u16,
    pub last: u16,
    pub from: usize,
    pub to: usize,
}

impl Migration {
    fn has(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }
}

pub struct Slots {
    /// The owner of each slot, as known to each node.
    views: Vec<Vec<u8>>,
    /// The actual owners.
    truth: Vec<u8>,
    pub migration: Option<Migration>,
    shards: usize,
}

impl Slots {
    /// Divides the slots evenly. Each master's range starts where a store immediately finds a key for its probes.
    pub fn new(shards: usize, nodes: usize) -> Self {
        let mut firsts: Vec<_> =
            (0..shards).map(|number| slot_of(&[PREFIX, format!("probe:{{{number}}}").as_bytes()].concat())).collect();
        firsts.sort_unstable();
        let owner =
            |slot: usize| firsts.iter().rposition(|first| usize::from(*first) <= slot).unwrap_or(shards - 1) as u8;
        let truth: Vec<u8> = (0..SLOTS).map(owner).collect();
        Self { views: vec![truth.clone(); nodes], truth, migration: None, shards }
    }

    /// Returns the replica of a master, or the master of a replica.
    pub fn other(&self, node: usize) -> usize {
        (node + self.shards) % (2 * self.shards)
    }

    pub fn owner_of(&self, key: &[u8]) -> usize {
        usize::from(self.truth[usize::from(slot_of(key))])
    }

    /// Moves all slots of a node to another one, which learns of it.
    pub fn take_over(&mut self, from: usize, to: usize) {
        self.truth.iter_mut().filter(|owner| usize::from(**owner) == from).for_each(|owner| *owner = to as u8);
        self.learn(to);
    }

    /// Completes the migration; both nodes learn of it.
    pub fn finish_migration(&mut self) {
        let Some(Migration { first, last, from, to }) = self.migration.take() else { return };
        self.truth[usize::from(first)..=usize::from(last)].fill(to as u8);
        self.learn(from);
        self.learn(to);
    }

    /// Updates a node's view of the slots.
    pub fn learn(&mut self, node: usize) {
        self.views[node] = self.truth.clone();
    }

    /// Returns a range of slots around this key's, all owned by the same node.
    pub fn around(&self, key: &[u8], width: u16) -> (u16, u16) {
        let (slot, owner) = (slot_of(key), self.truth[usize::from(slot_of(key))]);
        let is_own = |slot: &u16| self.truth[usize::from(*slot)] == owner;
        let first = (slot.saturating_sub(width)..=slot).rev().take_while(is_own).last().unwrap_or(slot);
        let last = (slot..=slot.saturating_add(width).min(SLOTS as u16 - 1)).take_while(is_own).last();
        (first, last.unwrap_or(slot))
    }

    /// Returns those keys that are under migration.
    pub fn moving(&self, keys: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let Some(migration) = self.migration else { return Vec::new() };
        keys.into_iter().filter(|key| migration.has(slot_of(key))).collect()
    }

    pub fn elsewhere(
        &self,
        node: usize,
        is_master: bool,
        key: &[u8],
        is_asking: bool,
        has_key: impl FnOnce() -> bool,
    ) -> Option<String> {
        let slot = slot_of(key);
        let owner = usize::from(self.views[node][usize::from(slot)]);
        let migration = self.migration.filter(|migration| migration.has(slot));
        let at = |node| format!("{}:{PORT}", host(node));
        if owner == node && is_master {
            let to = migration.filter(|migration| migration.from == node && !has_key())?.to;
            return Some(format!("ASK {slot} {}", at(to)));
        }
        if is_asking && migration.is_some_and(|migration| migration.to == node) {
            return None;
        }
        Some(format!("MOVED {slot} {}", at(owner)))
    }

    /// Returns a node's reply to `CLUSTER SLOTS`.
    pub fn told_by(&self, node: usize) -> Reply {
        let mut ranges = Vec::new();
        let mut first = 0;
        for run in self.views[node].chunk_by(|a, b| a == b) {
            let (owner, last) = (usize::from(run[0]), first + run.len() - 1);
            let master = Reply::Array(vec![Reply::text(&host(owner)), Reply::Number(i64::from(PORT))]);
            ranges.push(Reply::Array(vec![Reply::Number(first as i64), Reply::Number(last as i64), master]));
            first = last + 1;
        }
        // In the order in which the masters' ranges start.
        ranges.rotate_left(1);
        Reply::Array(ranges)
    }
}
