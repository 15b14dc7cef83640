//! The layer in front of every surface: connection limits, authentication and observation of requests.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::{
    HeaderMap, Request, Response,
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    header::HeaderValue,
};
use weir_server::{AnswerBytes, Connected, InFlight, SMALL_ANSWER_BYTES, Serve, UnreadAnswer};
use weir_telemetry::request;

use super::{
    authentication::{Authentication, ConnectionIdentity},
    calls::Call,
    observer::{ObservedRequest, RequestObserver, given_id, return_id},
    routes::Target,
    status::Rejected,
};
use crate::auth::{Access, AuthError, Role, Roles};

/// The surfaces of a port, without authentication and connection limits.
pub trait Routes: Send + Sync + Sized + 'static {
    /// The response body.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Returns the routes for the requests of this connection.
    #[must_use]
    fn on(&self, connected: &Connected) -> Self;

    /// Returns the target of a request.
    fn target(request: &Request<Incoming>) -> Target;

    /// Serves one request, whose target is this call or none.
    fn serve(
        &self,
        request: Request<Incoming>,
        call: Option<Call>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Discards a request that is rejected before it is read. Returns the response to it.
    fn discard(
        &self,
        request: Request<Incoming>,
        rejected: Rejected,
    ) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Returns the response to a request that is rejected.
    fn reject(rejected: Rejected) -> Response<Self::Body>;
}

/// The clients of a port while authentication is disabled: what they are admitted to.
#[derive(Clone, Copy, Default)]
pub struct Unauthenticated {
    /// Whether this machine may make operators' calls.
    pub local_operators: bool,
    /// Whether every client may reset keys.
    pub resets: bool,
    /// Whether a client's connection counts as authenticated once it makes a call that would require credentials, so that
    /// it is not evicted during a call. Not on the port of metrics and probes: a few clients could take all of it.
    pub keeps_connections: bool,
}

/// Routes behind the guard.
pub struct Guarded<R> {
    routes: R,
    authentication: Option<Authentication>,
    observer: Option<Arc<RequestObserver>>,
    connected: Connected,
    identity: Option<Arc<ConnectionIdentity>>,
    unauthenticated: Unauthenticated,
    /// Whether the connection is from this machine.
    is_local: bool,
}

impl<R: Routes> Guarded<R> {
    /// Guards these routes by authentication, if it is enabled, and an observer, if any requests are reported.
    pub fn new(
        routes: R,
        authentication: Option<Authentication>,
        observer: Option<Arc<RequestObserver>>,
        connected: Connected,
        unauthenticated: Unauthenticated,
    ) -> Self {
        Self { routes, authentication, observer, connected, identity: None, unauthenticated, is_local: false }
    }

    /// Returns the observed request, if it is reported, and whether it is admitted.
    #[inline]
    fn receive(
        &self,
        request: &mut Request<Incoming>,
        target: &Target,
    ) -> (Option<Box<ObservedRequest>>, Result<InFlight, Rejected>) {
        let Some(observer) = self.observer.as_ref().filter(|observer| observer.observes(target.access)) else {
            return (None, self.admit(request, target));
        };
        let observed = ObservedRequest::begin(observer, target.route, self.connected.number, request.headers());
        let admitted = request::enter(observed.context(), || self.admit(request, target));
        (Some(observed), admitted)
    }

    #[inline]
    fn admit(&self, request: &mut Request<Incoming>, target: &Target) -> Result<InFlight, Rejected> {
        let Target { call, access, is_paced, .. } = *target;
        if is_paced {
            self.connected.pace()?;
        }
        match &self.identity {
            Some(identity) => {
                identity.admit(request, access, call.is_some_and(Call::lasts))?;
            }
            None => match access {
                Access::Named(role) => self.admit_unauthenticated(role, request.headers())?,
                Access::Authenticated => {
                    let has = |role: &Role| self.admit_unauthenticated(*role, request.headers()).is_ok();
                    let roles: Roles = Role::ALL.into_iter().filter(has).collect();
                    request.extensions_mut().insert(roles);
                }
                _ => {}
            },
        }
        let is_public = access == Access::Public;
        Ok(self.connected.begin(!is_public && (self.identity.is_some() || self.unauthenticated.keeps_connections)))
    }

    /// Admits a call that requires this role while authentication is disabled.
    fn admit_unauthenticated(&self, role: Role, headers: &HeaderMap) -> Result<(), AuthError> {
        match role {
            Role::Reset if !self.unauthenticated.resets => Err(AuthError::NoResets),
            Role::Admin if !self.unauthenticated.local_operators => Err(AuthError::NoOperators),
            Role::Admin if !self.is_local || is_forwarded(headers) => Err(AuthError::NotLocal),
            _ => Ok(()),
        }
    }
}

