//! Turns among the connections of a worker (fair queueing): one that sends much cannot delay those that send little. The first
//! bytes that come on an idle connection are read at once, and more while all connections together have not read too much since the
//! last turn. What is beyond it waits in a queue, from which one connection goes on at a time, each after all other tasks of the
//! worker and its sockets had their turn.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take},
    runtime::Handle,
    sync::{mpsc, oneshot},
    task::yield_now,
};

/// Bytes that an idle connection reads at once in any case: about ten calls. When many become busy in the same moment, others wait
/// for so much of each.
const FIRST_BYTES: u64 = 1 << 10;
/// Most bytes that connections read at once beyond that, together, until the next turn. A turn costs more than a few calls.
const SHARED_BYTES: u64 = 8 << 10;
/// Most bytes that a connection reads in a turn: about 150 calls.
// Few enough that others do not notice, and so many that a burst of calls that are taken back is seen as one: h2 counts those
// that were taken back before they were accepted, which happens between two turns.
const TURN_BYTES: u64 = 12 << 10;

/// The queue of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    // It holds each connection at most once.
    queue: mpsc::UnboundedSender<oneshot::Sender<()>>,
    /// Bytes of [`SHARED_BYTES`] that are left until the next turn.
    shared: Arc<AtomicU64>,
}

impl Turns {
    /// For the connections that this runtime serves.
    pub(crate) fn start(runtime: &Handle) -> Self {
        let (queue, mut next) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
        let shared = Arc::new(AtomicU64::new(SHARED_BYTES));
        let left = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Some(turn) = next.recv().await {
                left.store(SHARED_BYTES, Ordering::Relaxed);
                // Otherwise the connection has gone.
                if turn.send(()).is_ok() {
                    // This goes on after all tasks that are ready have run and the sockets have been polled.
                    yield_now().await;
                }
            }
        });
        Self { queue, shared }
    }

    /// Takes what is left of the bytes that connections share.
    fn take_shared(&self) -> u64 {
        self.shared.swap(0, Ordering::Relaxed)
    }

    /// Returns those that were not read. A turn may have been given meanwhile, so they may be too many.
    fn return_shared(&self, bytes: u64) {
        let left = self.shared.load(Ordering::Relaxed) + bytes;
        self.shared.store(left.min(SHARED_BYTES), Ordering::Relaxed);
    }

    fn wait(&self) -> oneshot::Receiver<()> {
        let (turn, wait) = oneshot::channel();
        // A runtime that has ended gives no turns, and polls nothing.
        let _ = self.queue.send(turn);
        wait
    }
}

/// A stream that is read in turns.
pub(crate) struct InTurns<I> {
    /// With what is left of the turn.
    io: Take<I>,
    turns: Turns,
    turn: Turn,
}

enum Turn {
    /// All that came has been read.
    Idle,
    /// The first bytes.
    First,
    /// Of the shared bytes, all that were left.
    Shared,
    Reading,
    Waiting(oneshot::Receiver<()>),
}

impl<I: AsyncRead> InTurns<I> {
    pub(crate) fn new(io: I, turns: Turns) -> Self {
        Self { io: io.take(0), turns, turn: Turn::Idle }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for InTurns<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, turns, turn } = &mut *self;
        loop {
            match turn {
                Turn::Idle => {
                    io.set_limit(FIRST_BYTES);
                    *turn = Turn::First;
                }
                Turn::First if io.limit() == 0 => {
                    io.set_limit(turns.take_shared());
                    *turn = Turn::Shared;
                }
                Turn::Shared | Turn::Reading if io.limit() == 0 => *turn = Turn::Waiting(turns.wait()),
                Turn::First | Turn::Shared | Turn::Reading => {
                    let read = Pin::new(&mut *io).poll_read(cx, buffer);
                    if read.is_pending() {
                        if matches!(turn, Turn::Shared) {
                            turns.return_shared(io.limit());
                        }
                        *turn = Turn::Idle;
                    }
                    return read;
                }
                Turn::Waiting(wait) => {
                    // An error means that the runtime ends.
                    let _ = ready!(Pin::new(wait).poll(cx));
                    io.set_limit(TURN_BYTES);
                    *turn = Turn::Reading;
                }
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for InTurns<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.io.get_mut()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.io.get_mut()).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.get_ref().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.io.get_mut()).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.io.get_mut()).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
