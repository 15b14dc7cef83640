//! The streaming calls: checks, leases, quotas and health watches.

use std::{future::ready, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::{Body as HttpBody, Frame, Incoming},
};
use tonic::{Status, Streaming, body::Body, server::Grpc};
use tower::{BoxError, service_fn};
use tracing::warn;
use weir_server::{Connected, Pace, Permit};
use weir_store::Store;

use super::{
    GrpcPort,
    codec::{self, BytesCodec},
    deadline::Deadline,
    lease,
    messages::Messages,
    quota_messages::{MAX_REPORT_BYTES, SplitMessages},
    quota_stream::QuotaAnswers,
    stream::{self, Answers},
    termination::{Termination, trailers},
};
use crate::{
    telemetry::CallKind,
    transport::{
        audit::Actor, authentication::ClientName, check_service::PendingAnswer, incomplete_calls::Expected,
        rlqs::Session, status::Rejected,
    },
};

/// Memory that a piece of answers takes in addition to its bytes until it is sent.
pub(super) const PIECE_BYTES: usize = 256;

impl<S: Store> GrpcPort<S> {
    /// Serves a stream until `end`. `answers` makes its answers from its messages, its permit and its client.
    async fn stream<B, A>(
        &self,
        mut server: Grpc<BytesCodec>,
        request: Request<B>,
        end: Option<Deadline>,
        answers: impl Fn(Messages<Streaming<Bytes>>, Permit, Option<ClientName>) -> A + Sync,
    ) -> Response<Body>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
        A: Stream<Item = Result<BytesMut, Status>> + Send + 'static,
    {
        let call = service_fn(|mut request: tonic::Request<Streaming<Bytes>>| {
            let (authorization, client) = (request.extensions_mut().remove(), request.extensions_mut().remove());
            let termination = Termination::new(self.connected.close.clone(), end, authorization);
            let pace = self.connected.rate.clone().map(Pace::new);
            let messages = Messages::new(request.into_inner(), termination, pace);
            let permit = self.shared.streams.acquire().map_err(Rejected::from).map_err(Status::from);
            ready(permit.map(|permit| tonic::Response::new(answers(messages, permit, client))))
        });
        let request = self.incomplete_calls.waiting(request, Expected::Stream);
        let response = server.streaming(call, request).await;
        let (connected, shared) = (self.connected.clone(), Arc::clone(&self.shared));
        let sent = move |frame: Frame<Bytes>| {
            frame.trailers_ref().into_iter().for_each(|trailers| shared.count_too_large(trailers));
            counted(frame, &connected)
        };
        response.map(|body| Body::new(body.map_frame(sent)))
    }

    pub(super) async fn stream_checks(&self, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        let handler = |permit, _| stream::checks(self.shared.services.checks.clone(), permit);
        self.stream_answers(request, deadline, handler).await
    }

    pub(super) async fn stream_leases(&self, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        let handler = |permit, client| {
            let actor = Actor { transport: CallKind::GrpcLease, ..self.actor(client) };
            lease::handler(self.shared.services.checks.clone(), actor, permit)
        };
        self.stream_answers(request, deadline, handler).await
    }

    /// Serves a stream whose messages are answered one by one. `handler` makes the function that starts an answer.
    async fn stream_answers<H>(
        &self,
        request: Request<Incoming>,
        deadline: Option<Deadline>,
        handler: impl Fn(Permit, Option<ClientName>) -> H + Sync,
    ) -> Response<Body>
    where
        H: FnMut(Bytes) -> PendingAnswer<'static, BytesMut> + Send + Unpin + 'static,
    {
        let answers = |messages: Messages<_>, permit, client| {
            let (messages, checks) =
                (messages.bound_large_messages(self.connected.clone()), self.shared.services.checks.clone());
            // Answers to leases are never synchronous.
            let timed = move |messages, since| checks.timed_all(CallKind::GrpcStream, since, messages);
            Answers::new(messages, handler(permit, client), timed, self.connected.clone(), deadline)
        };
        let server = codec::streaming(self.shared.max_message_bytes);
        self.stream(server, request, None, answers).await
    }

    pub(super) async fn stream_quotas(&self, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        let Some(quotas) = &self.shared.quotas else {
            self.connected.answered_by_its_head(request);
            if self.shared.quota_rejections.domain.count() {
                warn!(peer = self.connected.peer.map(display), "an Envoy gets no quotas: rlqs.domains is empty");
            }
            return Status::unimplemented("the setting rlqs.domains is empty").into_http();
        };
        let answers = |messages, permit, _| {
            let session = Session::new(Arc::clone(quotas), self.connected.peer);
            QuotaAnswers::new(messages, session, self.connected.clone(), permit)
        };
        let request = request.map(|body| SplitMessages::new(body, Arc::clone(&self.shared.quota_rejections)));
        self.stream(codec::uncompressed_stream(MAX_REPORT_BYTES), request, deadline, answers).await
    }

    pub(super) async fn watch(&self, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        let permit = match self.watches.acquire() {
            Ok(permit) => permit,
            Err(overload) => {
                self.connected.answered_by_its_head(request);
                return Status::from(Rejected::from(overload)).into_http();
            }
        };
        let termination = Termination::new(self.connected.close.clone(), deadline, None);
        let request = self.incomplete_calls.waiting(request, Expected::Message);
        self.shared.health.watch(request, permit, termination).await
    }
}

/// Counts the answers of a stream until the client reads them: HTTP/2 takes as many from each stream as fit into its
/// client's flow-control window. If the clients of the port leave too many unread, the trailers in place of the answers
/// end the stream.
fn counted(frame: Frame<Bytes>, connected: &Connected) -> Frame<Bytes> {
    let Some(bytes) = frame.data_ref() else { return frame };
    match connected.unread(bytes.len() + PIECE_BYTES, None) {
        Ok(unread) => frame.map_data(|bytes| unread.with(bytes)),
        Err(overload) => Frame::trailers(trailers(&Rejected::from(overload).into())),
    }
}
