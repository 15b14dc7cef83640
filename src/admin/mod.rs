//! Metrics, liveness and readiness over HTTP, for operators.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use parking_lot::Mutex;

use crate::telemetry::Metrics;

mod compressed;

/// The state behind the endpoints.
#[derive(Clone)]
pub struct HealthAndMetrics {
    metrics: Arc<Metrics>,
    draining: Arc<AtomicBool>,
    awaits_policy: Arc<AtomicBool>,
    /// The problem of the shared store, as a line of text.
    store: Arc<Mutex<Option<&'static str>>>,
    requires_store: bool,
    refresh: Arc<dyn Fn(&Metrics) + Send + Sync>,
}

impl HealthAndMetrics {
    /// Returns endpoints for `metrics`. With `requires_store`, `/readyz` fails while the shared store has a problem.
    /// `refresh` updates the gauges that are computed on demand.
    pub fn new(
        metrics: Arc<Metrics>,
        requires_store: bool,
        refresh: impl Fn(&Metrics) + Send + Sync + 'static,
    ) -> Self {
        let (draining, awaits_policy, store) = (Arc::default(), Arc::default(), Arc::default());
        Self { metrics, draining, awaits_policy, store, requires_store, refresh: Arc::new(refresh) }
    }

    /// Makes `/readyz` fail from now on.
    pub fn report_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Makes `/readyz` fail while a policy is awaited.
    pub fn report_awaited_policy(&self, is_awaited: bool) {
        self.awaits_policy.store(is_awaited, Ordering::Relaxed);
    }

    /// Whether `/readyz` succeeds.
    pub fn is_ready(&self) -> bool {
        self.obstacle().is_none()
    }

    /// Sets the problem of the shared store, which `/readyz` reports.
    pub fn report_store(&self, problem: Option<&'static str>) {
        *self.store.lock() = problem;
    }

    /// Returns why this service is not ready; `None` if it is ready.
    fn obstacle(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) {
            return Some("shutting down\n");
        }
        if self.awaits_policy.load(Ordering::Relaxed) {
            return Some("the control plane has not sent a policy\n");
        }
        self.store.lock().filter(|_| self.requires_store)
    }

    /// Returns the routes of the endpoints.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/healthcheck", get(healthcheck))
            .route("/metrics", get(metrics))
            .with_state(self)
    }
}

async fn metrics(State(admin): State<HealthAndMetrics>, headers: HeaderMap) -> impl IntoResponse {
    (admin.refresh)(&admin.metrics);
    let page = compressed::respond(&admin.metrics.render(), &headers).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}

async fn ready(State(admin): State<HealthAndMetrics>) -> impl IntoResponse {
    match admin.obstacle() {
        Some(obstacle) => (StatusCode::SERVICE_UNAVAILABLE, obstacle),
        None => (StatusCode::OK, admin.store.lock().unwrap_or("ready\n")),
    }
}

/// Readiness at the path and with the answers of envoyproxy/ratelimit, for its probes.
async fn healthcheck(State(admin): State<HealthAndMetrics>) -> impl IntoResponse {
    match admin.obstacle() {
        Some(_) => (StatusCode::INTERNAL_SERVER_ERROR, ""),
        None => (StatusCode::OK, "OK"),
    }
}
