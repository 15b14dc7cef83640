//! Floor 6, for operators: metrics and health over HTTP.

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
use serde::{Deserialize, Serialize};

use crate::{settings::Listen, telemetry::Metrics};

/// The HTTP port's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Where to listen.
    pub listen: Listen,
    /// Most connections; further ones are closed at once.
    pub max_connections: usize,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self { listen: Listen::loopback(8080), max_connections: 1_000 }
    }
}

/// What the pages tell of.
#[derive(Clone)]
pub struct Admin {
    metrics: Arc<Metrics>,
    ending: Arc<AtomicBool>,
    store_down: Arc<AtomicBool>,
    refresh: Arc<dyn Fn(&Metrics) + Send + Sync>,
}

impl Admin {
    /// Pages over these metrics; `refresh` sets those that are only looked up when somebody asks.
    pub fn new(metrics: Arc<Metrics>, refresh: impl Fn(&Metrics) + Send + Sync + 'static) -> Self {
        Self { metrics, ending: Arc::default(), store_down: Arc::default(), refresh: Arc::new(refresh) }
    }

    /// From now on `/readyz` says no.
    pub fn report_ending(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// While the store that readiness requires is down, `/readyz` says no.
    pub fn report_store(&self, up: bool) {
        self.store_down.store(!up, Ordering::Relaxed);
    }

    /// The pages.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .with_state(self)
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    (admin.refresh)(&admin.metrics);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], admin.metrics.render())
}

async fn ready(State(admin): State<Admin>) -> impl IntoResponse {
    if admin.ending.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n")
    } else if admin.store_down.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}
