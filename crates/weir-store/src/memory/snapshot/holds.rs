//! Holds in a snapshot, after the states: an entry for each ledger and each record, little-endian:
//!
//! | entry | format |
//! |---|---|
//! | ledger | u8 1; the state's name; i64: its expiry; u16: number of holds, for each its owner, number, sequence,
//! units spent, outstanding and granted, u64 each, and its deadline, i64 |
//! | open record | u8 2; its anchor and its name; u8: 0 kept, 1 released at expiry; i64: its deadline; u64: units; u16:
//! number of levels, and their names |
//! | answered request | u8 4; its anchor and its name; 8 bytes of fingerprint and 8 of its levels' digest; u8: 1 if
//! it passed; i64: its expiry; u8: 1 if it made a reservation; u16: number of levels, for each its decision: u8, 1
//! allowed + 2 never; u64 limit and remaining; i64 four times, negative for none |
//! | settled record | u8 3; its anchor and its name; u64 twice: units charged, and those of them beyond the
//! reservation; i64: its expiry |
//!
//! A name is a u16 length followed by its bytes. An end marker, u8 0, follows the last entry.

use std::io::{self, Read};

use super::{
    END_OF_STATES, SnapshotError,
    read::{Parts, bytes, read_into},
    write::length,
};
use crate::memory::{MemoryStore, shard::Shard, shard_holds::lasts_until};
use weir_core::{
    algorithm::params::MAX_COUNT,
    domain::{Clock, Decision, Micros, time::MAX_MOMENT},
    hold::{Hold, HoldId, Ledger, MAX_HOLDS, OnExpiry, Record},
};

/// Maximum units of a hold, in which reservations of one deadline share: `gcra` admits one more than its burst.
const MAX_UNITS: u64 = MAX_COUNT + 1;

const LEDGER: u8 = 1;
const OPEN: u8 = 2;
const SETTLED: u8 = 3;
const ANSWERED: u8 = 4;

/// Writes a shard's unexpired ledgers and records.
pub(super) fn write(shard: &Shard, now: Micros, out: &mut Vec<u8>) -> io::Result<()> {
    let Some(holds) = shard.holds() else { return Ok(()) };
    for (state, ledger, expires) in holds.ledgers().filter(|(_, ledger, expires)| lasts_until(ledger, *expires) > now) {
        out.push(LEDGER);
        name(state, out)?;
        out.extend_from_slice(&expires.to_le_bytes());
        out.extend_from_slice(&length::<u16>(ledger.holds().len())?.to_le_bytes());
        for hold in ledger.holds() {
            let HoldId { owner, number } = hold.id;
            for word in [owner, number, hold.sequence, hold.spent, hold.units, hold.granted] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(&hold.deadline.to_le_bytes());
        }
    }
    for (anchor, own, record) in holds.records().filter(|(.., record)| record.expires() > now) {
        out.push(match record {
            Record::Open { .. } => OPEN,
            Record::Settled { .. } => SETTLED,
            Record::Answered { .. } => ANSWERED,
        });
        name(anchor, out)?;
        name(own, out)?;
        match record {
            Record::Open { on_expiry, deadline, units, levels } => {
                out.push(*on_expiry as u8);
                out.extend_from_slice(&deadline.to_le_bytes());
                out.extend_from_slice(&units.to_le_bytes());
                out.extend_from_slice(&length::<u16>(levels.len())?.to_le_bytes());
                levels.iter().try_for_each(|level| name(level, out))?;
            }
            Record::Answered { fingerprint, levels, has_passed, decisions, is_reserved, until } => {
                out.extend_from_slice(fingerprint);
                out.extend_from_slice(levels);
                out.push(u8::from(*has_passed));
                out.extend_from_slice(&until.to_le_bytes());
                out.push(u8::from(*is_reserved));
                out.extend_from_slice(&length::<u16>(decisions.len())?.to_le_bytes());
                decisions.iter().for_each(|decision| write_decision(decision, out));
            }
            Record::Settled { actual, overage, until } => {
                out.extend_from_slice(&actual.to_le_bytes());
                out.extend_from_slice(&overage.to_le_bytes());
                out.extend_from_slice(&until.to_le_bytes());
            }
        }
    }
    Ok(())
}

