//! The context of the request at hand: its id, its trace, and a summary of what was decided. A log line about a request
//! takes its id from here, however deep below the surface it is written.
//!
//! Only requests that may be logged or traced have one.

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
pub enum Surface {
    /// A call over gRPC.
    Grpc {
        /// The service's full name.
        service: &'static str,
        /// The method's.
        method: &'static str,
    },
    /// A request over HTTP.
    Http {
        /// Its method.
        method: &'static str,
        /// Its path.
        route: &'static str,
    },
    /// Something else than a decision or a reset.
    Other,
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grpc { service, method } => write!(f, "{service}/{method}"),
            Self::Http { method, route } => write!(f, "{method} {route}"),
            Self::Other => f.write_str("other"),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestEnd {
    /// The client went away before there was an answer.
    #[default]
    Abandoned,
    /// With this code of gRPC.
    Grpc(i32),
    /// With this status of HTTP.
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

/// The decision on one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSummary {
    /// The domain, where all checks are of one: its name in the policy, or `other`.
    pub domain: Option<Box<str>>,
    /// The limit that decided, where it was one check: its name in the policy, or `other`.
    pub limit: Option<Box<str>>,
    /// A check was decided without the shared store.
    pub degraded: bool,
    /// Checks.
    pub checks: u32,
    /// Those refused.
    pub limited: u32,
    /// Those that could not be decided.
    pub failed: u32,
    /// When the shared store was called, until when, and whether that failed.
    pub store: Option<(SystemTime, SystemTime, bool)>,
}

impl RequestSummary {
    /// A check in this domain went so; `None`: the policy has no such domain. `limit` is the one that decided, if any.
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

    /// How a request went that ended so: as its checks did, or else it is an error where it failed.
    pub fn outcome_of(&self, end: RequestEnd) -> Option<&'static str> {
        let failed = || end.has_failed().then_some(Outcome::Error);
        self.outcome().or_else(failed).map(Outcome::name)
    }

    /// How the checks went together, where there are any: refused if one was.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        match self {
            Self { checks: 0, .. } => None,
            Self { limited: 1.., .. } => Some(Outcome::Limited),
            Self { failed: 1.., .. } => Some(Outcome::Error),
            _ => Some(Outcome::Allowed),
        }
    }
}

/// The context of one request, which spans and log lines are made of.
#[derive(Debug)]
pub struct RequestContext {
    /// The called method.
    pub surface: Surface,
    since: Instant,
    id: OnceLock<RequestId>,
    /// The id of the caller's trace, or of the one that begins with this request.
    trace: Option<u128>,
    has_span: bool,
    connection: u64,
    summary: Mutex<RequestSummary>,
}

impl RequestContext {
    /// For a new request on the connection of this number, under the id that its client gave it. `trace` is the one that it is
    /// part of; it may have a span there.
    pub fn new(
        surface: Surface,
        connection: u64,
        given: Option<RequestId>,
        trace: Option<u128>,
        has_span: bool,
    ) -> Self {
        let id = given.map_or_else(OnceLock::new, OnceLock::from);
        Self { surface, since: Instant::now(), id, trace, has_span, connection, summary: Mutex::default() }
    }

    /// The request's id, made where it has none.
    pub fn id(&self) -> &RequestId {
        self.id.get_or_init(RequestId::make)
    }

    /// The request's id, where the client gave it or a log line has shown it.
    pub fn known_id(&self) -> Option<&RequestId> {
        self.id.get()
    }

    /// The id of the trace that it is part of, as logs have it.
    pub fn trace_id(&self) -> Option<String> {
        self.trace.map(|id| format!("{id:032x}"))
    }

    /// How long it has taken.
    pub fn took(&self) -> Duration {
        self.since.elapsed()
    }

    /// Takes the decision so far.
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

/// Runs `future` on another task in the current context, if any.
pub fn carried<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let context = CURRENT.try_with(Arc::clone).ok();
    async {
        match context {
            Some(context) => within(context, future).await,
            None => future.await,
        }
    }
}

/// The id of the request at hand, for a log line about it.
pub fn request_id() -> Option<String> {
    CURRENT.try_with(|context| context.id().to_string()).ok()
}

/// The number of the connection that the request at hand came on.
pub fn connection() -> Option<u64> {
    CURRENT.try_with(|context| context.connection).ok()
}

/// The trace of the request at hand, where it has one.
pub fn trace_id() -> Option<String> {
    CURRENT.try_with(|context| context.trace_id()).ok().flatten()
}

/// Adds to the summary of the request at hand, where it has a context.
pub fn summarize(summarize: impl FnOnce(&mut RequestSummary)) {
    let _ = CURRENT.try_with(|context| summarize(&mut context.summary.lock()));
}

/// The moment at which the shared store is called, where the request at hand has a span.
pub fn store_call_began() -> Option<SystemTime> {
    CURRENT.try_with(|context| context.has_span).unwrap_or_default().then(SystemTime::now)
}

/// The shared store was called at that moment, and has answered or failed. Of several calls that overlap, the whole time counts.
pub fn store_call_ended(at: Option<SystemTime>, failed: bool) {
    let Some(at) = at else { return };
    summarize(|summary| {
        let (first, before) = summary.store.map_or((at, false), |(first, _, before)| (first.min(at), before));
        summary.store = Some((first, SystemTime::now(), before || failed));
    });
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
        assert_eq!((request_id(), trace_id(), connection(), store_call_began()), (None, None, None, None));
        let surface = Surface::Http { method: "POST", route: "/v1/check" };
        let context = Arc::new(RequestContext::new(surface, 7, None, None, false));
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
