//! The ports: listeners, their threads, and the guard in front of each.

use std::{num::NonZero, sync::Arc, thread};

use weir_server::{
    ConcurrencyLimit, Connected, ConnectionSettings, Drain, Listen, Listener, Overload, RuntimeKind, Server, Traffic,
    Workers, metrics::ListenerMetrics,
};

use super::{AppError, security::Security};
use crate::{
    config::Settings,
    monitoring::HealthAndMetrics,
    telemetry::Metrics,
    transport::{Guarded, HttpPort, Unauthenticated, guard::Routes, observer::RequestObserver},
};

/// Default limit of the decisions of a port that wait for a shared store: the queue of one pipeline worker.
pub(super) const MAX_REQUESTS_TO_A_SHARED_STORE: usize = 10_000;

/// Maximum number of connections of the port of `/metrics` and the probes.
pub(super) const MAX_METRICS_CONNECTIONS: usize = 64;

/// The parts that several ports share.
pub(super) struct Ports<'a> {
    pub drain: &'a Drain,
    /// TLS and authentication by the port's name; `None`: neither.
    pub security: Option<&'a Security>,
    pub observer: Option<Arc<RequestObserver>>,
    pub unauthenticated: Unauthenticated,
}

impl Ports<'_> {
    /// Returns the server of a port that admits calls to these routes.
    pub(super) fn server<R: Routes>(
        &self,
        listener: Listener,
        routes: R,
        workers: &Workers,
        settings: ConnectionSettings,
        metrics: ListenerMetrics,
    ) -> Server<Guarded<R>> {
        let guarded = Guarded::new(
            routes,
            self.security.and_then(|security| security.authentication(settings.name)),
            self.observer.clone(),
            Connected::new(self.drain.clone()),
            self.unauthenticated,
        );
        Server {
            listener,
            service: Arc::new(guarded),
            workers: workers.handles(),
            settings,
            metrics,
            drain: self.drain.clone(),
            tls: self.security.and_then(|security| security.tls(settings.name)).cloned(),
            clients: self.security.and_then(Security::clients),
        }
    }
}

/// Returns the port of `/metrics` and the probes alone, if the settings have one. It admits every client.
pub(super) async fn metrics_port(
    settings: &Settings,
    monitoring: &HealthAndMetrics,
    metrics: &Metrics,
    workers: &Workers,
    drain: &Drain,
) -> Result<Option<Server<Guarded<HttpPort>>>, AppError> {
    let Some(address) = settings.metrics_listen().map_err(AppError::Setting)? else { return Ok(None) };
    let limits = ConnectionSettings {
        name: "metrics",
        http2_only: false,
        max_connections: MAX_METRICS_CONNECTIONS,
        max_streams: 1,
        // Scrapes and probes have no rate.
        traffic: Traffic { max_requests_per_second: 0, ..settings.http.traffic() },
    };
    let metrics = ListenerMetrics::new(metrics.registry(), limits.name);
    let routes = HttpPort::new(monitoring.clone().routes(), 0, &metrics, Connected::new(drain.clone()));
    let ports = Ports { drain, security: None, observer: None, unauthenticated: Unauthenticated::default() };
    let listener = listen("metrics.listen", &address, workers).await?;
    Ok(Some(ports.server(listener, routes, workers, limits, metrics)))
}

/// Starts the serving threads; a count of 0 means one for each core.
pub(super) fn start_workers(name: &str, count: usize, kind: RuntimeKind) -> Result<Workers, AppError> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    Workers::start(name, if count == 0 { cores } else { count }, kind).map_err(AppError::Threads)
}

/// Returns the permits of a port for decisions that wait for a shared store. Memory needs none, since it answers
/// immediately.
pub(super) fn permits(setting: usize, is_shared: bool, metrics: &ListenerMetrics) -> ConcurrencyLimit {
    if !is_shared {
        return ConcurrencyLimit::unbounded();
    }
    let count = if setting == 0 { MAX_REQUESTS_TO_A_SHARED_STORE } else { setting };
    ConcurrencyLimit::new(count, Overload::Concurrency, metrics.too_many.clone())
}

pub(super) async fn listen(setting: &str, address: &Listen, workers: &Workers) -> Result<Listener, AppError> {
    let wrong = |cause| AppError::Listen { address: format!("{setting} {address}"), cause };
    workers.listen(address).await.map_err(wrong)
}
