//! Observed requests: each is reported by a span or a line of the access log, or has a line in the audit log. Other
//! requests have no such cost.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context as Waker, Poll},
};

use hyper::{
    HeaderMap, Response,
    body::{Body, Frame},
    header::{HeaderName, HeaderValue},
};
use opentelemetry::trace::Span as _;
use tracing::{Level, debug, enabled, level_filters::LevelFilter};
use weir_telemetry::request::{self, RequestContext, RequestEnd, RequestId, RequestSummary, Route};

use crate::{
    auth::{Access, Role},
    proto::code_name,
    telemetry::{
        Spans,
        spans::{self, Span},
    },
};

/// Log target of the access log, which has one line for each request.
const ACCESS: &str = "weir::access";

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Reports requests.
pub struct RequestObserver {
    spans: Option<Spans>,
    observes_all: bool,
}

impl RequestObserver {
    /// Returns an observer with these spans. Without spans, all requests are observed if the log has a line for each
    /// (level `debug`), or if the store is shared and so may fail them.
    pub fn new(spans: Option<Spans>, is_shared: bool) -> Arc<Self> {
        let observes_all = spans.is_some() || is_shared || LevelFilter::current() >= LevelFilter::DEBUG;
        Arc::new(Self { spans, observes_all })
    }

    /// Whether all requests are observed.
    pub fn observes_all(&self) -> bool {
        self.observes_all
    }

    /// Whether requests that require this access are observed: those for which the audit log may have a line, always.
    #[inline]
    pub fn observes(&self, access: Access) -> bool {
        self.observes_all || matches!(access, Access::Named(Role::Reset | Role::Admin))
    }
}

/// The next frame of a body.
type Polled<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// A request that is reported when this is dropped.
pub struct ObservedRequest {
    observer: Arc<RequestObserver>,
    context: Arc<RequestContext>,
    span: Option<Span>,
    end: RequestEnd,
}

impl ObservedRequest {
    /// Starts observing a request. Only requests with a named [`Route`] have a span and a line in the access log.
    pub fn begin(observer: &Arc<RequestObserver>, route: Route, connection: u64, headers: &HeaderMap) -> Box<Self> {
        let given = headers.get(REQUEST_ID).and_then(|id| RequestId::given(id.as_bytes()));
        let remote = spans::parent(headers);
        let spans = observer.spans.as_ref().filter(|_| route != Route::Other);
        let span = spans.and_then(|spans| spans.begin(remote.as_ref()));
        let parent = span.as_ref().map(|span| span.span_context()).or(remote.as_ref().map(|parent| &parent.span));
        let trace = parent.map(|parent| u128::from_be_bytes(parent.trace_id().to_bytes()));
        let context = Arc::new(RequestContext::new(route, connection, given, trace, span.is_some()));
        Box::new(Self { observer: Arc::clone(observer), context, span, end: RequestEnd::default() })
    }

    /// Returns the request context.
    pub fn context(&self) -> &Arc<RequestContext> {
        &self.context
    }

    /// Runs `answer` in the context of this request.
    pub fn run<F: Future>(&self, answer: F) -> impl Future<Output = F::Output> + use<F> {
        request::within(Arc::clone(&self.context), answer)
    }

    /// Records the status in the head of the response.
    pub fn answered<B>(&mut self, response: &mut Response<B>) {
        let status = response.status().as_u16();
        let is_grpc = matches!(self.context.route, Route::Grpc { .. });
        if is_grpc || response.headers().contains_key(GRPC_STATUS) {
            self.ended(response.headers_mut());
        } else {
            self.end = RequestEnd::Http(status);
            self.mark(response.headers_mut());
        }
    }

    /// Polls the next frame of the response body.
    pub fn poll_frame<B: Body + Unpin>(&mut self, body: &mut B, cx: &mut Waker<'_>) -> Poll<Polled<B>> {
        let mut polled = request::enter(&self.context, || Pin::new(body).poll_frame(cx));
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
        {
            self.ended(trailers);
        }
        polled
    }

    /// Records the gRPC status of a call, if these headers or trailers contain it.
    fn ended(&mut self, headers: &mut HeaderMap) {
        let code = headers.get(GRPC_STATUS).and_then(|code| code.to_str().ok()?.parse().ok());
        if let Some(code) = code {
            self.end = RequestEnd::Grpc(code);
            self.mark(headers);
        }
    }

    fn mark(&self, headers: &mut HeaderMap) {
        // If the access log gets a line for the request, its id is needed anyway.
        let is_reported = self.is_reported() && enabled!(target: ACCESS, Level::DEBUG);
        let id = || if is_reported { Some(self.context.id()) } else { self.context.known_id() };
        if self.end.has_failed()
            && let Some(id) = id()
            && let Ok(id) = HeaderValue::try_from(id.as_str())
        {
            headers.insert(REQUEST_ID, id);
        }
    }

    /// Whether it has a named route.
    fn is_reported(&self) -> bool {
        self.context.route != Route::Other
    }

    fn log(&self, summary: &RequestSummary) {
        let context = &self.context;
        debug!(
            target: ACCESS,
            call = %context.route,
            status = status(self.end),
            outcome = summary.outcome_of(self.end),
            domain = summary.domain.as_deref(),
            limit = summary.limit.as_deref(),
            checks = summary.checks,
            limited = summary.limited,
            failed = summary.failed,
            degraded = summary.degraded,
            duration_us = context.took().as_micros() as u64,
            request_id = %context.id(),
            trace_id = context.trace_id(),
            "answered"
        );
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        if !self.is_reported() {
            return;
        }
        let summary = self.context.take_summary();
        self.log(&summary);
        if let Some(spans) = &self.observer.spans
            && let Some(span) = self.span.take()
        {
            spans.end(span, self.context.route, &summary, self.end);
        }
    }
}

/// Returns the status of a request for the access log.
fn status(end: RequestEnd) -> String {
    match end {
        RequestEnd::Abandoned => "abandoned".to_owned(),
        RequestEnd::Grpc(code) => code_name(code).to_owned(),
        RequestEnd::Http(status) => status.to_string(),
    }
}

/// Returns the id that the client gave this request, to be sent back if it fails.
pub fn given_id(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(REQUEST_ID).filter(|id| RequestId::given(id.as_bytes()).is_some()).cloned()
}

/// Sends back the id of a request if it has failed: by its HTTP status, or by the gRPC status in these headers or
/// trailers.
pub fn return_id(id: &mut Option<HeaderValue>, is_http_error: bool, headers: &mut HeaderMap) {
    let has_failed = || is_http_error || headers.get(GRPC_STATUS).is_some_and(|code| code != "0");
    if let Some(id) = id.take_if(|_| has_failed()) {
        headers.insert(REQUEST_ID, id);
    }
}
