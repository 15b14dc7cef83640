//! Answers of a port that their clients have not read. Flow control lets a client leave them all here, so they are bounded
//! together, and where they are too many the connection that has the most is closed.

use std::sync::Arc;

use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::slots::{Full, Slot, Slots};

/// Most bytes of the answers of a port that are not read before a connection is closed for a further one.
const MAX_BYTES: usize = 32 << 20;
/// Most, with those of connections that are closed and not gone.
pub const MAX_UNREAD_BYTES: usize = 48 << 20;
/// So many of each connection are not among them: what a client reads as it comes takes no slot.
pub const FREE_UNREAD_BYTES: usize = 16 << 10;
/// An answer up to this is no larger than what its call takes by itself, and not counted.
pub const SMALL_ANSWER_BYTES: usize = 1 << 10;

/// How much memory an answer takes. For the extensions of a response whose body does not tell.
#[derive(Clone, Copy, Debug)]
pub struct AnswerBytes(pub usize);

/// The answers of a connection that its client has not read.
#[derive(Debug)]
pub(crate) struct Unread {
    slots: Arc<Slots>,
    owner: u64,
    answers: Mutex<Answers>,
    too_many: CancellationToken,
}

#[derive(Debug, Default)]
struct Answers {
    bytes: usize,
    /// Of those that are not free.
    slot: Option<Slot>,
}

/// An answer that is not read, until this is dropped.
#[derive(Debug)]
pub struct UnreadAnswer {
    unread: Arc<Unread>,
    bytes: usize,
}

/// Those of a port.
pub(crate) fn of_port() -> Arc<Slots> {
    Slots::new(MAX_BYTES, MAX_UNREAD_BYTES)
}

impl Unread {
    /// None yet, of a connection of this port.
    pub(crate) fn new(port: &Arc<Slots>) -> Arc<Self> {
        let (slots, owner) = (Arc::clone(port), port.owner());
        Arc::new(Self { slots, owner, answers: Mutex::default(), too_many: CancellationToken::new() })
    }

    /// Counts an answer.
    ///
    /// # Errors
    /// [`Full`]: too many are not read, or the connection is to be closed.
    pub(crate) fn add(self: &Arc<Self>, bytes: usize) -> Result<Arc<UnreadAnswer>, Full> {
        let mut answers = self.answers.lock();
        // One that was evicted takes no further slot.
        if self.too_many.is_cancelled() {
            return Err(Full);
        }
        let counted = (answers.bytes + bytes).saturating_sub(FREE_UNREAD_BYTES);
        match &mut answers.slot {
            Some(slot) => slot.resize(counted)?,
            none if counted > 0 => *none = Some(self.slots.take_for(self.owner, counted, self.too_many.clone())?),
            _none => {}
        }
        answers.bytes += bytes;
        Ok(Arc::new(UnreadAnswer { unread: Arc::clone(self), bytes }))
    }

    /// Cancelled once the connection has to be closed.
    pub(crate) fn too_many(&self) -> &CancellationToken {
        &self.too_many
    }
}

impl UnreadAnswer {
    /// Bytes of the answer, which is not read before they are dropped.
    pub fn with(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        struct Owned(Bytes, #[expect(dead_code, reason = "it is dropped with the bytes")] Arc<UnreadAnswer>);
        impl AsRef<[u8]> for Owned {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Bytes::from_owner(Owned(bytes, Arc::clone(self)))
    }
}

impl Drop for UnreadAnswer {
    fn drop(&mut self) {
        let mut answers = self.unread.answers.lock();
        answers.bytes -= self.bytes;
        match answers.bytes.saturating_sub(FREE_UNREAD_BYTES) {
            0 => answers.slot = None,
            counted => {
                let _ = answers.slot.as_mut().map(|slot| slot.resize(counted));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_with_the_most_unread_bytes_is_closed() {
        let port = Slots::new(10, 16);
        let connections = [(); 3].map(|()| Unread::new(&port));
        let _free = connections.each_ref().map(|unread| unread.add(FREE_UNREAD_BYTES).unwrap());
        let is_closed = || connections.each_ref().map(|unread| unread.too_many().is_cancelled());
        let few = connections[0].add(2).unwrap();
        let read = connections[1].add(8).unwrap();
        let pieces = [read.with(Bytes::from_static(b"ans")), read.with(Bytes::from_static(b"wer"))];
        drop((read, pieces));
        let many: Vec<_> = (0..3).map(|_| connections[1].add(2).unwrap()).collect();
        assert_eq!(is_closed(), [false; 3], "what was read does not count");
        let last = connections[2].add(4).unwrap();
        assert_eq!(is_closed(), [false, true, false]);
        assert_eq!(connections[1].add(5).err(), Some(Full), "it is not gone yet");
        drop((many, few, last));
        assert_eq!(connections[1].add(1).err(), Some(Full), "it is to be closed");
        assert!(connections[2].add(10).is_ok());
        assert_eq!(is_closed(), [false, true, false]);
    }

    #[test]
    fn nothing_is_left_of_answers_that_had_no_room_or_whose_connection_was_closed() {
        let port = Slots::new(10, 16);
        let [one, other] = [(); 2].map(|()| Unread::new(&port));
        let answer = one.add(FREE_UNREAD_BYTES + 5).unwrap();
        assert_eq!([one.add(12).err(), one.add(12).err()], [Some(Full); 2]);
        other.too_many().cancel();
        let more = one.add(4).unwrap();
        one.too_many().cancel();
        drop((answer, more));
        assert!(port.is_empty());
    }
}
