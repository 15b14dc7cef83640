//! The upstream of the proxy: it answers all requests and counts them.

use std::{
    convert::Infallible,
    future,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use axum::{
    body::Body,
    http::{HeaderMap, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{net::TcpListener, runtime::Builder, sync::oneshot};

/// The request header that is copied to the answer.
pub const ECHOED: &str = "x-tokens";
/// The request header with the usage that the model reports; the model never answers to [`NEVER`].
pub const USED: &str = "x-use";
pub const NEVER: &str = "never";

/// A server on a thread of its own, stopped on drop.
pub struct Upstream {
    pub address: SocketAddr,
    served: Arc<AtomicU64>,
    _end: oneshot::Sender<()>,
}

impl Upstream {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        let served = Arc::new(AtomicU64::new(0));
        let (end, ended) = oneshot::channel();
        let (listens, address) = std::sync::mpsc::channel();
        let counted = Arc::clone(&served);
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
                listens.send(listener.local_addr().expect("its address")).expect("awaited");
                tokio::select! {
                    () = accept(listener, counted) => {}
                    _ = ended => {}
                }
            });
        });
        Self { address: address.recv().expect("it listens"), served, _end: end }
    }

    /// Returns the number of requests so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, served: Arc<AtomicU64>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let served = Arc::clone(&served);
        let answer = service_fn(move |request: axum::http::Request<Incoming>| {
            served.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, Infallible>(answer(request.headers()).await) }
        });
        // Errors of the proxy's connection do not matter to the upstream.
        tokio::spawn(async move { http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.ok() });
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
