//! Connections between replicas and the store, as seen by a replica. The world transports the bytes.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use futures_util::future::{BoxFuture, poll_fn};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_core::{domain::Micros, testing::Random};
use weir_store::{
    platform::{Platform, Stream},
    url::Address,
};

/// The state of a connection, as known to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Dialing,
    Open,
    Refused,
    /// Closed by the server.
    Closed,
    Reset,
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct End {
    pub id: u64,
    pub state: State,
    received: VecDeque<u8>,
    sent: Vec<u8>,
    waker: Option<Waker>,
}

impl End {
    /// Receives bytes.
    pub fn deliver(&mut self, bytes: &[u8]) {
        if self.state == State::Open {
            self.received.extend(bytes);
        }
        self.wake();
    }

    pub fn become_state(&mut self, state: State) {
        self.state = state;
        self.wake();
    }

    /// Takes the written bytes.
    pub fn take_sent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sent)
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A network operation of a replica, recorded until the world collects it.
#[derive(Debug)]
pub enum Call {
    Dial(Arc<Mutex<End>>, Address),
    Write(u64),
    Close(u64),
}

#[derive(Debug)]
struct Board {
    calls: Vec<Call>,
    next_id: u64,
    random: Random,
}

/// The simulated machine of one replica process.
#[derive(Clone, Debug)]
pub struct Simulated {
    board: Arc<Mutex<Board>>,
    wall_clock: Micros,
}

impl Simulated {
    /// Makes a machine with this wall clock at its start. Its connections have IDs from `first_id`.
    pub fn new(wall_clock: Micros, first_id: u64, random: Random) -> Self {
        let board = Board { calls: Vec::new(), next_id: first_id, random };
        Self { board: Arc::new(Mutex::new(board)), wall_clock }
    }

    fn dial(&self, address: &Address) -> Wire {
        let mut board = self.board.lock();
        let id = board.next_id;
        board.next_id += 1;
        let end = End { id, state: State::Dialing, received: VecDeque::new(), sent: Vec::new(), waker: None };
        let end = Arc::new(Mutex::new(end));
        board.calls.push(Call::Dial(Arc::clone(&end), address.clone()));
        Wire { id, end, board: Arc::clone(&self.board) }
    }

    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.board.lock().calls)
    }

    /// Returns the last calls of a replica that has ended. They are sorted, since its runtime drops connections in no
    /// deterministic order.
    pub fn take_last_calls(&self) -> Vec<Call> {
        let mut calls = self.take_calls();
        calls.sort_by_key(|call| if let Call::Close(id) = call { *id } else { 0 });
        calls
    }
}

impl Platform for Simulated {
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let wire = self.dial(address);
            poll_fn(|context| wire.poll_dialed(context)).await?;
            Ok(Box::new(wire) as Box<dyn Stream>)
        })
    }

    fn wall_clock(&self) -> Micros {
        self.wall_clock
    }

    fn random(&self) -> u64 {
        self.board.lock().random.within(i64::MIN, i64::MAX) as u64
    }
}

/// The client's end as a stream.
struct Wire {
    id: u64,
    end: Arc<Mutex<End>>,
    board: Arc<Mutex<Board>>,
}

impl Wire {
    fn poll_dialed(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut end = self.end.lock();
        match end.state {
            State::Dialing => {
                end.waker = Some(context.waker().clone());
                Poll::Pending
            }
            State::Open => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut end = self.end.lock();
        let count = end.received.len().min(buffer.remaining());
        if count > 0 {
            for byte in end.received.drain(..count) {
                buffer.put_slice(&[byte]);
            }
            return Poll::Ready(Ok(()));
        }
        match end.state {
            State::Open => {
                end.waker = Some(context.waker().clone());
                Poll::Pending
            }
            State::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut end = self.end.lock();
        if end.state == State::Reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        end.sent.extend_from_slice(bytes);
        self.board.lock().calls.push(Call::Write(self.id));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.board.lock().calls.push(Call::Close(self.id));
    }
}
