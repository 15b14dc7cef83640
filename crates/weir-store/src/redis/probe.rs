//! Probes: tests on a dedicated key whether a server can do everything that checks need.

use std::{io::Write, sync::Arc};

use deadpool_redis::redis::{ErrorKind, RedisResult, ServerErrorKind, aio::MultiplexedConnection};
use parking_lot::Mutex;

use super::{
    encode::call_head,
    script::{self, Task},
    slots::slot_of,
};
/// Most numbers tried for a probe key; on average about sixty of them fall into each hash slot.
const MAX_PROBE_KEYS: u32 = 1_000_000;

/// The key for probes of a server.
#[derive(Debug)]
pub struct ProbeKey {
    /// The key's prefix; it contains no braces.
    prefix: Vec<u8>,
    slot_key: Mutex<SlotKey>,
}

#[derive(Debug)]
struct SlotKey {
    /// The hash slot; `None` outside of a Cluster.
    slot: Option<u16>,
    /// Found on first use, because that takes a millisecond.
    key: Option<Arc<[u8]>>,
}

impl ProbeKey {
    /// Creates a probe key under `prefix`, in a Cluster for this hash slot.
    pub fn new(prefix: &str, slot: Option<u16>) -> Self {
        Self { prefix: [prefix.as_bytes(), b"probe"].concat(), slot_key: Mutex::new(SlotKey { slot, key: None }) }
    }

    /// Returns the hash slot; `None` outside of a Cluster.
    pub fn slot(&self) -> Option<u16> {
        self.slot_key.lock().slot
    }

    /// Moves the key to this hash slot, because the server has lost the previous one.
    pub(crate) fn put_in(&self, slot: u16) {
        *self.slot_key.lock() = SlotKey { slot: Some(slot), key: None };
    }

    /// Returns the key.
    pub fn get(&self) -> Arc<[u8]> {
        let mut slot_key = self.slot_key.lock();
        let slot = slot_key.slot;
        Arc::clone(slot_key.key.get_or_insert_with(|| self.find(slot)))
    }

    fn find(&self, slot: Option<u16>) -> Arc<[u8]> {
        let Some(slot) = slot else { return self.prefix.as_slice().into() };
        let mut key = self.prefix.clone();
        for number in 0..MAX_PROBE_KEYS {
            key.truncate(self.prefix.len());
            // Only the part in braces is hashed. Writing to memory cannot fail.
            let _ = write!(key, ":{{{number}}}");
            if slot_of(&key) == slot {
                break;
            }
        }
        key.into()
    }
}

/// Tests that the server runs the script, accepts writes and permits everything that checks need, before anything is
/// charged: otherwise a missing permission would only show in the middle of a write.
///
/// # Errors
/// The reason why it does not.
pub async fn probe(connection: MultiplexedConnection, key: &[u8]) -> RedisResult<()> {
    match script::run(connection, &[key], &call_head(None, Task::Probe, 0), false).await {
        // The hash slot has moved to another server, but this one answers.
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
