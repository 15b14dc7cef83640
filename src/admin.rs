//! For operators: metrics and health over HTTP.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use parking_lot::Mutex;

use crate::telemetry::Metrics;

/// What the pages tell of.
#[derive(Clone)]
pub struct Admin {
    metrics: Arc<Metrics>,
    draining: Arc<AtomicBool>,
    store_obstacle: Arc<Mutex<Option<&'static str>>>,
    refresh: Arc<dyn Fn(&Metrics) + Send + Sync>,
}

impl Admin {
    /// Pages over these metrics; `refresh` sets those that are only looked up when somebody asks.
    pub fn new(metrics: Arc<Metrics>, refresh: impl Fn(&Metrics) + Send + Sync + 'static) -> Self {
        Self { metrics, draining: Arc::default(), store_obstacle: Arc::default(), refresh: Arc::new(refresh) }
    }

    /// From now on `/readyz` says no.
    pub fn report_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// While something is wrong with the shared store that readiness requires, `/readyz` says no, and what.
    pub fn report_store(&self, obstacle: Option<&'static str>) {
        *self.store_obstacle.lock() = obstacle;
    }

    /// Why this service is not ready, where it is not.
    fn obstacle(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) { Some("shutting down\n") } else { *self.store_obstacle.lock() }
    }

    /// The pages.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/healthcheck", get(healthcheck))
            .with_state(self)
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    (admin.refresh)(&admin.metrics);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], admin.metrics.render())
}

async fn ready(State(admin): State<Admin>) -> impl IntoResponse {
    match admin.obstacle() {
        Some(obstacle) => (StatusCode::SERVICE_UNAVAILABLE, obstacle),
        None => (StatusCode::OK, "ready\n"),
    }
}

/// The same for those who probe envoyproxy/ratelimit.
async fn healthcheck(State(admin): State<Admin>) -> impl IntoResponse {
    match admin.obstacle() {
        Some(_) => (StatusCode::INTERNAL_SERVER_ERROR, ""),
        None => (StatusCode::OK, "OK"),
    }
}
