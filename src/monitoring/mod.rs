//! Metrics, liveness and readiness over HTTP, for operators.

use std::{io, sync::Arc, time::Instant};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use crate::telemetry::Metrics;

mod compressed;

/// The state behind the endpoints.
#[derive(Clone)]
pub struct HealthAndMetrics {
    metrics: Arc<Metrics>,
    /// Whether this service is ready, and the body of `/readyz`.
    readiness: Arc<Mutex<(bool, &'static str)>>,
    refresh: Arc<dyn Fn(&Metrics) + Send + Sync>,
    /// The last page of metrics, compressed, and when it was started.
    page: Arc<tokio::sync::Mutex<Option<(Instant, Bytes)>>>,
}

impl HealthAndMetrics {
    /// Returns endpoints for `metrics`, ready until [`report`](Self::report) says otherwise. `refresh` updates the
    /// gauges that are computed on demand.
    pub fn new(metrics: Arc<Metrics>, refresh: impl Fn(&Metrics) + Send + Sync + 'static) -> Self {
        let readiness = Arc::new(Mutex::new((true, "ready\n")));
        Self { metrics, readiness, refresh: Arc::new(refresh), page: Arc::default() }
    }

    /// Sets whether `/readyz` succeeds, and its body.
    pub fn report(&self, is_ready: bool, body: &'static str) {
        *self.readiness.lock() = (is_ready, body);
    }

    /// Returns a page of metrics that is started after this call, compressed. One is made at a time, for all calls that
    /// wait, on a separate thread: a large one takes long enough to delay checks and probes.
    async fn page(&self) -> io::Result<Bytes> {
        let called = Instant::now();
        let mut last = Arc::clone(&self.page).lock_owned().await;
        if let Some((started, page)) = &*last
            && *started >= called
        {
            return Ok(page.clone());
        }
        let monitoring = self.clone();
        // It keeps the lock until it ends, even if the caller stops waiting.
        let made = spawn_blocking(move || {
            let started = Instant::now();
            (monitoring.refresh)(&monitoring.metrics);
            let page = compressed::compress(&monitoring.metrics.render())?;
            *last = Some((started, page.clone()));
            Ok(page)
        });
        made.await?
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

async fn metrics(State(monitoring): State<HealthAndMetrics>, headers: HeaderMap) -> impl IntoResponse {
    let page = monitoring.page().await.map(|page| compressed::respond(page, &headers));
    let page = page.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}

async fn ready(State(monitoring): State<HealthAndMetrics>) -> impl IntoResponse {
    let (is_ready, body) = *monitoring.readiness.lock();
    (if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
}

/// Readiness at the path and with the answers of envoyproxy/ratelimit, for its probes.
async fn healthcheck(State(monitoring): State<HealthAndMetrics>) -> impl IntoResponse {
    if monitoring.readiness.lock().0 { (StatusCode::OK, "OK") } else { (StatusCode::INTERNAL_SERVER_ERROR, "") }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        time::Duration,
    };

    use axum::{body::Body, http::Request};
    use futures_util::future::join_all;
    use tokio::task::yield_now;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_page_is_made_for_all_that_wait_and_no_probe_waits() {
        let (begin, begins) = mpsc::channel::<()>();
        let (begins, made) = (Mutex::new(begins), Arc::new(AtomicUsize::new(0)));
        let refresh = {
            let made = Arc::clone(&made);
            move |_: &Metrics| {
                made.fetch_add(1, Ordering::Relaxed);
                begins.lock().recv_timeout(Duration::from_secs(60)).expect("it begins");
            }
        };
        let routes = HealthAndMetrics::new(Metrics::new(), refresh).routes();
        let get = |path: &str| {
            let call = routes.clone().oneshot(Request::get(path).body(Body::empty()).expect("a request"));
            tokio::spawn(async { call.await.expect("an answer").status() })
        };
        // One hangs up while its page is made.
        let first = get("/metrics");
        while made.load(Ordering::Relaxed) == 0 {
            yield_now().await;
        }
        first.abort();
        let waiting: Vec<_> = (0..20).map(|_| get("/metrics")).collect();
        assert_eq!(get("/healthz").await.expect("an answer"), StatusCode::OK);
        (0..2).for_each(|_| begin.send(()).expect("it waits"));
        for status in join_all(waiting).await {
            assert_eq!(status.expect("an answer"), StatusCode::OK);
        }
        assert_eq!(made.load(Ordering::Relaxed), 2, "the first, and one for all others");
    }
}
