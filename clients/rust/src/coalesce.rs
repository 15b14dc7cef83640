//! Coalescing: checks of many callers go over one stream of their connection, whose answers are in order.

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

/// The checks of a stream that are not yet answered.
const MAX_IN_FLIGHT: usize = 1024;
/// A stream that the service does not accept in this time is opened again.
const ACCEPTED_WITHIN: Duration = Duration::from_secs(1);

/// The stream of a connection, opened with the first check, and again after it has ended.
#[derive(Default)]
pub(crate) struct SharedStream(Mutex<Option<CheckStream>>);

struct CheckStream {
    checks: mpsc::Sender<(CheckRequest, Waiting)>,
    free: Arc<Semaphore>,
    opened: Opened,
}

/// The service has accepted the stream, or another one may be opened at that time. Not set while that is not known.
type Opened = Arc<OnceLock<Result<(), Instant>>>;

/// Who waits for an answer.
struct Waiting {
    answer: oneshot::Sender<Result<CheckResponse, Failure>>,
    _in_flight: OwnedSemaphorePermit,
}

impl Connection {
    /// The answer to a check over the stream; where that is full or not accepted, over a call of its own.
    pub(crate) async fn check_coalesced(self, request: Request<CheckRequest>) -> Result<CheckResponse, Failure> {
        let Some((checks, in_flight)) = self.place(request.metadata()) else {
            return Ok(self.client().check(request).await?.into_inner());
        };
        let (answer, answered) = oneshot::channel();
        // There is room for it, and a stream that has ended drops it.
        let _ = checks.try_send((request.into_inner(), Waiting { answer, _in_flight: in_flight }));
        answered.await.unwrap_or_else(|_| Err(Failure::stream_ended()))
    }

    /// A place on the stream, which is opened where there is none; `None`: it is full, or the service has not accepted it.
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
            // A caller whose deadline has passed needs no answer. There is room for as many as are in flight.
            (!waiting.answer.is_closed() && sent.try_send(waiting).is_ok()).then_some(check)
        });
        // It holds the connection alone, not its stream: so the stream ends when the pool forgets the connection.
        let client = connection.detached();
        let (requests, opened) = (Request::from_parts(metadata, Default::default(), requests), Opened::default());
        tokio::spawn(pass_on(client, requests, answers, Arc::clone(&opened)));
        Self { checks, free: Arc::new(Semaphore::new(MAX_IN_FLIGHT)), opened }
    }

    /// It has ended, and another one may be opened.
    fn is_over(&self) -> bool {
        match self.opened.get() {
            None => false,
            Some(Ok(())) => self.checks.is_closed(),
            Some(Err(reopen_at)) => *reopen_at <= Instant::now(),
        }
    }
}

/// Passes answers on, until the stream ends. Callers without one see that their sender is gone.
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
