//! The streaming calls: checks, leases, quotas and health watches.

use std::{future::ready, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
};
use tonic::{Status, Streaming, body::Body};
use tower::service_fn;
use weir_server::{Connected, Pace, Permit};
use weir_store::Store;

use super::{
    Calls, codec,
    deadline::Deadline,
    lease,
    messages::Messages,
    quota_stream::QuotaAnswers,
    stream::{Answers, Checks},
    termination::{Termination, trailers},
};
use crate::{
    telemetry::Transport,
    transport::{
        audit::Actor, authentication::ClientName, incomplete_calls::Expected, rlqs::Session, status::Rejected,
    },
};

/// Memory that a piece of answers takes in addition to its bytes until it is sent.
pub(super) const PIECE_BYTES: usize = 256;

impl<S: Store> Calls<S> {
    /// Serves a stream until `end`. `answers` makes its answers from its messages, its permit and its client.
    async fn stream<A>(
        &self,
        request: Request<Incoming>,
        end: Option<Deadline>,
        answers: impl Fn(Messages<Streaming<Bytes>>, Permit, Option<ClientName>) -> A + Sync,
    ) -> Response<Body>
    where
        A: Stream<Item = Result<BytesMut, Status>> + Send + 'static,
    {
        let call = service_fn(|mut request: tonic::Request<Streaming<Bytes>>| {
            let (authorization, client) = (request.extensions_mut().remove(), request.extensions_mut().remove());
            let termination = Termination::new(self.connected.close.clone(), end, authorization);
            let pace = self.connected.rate.clone().map(Pace::new);
            let messages = Messages::new(request.into_inner(), termination, pace);
            let permit = self.port.streams.acquire().map_err(Rejected::from).map_err(Status::from);
            ready(permit.map(|permit| tonic::Response::new(answers(messages, permit, client))))
        });
        let request = self.incomplete_calls.waiting(request, Expected::Stream);
        let response = codec::streaming(self.port.max_message_bytes).streaming(call, request).await;
        let connected = self.connected.clone();
        response.map(|body| Body::new(body.map_frame(move |frame| counted(frame, &connected))))
    }

    pub(super) async fn stream_checks(&self, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        let answers = |messages: Messages<_>, permit, _| {
            let checks = Checks::new(self.port.services.checks.clone(), permit);
            Answers::new(
                messages.bound_large_messages(self.connected.clone()),
                checks,
                self.connected.clone(),
                deadline,
            )
        };
        self.stream(request, None, answers).await
    }

    pub(super) async fn stream_leases(&self, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        let answers = |messages: Messages<_>, permit, client| {
            let actor = Actor { transport: Transport::GrpcLease, ..self.actor(client) };
            let handler = lease::handler(self.port.services.checks.clone(), actor, permit);
            Answers::new(
                messages.bound_large_messages(self.connected.clone()),
                handler,
                self.connected.clone(),
                deadline,
            )
        };
        self.stream(request, None, answers).await
    }

    pub(super) async fn stream_quotas(&self, request: Request<Incoming>, deadline: Option<Deadline>) -> Response<Body> {
        let Some(quotas) = &self.port.quotas else {
            self.connected.answered_by_its_head(request);
            return Status::unimplemented("the setting rlqs.domains is empty").into_http();
        };
        let answers = |messages, permit, _| {
            let session = Session::new(Arc::clone(quotas), self.connected.peer);
            QuotaAnswers::new(messages, session, self.connected.clone(), permit)
        };
        self.stream(request, deadline, answers).await
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
        self.port.health.watch(request, permit, termination).await
    }
}

/// Counts the answers of a stream until the client reads them: HTTP/2 takes as many from each stream as fit into its
/// client's flow-control window. If the clients of the port leave too many unread, the trailers in place of the answers
/// end the stream.
fn counted(frame: Frame<Bytes>, connected: &Connected) -> Frame<Bytes> {
    let Some(bytes) = frame.data_ref() else { return frame };
    match connected.unread(bytes.len() + PIECE_BYTES) {
        Ok(unread) => frame.map_data(|bytes| unread.with(bytes)),
        Err(overload) => Frame::trailers(trailers(&Rejected::from(overload).into())),
    }
}
