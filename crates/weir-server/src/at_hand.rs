//! The calls of a connection: run in its own task as far as they go without waiting, and in one of their own from there.
//!
//! What memory decides never waits once its message is there. A task for each such call, with its way through the
//! scheduler, would cost a twentieth of what the call does (`benches/profile/run`).

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Most calls run before others of the thread have their turn.
const MAX_CALLS_A_TURN: usize = 32;
/// Calls that may wait before their connection is read from again. Of calls that are taken back as soon as they are made any
/// number could come, since they do not count among those that are open.
const MAX_CALLS_WAITING: usize = 256;

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;
type Queue = Mutex<VecDeque<Call>>;

/// The calls of one connection, which go with it.
pub struct CallsAtHand {
    /// None where every call has a task of its own from its start.
    waiting: Option<Arc<Queue>>,
}

/// Where HTTP leaves the calls of a connection.
// HTTP gives each call one of these to keep, so it must not keep them.
#[derive(Clone)]
pub struct Leave(Option<Weak<Queue>>);

impl CallsAtHand {
    /// For a connection of this runtime: where several threads share it, any of them may take a call.
    pub fn new() -> Self {
        let shared = Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread;
        Self { waiting: (!shared).then(Arc::default) }
    }

    /// Where calls are left.
    pub fn leave(&self) -> Leave {
        Leave(self.waiting.as_ref().map(Arc::downgrade))
    }

    /// Goes on with a connection and what it left here. Calls that it leaves at its end are not begun.
    pub fn poll<C: Future>(&self, mut connection: Pin<&mut C>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let Some(waiting) = &self.waiting else { return connection.poll(cx) };
        if waiting.lock().len() >= MAX_CALLS_WAITING {
            run(waiting);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = connection.as_mut().poll(cx);
        if polled.is_ready() || !run(waiting) {
            return polled;
        }
        // Sends the answers.
        let polled = connection.poll(cx);
        if polled.is_pending() && !waiting.lock().is_empty() {
            cx.waker().wake_by_ref();
        }
        polled
    }
}

impl<F> Executor<F> for Leave
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: F) {
        match &self.0 {
            // A connection that has gone wants nothing done.
            Some(waiting) => drop(waiting.upgrade().map(|waiting| waiting.lock().push_back(Box::pin(call)))),
            None => drop(tokio::spawn(call)),
        }
    }
}

/// Runs some of the calls; `false` if there was none.
fn run(waiting: &Queue) -> bool {
    let mut ran = false;
    for _ in 0..MAX_CALLS_A_TURN {
        let Some(mut call) = waiting.lock().pop_front() else { break };
        ran = true;
        // Nobody has to wake what is done or gets a task, where it is asked once more. A call that panics ends alone, as a task would.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        if matches!(polled, Ok(Poll::Pending)) {
            tokio::spawn(call);
        }
    }
    ran
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn},
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use tokio::{sync::oneshot, task::yield_now};

    use super::*;

    /// A connection that leaves so many calls whenever it is asked, and never ends.
    fn leaving(leave: Leave, count: usize, call: impl Fn() + Send + Sync + 'static) -> impl Future<Output = ()> {
        let call = Arc::new(call);
        poll_fn(move |_| {
            for _ in 0..count {
                let call = Arc::clone(&call);
                leave.execute(async move { call() });
            }
            Poll::Pending
        })
    }

    /// The same, of which the calls come when it is first asked.
    fn once(leave: Leave, count: usize, call: impl Fn() + Send + Sync + 'static) -> impl Future<Output = ()> {
        let mut all = Box::pin(leaving(leave, count, call));
        let mut asked = false;
        poll_fn(move |cx| if std::mem::replace(&mut asked, true) { Poll::Pending } else { all.as_mut().poll(cx) })
    }

    fn counting() -> (Arc<AtomicUsize>, impl Fn() + Send + Sync + 'static) {
        let counted = Arc::new(AtomicUsize::new(0));
        let mine = Arc::clone(&counted);
        (counted, move || {
            mine.fetch_add(1, Ordering::Relaxed);
        })
    }

    #[tokio::test]
    async fn a_turn_runs_some_calls_and_the_next_ones_the_rest() {
        let (calls, (counted, count)) = (CallsAtHand::new(), counting());
        let mut connection = pin!(once(calls.leave(), 2 * MAX_CALLS_A_TURN + 1, count));
        let cx = &mut Context::from_waker(Waker::noop());
        for done in [MAX_CALLS_A_TURN, 2 * MAX_CALLS_A_TURN, 2 * MAX_CALLS_A_TURN + 1] {
            assert!(calls.poll(connection.as_mut(), cx).is_pending());
            assert_eq!(counted.load(Ordering::Relaxed), done);
        }
    }

    #[tokio::test]
    async fn a_connection_with_more_calls_wakes_itself() {
        let (calls, (counted, count)) = (CallsAtHand::new(), counting());
        let connection = once(calls.leave(), 1_000, count);
        tokio::spawn(async move {
            let mut connection = pin!(connection);
            poll_fn(|cx| calls.poll(connection.as_mut(), cx)).await;
        });
        for _ in 0..1_000 / MAX_CALLS_A_TURN + 2 {
            yield_now().await;
        }
        assert_eq!(counted.load(Ordering::Relaxed), 1_000);
    }

    #[tokio::test]
    async fn a_connection_is_not_asked_for_more_than_may_wait() {
        const AT_ONCE: usize = 100;
        let (calls, (counted, count)) = (CallsAtHand::new(), counting());
        let mut connection = pin!(leaving(calls.leave(), AT_ONCE, count));
        for turn in 1..100 {
            assert!(calls.poll(connection.as_mut(), &mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(counted.load(Ordering::Relaxed), turn * MAX_CALLS_A_TURN);
            let waiting = calls.waiting.as_ref().unwrap().lock().len();
            assert!(waiting < MAX_CALLS_WAITING + 2 * AT_ONCE, "{waiting}");
        }
    }

    #[tokio::test]
    async fn what_a_connection_leaves_at_its_end_goes_with_it() {
        let (calls, held) = (CallsAtHand::new(), Arc::new(()));
        // As HTTP does, a call keeps the place where calls are left.
        let (theirs, leave) = (Arc::clone(&held), calls.leave());
        calls.leave().execute(async move {
            let _kept = (theirs, leave);
            pending::<()>().await;
        });
        assert!(calls.poll(pin!(async {}), &mut Context::from_waker(Waker::noop())).is_ready());
        let (leave, theirs) = (calls.leave(), Arc::clone(&held));
        drop(calls);
        assert_eq!(Arc::strong_count(&held), 2);
        leave.execute(async move { drop(theirs) });
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    async fn a_call_that_waits_goes_on_by_itself() {
        let calls = CallsAtHand::new();
        let (go, going) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel::<()>();
        calls.leave().execute(async move {
            going.await.unwrap();
            done.send(()).unwrap();
        });
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(calls.poll(pin!(pending::<()>()), cx).is_pending());
        go.send(()).unwrap();
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn a_call_that_panics_ends_alone() {
        let (calls, (counted, count)) = (CallsAtHand::new(), counting());
        calls.leave().execute(async { panic!("as a test wants it") });
        calls.leave().execute(async move { count() });
        assert!(calls.poll(pin!(pending::<()>()), &mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(counted.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn threads_that_share_a_runtime_share_calls() {
        let (calls, (done, is_done)) = (CallsAtHand::new(), oneshot::channel());
        calls.leave().execute(async move { done.send(()).unwrap() });
        is_done.await.unwrap();
    }
}
