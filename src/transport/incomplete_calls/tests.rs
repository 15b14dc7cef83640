use std::{future::poll_fn, sync::atomic::Ordering, task::Waker, time::Duration};

use hyper::http::request::Builder;
use tokio::{
    task::yield_now,
    time::{Instant, timeout},
};
use tonic::Code;
use weir_server::{Connected, Drain, metrics::ListenerMetrics};
use weir_telemetry::Registry;

use super::{
    wait::{CALL_BYTES, END_TIMEOUT, MAX_ENDING_BYTES, MAX_WAITING_BYTES},
    *,
};

/// The data that a body yields; once it is empty, the body is pending.
struct Coming(Vec<Bytes>);

impl Body for Coming {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.pop().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

fn calls() -> (Arc<IncompleteCalls>, Connected) {
    let metrics = ListenerMetrics::new(&Registry::default(), "test");
    (IncompleteCalls::new(Duration::from_millis(100), 1 << 20, &metrics), Connected::new(Drain::default()))
}

fn authenticated(port: &Arc<IncompleteCalls>, connected: &Connected) -> Arc<ConnectionCalls> {
    connected.begin(true);
    port.of(connected.clone())
}

/// Polls a body twice if the first poll is pending: a call waits from the second poll on. Returns the code that the
/// body fails with, or `None` if it yields data.
fn poll(body: &mut RequestBody<Coming>) -> Poll<Option<Code>> {
    let mut once = || Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop()));
    let polled = match once() {
        Poll::Pending => once(),
        ready => ready,
    };
    polled.map(|frame| Some(Status::from_error(frame?.err()?).code()))
}

async fn yield_to_evicted() {
    for _ in 0..MAX_WAITING_BYTES / CALL_BYTES {
        yield_now().await;
    }
}

fn empty() -> Coming {
    Coming(Vec::new())
}

