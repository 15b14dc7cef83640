//! The HTTP port, on its own threads; the explorer's pages are made on the control runtime.

use axum::{
    Router,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::IntoResponse,
};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use weir_store::AnyStore;

use super::AppError;
use crate::{
    config::Settings,
    explorer::Explorer,
    monitoring::HealthAndMetrics,
    transport::{
        api::Services,
        http::{self, Sites},
        rls::{self, Rls},
    },
};

/// Returns the routes of the HTTP port: the API, Envoy's `/json`, the Admin API, metrics and probes and, if enabled,
/// the explorer. The explorer's pages run on the calling runtime: large ones take long enough to delay the checks of a
/// serving thread.
pub(super) fn routes(
    settings: &Settings,
    services: Services<AnyStore>,
    monitoring: HealthAndMetrics,
    explorer: Option<Explorer>,
    sites: Sites,
) -> Result<Router, AppError> {
    let pages = explorer.map(|explorer| on_control(explorer.routes())).unwrap_or_default();
    let most = settings.grpc.max_message_bytes;
    let envoy = rls::json::routes(Rls::new(services.checks.clone(), settings.envoy.clone()), most, sites.clone())?;
    let api = http::routes(services, settings.http.headers, most, sites)?;
    Ok(api.merge(envoy).merge(monitoring.routes()).merge(pages))
}

fn on_control(pages: Router) -> Router {
    let control = Handle::current();
    pages.layer(from_fn(move |request, next: Next| {
        let page = AbortOnDropHandle::new(control.spawn(next.run(request)));
        async { page.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()) }
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use axum::{body::Body, http::Request, routing::get};
    use futures_util::poll;
    use tokio::task::yield_now;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_page_that_nobody_waits_for_any_more_is_not_made() {
        let made = Arc::new(AtomicBool::default());
        let page = {
            let made = Arc::clone(&made);
            async move || made.store(true, Ordering::Relaxed)
        };
        let router = on_control(Router::new().route("/", get(page)));
        let mut call = Box::pin(router.oneshot(Request::new(Body::empty())));
        assert!(poll!(&mut call).is_pending());
        drop(call);
        for _ in 0..10 {
            yield_now().await;
        }
        assert!(!made.load(Ordering::Relaxed));
    }
}
