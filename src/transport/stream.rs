//! A stream of checks: one answer for each, in order, read no further ahead than its answers are taken.

use std::{sync::Arc, time::Instant};

use futures_util::{Stream, StreamExt, future::Either};
use tonic::Status;

use super::{drain::Drain, observe::Checks, status::shutting_down};
use crate::{
    proto::{CheckRequest, CheckResponse},
    store::Store,
    telemetry::Transport,
};

/// Most checks of one stream that are under way at once. They share round trips to a store that is waited for.
// Few enough that a hundred streams that never pause stay below the bound of the store's queue.
const MAX_UNDER_WAY: usize = 64;

/// The answers to a stream of requests. It ends with the requests, at the first that cannot be read, or with
/// UNAVAILABLE when the drain begins.
pub fn answers<S, R>(checks: Checks<S>, requests: R, drain: Drain) -> impl Stream<Item = Result<CheckResponse, Status>>
where
    S: Store,
    R: Stream<Item = Result<CheckRequest, Status>> + Unpin,
{
    let at_once = checks.limiter().store().decides_at_once();
    let requests = until_drain(requests, drain);
    // Its own count of who holds it: the limiter's is shared by all threads.
    let checks = Arc::new(checks);
    let answer = move |request| answer(Arc::clone(&checks), request);
    if at_once { Either::Left(requests.then(answer)) } else { Either::Right(together(requests, answer)) }
}

/// The requests to their end, to the first that cannot be read, or to the drain. The latter two are the last item.
fn until_drain<R>(requests: R, drain: Drain) -> impl Stream<Item = Result<CheckRequest, Status>>
where
    R: Stream<Item = Result<CheckRequest, Status>> + Unpin,
{
    futures_util::stream::unfold(Some((requests, drain)), |open| async {
        let (mut requests, drain) = open?;
        // A client that never pauses would never let the select below look at the drain.
        if drain.has_begun() {
            return Some((Err(shutting_down()), None));
        }
        let request = tokio::select! {
            biased;
            request = requests.next() => request?,
            () = drain.begun() => Err(shutting_down()),
        };
        let open = request.is_ok().then_some((requests, drain));
        Some((request, open))
    })
}

/// Answers requests while others are read, in their order. Each begins to be answered before the next.
fn together<T, F: Future>(
    requests: impl Stream<Item = T>,
    answer: impl FnMut(T) -> F,
) -> impl Stream<Item = F::Output> {
    requests.map(answer).buffered(MAX_UNDER_WAY)
}

async fn answer<S: Store>(
    checks: Arc<Checks<S>>,
    request: Result<CheckRequest, Status>,
) -> Result<CheckResponse, Status> {
    let request = request?;
    let since = Instant::now();
    let snapshot = checks.limiter().snapshot();
    let answer = checks.check_in_place(&snapshot, Ok(request), Transport::GrpcStream).await;
    checks.timed(Transport::GrpcStream, since);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque};

    use futures_util::{FutureExt, stream};
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn answers_come_in_order_and_no_more_is_read_than_may_be_under_way() {
        let begun: RefCell<VecDeque<(usize, oneshot::Sender<usize>)>> = RefCell::default();
        let mut answers = Box::pin(together(stream::iter(0..), |number| {
            let (sender, receiver) = oneshot::channel();
            let begun = &begun;
            async move {
                begun.borrow_mut().push_back((number, sender));
                receiver.await.unwrap()
            }
        }));
        assert_eq!(answers.next().now_or_never(), None);
        let numbers = || begun.borrow().iter().map(|(number, _)| *number).collect::<Vec<_>>();
        assert_eq!(numbers(), (0..MAX_UNDER_WAY).collect::<Vec<_>>(), "each begins in its turn");
        let finish = |at: usize| {
            let (number, sender) = begun.borrow_mut().remove(at).unwrap();
            sender.send(number).unwrap();
        };
        finish(1);
        assert_eq!(answers.next().now_or_never(), None, "the second waits for the first");
        finish(0);
        assert_eq!(answers.next().now_or_never(), Some(Some(0)));
        assert_eq!(answers.next().now_or_never(), Some(Some(1)));
        assert_eq!(answers.next().now_or_never(), None);
        assert_eq!(numbers(), (2..MAX_UNDER_WAY + 2).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn requests_end_with_the_drain_and_with_one_that_cannot_be_read() {
        let good = || Ok(CheckRequest::default());
        let broken = stream::iter([good(), Err(Status::data_loss("broken")), good()]);
        let read: Vec<_> =
            until_drain(broken, Drain::default()).map(|request| request.map_err(|e| e.code())).collect().await;
        assert_eq!(read, [Ok(CheckRequest::default()), Err(tonic::Code::DataLoss)]);

        let drain = Drain::default();
        let mut waiting = Box::pin(until_drain(stream::pending(), drain.clone()));
        assert!(waiting.next().now_or_never().is_none());
        drain.finish(std::time::Duration::ZERO).await;
        assert_eq!(waiting.next().await.unwrap().unwrap_err().code(), tonic::Code::Unavailable);
        assert!(waiting.next().await.is_none());

        let mut endless = Box::pin(until_drain(stream::iter(std::iter::repeat_with(good)), drain));
        assert_eq!(endless.next().await.unwrap().unwrap_err().code(), tonic::Code::Unavailable);
    }
}
