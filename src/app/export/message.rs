//! Spans as the messages of OTLP, after the semantic conventions of OpenTelemetry.

use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{Span as Message, Status, span::SpanKind, status::StatusCode},
};
use tonic::Code;

use crate::telemetry::{
    spans::{Span, SpanId},
    trail::{Ending, Surface},
};

/// Flags of a span: it is sampled; whether its parent is elsewhere is known; it is.
const SAMPLED: u32 = 1;
const KNOWN: u32 = 1 << 8;
const REMOTE: u32 = 1 << 9;

/// Who makes the spans.
pub fn resource(service_name: &str) -> Resource {
    let instance = format!("{:032x}", rand::random::<u128>());
    let attributes = vec![
        text("service.name", service_name),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", instance),
    ];
    Resource { attributes, ..Default::default() }
}

/// What in it makes them.
pub fn scope() -> InstrumentationScope {
    let (name, version) = (env!("CARGO_PKG_NAME").to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version, ..Default::default() }
}

/// The messages of these spans, each with one for what it asked of a shared store, if it did.
pub fn spans(batch: &[Span]) -> Vec<Message> {
    batch.iter().flat_map(|span| [Some(of_request(span)), of_store(span)]).flatten().collect()
}

fn of_request(span: &Span) -> Message {
    let remote = if span.context.is_root() { 0 } else { REMOTE };
    let mut attributes = of_surface(span.surface, span.ending);
    attributes.extend(of_decision(span));
    Message {
        name: span.surface.to_string(),
        kind: SpanKind::Server as i32,
        flags: SAMPLED | KNOWN | remote,
        attributes,
        status: is_our_failure(span.ending).then(failed),
        ..begun(span, span.id, &span.context.parent, span.start, span.start + span.took)
    }
}

fn of_store(span: &Span) -> Option<Message> {
    let (start, end, has_failed) = span.told.store?;
    Some(Message {
        name: "redis".to_owned(),
        kind: SpanKind::Client as i32,
        flags: SAMPLED | KNOWN,
        attributes: vec![text("db.system.name", "redis")],
        status: has_failed.then(failed),
        ..begun(span, rand::random(), &span.id, start, end)
    })
}

fn begun(span: &Span, id: SpanId, parent: &SpanId, start: SystemTime, end: SystemTime) -> Message {
    Message {
        trace_id: span.context.trace_id.to_vec(),
        span_id: id.to_vec(),
        trace_state: span.context.state.clone(),
        parent_span_id: if *parent == [0; 8] { Vec::new() } else { parent.to_vec() },
        start_time_unix_nano: nanos(start),
        end_time_unix_nano: nanos(end),
        ..Default::default()
    }
}

fn of_surface(surface: Surface, ending: Ending) -> Vec<KeyValue> {
    let mut attributes = match surface {
        Surface::Grpc { service, method } => {
            vec![text("rpc.system", "grpc"), text("rpc.service", service), text("rpc.method", method)]
        }
        Surface::Other => Vec::new(),
        Surface::Http { method, route } => {
            vec![text("http.request.method", method), text("http.route", route), text("url.path", route)]
        }
    };
    match (surface, ending) {
        (_, Ending::Http(status)) => attributes.push(number("http.response.status_code", status.into())),
        (_, Ending::Grpc(code)) => attributes.push(number("rpc.grpc.status_code", code.into())),
        (Surface::Grpc { .. }, Ending::Abandoned) => {
            attributes.push(number("rpc.grpc.status_code", Code::Cancelled as i64));
        }
        (_, Ending::Abandoned) => {}
    }
    attributes
}

/// What was decided. No value of the request is in it: names are the policy's.
fn of_decision(span: &Span) -> Vec<KeyValue> {
    let told = &span.told;
    let mut attributes = Vec::new();
    attributes.extend(told.domain.as_deref().map(|domain| text("weir.domain", domain)));
    attributes.extend(told.outcome_of(span.ending).map(|outcome| text("weir.outcome", outcome)));
    attributes.extend(told.limit.as_deref().map(|limit| text("weir.limit", limit)));
    if told.checks > 0 {
        attributes.push(flag("weir.degraded", told.degraded));
    }
    if told.checks > 1 {
        attributes.push(number("weir.checks", told.checks.into()));
        attributes.push(number("weir.checks.limited", told.limited.into()));
        attributes.push(number("weir.checks.failed", told.failed.into()));
    }
    attributes
}

/// Whether the fault is the service's: what a caller did wrong is no error of a server's span.
fn is_our_failure(ending: Ending) -> bool {
    match ending {
        Ending::Abandoned => false,
        Ending::Http(status) => status >= 500,
        Ending::Grpc(code) => matches!(
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

fn failed() -> Status {
    Status { code: StatusCode::Error as i32, ..Default::default() }
}

fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn number(key: &str, value: i64) -> KeyValue {
    attribute(key, Value::IntValue(value))
}

fn flag(key: &str, value: bool) -> KeyValue {
    attribute(key, Value::BoolValue(value))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}
