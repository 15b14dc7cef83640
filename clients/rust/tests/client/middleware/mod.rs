//! The README's examples, guarded by a real service.

mod axum;
mod tonic;

use std::time::Duration;

use ::axum::body::{Body, to_bytes};
use ::tonic::{
    Code, Request,
    transport::{Channel, server::TcpIncoming},
};
use http::Response;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;
use weir_client::{Client, GuardLayer, key};

use crate::support::{POLICY, Setup, Weir, dir, patient};

async fn get(app: &::axum::Router, path: &str, user: &str) -> Response<Body> {
    let request = http::Request::get(path).header("x-user", user).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn axum_answers_by_decisions() {
    let dir = dir();
    let service = Weir::start(&dir);
    let app = axum::app(patient(&service.address).retries(0).build().unwrap());
    for left in [2, 1] {
        let response = get(&app, "/trade", "alex").await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["ratelimit"]),
            (200, &format!("\"trades\";r={left}").parse().unwrap())
        );
        assert_eq!(to_bytes(response.into_body(), 100).await.unwrap(), "traded");
    }
    get(&app, "/trade", "alex").await;
    let refused = get(&app, "/trade", "alex").await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (429, true));
    let body = to_bytes(refused.into_body(), 1_000).await.unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()["status"], 429);
    assert_eq!(get(&app, "/trade", "berta").await.status(), 200);
    assert_eq!(get(&app, "/other", "").await.headers()["ratelimit-policy"], "\"per-user\";q=100");
    drop(service);
    let unlimited = get(&app, "/trade", "alex").await;
    assert_eq!((unlimited.status().as_u16(), unlimited.headers().contains_key("ratelimit")), (200, false));
    assert_eq!(get(&app, "/login", "alex").await.status(), 503);
}

#[tokio::test]
async fn tonic_answers_by_decisions() {
    let dir = dir();
    let policy = POLICY.replace("trade:", "Check:");
    let service = Setup::new(&dir, &policy).start();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = format!("http://{}", incoming.local_addr().unwrap());
    let _server = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(tonic::serve(service.client(), incoming)));
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    let call = async |user: Option<&'static str>| {
        let mut request = Request::new(HealthCheckRequest::default());
        if let Some(user) = user {
            request.metadata_mut().insert("x-user", user.parse().unwrap());
        }
        HealthClient::new(channel.clone()).check(request).await
    };
    for _ in 0..3 {
        let answer = call(Some("alex")).await.unwrap();
        assert!(answer.metadata().contains_key("ratelimit"));
    }
    let refused = call(Some("alex")).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::ResourceExhausted, "rate limit exceeded"));
    let retry = refused.get_details_retry_info().unwrap().retry_delay.unwrap();
    assert!(retry > Duration::from_secs(86_000) && refused.metadata().contains_key("retry-after"));
    call(None).await.unwrap();
}

#[tokio::test]
async fn provided_functions_make_keys() {
    #[derive(Clone)]
    struct Principal(&'static str);
    impl AsRef<str> for Principal {
        fn as_ref(&self) -> &str {
            self.0
        }
    }
    let mut request = http::Request::post("/orders").header("x-user", "alex").body(()).unwrap();
    assert_eq!(key::header("user", "x-user")(&request), Some(["user", "alex"].into()));
    assert_eq!(key::header("user", "x-other")(&request), Some(["user", "-"].into()));
    assert_eq!(key::route("route", "/{all}")(&request), Some(["route", "POST", "/{all}"].into()));
    let head = http::Request::head("/orders").body(()).unwrap();
    assert_eq!(key::route("route", "/orders")(&head), Some(["route", "GET", "/orders"].into()));
    let principal = key::principal::<Principal, ()>("client");
    assert_eq!(principal(&request), None);
    request.extensions_mut().insert(Principal("shop"));
    assert_eq!(principal(&request), Some(["client", "shop"].into()));
    // A layer of a client that many layers share.
    let _layer = GuardLayer::new(Client::new("127.0.0.1:1").unwrap(), principal).clone();
}

#[test]
fn the_readme_has_this_code() {
    let readme = include_str!("../../../README.md");
    for code in [include_str!("axum.rs"), include_str!("tonic.rs"), include_str!("../leased.rs")] {
        assert!(code.lines().count() <= 21);
        assert!(readme.contains(code), "README.md does not have:\n{code}");
    }
}
