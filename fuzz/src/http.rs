//! JSON over HTTP, through the router of the service.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, Response},
};
use serde::de::IgnoredAny;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;
use weir::transport::{
    api::Services,
    headers::HeaderStyle,
    http::{self, Sites},
    rls::{self, EnvoySettings, Rls},
};

use super::fixture;

/// Maximum size of a body that is read.
const MAX_BODY_BYTES: usize = 1 << 16;

thread_local! {
    /// Made once, since reading the descriptors of the messages takes longer than any request.
    static SERVICE: (Runtime, Router) = {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let checks = fixture::checks();
        let envoy = rls::json::routes(Rls::new(checks.clone(), EnvoySettings::default()), MAX_BODY_BYTES, Sites::default());
        let services = Services { checks, admin: fixture::admin() };
        let own = http::routes(services, HeaderStyle::Draft11, MAX_BODY_BYTES, Sites::default());
        (runtime, own.expect("routes").merge(envoy.expect("routes")))
    };
}

/// A body on each path of the API is answered in JSON.
pub fn json(bytes: &[u8]) {
    for path in ["/v1/check", "/v1/check_batch", "/v1/reserve", "/v1/commit", "/v1/reset"] {
        let answer = post(path, bytes);
        serde_json::from_slice::<IgnoredAny>(&answer).expect("JSON");
    }
}

/// Returns the answer to a body: a decision, or an error of the client.
pub fn post(path: &str, body: &[u8]) -> Vec<u8> {
    SERVICE.with(|(runtime, router)| {
        runtime.block_on(async {
            let request = Request::post(path).body(Body::from(body.to_vec())).expect("a request");
            let Ok(answer): Result<Response<Body>, _> = router.clone().oneshot(request).await;
            let status = answer.status().as_u16();
            assert!(matches!(status, 200 | 400 | 404 | 429), "{path}: {status}");
            to_bytes(answer.into_body(), usize::MAX).await.expect("a body").to_vec()
        })
    })
}
