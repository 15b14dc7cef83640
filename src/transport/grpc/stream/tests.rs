use std::{cell::RefCell, collections::VecDeque, num::NonZeroU32, rc::Rc, task::Waker, time::Duration};

use futures_util::{StreamExt, stream};
use hyper::{HeaderMap, header::HeaderValue};
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{sleep, timeout},
};
use tonic::Code;
use weir_core::domain::time::DAY;
use weir_server::{CloseReason, CloseSignal, Drain, MAX_UNREAD_BYTES, Pace, Rate};

use super::*;
use crate::transport::grpc::{deadline::Deadline, termination::Termination};

/// Checks that wait, with their numbers.
type Waiting = Rc<RefCell<VecDeque<(u8, oneshot::Sender<BytesMut>)>>>;

type Read = Poll<Option<Result<BytesMut, Code>>>;

fn next(answers: &mut (impl Stream<Item = Result<BytesMut, Status>> + Unpin)) -> Read {
    let next = answers.poll_next_unpin(&mut Context::from_waker(Waker::noop()));
    next.map_err(|status| status.code())
}

fn ready(answer: &'static str) -> Read {
    Poll::Ready(Some(Ok(answer.into())))
}

fn ended(code: Code) -> Read {
    Poll::Ready(Some(Err(code)))
}

/// Answers each message with itself, synchronously.
fn echo(message: Bytes) -> PendingAnswer<'static, BytesMut> {
    PendingAnswer::Ready(BytesMut::from(&message[..]))
}

fn untimed(_: u32, _: Instant) {}

fn open() -> CloseSignal {
    CloseSignal::new(Drain::default())
}

fn connected() -> Connected {
    Connected::new(Drain::default())
}

fn messages<M: Stream<Item = Result<Bytes, Status>> + Unpin>(messages: M, close: CloseSignal) -> Messages<M> {
    Messages::new(messages, Termination::new(close, None, None), None)
}

fn endless() -> impl Stream<Item = Result<Bytes, Status>> + Unpin {
    stream::repeat_with(|| Ok(Bytes::from_static(b"a")))
}

#[tokio::test]
async fn answers_keep_their_order_and_in_flight_checks_are_bounded() {
    let started = Waiting::default();
    let handler = {
        let started = Rc::clone(&started);
        move |message: Bytes| {
            // Every tenth is answered synchronously, which must not move it before the others.
            if message[0] % 10 == 9 {
                return echo(message);
            }
            let (sender, receiver) = oneshot::channel();
            started.borrow_mut().push_back((message[0], sender));
            PendingAnswer::Waiting(async { receiver.await.unwrap() }.boxed())
        }
    };
    let numbers = stream::iter((0..=u8::MAX).map(|number| Ok(Bytes::copy_from_slice(&[number]))));
    let mut answers = Answers::new(messages(numbers, open()), handler, untimed, connected(), None);
    assert_eq!(next(&mut answers), Poll::Pending);
    let waiting = || started.borrow().iter().map(|(number, _)| *number).collect::<Vec<_>>();
    let expected = |most: u8| (0..most).filter(|number| number % 10 != 9).collect::<Vec<_>>();
    assert_eq!(waiting(), expected(MAX_IN_FLIGHT as u8), "each begins in its turn");
    let finish = |at: usize| {
        let (number, sender) = started.borrow_mut().remove(at).unwrap();
        sender.send(BytesMut::from(&[number][..])).unwrap();
    };
    finish(1);
    assert_eq!(next(&mut answers), Poll::Pending, "the second waits for the first");
    finish(0);
    for number in 0..2_u8 {
        assert_eq!(next(&mut answers), Poll::Ready(Some(Ok(BytesMut::from(&[number][..])))));
    }
    assert_eq!(next(&mut answers), Poll::Pending);
    assert_eq!(waiting(), expected(MAX_IN_FLIGHT as u8 + 2)[2..]);
}

#[tokio::test]
async fn a_stream_ends_with_its_client_or_an_undecodable_message() {
    let two = [Ok(Bytes::from_static(b"a")), Ok(Bytes::from_static(b"b"))];
    let too_long = Err(Status::out_of_range("too long"));
    let read = |all: Vec<_>| {
        let mut answers = Answers::new(messages(stream::iter(all), open()), echo, untimed, connected(), None);
        assert_eq!((next(&mut answers), next(&mut answers)), (ready("a"), ready("b")));
        answers
    };
    assert_eq!(next(&mut read(two.to_vec())), Poll::Ready(None));
    let mut broken = read(two.into_iter().chain([too_long]).collect());
    assert_eq!(next(&mut broken), ended(Code::OutOfRange));
    assert_eq!(next(&mut broken), Poll::Ready(None));
}

#[tokio::test]
async fn idle_and_busy_streams_end_when_the_connection_closes() {
    let close = open();
    let mut silent = Answers::new(messages(stream::pending(), close.clone()), echo, untimed, connected(), None);
    let mut busy = Answers::new(messages(endless(), close.clone()), echo, untimed, connected(), None);
    assert_eq!((next(&mut silent), next(&mut busy)), (Poll::Pending, ready("a")));
    close.close(CloseReason::Age);
    assert_eq!((next(&mut silent), next(&mut busy)), (ended(Code::Unavailable), ended(Code::Unavailable)));
    assert_eq!((next(&mut silent), next(&mut busy)), (Poll::Ready(None), Poll::Ready(None)));
}

