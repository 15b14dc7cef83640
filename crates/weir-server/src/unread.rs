//! Unread answers of a port. HTTP/2 flow control lets a client leave all its answers unread, so their total is bounded,
//! and beyond it the connection with the most is closed.

use std::sync::Arc;

use hyper::body::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    activity::InFlight,
    slots::{Full, Slot, Slots},
};

/// Maximum bytes of unread answers of a port before a connection is closed for a further one.
const MAX_BYTES: usize = 32 << 20;
/// Maximum bytes, including evicted connections that are still open.
pub const MAX_UNREAD_BYTES: usize = 48 << 20;
/// Bytes of each connection that are not counted: a client that reads as answers arrive takes no slot.
pub const FREE_UNREAD_BYTES: usize = 16 << 10;
/// Size up to which an answer is not counted, since it is no larger than the memory of its call.
pub const SMALL_ANSWER_BYTES: usize = 1 << 10;

/// Memory that an answer takes, as an extension of responses whose body does not state it.
#[derive(Clone, Copy, Debug)]
pub struct AnswerBytes(pub usize);

/// The unread answers of a connection.
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
    /// The slot of the bytes beyond [`FREE_UNREAD_BYTES`].
    slot: Option<Slot>,
}

/// One unread answer, counted until this is dropped. Its request is in flight until then.
#[derive(Debug)]
pub struct UnreadAnswer {
    unread: Arc<Unread>,
    bytes: usize,
    _in_flight: Option<InFlight>,
}

/// Makes the slots for the unread answers of a port.
pub(crate) fn of_port() -> Arc<Slots> {
    Slots::new(MAX_BYTES, MAX_UNREAD_BYTES)
}

impl Unread {
    /// Makes the count of a new connection of this port.
    pub(crate) fn new(port: &Arc<Slots>) -> Arc<Self> {
        let (slots, owner) = (Arc::clone(port), port.owner());
        Arc::new(Self { slots, owner, answers: Mutex::default(), too_many: CancellationToken::new() })
    }

    /// Counts an answer to this request.
    ///
    /// # Errors
    /// [`Full`] if too many answers are unread, or the connection must be closed.
    pub(crate) fn add(self: &Arc<Self>, bytes: usize, _in_flight: Option<InFlight>) -> Result<Arc<UnreadAnswer>, Full> {
        let mut answers = self.answers.lock();
        // An evicted connection takes no further slot.
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
        Ok(Arc::new(UnreadAnswer { unread: Arc::clone(self), bytes, _in_flight }))
    }

    /// Returns the token that is cancelled once the connection must be closed.
    pub(crate) fn too_many(&self) -> &CancellationToken {
        &self.too_many
    }
}

impl UnreadAnswer {
    /// Wraps bytes of the answer, so that it counts as unread until they are dropped.
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
        let _free = connections.each_ref().map(|unread| unread.add(FREE_UNREAD_BYTES, None).unwrap());
        let is_closed = || connections.each_ref().map(|unread| unread.too_many().is_cancelled());
        let few = connections[0].add(2, None).unwrap();
        let read = connections[1].add(8, None).unwrap();
        let pieces = [read.with(Bytes::from_static(b"ans")), read.with(Bytes::from_static(b"wer"))];
        drop((read, pieces));
        let many: Vec<_> = (0..3).map(|_| connections[1].add(2, None).unwrap()).collect();
        assert_eq!(is_closed(), [false; 3], "what was read does not count");
        let last = connections[2].add(4, None).unwrap();
        assert_eq!(is_closed(), [false, true, false]);
        assert_eq!(connections[1].add(5, None).err(), Some(Full), "it is not gone yet");
        drop((many, few, last));
        assert_eq!(connections[1].add(1, None).err(), Some(Full), "it is to be closed");
        assert!(connections[2].add(10, None).is_ok());
        assert_eq!(is_closed(), [false, true, false]);
    }

    #[test]
    fn rejected_answers_and_closed_connections_leave_no_bytes() {
        let port = Slots::new(10, 16);
        let [one, other] = [(); 2].map(|()| Unread::new(&port));
        let answer = one.add(FREE_UNREAD_BYTES + 5, None).unwrap();
        assert_eq!([one.add(12, None).err(), one.add(12, None).err()], [Some(Full); 2]);
        other.too_many().cancel();
        let more = one.add(4, None).unwrap();
        one.too_many().cancel();
        drop((answer, more));
        assert!(port.is_empty());
    }
}
