//! Probes: whether a server can do all that a check needs, tried on a key of its own.

use std::{io::Write, sync::Arc};

use deadpool_redis::redis::{ErrorKind, RedisResult, ServerErrorKind, aio::MultiplexedConnection};
use parking_lot::Mutex;

use super::{
    encode::call_head,
    script::{self, Task},
    slots::slot_of,
};
/// Numbers that are tried for a probe's key; sixty of them are in each slot.
const MOST_PROBE_KEYS: u32 = 1_000_000;

/// A key that lives on a server, for probes.
#[derive(Debug)]
pub struct ProbeKey {
    /// The key's prefix; no braces.
    prefix: Vec<u8>,
    slot_key: Mutex<SlotKey>,
}

#[derive(Debug)]
struct SlotKey {
    /// The slot, where there are slots.
    slot: Option<u16>,
    /// Looked for when it is wanted first, because that takes a millisecond.
    key: Option<Arc<[u8]>>,
}

impl ProbeKey {
    /// A key of the keys under `prefix`; in this slot, where there are slots.
    pub fn new(prefix: &str, slot: Option<u16>) -> Self {
        Self { prefix: [prefix.as_bytes(), b"probe"].concat(), slot_key: Mutex::new(SlotKey { slot, key: None }) }
    }

    /// The slot, where there are slots.
    pub fn slot(&self) -> Option<u16> {
        self.slot_key.lock().slot
    }

    /// From now on a key in this slot, since the server has lost the one before.
    pub(crate) fn put_in(&self, slot: u16) {
        *self.slot_key.lock() = SlotKey { slot: Some(slot), key: None };
    }

    /// The key.
    pub fn get(&self) -> Arc<[u8]> {
        let mut slot_key = self.slot_key.lock();
        let slot = slot_key.slot;
        Arc::clone(slot_key.key.get_or_insert_with(|| self.find(slot)))
    }

    fn find(&self, slot: Option<u16>) -> Arc<[u8]> {
        let Some(slot) = slot else { return self.prefix.as_slice().into() };
        let mut key = self.prefix.clone();
        for number in 0..MOST_PROBE_KEYS {
            key.truncate(self.prefix.len());
            // Only what is in braces counts. A buffer in memory takes everything.
            let _ = write!(key, ":{{{number}}}");
            if slot_of(&key) == slot {
                break;
            }
        }
        key.into()
    }
}

/// Whether the server runs the script, takes writes and allows all that checks need, before anything is charged there: a
/// right that is missing would be noticed in the middle of a write.
///
/// # Errors
/// The reason why not.
pub async fn probe(connection: MultiplexedConnection, key: &[u8]) -> RedisResult<()> {
    match script::run(connection, key, &call_head(None, 0, Task::Probe, 0), false).await {
        // The slot is another server's by now, but this one answers.
        Err(error) if matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask)) => {
            Ok(())
        }
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::slots::SLOTS;

    #[test]
    fn every_slot_has_a_probe_key() {
        let key = ProbeKey::new("weir:", Some(0));
        for slot in (0..SLOTS as u16).step_by(1_489).chain([SLOTS as u16 - 1]) {
            key.put_in(slot);
            assert_eq!(slot_of(&key.get()), slot);
            assert!(key.get().starts_with(b"weir:probe:"), "where the user of the store may write");
        }
        assert_eq!(*ProbeKey::new("weir:", None).get(), *b"weir:probe");
    }
}
