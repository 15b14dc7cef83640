//! Streams: each has many checks in flight, and answers come in order.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use h2::SendStream;
use tokio::time::Instant;
use tonic::Code;

use super::{
    checks::RequestWriter,
    pacing::{Clock, Nanos, Pacer},
    recorder::{Call, Recorder},
    wire::{
        answers::{self, Answers, Fault, Kind},
        connection::SharedConnection,
        dial::Head,
        exchange::{Incoming, Messages},
        timeout::Timeout,
    },
};

/// A caller with one stream, which is reopened when it ends.
pub(crate) struct StreamCaller<C> {
    pub pacer: Pacer<C>,
    pub connection: SharedConnection,
    pub head: Head,
    pub writer: RequestWriter,
    pub recorder: Arc<Recorder>,
    pub timeout: Timeout,
    /// Maximum number of checks in flight, at least 1.
    pub window: usize,
}

/// An open stream.
struct OpenStream {
    /// The sending half; `None`: half-closed.
    out: Option<SendStream<Bytes>>,
    incoming: Incoming,
    messages: Messages,
    /// For each check without an answer: the times at which it was due and sent.
    in_flight: VecDeque<(Nanos, Nanos)>,
    /// Time at which the last bytes arrived, or the oldest check in flight was sent.
    last_heard: Instant,
}

impl<C: Clock> StreamCaller<C> {
    /// Sends checks until the load ends.
    pub(crate) async fn run(mut self) {
        while let Some(due) = self.pacer.next().await {
            let Some(mut stream) = self.open().await else {
                self.pacer.put_back();
                return;
            };
            self.send_due(&mut stream, due);
            if let Err(fault) = self.exchange(&mut stream).await {
                let ended = self.pacer.now();
                let lost = stream.in_flight.drain(..);
                self.recorder
                    .record(lost.map(|(due, sent)| (Call { due, sent, ended }, 1, Answers::failed(1, fault.clone()))));
            }
        }
    }

    async fn open(&mut self) -> Option<OpenStream> {
        while self.connection.is_ready().await {
            if let Some((response, out)) = self.connection.start(self.head.request()) {
                return Some(OpenStream {
                    out: Some(out),
                    incoming: Incoming::Head(response),
                    messages: Messages::default(),
                    in_flight: VecDeque::with_capacity(self.window),
                    last_heard: Instant::now(),
                });
            }
        }
        None
    }

    /// Sends the check that was due at `first`, and further due checks as far as the window allows.
    fn send_due(&mut self, stream: &mut OpenStream, first: Nanos) {
        let Some(out) = &mut stream.out else { return };
        if stream.in_flight.is_empty() {
            stream.last_heard = Instant::now();
        }
        let (sent, before) = (self.pacer.now(), stream.in_flight.len());
        let mut due = Some(first);
        while let Some(moment) = due {
            stream.in_flight.push_back((moment, sent.max(moment)));
            due = if stream.in_flight.len() < self.window { self.pacer.next_now() } else { None };
        }
        // If this fails, the response has the reason.
        let _ = out.send_data(self.writer.messages(stream.in_flight.len() - before), false);
    }

    /// Sends checks and records answers until the load ends and every check is answered.
    async fn exchange(&mut self, stream: &mut OpenStream) -> Result<(), Fault> {
        while stream.out.is_some() || !stream.in_flight.is_empty() {
            let has_capacity = stream.out.is_some() && stream.in_flight.len() < self.window;
            let (incoming, last_heard, waits) = (&mut stream.incoming, stream.last_heard, !stream.in_flight.is_empty());
            let timeout = &mut self.timeout;
            let next = async {
                if waits { timeout.wait(last_heard, incoming.next()).await } else { Some(incoming.next().await) }
            };
            tokio::select! {
                biased;
                answers = next => match answers {
                    Some(Ok(Some(bytes))) => self.record(stream, &bytes)?,
                    Some(Ok(None)) => return end_of(stream),
                    Some(Err(fault)) => return Err(fault),
                    None => return Err(Fault::new(Code::DeadlineExceeded, "no answer in time")),
                },
                due = self.pacer.next(), if has_capacity => match due {
                    Some(due) => self.send_due(stream, due),
                    None => close(stream),
                },
            }
        }
        Ok(())
    }

    /// Records the answers in `bytes`, and sends checks in their place.
    fn record(&mut self, stream: &mut OpenStream, bytes: &Bytes) -> Result<(), Fault> {
        stream.incoming.release(bytes.len());
        stream.last_heard = Instant::now();
        let ended = self.pacer.now();
        let (in_flight, mut calls, mut is_unexpected) = (&mut stream.in_flight, Vec::new(), false);
        let cut = stream.messages.cut(bytes, |message| match in_flight.pop_front() {
            Some((due, sent)) => calls.push((Call { due, sent, ended }, 1, answers::read(Kind::Check, 1, message))),
            None => is_unexpected = true,
        });
        self.recorder.record(calls);
        cut?;
        if is_unexpected {
            return Err(Fault::new(Code::Internal, "more answers than checks"));
        }
        if stream.out.is_some()
            && stream.in_flight.len() < self.window
            && let Some(due) = self.pacer.next_now()
        {
            self.send_due(stream, due);
        }
        Ok(())
    }
}

/// Half-closes the stream.
fn close(stream: &mut OpenStream) {
    if let Some(mut out) = stream.out.take() {
        let _ = out.send_data(Bytes::new(), true);
    }
}

/// Returns the result of a stream that the service ended with OK.
fn end_of(stream: &OpenStream) -> Result<(), Fault> {
    if stream.in_flight.is_empty() { Ok(()) } else { Err(Fault::unavailable("the stream ended before its answers")) }
}
