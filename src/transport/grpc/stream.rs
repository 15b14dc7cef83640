//! A stream of checks: one answer for each, in order, read no further ahead than its answers are taken.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use hyper::body::Body;
use tonic::Status;

use super::{
    call,
    frames::{self, Messages},
};
use crate::{
    auth::Denied,
    store::Store,
    telemetry::Transport,
    transport::{
        farewell::{Connected, Farewell},
        gate::Standing,
        observe::Checks,
        rate::Pace,
        status::Refused,
    },
};

/// Most checks of one stream that are under way at once. They share round trips to a store that is waited for.
// Few enough that a hundred streams that never pause stay below the bound of the store's queue.
const MAX_UNDER_WAY: usize = 64;

/// Most bytes of answers that are made before the caller takes some.
const MOST_AHEAD: usize = 16 << 10;

/// When a stream goes on, where its connection has a rate, and how it ends: by its caller, by a body that broke off, by the
/// credentials, or by the farewell to its connection.
pub struct Ending {
    farewell: Farewell,
    said: Pin<Box<dyn Future<Output = Status> + Send>>,
    /// Where callers are known: when this one's credentials are not enough any more.
    lost: Option<Pin<Box<dyn Future<Output = Denied> + Send>>>,
    pace: Option<Pace>,
}

impl Ending {
    /// With this connection, and where callers are known with what the caller's credentials are worth.
    pub fn new(connected: &Connected, standing: Option<Standing>) -> Self {
        Self {
            farewell: connected.farewell.clone(),
            said: Box::pin(connected.farewell.clone().wait()),
            lost: standing.map(|standing| Box::pin(standing.lost()) as _),
            pace: connected.rate.clone().map(Pace::new),
        }
    }

    /// Waits until the next message may be read, if it is there; how the stream ends where it is to end before.
    fn poll_turn<B>(&mut self, messages: &mut Messages<B>, cx: &mut Context<'_>) -> Poll<Option<Status>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let Some(pace) = &mut self.pace else { return Poll::Ready(None) };
        if !messages.has_next() || pace.poll_turn(cx).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(status) = self.poll_lost(cx) {
            return Poll::Ready(Some(status));
        }
        self.said.as_mut().poll(cx).map(Some)
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let Some(lost) = &mut self.lost else { return Poll::Pending };
        let denied = ready!(lost.as_mut().poll(cx));
        self.lost = None;
        Poll::Ready(Refused::from(denied).into())
    }

    /// Waits for more of the messages; how the stream ends where there is none.
    fn poll_more<B>(&mut self, messages: &mut Messages<B>, cx: &mut Context<'_>) -> Poll<Option<Status>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        // A caller that never pauses would never let the future below be looked at.
        if let Some(status) = self.farewell.said() {
            return Poll::Ready(Some(status));
        }
        if let Poll::Ready(status) = self.poll_lost(cx) {
            return Poll::Ready(Some(status));
        }
        match messages.poll_more(cx) {
            Poll::Ready(Ok(true)) => Poll::Ready(None),
            Poll::Ready(Ok(false)) => Poll::Ready(Some(Status::ok(""))),
            Poll::Ready(Err(status)) => Poll::Ready(Some(status)),
            Poll::Pending => self.said.as_mut().poll(cx).map(Some),
        }
    }
}