impl<R: Routes> Serve for Guarded<R> {
    type Body = ObservedBody<R::Body>;

    fn on(&self, connected: Connected) -> Self {
        let identity = self.authentication.as_ref().map(|authentication| {
            Arc::new(authentication.identity(connected.certificate.clone(), connected.revoked.clone()))
        });
        Self {
            routes: self.routes.on(&connected),
            authentication: self.authentication.clone(),
            observer: self.observer.clone(),
            identity,
            unauthenticated: self.unauthenticated,
            is_local: is_local(connected.peer),
            connected,
        }
    }

    async fn serve(self: Arc<Self>, mut request: Request<Incoming>) -> Response<ObservedBody<R::Body>> {
        let mut id = given_id(request.headers());
        let target = R::target(&request);
        let (observed, admitted) = self.receive(&mut request, &target);
        let call = target.call;
        let (mut response, mut in_flight) = match (admitted, &observed) {
            // Boxed only when served: a waiting request stays small, and the memory of one call serves the next.
            (Ok(in_flight), None) => (Box::pin(self.routes.serve(request, call)).await, Some(in_flight)),
            (Ok(in_flight), Some(observed)) => {
                (Box::pin(observed.run(self.routes.serve(request, call))).await, Some(in_flight))
            }
            (Err(rejected), _) => (Box::pin(self.routes.discard(request, rejected)).await, None),
        };
        let bytes = response.extensions().get().map_or(0, |AnswerBytes(bytes)| *bytes);
        let unread = if bytes > SMALL_ANSWER_BYTES {
            let unread = self.connected.unread(bytes, in_flight.take());
            unread.inspect_err(|overload| response = R::reject((*overload).into())).ok()
        } else {
            None
        };
        let observed = observed.map(|mut observed| {
            observed.answered(&mut response);
            observed
        });
        let is_error = response.status().as_u16() >= 400;
        return_id(&mut id, is_error, response.headers_mut());
        response.map(|body| ObservedBody { body, observed, id, unread, _in_flight: in_flight })
    }
}

/// Whether a connection is from this machine: from a loopback address or on a unix socket.
fn is_local(peer: Option<SocketAddr>) -> bool {
    peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback())
}

/// Whether a proxy says that it sends the request for another client. One that forwards TCP alone cannot be recognized.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let by_proxy = |name: &str| matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-");
    headers.keys().any(|name| by_proxy(name.as_str()))
}

/// A response body. Its request is in flight until this is dropped and, if it is large, until it is read.
pub struct ObservedBody<B> {
    body: B,
    observed: Option<Box<ObservedRequest>>,
    /// The client's request id, for the trailers of a call that fails.
    id: Option<HeaderValue>,
    /// Set for a large answer. The answer's bytes hold it too, until they are read.
    unread: Option<Arc<UnreadAnswer>>,
    _in_flight: Option<InFlight>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for ObservedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Self { body, observed, id, unread, .. } = &mut *self;
        let mut polled = match observed {
            None => Pin::new(body).poll_frame(cx),
            Some(observed) => observed.poll_frame(body, cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            return_id(id, false, trailers);
        }
        match unread {
            None => polled,
            Some(unread) => polled.map_ok(|frame| frame.map_data(|bytes| unread.with(bytes))),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn requests_through_a_proxy_are_recognized() {
        for (name, expected) in [
            ("forwarded", true),
            ("via", true),
            ("x-forwarded-for", true),
            ("x-forwarded-proto", true),
            ("x-real-ip", true),
            ("x-request-id", false),
            ("forward", false),
        ] {
            let header = (HeaderName::from_static(name), HeaderValue::from_static(""));
            assert_eq!(is_forwarded(&[header].into_iter().collect()), expected, "{name}");
        }
    }

    #[test]
    fn loopback_addresses_and_unix_sockets_are_local() {
        for (peer, expected) in [
            (None, true),
            (Some("127.0.0.1:9"), true),
            (Some("127.9.9.9:9"), true),
            (Some("[::1]:9"), true),
            (Some("[::ffff:127.0.0.1]:9"), true),
            (Some("[::ffff:192.0.2.1]:9"), false),
            (Some("192.0.2.1:9"), false),
            (Some("[2001:db8::1]:9"), false),
        ] {
            assert_eq!(is_local(peer.map(|peer| peer.parse().unwrap())), expected, "{peer:?}");
        }
    }
}