#[tokio::test]
async fn in_flight_checks_are_answered_before_the_stream_ends() {
    let close = open();
    let (sender, receiver) = oneshot::channel();
    let mut receiver = Some(receiver);
    let wait = move |_| {
        let receiver = receiver.take().expect("one message");
        PendingAnswer::Waiting(async { receiver.await.unwrap() }.boxed())
    };
    let one = stream::iter([Ok(Bytes::new())]).chain(stream::pending());
    let mut answers = Answers::new(messages(one, close.clone()), wait, untimed, connected(), None);
    assert_eq!(next(&mut answers), Poll::Pending);
    close.close(CloseReason::Age);
    assert_eq!(next(&mut answers), Poll::Pending);
    sender.send("late".into()).unwrap();
    assert_eq!((next(&mut answers), next(&mut answers)), (ready("late"), ended(Code::Unavailable)));
}

#[tokio::test(start_paused = true)]
async fn checks_are_decided_while_the_client_does_not_read() {
    let (decided, is_decided) = oneshot::channel();
    let mut decided = Some(decided);
    let wait = move |_| {
        let decided = decided.take().expect("one message");
        let answer = async {
            yield_now().await;
            decided.send(()).expect("the test waits");
            BytesMut::new()
        };
        PendingAnswer::Waiting(answer.boxed())
    };
    let mut answers =
        Answers::new(messages(stream::iter([Ok(Bytes::new())]), open()), wait, untimed, connected(), None);
    assert_eq!(next(&mut answers), Poll::Pending);
    let decided = timeout(Duration::from_secs(60), is_decided).await;
    decided.expect("decided, though the stream is not polled").expect("told");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_that_leaves_too_many_answers_unread() {
    const LARGE: usize = 1 << 20;
    let large = |_| {
        PendingAnswer::Waiting(
            async {
                yield_now().await;
                BytesMut::zeroed(LARGE)
            }
            .boxed(),
        )
    };
    let mut answers = Answers::new(messages(endless(), open()), large, untimed, connected(), None);
    assert_eq!(next(&mut answers), Poll::Pending);
    sleep(Duration::from_secs(1)).await;
    let mut held = 0;
    let end = loop {
        match next(&mut answers) {
            Poll::Ready(Some(Ok(answer))) => held += answer.len(),
            end => break end,
        }
    };
    assert_eq!(end, ended(Code::ResourceExhausted));
    assert!((LARGE..=MAX_UNREAD_BYTES).contains(&held), "{held}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_are_started_in_their_order() {
    let started = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let started = Arc::clone(&started);
        move |message: Bytes| {
            let started = Arc::clone(&started);
            let answer = async move {
                started.lock().push(message[0]);
                future::pending().await
            };
            PendingAnswer::Waiting(answer.boxed())
        }
    };
    let numbers = (0..MAX_IN_FLIGHT as u8).map(|number| Ok(Bytes::copy_from_slice(&[number])));
    let numbers = messages(stream::iter(numbers.collect::<Vec<_>>()), open());
    assert_eq!(next(&mut Answers::new(numbers, handler, untimed, connected(), None)), Poll::Pending);
    assert_eq!(*started.lock(), (0..MAX_IN_FLIGHT as u8).collect::<Vec<_>>());
}

#[tokio::test]
async fn idle_and_busy_streams_end_at_their_deadline() {
    let timeout = HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), HeaderValue::from_static("1n"))]);
    let deadline = Deadline::of(&timeout);
    let waiting = |_| PendingAnswer::Waiting(future::pending().boxed());
    let one = stream::iter([Ok(Bytes::new())]);
    let mut waiting = Answers::new(messages(one, open()), waiting, untimed, connected(), deadline);
    assert_eq!(waiting.next().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    let mut silent = Answers::new(messages(stream::pending(), open()), echo, untimed, connected(), deadline);
    assert_eq!(silent.next().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    let mut busy = Answers::new(messages(endless(), open()), echo, untimed, connected(), deadline);
    let status = loop {
        match busy.next().await.unwrap() {
            Ok(_) => yield_now().await,
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_stream_throttled_by_the_connection_rate_can_still_be_closed() {
    let (rate, close) = (Rate::new(NonZeroU32::new(2).unwrap(), DAY), open());
    let termination = Termination::new(close.clone(), None, None);
    let messages = Messages::new(endless(), termination, Some(Pace::new(Arc::new(rate))));
    let mut answers = Answers::new(messages, echo, untimed, connected(), None);
    assert_eq!((next(&mut answers), next(&mut answers)), (ready("a"), ready("a")));
    assert_eq!(next(&mut answers), Poll::Pending);
    close.close(CloseReason::Age);
    assert_eq!(next(&mut answers), ended(Code::Unavailable));
}

#[tokio::test]
async fn messages_that_are_answered_at_once_are_timed_together() {
    let handler = |message: Bytes| match message[0] {
        0 => PendingAnswer::Waiting(std::future::pending().boxed()),
        _ => PendingAnswer::Ready(BytesMut::zeroed(FRAME_BYTES / 4)),
    };
    let timed = RefCell::new(Vec::new());
    let record = |messages, _| timed.borrow_mut().push(messages);
    let read = |kinds: &'static [u8]| {
        let numbers = stream::iter(kinds.chunks(1).map(|kind| Ok(Bytes::from_static(kind))));
        let mut answers = Answers::new(messages(numbers, open()), handler, record, connected(), None);
        while let Poll::Ready(Some(_)) = next(&mut answers) {}
        timed.take()
    };
    assert_eq!(read(&[1; 3]), [3], "until the messages end");
    assert_eq!(read(&[1; 6]), [4, 2], "until a frame is full");
    assert_eq!(read(&[1, 1, 0, 1]), [2, 1], "without those that wait");
    let mut answers = Answers::new(messages(endless(), open()), handler, record, connected(), None);
    assert!(next(&mut answers).is_ready());
    drop(answers);
    assert_eq!(timed.take(), [1], "until the client goes");
}
