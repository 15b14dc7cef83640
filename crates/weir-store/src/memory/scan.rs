//! Pages of the memory store's states: shard by shard, each from its last slot to its first.

use std::collections::HashSet;

use tokio::task::yield_now;

use super::{
    MemoryStore,
    locate::{hash, locate_all, shard_of},
    shard::Shard,
};
use crate::scan::{Hold, Page, Reserved, Scan, ScanError, Stored, Wanted, by_owner};
use weir_core::{
    domain::{Clock, Micros, key::parts_end},
    hold::{Ledger, Record},
    plan::Plan,
};

/// Most states read while a shard is locked, and before the task yields.
const SLICE: usize = 512;
/// Most states read for one page.
const MAX_SEEN: usize = 65_536;

/// The position where a page starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Position {
    shard: u32,
    /// The slots from this one on are done. Removing a state moves the last one into its slot, so a pending state never
    /// moves to a slot that is done.
    end: u32,
    /// The last name listed among the entries without a slot, which follow the slots.
    after: Vec<u8>,
}

impl Position {
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

    /// Moves to the next shard.
    fn next_shard(&mut self) {
        *self = Self { shard: self.shard + 1, ..Self::start() };
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Reads a page of the unexpired states.
    ///
    /// # Errors
    /// [`ScanError::Cursor`].
    pub async fn scan(&self, scan: &Scan, cursor: Option<&[u8]>) -> Result<Page, ScanError> {
        let one = scan.anchor_path.as_ref().map(|path| shard_of(hash(&self.hasher, path), self.shards.len()));
        let mut at = match cursor {
            None => Position { shard: one.unwrap_or_default() as u32, ..Position::start() },
            Some(bytes) => Position::read(bytes).ok_or(ScanError::Cursor)?,
        };
        let (mut page, mut seen) = (Page::default(), 0);
        let is_wanted = |at: &Position| one.is_none_or(|one| at.shard as usize == one);
        while let Some(shard) = self.shards.get(at.shard as usize).filter(|_| is_wanted(&at)) {
            if page.len() >= scan.count || seen >= MAX_SEEN {
                return Ok(Page { next: Some(at.write()), ..page });
            }
            let now = self.clock.now();
            seen += match scan.wanted {
                Wanted::States => slice(&shard.lock(), scan, now, &mut at, &mut page.states),
                Wanted::Holds => list_holds(&shard.lock(), scan, now, &mut at, &mut page),
            };
            yield_now().await;
        }
        Ok(page)
    }

    /// Returns the holds on each level of a plan.
    pub fn holds(&self, plan: &Plan<'_>) -> Vec<Vec<Hold>> {
        let (now, shards) = (self.clock.now(), self.shards.len());
        let levels = plan.levels().iter().zip(locate_all(plan, &self.hasher, shards));
        let holds = levels.map(|(level, location)| {
            let shard = self.shards[location.shard].lock();
            by_owner(holds(shard.holds().and_then(|holds| holds.ledger(level.path(), level.limit.ident())), now))
        });
        holds.collect()
    }
}

/// Lists some states of a shard and advances the cursor. Returns how many were read.
fn slice(shard: &Shard, scan: &Scan, now: Micros, at: &mut Position, states: &mut Vec<Stored>) -> usize {
    let (mut end, mut seen) = (shard.len().min(at.end as usize), 0);
    for (name, _, expires) in shard.below(end).take(SLICE) {
        if states.len() >= scan.count {
            break;
        }
        (end, seen) = (end - 1, seen + 1);
        if expires > now && name.starts_with(&scan.prefix) {
            states.push(Stored { name: name.to_vec(), holds: holds(ledger_of(shard, name), now) });
        }
    }
    at.end = end as u32;
    if end == 0 && states.len() < scan.count {
        seen += without_state(shard, scan, now, at, states);
    }
    seen.max(1)
}

fn ledger_of<'s>(shard: &'s Shard, name: &[u8]) -> Option<&'s Ledger> {
    let (path, ident) = name.split_at(parts_end(name, usize::MAX).unwrap_or(name.len()));
    shard.holds()?.ledger(path, ident)
}

fn counts(hold: &weir_core::hold::Hold, now: Micros) -> bool {
    hold.units > 0 && hold.deadline > now
}

