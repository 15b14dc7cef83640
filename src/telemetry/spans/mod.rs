//! Spans of requests, made by OpenTelemetry's SDK, which also samples them. Names and attributes follow its semantic
//! conventions.

mod parent;
mod settings;

use metrics::Counter;
use opentelemetry::{
    Context, InstrumentationScope, KeyValue,
    trace::{
        Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, TraceFlags, Tracer as _,
        TracerProvider as _,
    },
};
use opentelemetry_sdk::trace::{
    Sampler, SamplingDecision, SdkTracer, SdkTracerProvider, ShouldSample, TracerProviderBuilder,
};
use tonic::Code;
use weir_telemetry::{
    Metric, Registry,
    request::{RequestEnd, RequestSummary, Route},
};

pub use opentelemetry_sdk::trace::Span;
pub use parent::{Parent, parent};
pub use settings::{Protocol, TracingSettings};

const SPANS: Metric = (
    "weir_trace_spans_total",
    "Spans recorded, by result: exported, dropped (the queue was full), failed (the collector did not accept them).",
);

/// The counts of spans by result.
#[derive(Clone, Debug)]
pub struct SpanMetrics {
    /// Accepted by the collector.
    pub exported: Counter,
    /// Not queued, as the queue was full.
    pub dropped: Counter,
    /// Sent, but not accepted.
    pub failed: Counter,
}

impl SpanMetrics {
    /// Creates the metrics of this service.
    pub fn new(registry: &Registry) -> Self {
        let of = |result| registry.counter(SPANS, &[("result", result)]);
        Self { exported: of("exported"), dropped: of("dropped"), failed: of("failed") }
    }
}

/// Records spans.
pub struct Spans {
    tracer: SdkTracer,
    ratio: Sampler,
}

impl Spans {
    /// Builds the provider with a parent-based sampler: the client's sampling decision takes precedence, and of the
    /// traces that start here, or whose client leaves the decision to the service, `sample_ratio` is sampled.
    pub fn new(provider: TracerProviderBuilder, sample_ratio: f64) -> (Self, SdkTracerProvider) {
        let ratio = Sampler::TraceIdRatioBased(sample_ratio);
        let provider = provider.with_sampler(Sampler::ParentBased(Box::new(ratio.clone()))).build();
        let scope =
            InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION")).build();
        (Self { tracer: provider.tracer_with_scope(scope), ratio }, provider)
    }

    /// Starts the span of a request, if it is sampled. The name is set at the end, as most requests may have no span.
    pub fn begin(&self, parent: Option<&Parent>) -> Option<Span> {
        let parent = parent.map(|parent| self.decided(parent));
        let span = self.start(SpanBuilder::from_name("").with_kind(SpanKind::Server), parent.as_ref());
        span.is_recording().then_some(span)
    }

    /// Returns a parent with a sampling decision. The sampler of the provider knows none without.
    fn decided(&self, Parent { span, is_deferred }: &Parent) -> SpanContext {
        let (trace, kind) = (span.trace_id(), SpanKind::Server);
        let is_sampled = || {
            let sampled = self.ratio.should_sample(None, trace, "", &kind, &[], &[]);
            sampled.decision == SamplingDecision::RecordAndSample
        };
        if *is_deferred && is_sampled() {
            SpanContext::new(trace, span.span_id(), TraceFlags::SAMPLED, true, span.trace_state().clone())
        } else {
            span.clone()
        }
    }

    fn start(&self, builder: SpanBuilder, parent: Option<&SpanContext>) -> Span {
        let above = Context::new();
        let parent = parent.map_or_else(|| above.clone(), |parent| above.with_remote_span_context(parent.clone()));
        self.tracer.build_with_context(builder, &parent)
    }

    /// Ends the span of a request. Its call to the shared store becomes a child span.
    pub fn end(&self, mut span: Span, route: Route, summary: &RequestSummary, end: RequestEnd) {
        span.update_name(route.to_string());
        span.set_attributes(of_route(route, end));
        span.set_attributes(of_decision(summary, end));
        if is_our_failure(end) {
            span.set_status(Status::error(""));
        }
        span.end();
        if let Some((start, end, has_failed)) = summary.store {
            let store = SpanBuilder::from_name("redis").with_kind(SpanKind::Client).with_start_time(start);
            let mut store = self.start(store, Some(span.span_context()));
            store.set_attribute(KeyValue::new("db.system.name", "redis"));
            if has_failed {
                store.set_status(Status::error(""));
            }
            store.end_with_timestamp(end);
        }
    }
}

