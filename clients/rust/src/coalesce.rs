//! Coalescing: concurrent checks share one stream of their connection, which answers in order.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout},
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tonic::{Request, metadata::MetadataMap};

use crate::{
    call::{Failure, REOPEN_AFTER},
    net::Connection,
    proto::{CheckRequest, CheckResponse},
};

/// Maximum number of unanswered checks of a stream.
const MAX_IN_FLIGHT: usize = 1024;
/// Time for the service to accept a stream; a later one is abandoned, and opened again.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(1);

/// The stream of a connection, opened with the first check, and again after it has ended.
#[derive(Default)]
pub(crate) struct SharedStream(Mutex<Option<CheckStream>>);

struct CheckStream {
    checks: mpsc::Sender<(CheckRequest, Waiting)>,
    free: Arc<Semaphore>,
    opened: Opened,
}

/// `Ok` once the service has accepted the stream, or the time from which another one may be opened. Not set while the
/// stream is being opened.
type Opened = Arc<OnceLock<Result<(), Instant>>>;

/// A caller that waits for an answer.
struct Waiting {
    answer: oneshot::Sender<Result<CheckResponse, Failure>>,
    _in_flight: OwnedSemaphorePermit,
}

impl Connection {
    /// Sends a check over the stream, or in a unary call if the stream is full or not accepted.
    pub(crate) async fn check_coalesced(self, request: Request<CheckRequest>) -> Result<CheckResponse, Failure> {
        let Some((checks, in_flight)) = self.place(request.metadata()) else {
            return Ok(self.client().check(request).await?.into_inner());
        };
        let (answer, answered) = oneshot::channel();
        // The channel has capacity; an ended stream drops the check.
        let _ = checks.try_send((request.into_inner(), Waiting { answer, _in_flight: in_flight }));
        answered.await.unwrap_or_else(|_| Err(Failure::stream_ended(None)))
    }

    /// Reserves capacity on the stream, and opens it if needed; `None` if it is full, or the service has not accepted
    /// it.
    fn place(&self, metadata: &MetadataMap) -> Option<(mpsc::Sender<(CheckRequest, Waiting)>, OwnedSemaphorePermit)> {
        let mut stream = self.stream.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stream.as_ref().is_some_and(CheckStream::is_over) {
            *stream = None;
        }
        let stream = stream.get_or_insert_with(|| CheckStream::open(self.clone(), metadata.clone()));
        stream.opened.get()?.ok()?;
        Some((stream.checks.clone(), Arc::clone(&stream.free).try_acquire_owned().ok()?))
    }
}

impl CheckStream {
    fn open(connection: Connection, mut metadata: MetadataMap) -> Self {
        // The stream outlives the call that opens it.
        metadata.remove("grpc-timeout");
        let (checks, queue) = mpsc::channel(MAX_IN_FLIGHT);
        let (sent, answers) = mpsc::channel(MAX_IN_FLIGHT);
        let requests = ReceiverStream::new(queue).filter_map(move |(check, waiting): (CheckRequest, Waiting)| {
            // A caller past its deadline needs no answer. The channel has capacity for all checks in flight.
            (!waiting.answer.is_closed() && sent.try_send(waiting).is_ok()).then_some(check)
        });
        // The task holds the connection without its stream, so the stream ends when the pool drops the connection.
        let client = connection.detached();
        let (requests, opened) = (Request::from_parts(metadata, Default::default(), requests), Opened::default());
        tokio::spawn(pass_on(client, requests, answers, Arc::clone(&opened)));
        Self { checks, free: Arc::new(Semaphore::new(MAX_IN_FLIGHT)), opened }
    }

    /// Whether the stream has ended and another one may be opened.
    fn is_over(&self) -> bool {
        match self.opened.get() {
            None => false,
            Some(Ok(())) => self.checks.is_closed(),
            Some(Err(reopen_at)) => *reopen_at <= Instant::now(),
        }
    }
}

/// Forwards answers until the stream ends. The senders of unanswered callers are dropped.
async fn pass_on(
    connection: Connection,
    requests: Request<impl tokio_stream::Stream<Item = CheckRequest> + Send + 'static>,
    mut waiting: mpsc::Receiver<Waiting>,
    opened: Opened,
) {
    let accepted = timeout(ACCEPTED_WITHIN, connection.client().check_stream(requests)).await;
    let is_rejected = matches!(&accepted, Ok(Err(status)) if Failure::from(status.clone()).is_rejection());
    let reopen_at = Instant::now() + if is_rejected { REOPEN_AFTER } else { Duration::ZERO };
    let accepted = accepted.ok().and_then(Result::ok);
    let _ = opened.set(accepted.as_ref().map(|_| ()).ok_or(reopen_at));
    let Some(mut answers) = accepted.map(tonic::Response::into_inner) else { return };
    while let Ok(Some(mut answer)) = answers.message().await {
        let Some(next) = waiting.recv().await else { return };
        let answer = match answer.error.take() {
            Some(error) => Err(crate::Error::from(error).into()),
            None => Ok(answer),
        };
        let _ = next.answer.send(answer);
    }
}