/// Fills in the answers of a stream whose store needs no waiting: see [`super::body::many`].
pub fn at_once<S, B>(
    checks: Checks<S>,
    mut messages: Messages<B>,
    mut ending: Ending,
) -> impl FnMut(&mut Context<'_>, &mut BytesMut) -> Poll<Option<Status>>
where
    S: Store,
    B: Body<Data = Bytes> + Unpin,
{
    move |cx, out| {
        if let Some(status) = ready!(ending.poll_turn(&mut messages, cx)) {
            return Poll::Ready(Some(status));
        }
        let before = out.len();
        let snapshot = checks.limiter().current();
        let mut since = Instant::now();
        let taken = messages.take_while(|message| {
            let start = frames::begin(out);
            call::in_place_at_once(&checks, &snapshot, message, Transport::GrpcStream, out);
            frames::finish(out, start);
            since = checks.timed(Transport::GrpcStream, since);
            ending.pace.is_none() && out.len() < MOST_AHEAD
        });
        match taken {
            Err(status) => Poll::Ready(Some(status)),
            Ok(()) if out.len() > before => Poll::Ready(None),
            Ok(()) => ending.poll_more(&mut messages, cx),
        }
    }
}

/// The same where the store is waited for.
pub fn by_waiting<S, B>(
    checks: Checks<S>,
    messages: Messages<B>,
    ending: Ending,
) -> impl FnMut(&mut Context<'_>, &mut BytesMut) -> Poll<Option<Status>>
where
    S: Store,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    // Its own count of who holds it: the limiter's is shared by all threads.
    let checks = Arc::new(checks);
    let answer = move |message| answer(Arc::clone(&checks), message);
    let mut answers = Box::pin(together(until_the_end(messages, ending), answer));
    move |cx, out| match ready!(answers.as_mut().poll_next(cx)) {
        None => Poll::Ready(Some(Status::ok(""))),
        Some(Err(status)) => Poll::Ready(Some(status)),
        Some(Ok(answer)) => {
            out.extend_from_slice(&answer);
            Poll::Ready(None)
        }
    }
}

/// The messages; where they do not end well, how they do is the last item.
fn until_the_end<B>(messages: Messages<B>, ending: Ending) -> impl Stream<Item = Result<Bytes, Status>>
where
    B: Body<Data = Bytes> + Unpin,
{
    stream::unfold(Some((messages, ending)), |open| async {
        let (mut messages, mut ending) = open?;
        loop {
            if let Some(status) = std::future::poll_fn(|cx| ending.poll_turn(&mut messages, cx)).await {
                return Some((Err(status), None));
            }
            match messages.take() {
                Ok(Some(message)) => return Some((Ok(message), Some((messages, ending)))),
                Ok(None) => {}
                Err(status) => return Some((Err(status), None)),
            }
            match std::future::poll_fn(|cx| ending.poll_more(&mut messages, cx)).await {
                None => {}
                Some(status) if status.code() == tonic::Code::Ok => return None,
                Some(status) => return Some((Err(status), None)),
            }
        }
    })
}

/// Answers requests while others are read, in their order. Each begins to be answered before the next.
fn together<T, F: Future>(
    requests: impl Stream<Item = T>,
    answer: impl FnMut(T) -> F,
) -> impl Stream<Item = F::Output> {
    requests.map(answer).buffered(MAX_UNDER_WAY)
}

async fn answer<S: Store>(checks: Arc<Checks<S>>, message: Result<Bytes, Status>) -> Result<BytesMut, Status> {
    let (message, mut out) = (message?, BytesMut::new());
    let since = Instant::now();
    let snapshot = checks.limiter().snapshot();
    let start = frames::begin(&mut out);
    call::in_place(&checks, &snapshot, &message, Transport::GrpcStream, &mut out).await;
    frames::finish(&mut out, start);
    checks.timed(Transport::GrpcStream, since);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::VecDeque, convert::Infallible, num::NonZeroU32, time::Duration};

    use futures_util::FutureExt;
    use http_body_util::{Empty, StreamBody};
    use hyper::body::Frame;
    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        domain::time::DAY,
        transport::{drain::Drain, rate::Rate},
    };

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

    /// Two messages, one of them in two pieces.
    fn two() -> impl Iterator<Item = Result<Frame<Bytes>, Infallible>> + Send {
        let pieces: [&[u8]; 2] = [b"\0\0\0\0\x01a\0\0\0", b"\0\x01b"];
        pieces.into_iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece))))
    }

    #[tokio::test]
    async fn requests_end_with_the_caller_with_one_that_cannot_be_read_and_with_the_drain() {
        let drain = Drain::default();
        let connected = Connected::new(drain.clone(), None);
        let until_the_end = |pieces: Vec<_>| {
            let messages = Messages::new(StreamBody::new(stream::iter(pieces)), 9);
            let read = until_the_end(messages, Ending::new(&connected, None));
            read.map(|message| message.map_err(|status| status.code())).collect::<Vec<_>>()
        };
        let both = [Ok(Bytes::from_static(b"a")), Ok(Bytes::from_static(b"b"))];
        assert_eq!(until_the_end(two().collect()).await, both);
        let compressed = Ok(Frame::data(Bytes::from_static(&[1, 0, 0, 0, 0])));
        let ended = Err(tonic::Code::Unimplemented);
        assert_eq!(until_the_end(two().chain([compressed]).collect()).await, [&both[..], &[ended]].concat());

        let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
        let mut ending = Ending::new(&connected, None);
        let mut messages = Messages::new(silent, 9);
        let mut more = std::future::poll_fn(|cx| ending.poll_more(&mut messages, cx));
        assert!((&mut more).now_or_never().is_none());
        drain.finish(Duration::ZERO).await;
        assert_eq!(more.await.map(|status| status.code()), Some(tonic::Code::Unavailable));

        let mut ended = Messages::new(Empty::<Bytes>::new(), 9);
        let more = std::future::poll_fn(|cx| Ending::new(&connected, None).poll_more(&mut ended, cx)).await;
        assert_eq!(more.map(|status| status.code()), Some(tonic::Code::Unavailable), "also who never pauses");
    }

    #[tokio::test]
    async fn a_stream_is_held_to_the_rate_of_its_connection_and_ends_while_it_waits() {
        let rate = Rate::new(NonZeroU32::new(2).unwrap(), DAY);
        let connected = Connected::new(Drain::default(), Some(Arc::new(rate)));
        let message = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"\0\0\0\0\x01a")));
        let endless = StreamBody::new(stream::iter(std::iter::repeat_with(message)));
        let mut read = Box::pin(until_the_end(Messages::new(endless, 9), Ending::new(&connected, None)));
        for _ in 0..2 {
            assert_eq!(
                read.next().await.expect("a message").map_err(|status| status.code()),
                Ok(Bytes::from_static(b"a"))
            );
        }
        assert!(read.next().now_or_never().is_none());
        connected.farewell.say();
        let ended = read.next().await.expect("an end");
        assert_eq!(ended.map_err(|status| status.code()), Err(tonic::Code::Unavailable));
    }
}