fn of_route(route: Route, end: RequestEnd) -> Vec<KeyValue> {
    let mut attributes = match route {
        Route::Grpc { service, method } => vec![
            KeyValue::new("rpc.system", "grpc"),
            KeyValue::new("rpc.service", service),
            KeyValue::new("rpc.method", method),
        ],
        Route::Other => Vec::new(),
        Route::Http { method, route } => vec![
            KeyValue::new("http.request.method", method),
            KeyValue::new("http.route", route),
            KeyValue::new("url.path", route),
        ],
    };
    let status = match (route, end) {
        (_, RequestEnd::Http(status)) => Some(("http.response.status_code", i64::from(status))),
        (_, RequestEnd::Grpc(code)) => Some(("rpc.grpc.status_code", i64::from(code))),
        (Route::Grpc { .. }, RequestEnd::Abandoned) => Some(("rpc.grpc.status_code", Code::Cancelled as i64)),
        (_, RequestEnd::Abandoned) => None,
    };
    attributes.extend(status.map(|(key, status)| KeyValue::new(key, status)));
    attributes
}

/// Returns the attributes of the decision, without any value of the request: names are the policy's.
fn of_decision(summary: &RequestSummary, end: RequestEnd) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    attributes.extend(summary.domain.as_deref().map(|domain| KeyValue::new("weir.domain", domain.to_owned())));
    attributes.extend(summary.outcome_of(end).map(|outcome| KeyValue::new("weir.outcome", outcome)));
    attributes.extend(summary.limit.as_deref().map(|limit| KeyValue::new("weir.limit", limit.to_owned())));
    if summary.checks > 0 {
        attributes.push(KeyValue::new("weir.degraded", summary.degraded));
    }
    if summary.checks > 1 {
        attributes.push(KeyValue::new("weir.checks", i64::from(summary.checks)));
        attributes.push(KeyValue::new("weir.checks.limited", i64::from(summary.limited)));
        attributes.push(KeyValue::new("weir.checks.failed", i64::from(summary.failed)));
    }
    attributes
}

/// Whether the service failed. An error of the client is not an error of a server span.
fn is_our_failure(end: RequestEnd) -> bool {
    match end {
        RequestEnd::Abandoned => false,
        RequestEnd::Http(status) => status >= 500,
        RequestEnd::Grpc(code) => matches!(
            Code::from(code),
            Code::Unknown
                | Code::DeadlineExceeded
                | Code::Unimplemented
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss
        ),
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceId, TraceState};

    use super::*;

    fn spans(sample_ratio: f64) -> Spans {
        Spans::new(SdkTracerProvider::builder(), sample_ratio).0
    }

    #[test]
    fn the_parent_sampling_decision_overrides_the_ratio() {
        let of = |flags| {
            let span = SpanContext::new(TraceId::from(7), SpanId::from(9), flags, true, TraceState::NONE);
            Parent { span, is_deferred: false }
        };
        let span = spans(0.0).begin(Some(&of(TraceFlags::SAMPLED))).unwrap();
        assert_eq!(span.span_context().trace_id(), TraceId::from(7));
        assert_ne!(span.span_context().span_id(), SpanId::from(9));
        assert!(spans(1.0).begin(Some(&of(TraceFlags::NOT_SAMPLED))).is_none());
    }

    #[test]
    fn the_ratio_samples_traces_whose_client_leaves_the_decision() {
        let of = |trace| {
            let span = SpanContext::new(
                TraceId::from(trace),
                SpanId::from(9),
                TraceFlags::NOT_SAMPLED,
                true,
                TraceState::NONE,
            );
            Parent { span, is_deferred: true }
        };
        let spans = [0.0, 0.5, 1.0].map(spans);
        for (trace, expected) in [(7, [false, true, true]), (u128::from(u64::MAX), [false, false, true])] {
            let started = spans.each_ref().map(|spans| spans.begin(Some(&of(trace))));
            assert_eq!(started.each_ref().map(Option::is_some), expected);
            for span in started.iter().flatten() {
                assert_eq!(span.span_context().trace_id(), TraceId::from(trace));
            }
        }
    }

    #[test]
    fn the_ratio_samples_new_traces() {
        let part = |ratio| {
            let spans = spans(ratio);
            (0..10_000).filter(|_| spans.begin(None).is_some()).count()
        };
        assert_eq!((part(0.0), part(1.0)), (0, 10_000));
        // The probability of a result outside this range is less than 1 in 10^20.
        assert!((2_000..3_000).contains(&part(0.25)));
    }
}
