//! An OpenTelemetry collector of spans.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{http::StatusCode, routing::post};
use bytes::Bytes;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message as _;
use tokio_rustls::TlsAcceptor;
use tonic::{Response, Status, service::Routes};

use super::{eventually, grpc_server::GrpcServer, pki};

/// A collector, stopped on drop.
pub struct Collector {
    /// The endpoint, as a setting names it.
    pub endpoint: String,
    taken: Taken,
    _grpc: GrpcServer,
}

/// The received requests.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

impl Taken {
    fn requests(&self) -> MutexGuard<'_, Vec<ExportTraceServiceRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl TraceService for Taken {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.requests().push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts a collector on a free port.
    pub fn start() -> Self {
        Self::on_free_port("http://127.0.0.1", None)
    }

    /// Starts a collector with TLS and the certificate of `localhost`.
    pub fn encrypted(pair: &pki::Pair) -> Self {
        Self::on_free_port("https://localhost", Some(pki::acceptor(pair, None)))
    }

    fn on_free_port(place: &str, tls: Option<TlsAcceptor>) -> Self {
        let taken = Taken::default();
        let over_http = {
            let taken = taken.clone();
            async move |body: Bytes| {
                let request = ExportTraceServiceRequest::decode(body).expect("spans");
                taken.requests().push(request);
            }
        };
        let grpc = Routes::new(TraceServiceServer::new(taken.clone())).into_axum_router();
        let routes = grpc.route("/v1/traces", post(over_http)).fallback(async || StatusCode::NOT_FOUND);
        let grpc = GrpcServer::start("127.0.0.1:0", tls, routes.into());
        let port = grpc.address.rsplit_once(':').expect("a port").1;
        Self { endpoint: format!("{place}:{port}"), taken, _grpc: grpc }
    }

    /// Returns all received requests.
    pub fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        self.taken.requests().clone()
    }

    /// Returns all received spans.
    pub fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        // An unset status equals a missing one.
        spans.map(|span| Span { status: span.status.filter(|status| status.code != 0), ..span }).collect()
    }

    /// Waits until this many spans were received.
    pub fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        eventually(&format!("{count} spans"), || Some(self.spans()).filter(|spans| spans.len() >= count))
    }
}

/// Returns attributes as texts, by name.
pub fn attributes(of: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => panic!("{other:?}"),
    };
    of.iter().map(|attribute| (attribute.key.as_str(), text(attribute))).collect()
}