/// Loads unexpired ledgers and records into a store as far as they fit, and returns how many did not fit. `states`
/// is the number of states in the file, for errors.
pub(super) fn load<C: Clock>(
    from: &mut impl Read,
    store: &MemoryStore<C>,
    anchor_of: impl Fn(&[u8]) -> u8,
    now: Micros,
    states: u64,
) -> Result<usize, SnapshotError> {
    let (mut left_out, nonsense) = (0, || SnapshotError::Nonsense(states));
    loop {
        let is_put = match bytes(from)? {
            [END_OF_STATES] => return Ok(left_out),
            [LEDGER] => {
                let state = read_name(from)?;
                let expires = Micros::from_le_bytes(bytes(from)?);
                let holds: Result<Vec<Hold>, SnapshotError> = (0..number::<2>(from)?).map(|_| hold(from)).collect();
                let (parts, holds) = (Parts::of(&state, &anchor_of).ok_or_else(nonsense)?, holds?);
                let is_possible = |hold: &Hold| hold.units <= MAX_UNITS && (0..=MAX_MOMENT).contains(&hold.deadline);
                if holds.len() > MAX_HOLDS || !holds.iter().all(is_possible) {
                    return Err(nonsense());
                }
                let Parts { path, anchor_end, ident } = parts;
                let ledger = Ledger::of(holds);
                lasts_until(&ledger, expires) <= now
                    || store.put_back_holds(&path[..anchor_end.min(path.len())], |shard| {
                        shard.put_ledger(path, ident, ledger);
                        shard.keep_ledger(path, ident, expires);
                    })
            }
            [kind @ (OPEN | SETTLED | ANSWERED)] => {
                let (anchor, own) = (read_name(from)?, read_name(from)?);
                let record = match kind {
                    OPEN => open(from, states)?,
                    SETTLED => settled(from)?,
                    _ => answered(from)?,
                };
                record.expires() <= now
                    || store.put_back_holds(&anchor, |shard| shard.put_record(&anchor, &own, record))
            }
            _ => return Err(nonsense()),
        };
        left_out += usize::from(!is_put);
    }
}

fn hold(from: &mut impl Read) -> Result<Hold, SnapshotError> {
    let id = HoldId { owner: number::<8>(from)?, number: number::<8>(from)? };
    let (sequence, spent) = (number::<8>(from)?, number::<8>(from)?);
    let (units, granted) = (number::<8>(from)?, number::<8>(from)?);
    let deadline = Micros::from_le_bytes(bytes(from)?);
    Ok(Hold { id, sequence, spent, units, granted, deadline })
}

fn open(from: &mut impl Read, states: u64) -> Result<Record, SnapshotError> {
    let on_expiry = match bytes(from)? {
        [0] => OnExpiry::Keep,
        [1] => OnExpiry::Release,
        _ => return Err(SnapshotError::Nonsense(states)),
    };
    let deadline = Micros::from_le_bytes(bytes(from)?);
    let units = number::<8>(from)?;
    let levels: Result<_, SnapshotError> =
        (0..number::<2>(from)?).map(|_| Ok(read_name(from)?.into_boxed_slice())).collect();
    Ok(Record::Open { on_expiry, deadline, units, levels: levels? })
}

fn settled(from: &mut impl Read) -> Result<Record, SnapshotError> {
    let (actual, overage) = (number::<8>(from)?, number::<8>(from)?);
    Ok(Record::Settled { actual, overage, until: Micros::from_le_bytes(bytes(from)?) })
}

fn answered(from: &mut impl Read) -> Result<Record, SnapshotError> {
    let (fingerprint, levels, [has_passed]) = (bytes(from)?, bytes(from)?, bytes(from)?);
    let (until, [is_reserved]) = (Micros::from_le_bytes(bytes(from)?), bytes(from)?);
    let decisions: Result<_, SnapshotError> = (0..number::<2>(from)?).map(|_| read_decision(from)).collect();
    let (decisions, has_passed, is_reserved) = (decisions?, has_passed == 1, is_reserved == 1);
    Ok(Record::Answered { fingerprint, levels, has_passed, decisions, is_reserved, until })
}

fn write_decision(decision: &Decision, out: &mut Vec<u8>) {
    let Decision { allowed, limit, remaining, retry_after, next_after, reset_after, wait, never } = *decision;
    out.push(u8::from(allowed) + 2 * u8::from(never));
    [limit, remaining].iter().for_each(|count| out.extend_from_slice(&count.to_le_bytes()));
    let times = [retry_after.unwrap_or(-1), next_after.unwrap_or(-1), reset_after, wait];
    times.iter().for_each(|time| out.extend_from_slice(&time.to_le_bytes()));
}

fn read_decision(from: &mut impl Read) -> Result<Decision, SnapshotError> {
    let [flags] = bytes(from)?;
    let (limit, remaining) = (number::<8>(from)?, number::<8>(from)?);
    let mut time = || Ok::<Micros, SnapshotError>(Micros::from_le_bytes(bytes(from)?));
    let some = |time: Micros| (time >= 0).then_some(time);
    let (retry_after, next_after, reset_after, wait) = (some(time()?), some(time()?), time()?, time()?);
    let (allowed, never) = (flags & 1 != 0, flags & 2 != 0);
    Ok(Decision { allowed, limit, remaining, retry_after, next_after, reset_after, wait, never })
}

fn name(name: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(&length::<u16>(name.len())?.to_le_bytes());
    out.extend_from_slice(name);
    Ok(())
}

fn read_name(from: &mut impl Read) -> Result<Vec<u8>, SnapshotError> {
    let (mut name, length) = (Vec::new(), number::<2>(from)?);
    read_into(from, &mut name, length as usize)?;
    Ok(name)
}

/// Reads a number of at most eight bytes.
fn number<const BYTES: usize>(from: &mut impl Read) -> Result<u64, SnapshotError> {
    let mut word = [0; 8];
    word[..BYTES].copy_from_slice(&bytes::<BYTES>(from)?);
    Ok(u64::from_le_bytes(word))
}
