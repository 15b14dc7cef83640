//! The answers of a stream that wait for the store. The stream drives them, and a task does while the client does not
//! read: HTTP/2 polls no stream whose flow-control window is full, and the permits of its decided checks belong to
//! others.

use std::{
    collections::VecDeque,
    mem,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::BytesMut;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesOrdered};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};
use tokio_util::task::AbortOnDropHandle;
use weir_server::{Connected, Overload, UnreadAnswer};
use weir_telemetry::request::carried;

use super::streaming::PIECE_BYTES;

/// Time without a poll after which the task drives the checks.
const UNREAD_AFTER: Duration = Duration::from_millis(100);

/// Answers that wait, in the order of their checks.
pub(super) struct WaitingAnswers {
    shared: Arc<Mutex<Shared>>,
    connected: Connected,
    /// The number of checks that are not answered, or whose answers are not taken.
    len: usize,
    /// Started by the first check.
    driver: Option<(AbortOnDropHandle<()>, Arc<Notify>)>,
}

/// State shared with the task.
#[derive(Default)]
struct Shared {
    waiting: FuturesOrdered<BoxFuture<'static, BytesMut>>,
    /// Answers to earlier checks, which the task has awaited; or the bound that one exceeded.
    unread: VecDeque<Result<(BytesMut, Arc<UnreadAnswer>), Overload>>,
    /// Whether the stream was polled since the task has looked.
    was_polled: bool,
    stream: Option<Waker>,
}

impl WaitingAnswers {
    /// Makes it without checks. Answers that the client does not read count for this connection.
    pub(super) fn new(connected: Connected) -> Self {
        Self { shared: Arc::default(), connected, len: 0, driver: None }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a check, which starts at the next poll.
    pub(super) fn push(&mut self, check: BoxFuture<'static, BytesMut>) {
        self.len += 1;
        let (_, started) = self.driver.get_or_insert_with(|| {
            let started = Arc::new(Notify::new());
            let driving = drive(Arc::clone(&self.shared), self.connected.clone(), Arc::clone(&started));
            (AbortOnDropHandle::new(tokio::spawn(carried(driving))), started)
        });
        let mut shared = self.shared.lock();
        if shared.waiting.is_empty() {
            started.notify_one();
        }
        shared.waiting.push_back(check);
    }

    /// Drops all checks.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        *self.shared.lock() = Shared::default();
    }

    /// Returns the next answer; `None` without checks.
    ///
    /// # Errors
    /// [`Overload`] if too many answers are not read. The later ones are lost.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BytesMut, Overload>>> {
        if self.len == 0 {
            return Poll::Ready(None);
        }
        let mut shared = self.shared.lock();
        shared.was_polled = true;
        let next = match shared.unread.pop_front() {
            Some(unread) => Some(unread.map(|(answer, _)| answer)),
            None => match shared.waiting.poll_next_unpin(cx) {
                Poll::Ready(answer) => answer.map(Ok),
                Poll::Pending => {
                    shared.stream.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
                    return Poll::Pending;
                }
            },
        };
        self.len -= 1;
        Poll::Ready(next)
    }
}

/// Drives checks whenever their stream is not polled for [`UNREAD_AFTER`]. Waits while there are none.
async fn drive(shared: Arc<Mutex<Shared>>, connected: Connected, started: Arc<Notify>) {
    loop {
        started.notified().await;
        loop {
            sleep(UNREAD_AFTER).await;
            let mut shared = shared.lock();
            shared.drive(&connected);
            if shared.waiting.is_empty() {
                break;
            }
        }
    }
}

impl Shared {
    fn drive(&mut self, connected: &Connected) {
        if mem::take(&mut self.was_polled) {
            return;
        }
        // By the waker of the stream, which may wait for these checks nevertheless.
        let waker = self.stream.clone().unwrap_or_else(|| Waker::noop().clone());
        while let Poll::Ready(Some(answer)) = self.waiting.poll_next_unpin(&mut Context::from_waker(&waker)) {
            let unread = connected.unread(answer.len() + PIECE_BYTES, None).map(|unread| (answer, unread));
            if unread.is_err() {
                self.waiting.clear();
            }
            self.unread.push_back(unread);
            waker.wake_by_ref();
        }
    }
}
