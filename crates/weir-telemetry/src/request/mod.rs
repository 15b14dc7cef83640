//! The context of the current request: its id, its trace, and a summary of its decisions. A log line about a request
//! takes the id from here, at any depth below the surface.
//!
//! Only requests that may be logged or traced have a context.

mod id;
mod outcome;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;

pub use id::RequestId;
pub use outcome::{OTHER, Outcome};

/// The called method. Its names are constants, never text of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A gRPC call.
    Grpc {
        /// The service's full name.
        service: &'static str,
        /// The method's name.
        method: &'static str,
    },
    /// An HTTP request.
    Http {
        /// Its method.
        method: &'static str,
        /// Its path.
        route: &'static str,
    },
    /// Anything but a decision or a reset.
    Other,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grpc { service, method } => write!(f, "{service}/{method}"),
            Self::Http { method, route } => write!(f, "{method} {route}"),
            Self::Other => f.write_str("other"),
        }
    }
}

/// The end of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestEnd {
    /// The client disconnected before there was an answer.
    #[default]
    Abandoned,
    /// An answer with this gRPC code.
    Grpc(i32),
    /// An answer with this HTTP status.
    Http(u16),
}

impl RequestEnd {
    /// Whether the answer is an error; a refusal over HTTP is one.
    pub fn has_failed(self) -> bool {
        match self {
            Self::Abandoned => false,
            Self::Grpc(code) => code != 0,
            Self::Http(status) => status >= 400,
        }
    }
}

/// The decisions of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSummary {
    /// The domain, if all checks have the same one: its name in the policy, or `other`.
    pub domain: Option<Box<str>>,
    /// The binding limit, if there was one check: its name in the policy, or `other`.
    pub limit: Option<Box<str>>,
    /// Whether a check was decided without the shared store.
    pub degraded: bool,
    /// The number of checks.
    pub checks: u32,
    /// The number of refused checks.
    pub limited: u32,
    /// The number of checks that could not be decided.
    pub failed: u32,
    /// Start and end of the calls to the shared store, and whether one failed.
    pub store: Option<(SystemTime, SystemTime, bool)>,
}

impl RequestSummary {
    /// Adds the outcome of a check. `domain` is `None` if the policy does not define it; `limit` is the binding one, if
    /// any.
    pub fn check(&mut self, domain: Option<&str>, limit: Option<&str>, outcome: Outcome, degraded: bool) {
        let domain = domain.unwrap_or(OTHER);
        if self.checks == 0 {
            (self.domain, self.limit) = (Some(domain.into()), limit.map(Box::from));
        } else {
            self.limit = None;
            self.domain.take_if(|before| **before != *domain);
        }
        self.checks = self.checks.saturating_add(1);
        self.limited = self.limited.saturating_add(u32::from(outcome == Outcome::Limited));
        self.failed = self.failed.saturating_add(u32::from(outcome == Outcome::Error));
        self.degraded |= degraded;
    }

    /// Returns the outcome of a request with this end: its checks' outcome, or else an error if it
    /// failed.
    pub fn outcome_of(&self, end: RequestEnd) -> Option<&'static str> {
        let failed = || end.has_failed().then_some(Outcome::Error);
        self.outcome().or_else(failed).map(Outcome::name)
    }

    /// Returns the outcome of all checks, if there are any: refused if one was, else failed if one did.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self {
            Self { checks: 0, .. } => None,
            Self { limited: 1.., .. } => Some(Outcome::Limited),
            Self { failed: 1.., .. } => Some(Outcome::Error),
            _ => Some(Outcome::Allowed),
        }
    }
}

/// The context of one request, the source of its spans and log lines.
#[derive(Debug)]
pub struct RequestContext {
    /// The called method.
    pub route: Route,
    since: Instant,
    id: OnceLock<RequestId>,
    /// The id of the client's trace, or of the trace that starts with this request.
    trace: Option<u128>,
    has_span: bool,
    connection: u64,
    summary: Mutex<RequestSummary>,
}

impl RequestContext {
    /// Makes the context of a new request on a connection, with the request id that its client gave, if any. `trace` is
    /// the id of its trace; `has_span`: the request has a span there.
    pub fn new(route: Route, connection: u64, given: Option<RequestId>, trace: Option<u128>, has_span: bool) -> Self {
        let id = given.map_or_else(OnceLock::new, OnceLock::from);
        Self { route, since: Instant::now(), id, trace, has_span, connection, summary: Mutex::default() }
    }

    /// Returns the request's id, and makes one if there is none.
    pub fn id(&self) -> &RequestId {
        self.id.get_or_init(RequestId::make)
    }

    /// Returns the request's id, if the client gave one or a log line has used it.
    pub fn known_id(&self) -> Option<&RequestId> {
        self.id.get()
    }