fn holds(ledger: Option<&Ledger>, now: Micros) -> Vec<Hold> {
    let live = ledger.map(Ledger::holds).unwrap_or_default().iter();
    let holds = live.filter(|hold| counts(hold, now)).map(|hold| Hold {
        owner: (!hold.id.is_of_reservations()).then_some(hold.id.owner),
        units: hold.units,
        expires_after: hold.deadline - now,
    });
    holds.collect()
}

/// Lists the holds and reservations of a shard and advances the cursor. Returns how many were read. They are ordered by
/// name, with a leading byte for their kind: ledgers before records.
fn list_holds(shard: &Shard, scan: &Scan, now: Micros, at: &mut Position, page: &mut Page) -> usize {
    let Some(shard_holds) = shard.holds() else {
        at.next_shard();
        return 1;
    };
    let ledgers = shard_holds.ledgers().filter(|(name, ledger, _)| {
        let mut holds = ledger.holds().iter();
        name.starts_with(&scan.prefix) && holds.any(|hold| counts(hold, now) && !hold.id.is_of_reservations())
    });
    let records = shard_holds.records().filter(|(.., record)| match record {
        Record::Open { deadline, levels, .. } => {
            *deadline > now && levels.iter().any(|level| level.starts_with(&scan.prefix))
        }
        _ => false,
    });
    // Places as borrowed parts: copying the holds of a large shard would take too long under its lock.
    let ledgers = ledgers.map(|(name, ledger, _)| ([&b"\0"[..], name, b""], Held::Ledger(ledger)));
    let records = records.map(|(anchor, name, record)| ([&b"\x01"[..], anchor, name], Held::Record(record)));
    let by_place =
        |one: &[&[u8]; 3], other: &[&[u8]; 3]| one.iter().copied().flatten().cmp(other.iter().copied().flatten());
    let listed = ledgers.chain(records);
    let mut listed: Vec<_> = listed.filter(|(place, _)| place.iter().copied().flatten().gt(&at.after)).collect();
    let (seen, capacity) = (shard_holds.len(), scan.count - page.len());
    let has_more = listed.len() > capacity;
    if has_more {
        listed.select_nth_unstable_by(capacity, |one, other| by_place(&one.0, &other.0));
        listed.truncate(capacity);
    }
    listed.sort_unstable_by(|one, other| by_place(&one.0, &other.0));
    match listed.last().filter(|_| has_more) {
        Some((last, _)) => at.after = last.concat(),
        None => at.next_shard(),
    }
    for ([_, first, name], held) in listed {
        match held {
            Held::Ledger(ledger) => page.states.push(Stored { name: first.to_vec(), holds: holds(Some(ledger), now) }),
            Held::Record(record) => page.reservations.extend(reserved(name, record, scan, now)),
        }
    }
    seen.max(1)
}

enum Held<'s> {
    Ledger(&'s Ledger),
    Record(&'s Record),
}

fn reserved(name: &[u8], record: &Record, scan: &Scan, now: Micros) -> Option<Reserved> {
    let Record::Open { deadline, units, levels, .. } = record else { return None };
    let levels = levels.iter().map(|level| level.to_vec()).collect();
    Reserved { name: name.to_vec(), levels, units: *units, expires_after: deadline - now }.below(&scan.prefix)
}

/// Lists ledgers without a state, such as the slots of a concurrency limit, ordered by name.
fn without_state(shard: &Shard, scan: &Scan, now: Micros, at: &mut Position, states: &mut Vec<Stored>) -> usize {
    let ledgers = shard.holds().into_iter().flat_map(|holds| holds.ledgers());
    let wanted = ledgers.filter(|(name, _, expires)| {
        *expires > now && name.starts_with(&scan.prefix) && (at.after.is_empty() || **name > *at.after)
    });
    let mut names: Vec<_> = wanted.map(|(name, ..)| name).collect();
    if !names.is_empty() {
        names.sort_unstable();
        // States with a slot are already listed.
        let live = shard.below(usize::MAX).filter(|(.., expires)| *expires > now);
        let live: HashSet<_> = live.map(|(name, ..)| name).collect();
        names.retain(|name| !live.contains(name));
    }
    let capacity = scan.count - states.len();
    let seen = names.len();
    let stored = |name: &&[u8]| Stored { name: name.to_vec(), holds: holds(ledger_of(shard, name), now) };
    states.extend(names.iter().take(capacity).map(stored));
    match names.get(capacity - 1).filter(|_| seen > capacity) {
        Some(last) => at.after = last.to_vec(),
        None => at.next_shard(),
    }
    seen
}
