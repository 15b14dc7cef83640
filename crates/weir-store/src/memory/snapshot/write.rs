//! Writing a snapshot: shard by shard, one slice of states per lock.

use std::io::{self, Write};

use super::{CHECKSUM, END_OF_STATES, MAGIC, VERSION, VERSION_WITHOUT_HOLDS, holds};
use crate::MemoryStore;
use weir_core::{
    algorithm::{LIST, State},
    domain::{Clock, Micros},
};

/// Most states copied while a shard is locked.
const SLICE: usize = 512;
/// Bytes collected before a write. A slice that exceeds them ends early.
const BUFFER: usize = 128 << 10;

/// A writer that counts and hashes its output.
struct Hashing<W> {
    out: W,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl<W: Write> Hashing<W> {
    /// Writes the buffer and clears it.
    fn take(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.hasher.update(buffer);
        self.out.write_all(buffer)?;
        self.bytes += buffer.len() as u64;
        buffer.clear();
        Ok(())
    }
}

/// Writes all unexpired states of a store. Returns their number and the bytes written. States that change during the
/// write may or may not be included; all others are.
pub(super) fn write<C: Clock>(store: &MemoryStore<C>, out: impl Write) -> io::Result<(u64, u64)> {
    let mut out = Hashing { out, hasher: blake3::Hasher::new(), bytes: 0 };
    let mut buffer = Vec::with_capacity(2 * BUFFER);
    let now = store.clock.now();
    // Before the states: a hold that is settled meanwhile then counts twice rather than not at all.
    let mut held = Vec::new();
    for shard in &store.shards {
        holds::write(&shard.lock(), now, &mut held)?;
    }
    let version = if held.is_empty() { version(store, now) } else { VERSION };
    head(now, version, &mut buffer)?;
    let mut states = 0;
    for shard in &store.shards {
        // Downwards, because removing a state moves the last one into its slot: no pending state moves to a written
        // slot.
        let mut end = usize::MAX;
        while end > 0 {
            let shard = shard.lock();
            let slice = shard.below(end).take(SLICE);
            end = end.min(shard.len());
            for (name, state, expires) in slice {
                if buffer.len() >= BUFFER {
                    break;
                }
                end -= 1;
                if expires > now {
                    record(name, state, expires, &mut buffer)?;
                    states += 1;
                }
            }
            drop(shard);
            if buffer.len() >= BUFFER {
                out.take(&mut buffer)?;
            }
        }
    }
    if version > VERSION_WITHOUT_HOLDS {
        buffer.push(END_OF_STATES);
        out.take(&mut buffer)?;
        out.take(&mut held)?;
    }
    buffer.push(END_OF_STATES);
    buffer.extend_from_slice(&u64::to_le_bytes(states));
    out.take(&mut buffer)?;
    out.out.write_all(out.hasher.finalize().as_bytes())?;
    out.out.flush()?;
    Ok((states, out.bytes + CHECKSUM as u64))
}

/// Returns the first version of the format that has all states. One that changes afterwards may be of a later version.
fn version<C: Clock>(store: &MemoryStore<C>, now: Micros) -> u32 {
    let mut version = VERSION_WITHOUT_HOLDS;
    for shard in &store.shards {
        let mut end = usize::MAX;
        while end > 0 && version < VERSION {
            let shard = shard.lock();
            let slice = shard.below(end).take(SLICE).filter(|(.., expires)| *expires > now);
            version = slice.map(|(_, state, _)| state.snapshot_version()).fold(version, u32::max);
            end = end.min(shard.len()).saturating_sub(SLICE);
        }
    }
    version
}

fn head(now: Micros, version: u32, out: &mut Vec<u8>) -> io::Result<()> {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&now.to_le_bytes());
    out.push(length(LIST.len())?);
    for entry in LIST {
        out.push(length(entry.name.len())?);
        out.extend_from_slice(entry.name.as_bytes());
    }
    Ok(())
}

fn record(name: &[u8], state: &State, expires: Micros, out: &mut Vec<u8>) -> io::Result<()> {
    let algorithm = LIST.iter().position(|entry| entry.name == state.algorithm());
    out.push(length(algorithm.map_or(0, |index| index + 1))?);
    let words = state.encode();
    out.extend_from_slice(&length::<u16>(words.len())?.to_le_bytes());
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&expires.to_le_bytes());
    out.extend_from_slice(&length::<u16>(name.len())?.to_le_bytes());
    out.extend_from_slice(name);
    Ok(())
}

/// Converts a length to the format's type. The bounds on keys, limits and states make it fit.
pub(super) fn length<T: TryFrom<usize>>(length: usize) -> io::Result<T> {
    T::try_from(length).map_err(|_| io::Error::other("a state is too large for the form"))
}
