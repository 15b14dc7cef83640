//! Fair queueing among the connections of a worker: a connection that sends much cannot delay those that send little.
//! The first bytes on an idle connection are read immediately, and more while all connections together stay within a
//! shared budget since the last turn. Beyond it a connection waits in a queue, from which one connection continues at a
//! time, each after all other tasks and sockets of the worker had their turn. The portions are small while there are
//! connections that send little, which benefit from that.

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

use crate::linger::Linger;

/// Sizes of reads, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Portions {
    /// Bytes that an idle connection always reads immediately. When many become busy in the same moment, others wait
    /// for this much of each.
    first: u64,
    /// Bytes beyond that which all connections together read immediately, until the next turn.
    shared: u64,
    /// Maximum number of bytes that a connection reads in a turn.
    turn: u64,
}

/// For throughput: first about 20 calls, then turns of 150 to 200. A turn costs a connection another pair of system
/// calls.
const LARGE: Portions = Portions { first: 1 << 10, shared: 8 << 10, turn: 12 << 10 };
/// For latency, while there are connections that send little: a turn of 30 calls takes 0.1 to 0.2 ms.
const SMALL: Portions = Portions { first: 256, shared: 1 << 10, turn: 2 << 10 };
/// Number of consecutive reads of at most [`Portions::first`] of [`SMALL`] after which a connection counts as one that
/// sends little.
const LITTLE_READS: u32 = 8;
/// Number of small turns after a read of a connection that sends little.
const SMALL_TURNS: u64 = 64;

/// The queue of a worker.
#[derive(Clone, Debug)]
pub(crate) struct FairQueue {
    // Holds each connection at most once.
    queue: mpsc::UnboundedSender<oneshot::Sender<()>>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// Rest of [`Portions::shared`] until the next turn, in bytes.
    shared: AtomicU64,
    /// Number of small turns still to come.
    small_turns: AtomicU64,
}

impl State {
    fn portions(&self) -> Portions {
        if self.small_turns.load(Ordering::Relaxed) > 0 { SMALL } else { LARGE }
    }

    fn begin_turn(&self) {
        let small_turns = self.small_turns.load(Ordering::Relaxed);
        self.small_turns.store(small_turns.saturating_sub(1), Ordering::Relaxed);
        self.shared.store(self.portions().shared, Ordering::Relaxed);
    }
}

impl FairQueue {
    /// Starts the queue for the connections of this runtime.
    pub(crate) fn start(runtime: &Handle) -> Self {
        let (queue, mut next) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
        let state = Arc::new(State { shared: AtomicU64::new(LARGE.shared), small_turns: AtomicU64::new(0) });
        let shared = Arc::clone(&state);
        runtime.spawn(async move {
            while let Some(turn) = next.recv().await {
                shared.begin_turn();
                // Fails if the connection is closed.
                if turn.send(()).is_ok() {
                    // Continues after all tasks that are ready have run and the sockets have been polled.
                    yield_now().await;
                }
            }
        });
        Self { queue, state }
    }

    /// Takes the rest of the shared budget.
    fn take_shared(&self) -> u64 {
        self.state.shared.swap(0, Ordering::Relaxed)
    }

    /// Returns unread bytes to the shared budget, up to its size: a turn may have started meanwhile.
    fn return_shared(&self, bytes: u64) {
        let left = self.state.shared.load(Ordering::Relaxed) + bytes;
        self.state.shared.store(left.min(self.state.portions().shared), Ordering::Relaxed);
    }

    /// Makes the next turns small, after a read of a connection that sends little.
    fn keep_small(&self) {
        self.state.small_turns.store(SMALL_TURNS, Ordering::Relaxed);
    }

    fn wait(&self) -> oneshot::Receiver<()> {
        let (turn, wait) = oneshot::channel();
        // Fails only after the end of the runtime, which then polls nothing.
        let _ = self.queue.send(turn);
        wait
    }
}

/// A stream that is read in turns, and whose shutdown waits for the client's.
pub(crate) struct FairStream<I> {
    /// The stream, limited to the rest of the turn.
    io: Take<I>,
    queue: FairQueue,
    state: ReadState,
    /// Number of consecutive reads with little.
    little_reads: u32,
    linger: Linger,
}

enum ReadState {
    /// All received bytes have been read.
    Idle,
    /// Reading the first bytes, at most this many.
    First(u64),
    /// Reading the rest of the shared budget.
    Shared,
    Reading,
    Waiting(oneshot::Receiver<()>),
}

impl<I: AsyncRead> FairStream<I> {
    pub(crate) fn new(io: I, queue: FairQueue) -> Self {
        let first = queue.state.portions().first;
        Self::with_first(io, queue, first)
    }

    /// Makes a stream whose very first `bytes` are read immediately.
    pub(crate) fn with_first(io: I, queue: FairQueue, bytes: u64) -> Self {
        Self { io: io.take(bytes), queue, state: ReadState::First(bytes), little_reads: 0, linger: Linger::default() }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for FairStream<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, queue, state, little_reads, .. } = &mut *self;
        loop {
            match *state {
                ReadState::Idle => {
                    let first = queue.state.portions().first;
                    io.set_limit(first);
                    *state = ReadState::First(first);
                }
                ReadState::First(_) if io.limit() == 0 => {
                    *little_reads = 0;
                    io.set_limit(queue.take_shared());
                    *state = ReadState::Shared;
                }
                ReadState::Shared | ReadState::Reading if io.limit() == 0 => *state = ReadState::Waiting(queue.wait()),
                ReadState::First(_) | ReadState::Shared | ReadState::Reading => {
                    let read = Pin::new(&mut *io).poll_read(cx, buffer);
                    if read.is_pending() {
                        match *state {
                            ReadState::First(most) => match most - io.limit() {
                                0 => {}
                                bytes if bytes > SMALL.first => *little_reads = 0,
                                _ if *little_reads < LITTLE_READS => *little_reads += 1,
                                _ => queue.keep_small(),
                            },
                            ReadState::Shared => queue.return_shared(io.limit()),
                            _ => {}
                        }
                        *state = ReadState::Idle;
                    }
                    return read;
                }
                ReadState::Waiting(ref mut wait) => {
                    // An error means that the runtime is ending.
                    let _ = ready!(Pin::new(wait).poll(cx));
                    io.set_limit(queue.state.portions().turn);
                    *state = ReadState::Reading;
                }
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for FairStream<I> {
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
        let Self { io, linger, .. } = &mut *self;
        linger.poll_shutdown(io.get_mut(), cx)
    }
}

#[cfg(test)]
mod tests;