#[tokio::test]
async fn a_message_already_received_does_not_count_as_waiting() {
    let (port, connected) = calls();
    let connection = port.of(connected);
    let mut there = connection.body(Coming(vec![Bytes::from_static(b"\0\0\0\0\x01a")]), Expected::Message);
    assert_eq!((poll(&mut there), connection.waiting.load(Ordering::Relaxed)), (Poll::Ready(None), 0));
    assert_eq!((poll(&mut there), connection.waiting.load(Ordering::Relaxed)), (Poll::Pending, 1));
    drop(there);
    assert_eq!(connection.waiting.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_message_in_the_next_read_takes_no_slot() {
    let (port, connected) = calls();
    let connection = port.of(connected);
    let mut soon = connection.body(empty(), Expected::Message);
    let first = Pin::new(&mut soon).poll_frame(&mut Context::from_waker(Waker::noop()));
    assert_eq!((first.is_pending(), connection.waiting.load(Ordering::Relaxed)), (true, 0));
    soon.body.0.push(Bytes::from_static(b"\0\0\0\0\x01a"));
    assert_eq!((poll(&mut soon), connection.waiting.load(Ordering::Relaxed)), (Poll::Ready(None), 0));
}

#[tokio::test]
async fn unauthenticated_connections_have_few_waiting_calls() {
    let (port, connected) = calls();
    let connection = port.of(connected.clone());
    let mut bodies: Vec<_> =
        (0..=MAX_WAITING_UNAUTHENTICATED).map(|_| connection.body(empty(), Expected::Message)).collect();
    let mut last = bodies.pop().unwrap();
    assert!(bodies.iter_mut().all(|body| poll(body) == Poll::Pending));
    assert_eq!(poll(&mut last), Poll::Ready(Some(Code::ResourceExhausted)));
    connected.begin(true);
    assert_eq!(poll(&mut connection.body(empty(), Expected::Message)), Poll::Pending);
}

#[tokio::test(start_paused = true)]
async fn calls_of_unauthenticated_connections_do_not_evict_those_of_others() {
    let (port, connected) = calls();
    let large = authenticated(&port, &connected);
    let mut message = large.body(Coming(vec![Bytes::from(vec![u8::MAX; 1 << 20])]), Expected::Message);
    assert_eq!((poll(&mut message), poll(&mut message)), (Poll::Ready(None), Poll::Pending));
    let mut others = Vec::new();
    for _ in 0..MAX_WAITING_BYTES / CALL_BYTES {
        let mut other = port.of(Connected::new(Drain::default())).body(empty(), Expected::Message);
        let _ = poll(&mut other);
        others.push(other);
    }
    yield_to_evicted().await;
    assert_eq!(poll(&mut message), Poll::Pending);
}

#[tokio::test]
async fn the_head_of_a_call_counts_until_its_message_has_arrived() {
    let head = |headers: u32| {
        let numbered = |request: Builder, number| request.header(format!("x-{number}"), "");
        (0..headers).fold(Request::builder(), numbered).body(empty()).unwrap().into_parts().0
    };
    let (few, many) = (head_bytes(&head(8)), head_bytes(&head(450)));
    assert!(few < 2 << 10 && (50 << 10..120 << 10).contains(&many), "{few} and {many} bytes");
    let (port, connected) = calls();
    let connection = authenticated(&port, &connected);
    let request = |expected| connection.waiting(Request::from_parts(head(450), empty()), expected).into_body();
    assert_eq!([Expected::Message, Expected::Stream].map(|expected| request(expected).head_bytes), [many, 0]);
    let mut most: Vec<_> = (0..MAX_WAITING_BYTES / (CALL_BYTES + many)).map(|_| request(Expected::Message)).collect();
    assert!(most.iter_mut().all(|body| poll(body) == Poll::Pending));
    assert_eq!(poll(&mut request(Expected::Message)), Poll::Ready(Some(Code::ResourceExhausted)));
}

#[tokio::test]
async fn waiting_calls_of_the_largest_connection_are_evicted_first() {
    const MOST: usize = MAX_WAITING_BYTES / CALL_BYTES;
    const ENDING: usize = MAX_ENDING_BYTES / CALL_BYTES;
    let (port, connected) = calls();
    let [few, many, others] = [(); 3].map(|()| authenticated(&port, &connected));
    let open = |of: &Arc<ConnectionCalls>, calls: usize| -> Vec<_> {
        (0..calls).map(|_| of.body(empty(), Expected::Stream)).collect()
    };
    let mut oldest = open(&few, 1);
    let mut older = open(&many, MOST - 1);
    assert!(oldest.iter_mut().chain(&mut older).all(|body| poll(body) == Poll::Pending));
    let rejected = Poll::Ready(Some(Code::ResourceExhausted));
    assert_eq!(poll(&mut open(&many, 1)[0]), rejected, "it has the most");
    let mut newer = open(&others, ENDING);
    assert!(newer.iter_mut().all(|body| poll(body) == Poll::Pending));
    yield_to_evicted().await;
    assert_eq!(poll(&mut oldest[0]), Poll::Pending, "the only one of its connection");
    let mut ended = 0;
    // One task cannot poll that often without yielding.
    while poll(&mut older[ended]) == rejected {
        ended += 1;
        yield_now().await;
    }
    assert_eq!(ended, ENDING, "the oldest, and no more than came");
    let next = || poll(&mut open(&few, 1)[0]);
    assert_eq!(next(), rejected, "none of those that were ended is gone");
    older.clear();
    assert_eq!(next(), Poll::Pending);
}

#[tokio::test(start_paused = true)]
async fn unfinished_messages_are_bounded_in_bytes() {
    let (port, connected) = calls();
    let [one, other] = [(); 2].map(|()| authenticated(&port, &connected));
    let begin = |connection: &Arc<ConnectionCalls>, bytes: usize| {
        let mut body = connection.body(Coming(vec![Bytes::from(vec![u8::MAX; bytes])]), Expected::Message);
        assert_eq!(poll(&mut body), Poll::Ready(None));
        body
    };
    let rejected = Poll::Ready(Some(Code::ResourceExhausted));
    let (mut first, mut second) = (begin(&one, MAX_WAITING_BYTES / 2), begin(&one, MAX_WAITING_BYTES / 4));
    assert_eq!((poll(&mut first), poll(&mut second)), (Poll::Pending, Poll::Pending));
    assert_eq!(poll(&mut begin(&one, MAX_WAITING_BYTES / 4)), rejected, "it has the most");
    let mut third = begin(&other, MAX_WAITING_BYTES / 4);
    assert_eq!(poll(&mut third), Poll::Pending);
    yield_to_evicted().await;
    assert_eq!((poll(&mut first), poll(&mut second)), (rejected, Poll::Pending), "the oldest makes room");
    drop(first);
    assert_eq!(poll(&mut begin(&one, MAX_WAITING_BYTES / 4)), Poll::Pending);
}

#[tokio::test]
async fn discarded_bytes_do_not_count() {
    let (port, connected) = calls();
    let connection = port.of(connected);
    let parts = || Coming(vec![Bytes::from(vec![0; MAX_WAITING_BYTES / 2]); 4]);
    let unread = connection.body(parts(), Expected::Message).discarded();
    for mut body in [unread, connection.body(parts(), Expected::Discarded)] {
        let rest = std::mem::take(&mut body.body.0);
        assert_eq!(poll(&mut body), Poll::Pending);
        body.body.0 = rest;
        for _ in 0..4 {
            assert_eq!(poll(&mut body), Poll::Ready(None));
        }
        assert_eq!(end(&mut body).await, Code::DeadlineExceeded);
    }
}

#[tokio::test]
async fn the_largest_message_that_is_allowed_has_room() {
    const MOST: usize = 64 << 20;
    let metrics = ListenerMetrics::new(&Registry::default(), "test");
    let port = IncompleteCalls::new(Duration::from_secs(10), MOST, &metrics);
    let connection = authenticated(&port, &Connected::new(Drain::default()));
    let mut message = connection.body(Coming(vec![Bytes::from(vec![0; MOST / 2])]), Expected::Message);
    for _ in 0..2 {
        assert_eq!((poll(&mut message), poll(&mut message)), (Poll::Ready(None), Poll::Pending));
        message.body.0.push(Bytes::from(vec![0; MOST / 2]));
    }
}

/// Returns the status code that a body ends with.
async fn end(body: &mut RequestBody<Coming>) -> Code {
    let error = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.unwrap().unwrap_err();
    Status::from_error(error).code()
}

#[tokio::test(start_paused = true)]
async fn the_connection_of_an_evicted_call_that_is_not_polled_is_closed() {
    let (port, connected) = calls();
    let [one, other] = [(); 2].map(|()| authenticated(&port, &connected));
    let waits = |connection: &Arc<ConnectionCalls>, bytes: usize| {
        let mut body = connection.body(Coming(vec![Bytes::from(vec![u8::MAX; bytes])]), Expected::Message);
        assert_eq!((poll(&mut body), poll(&mut body)), (Poll::Ready(None), Poll::Pending));
        body
    };
    let _stuck = waits(&one, MAX_WAITING_BYTES / 2);
    let closed = connected.left_unread();
    assert!(
        timeout(Duration::from_secs(99), closed.cancelled()).await.is_err(),
        "it is late, and no one needs its room"
    );
    let (_more, since) = ([waits(&one, MAX_WAITING_BYTES / 4), waits(&other, MAX_WAITING_BYTES / 4)], Instant::now());
    timeout(Duration::from_secs(99), closed.cancelled()).await.expect("it is closed");
    assert_eq!(since.elapsed().as_millis() / 10, END_TIMEOUT.as_millis() / 10);
}

#[tokio::test]
async fn messages_time_out_and_streams_only_within_a_message() {
    let (port, connected) = calls();
    let connection = port.of(connected);
    let waiting = || connection.waiting.load(Ordering::Relaxed);
    let mut message = connection.body(empty(), Expected::Message);
    let mut stream = connection.body(empty(), Expected::Stream);
    assert_eq!((poll(&mut message), poll(&mut stream)), (Poll::Pending, Poll::Pending));
    assert_eq!(end(&mut message).await, Code::DeadlineExceeded);
    drop(message);
    assert_eq!((poll(&mut stream), waiting()), (Poll::Pending, 1));
    for bytes in [&b"\0\0\0\0"[..], b"\x02a"] {
        stream.body.0.push(Bytes::copy_from_slice(bytes));
        assert_eq!((poll(&mut stream), poll(&mut stream), waiting()), (Poll::Ready(None), Poll::Pending, 1));
    }
    stream.body.0.push(Bytes::from_static(b"b"));
    assert_eq!(
        (poll(&mut stream), poll(&mut stream), waiting()),
        (Poll::Ready(None), Poll::Pending, 0),
        "it has asked"
    );
    stream.body.0.push(Bytes::from_static(b"\0"));
    assert_eq!((poll(&mut stream), poll(&mut stream), waiting()), (Poll::Ready(None), Poll::Pending, 1));
    assert_eq!(end(&mut stream).await, Code::DeadlineExceeded);
}
