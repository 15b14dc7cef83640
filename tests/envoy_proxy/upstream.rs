//! The upstream of the proxy: it answers all requests and counts them.

use std::{
    future,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Response},
};
use serde_json::json;

use crate::support::grpc_server::GrpcServer;

/// The request header that is copied to the answer.
pub const ECHOED: &str = "x-tokens";
/// The request header with the usage that the model reports; the model never answers to [`NEVER`].
pub const USED: &str = "x-use";
pub const NEVER: &str = "never";

/// A server, stopped on drop.
pub struct Upstream {
    pub address: SocketAddr,
    served: Arc<AtomicU64>,
    _server: GrpcServer,
}

impl Upstream {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        let served = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&served);
        let answers = async move |headers: HeaderMap| {
            counted.fetch_add(1, Ordering::SeqCst);
            answer(&headers).await
        };
        let server = GrpcServer::start("127.0.0.1:0", None, Router::new().fallback(answers).into());
        Self { address: server.address.parse().expect("an address"), served, _server: server }
    }

    /// Returns the number of requests so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }
}

async fn answer(asked: &HeaderMap) -> Response<Body> {
    let Some(used) = asked.get(USED) else {
        let mut response = Response::new(Body::from("here\n"));
        if let Some(value) = asked.get(ECHOED) {
            response.headers_mut().insert(ECHOED, value.clone());
        }
        return response;
    };
    if used == NEVER {
        future::pending::<()>().await;
    }
    let usage = json!({ "usage": { "total_tokens": used.to_str().ok().and_then(|used| used.parse::<u64>().ok()) } });
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(usage.to_string())).expect("a response")
}
