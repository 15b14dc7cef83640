//! A collector of spans, as OpenTelemetry has them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::TcpListener,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status, service::Routes};
use tower::Service;

use super::{eventually, pki};

/// A collector on a thread of its own, ended when this is dropped.
pub struct Collector {
    /// Where it listens, as a setting names it.
    pub endpoint: String,
    taken: Taken,
    end: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// What it was sent.
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
    /// One on a free port.
    pub fn start() -> Self {
        Self::on_free_port("http://127.0.0.1", None)
    }

    /// The same, which shows the certificate of `localhost`.
    pub fn encrypted(pair: &pki::Pair) -> Self {
        Self::on_free_port("https://localhost", Some(pki::acceptor(pair)))
    }

    fn on_free_port(place: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("{place}:{}", listener.local_addr().expect("an address").port());
        let (taken, end) = (Taken::default(), CancellationToken::new());
        let serving = serve(listener, tls, taken.clone(), end.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serving);
        });
        Self { endpoint, taken, end, thread: Some(thread) }
    }

    /// All that it was sent.
    pub fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        self.taken.requests().clone()
    }

    /// The spans that it was sent.
    pub fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        // A status that is not set says no more than none.
        spans.map(|span| Span { status: span.status.filter(|status| status.code != 0), ..span }).collect()
    }

    /// Waits until it was sent so many spans.
    pub fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        eventually(&format!("{count} spans"), || Some(self.spans()).filter(|spans| spans.len() >= count))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, taken: Taken, end: CancellationToken) {
    listener.set_nonblocking(true).expect("a socket");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    let routes = Routes::new(TraceServiceServer::new(taken)).prepare().into_axum_router();
    loop {
        let accepted = tokio::select! {
            () = end.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        let (routes, tls) = (routes.clone(), tls.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let mut routes = routes.clone();
                async move { Ok::<_, Infallible>(routes.call(request).await.unwrap_or_else(|never| match never {})) }
            });
            let http = auto::Builder::new(TokioExecutor::new()).http2_only();
            // Whoever has gone is gone.
            let _ = match tls {
                None => http.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => http.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => Ok(()),
                },
            };
        });
    }
}

/// Attributes as texts, by their names.
pub fn attributes(of: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        other => panic!("{other:?}"),
    };
    of.iter().map(|attribute| (attribute.key.as_str(), text(attribute))).collect()
}