    /// Returns the id of its trace in the format of logs.
    pub fn trace_id(&self) -> Option<String> {
        self.trace.map(|id| format!("{id:032x}"))
    }

    /// Returns the time since the start of the request.
    pub fn took(&self) -> Duration {
        self.since.elapsed()
    }

    /// Takes the summary so far.
    pub fn take_summary(&self) -> RequestSummary {
        std::mem::take(&mut self.summary.lock())
    }
}

tokio::task_local! {
    static CURRENT: Arc<RequestContext>;
}

/// Runs `future` in this context.
pub fn within<F: Future>(context: Arc<RequestContext>, future: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(context, future)
}

/// Runs `work` in this context.
pub fn enter<T>(context: &Arc<RequestContext>, work: impl FnOnce() -> T) -> T {
    CURRENT.sync_scope(Arc::clone(context), work)
}

/// Runs `future` in the current context, if any, for use on another task.
pub fn carried<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let context = CURRENT.try_with(Arc::clone).ok();
    async {
        match context {
            Some(context) => within(context, future).await,
            None => future.await,
        }
    }
}

/// Returns the id of the current request, for a log line about it.
pub fn request_id() -> Option<String> {
    CURRENT.try_with(|context| context.id().to_string()).ok()
}

/// Returns the id of the current request's connection.
pub fn connection() -> Option<u64> {
    CURRENT.try_with(|context| context.connection).ok()
}

/// Returns the trace id of the current request, if it has one.
pub fn trace_id() -> Option<String> {
    CURRENT.try_with(|context| context.trace_id()).ok().flatten()
}

/// Updates the summary of the current request, if it has a context.
pub fn summarize(summarize: impl FnOnce(&mut RequestSummary)) {
    let _ = CURRENT.try_with(|context| summarize(&mut context.summary.lock()));
}

/// A call to the shared store, for the summary of the current request if that has a span. One that is dropped before its
/// end, because the request ends first, has failed.
#[derive(Debug)]
#[must_use = "the call ends when this is dropped"]
pub struct StoreCall {
    started: Option<(Arc<RequestContext>, SystemTime)>,
    has_failed: bool,
}

impl StoreCall {
    /// Starts a call.
    pub fn start() -> Self {
        let context = CURRENT.try_with(|context| context.has_span.then(|| Arc::clone(context))).ok().flatten();
        Self { started: context.map(|context| (context, SystemTime::now())), has_failed: true }
    }

    /// Ends the call.
    pub fn end(mut self, has_failed: bool) {
        self.has_failed = has_failed;
    }
}

impl Drop for StoreCall {
    /// Records the call. For several calls the time from the first start to the last end counts.
    fn drop(&mut self) {
        let Some((context, at)) = &self.started else { return };
        let mut summary = context.summary.lock();
        let (first, before) = summary.store.map_or((*at, false), |(first, _, before)| (first.min(*at), before));
        summary.store = Some((first, SystemTime::now(), before || self.has_failed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_many_checks_has_their_common_fields() {
        let mut summary = RequestSummary::default();
        assert_eq!(summary.outcome(), None);
        summary.check(Some("a"), Some("l"), Outcome::Allowed, false);
        assert_eq!(
            (summary.outcome(), summary.domain.as_deref(), summary.limit.as_deref()),
            (Some(Outcome::Allowed), Some("a"), Some("l"))
        );
        summary.check(Some("a"), Some("l"), Outcome::Error, true);
        assert_eq!(
            (summary.outcome(), summary.domain.as_deref(), summary.limit.as_deref()),
            (Some(Outcome::Error), Some("a"), None)
        );
        summary.check(None, None, Outcome::Limited, false);
        assert_eq!((summary.outcome(), summary.domain.as_deref()), (Some(Outcome::Limited), None));
        summary.check(None, None, Outcome::Allowed, false);
        assert_eq!((summary.domain.as_deref(), summary.degraded), (None, true));
        assert_eq!((summary.checks, summary.limited, summary.failed), (4, 1, 1));
    }

    #[tokio::test]
    async fn a_request_id_is_generated_once_per_request() {
        assert_eq!((request_id(), trace_id(), connection()), (None, None, None));
        let route = Route::Http { method: "POST", route: "/v1/check" };
        let context = Arc::new(RequestContext::new(route, 7, None, None, false));
        let (first, there) = within(Arc::clone(&context), async {
            summarize(|summary| summary.degraded = true);
            (request_id(), tokio::spawn(carried(async { request_id() })).await.unwrap())
        })
        .await;
        assert!(first.is_some() && first == there && first == enter(&context, request_id));
        assert_eq!(context.known_id().map(ToString::to_string), first);
        assert_eq!(enter(&context, connection), Some(7));
        assert!(context.take_summary().degraded);
    }
}
