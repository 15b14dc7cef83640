//! The states of this process, page by page: shard by shard, each from its last slot to its first.

use std::collections::HashSet;

use tokio::task::yield_now;

use super::{
    MemoryStore,
    locate::{StateLocation, hash, locate_all, shard_of},
    shard::Shard,
};
use crate::scan::{Page, Scan, ScanError, Stored};
use weir_core::{
    domain::{Clock, Micros, key::parts_end},
    plan::{Level, Plan},
};

/// Most states looked at while a shard is locked, and before others have their turn.
const SLICE: usize = 512;
/// Most states looked at for one page.
const MAX_SEEN: usize = 65_536;

/// Where a page begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cursor {
    shard: u32,
    /// The slots from here on are done: when a state is removed the last one takes its place, so none that is yet to come gets
    /// behind.
    end: u32,
    /// Of what is held without a state, which is told behind the slots, the last name that was told.
    after: Vec<u8>,
}

impl Cursor {
    fn start() -> Self {
        Self { end: u32::MAX, ..Self::default() }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (shard, rest) = bytes.split_first_chunk()?;
        let (end, after) = rest.split_first_chunk()?;
        Some(Self { shard: u32::from_le_bytes(*shard), end: u32::from_le_bytes(*end), after: after.to_vec() })
    }

    fn write(&self) -> Vec<u8> {
        [&self.shard.to_le_bytes()[..], &self.end.to_le_bytes(), &self.after].concat()
    }

    /// To the next shard.
    fn next_shard(&mut self) {
        *self = Self { shard: self.shard + 1, ..Self::start() };
    }
}

impl<C: Clock> MemoryStore<C> {
    /// A page of the states that have not expired.
    ///
    /// # Errors
    /// [`ScanError::Cursor`].
    pub async fn scan(&self, scan: &Scan, cursor: Option<&[u8]>) -> Result<Page, ScanError> {
        let one = scan.anchor_path.as_ref().map(|path| shard_of(hash(&self.hasher, path), self.shards.len()));
        let mut at = match cursor {
            None => Cursor { shard: one.unwrap_or_default() as u32, ..Cursor::start() },
            Some(bytes) => Cursor::read(bytes).ok_or(ScanError::Cursor)?,
        };
        let (mut states, mut seen) = (Vec::new(), 0);
        let is_wanted = |at: &Cursor| one.is_none_or(|one| at.shard as usize == one);
        while let Some(shard) = self.shards.get(at.shard as usize).filter(|_| is_wanted(&at)) {
            if states.len() >= scan.count || seen >= MAX_SEEN {
                return Ok(Page { states, next: Some(at.write()) });
            }
            seen += slice(&shard.lock(), scan, self.clock.now(), &mut at, &mut states);
            yield_now().await;
        }
        Ok(Page { states, next: None })
    }

    /// The units that are held of each level of a plan.
    pub fn outstanding(&self, plan: &Plan<'_>) -> Vec<u64> {
        let (now, shards) = (self.clock.now(), self.shards.len());
        let units = |(level, location): (&Level<'_>, StateLocation)| {
            let shard = self.shards[location.shard].lock();
            let ledger = shard.held().and_then(|held| held.ledger(level.path(), level.limit.ident()));
            let live =
                ledger.map(|ledger| ledger.holds()).unwrap_or_default().iter().filter(|hold| hold.deadline > now);
            live.map(|hold| hold.units).sum()
        };
        plan.levels().iter().zip(locate_all(plan, &self.hasher, shards)).map(units).collect()
    }
}

/// Tells some states of a shard, and moves the cursor behind them: how many were looked at.
fn slice(shard: &Shard, scan: &Scan, now: Micros, at: &mut Cursor, states: &mut Vec<Stored>) -> usize {
    let (mut end, mut seen) = (shard.len().min(at.end as usize), 0);
    for (name, _, expires) in shard.below(end).take(SLICE) {
        if states.len() >= scan.count {
            break;
        }
        (end, seen) = (end - 1, seen + 1);
        if expires > now && name.starts_with(&scan.beginning) {
            let may_be_held = has_ledger(shard, name);
            states.push(Stored { name: name.to_vec(), may_be_held });
        }
    }
    at.end = end as u32;
    if end == 0 && states.len() < scan.count {
        seen += without_state(shard, scan, now, at, states);
    }
    seen.max(1)
}

fn has_ledger(shard: &Shard, name: &[u8]) -> bool {
    let Some(held) = shard.held() else { return false };
    let (path, ident) = name.split_at(parts_end(name, usize::MAX).unwrap_or(name.len()));
    held.ledger(path, ident).is_some()
}

/// Tells what is held without a state, as the slots of a concurrency limit, in the order of the names.
fn without_state(shard: &Shard, scan: &Scan, now: Micros, at: &mut Cursor, states: &mut Vec<Stored>) -> usize {
    let ledgers = shard.held().into_iter().flat_map(|held| held.ledgers());
    let wanted = ledgers.filter(|(name, _, expires)| {
        *expires > now && name.starts_with(&scan.beginning) && (at.after.is_empty() || **name > *at.after)
    });
    let mut names: Vec<_> = wanted.map(|(name, ..)| name).collect();
    if !names.is_empty() {
        names.sort_unstable();
        // Told with their slots.
        let live = shard.below(usize::MAX).filter(|(.., expires)| *expires > now);
        let live: HashSet<_> = live.map(|(name, ..)| name).collect();
        names.retain(|name| !live.contains(name));
    }
    let room = scan.count - states.len();
    let seen = names.len();
    states.extend(names.iter().take(room).map(|name| Stored { name: name.to_vec(), may_be_held: true }));
    match names.get(room - 1).filter(|_| seen > room) {
        Some(last) => at.after = last.to_vec(),
        None => at.next_shard(),
    }
    seen
}
