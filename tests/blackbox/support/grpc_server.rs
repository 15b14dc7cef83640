//! A gRPC server in the test process.

use std::{convert::Infallible, net::TcpListener, thread::JoinHandle};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tower::Service;

/// A server on a thread of its own, ended with its connections when this is dropped.
pub struct GrpcServer {
    /// Where it listens.
    pub address: String,
    end: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl GrpcServer {
    /// One at this address; port 0: a free one.
    pub fn start(address: &str, tls: Option<TlsAcceptor>, routes: Routes) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let end = CancellationToken::new();
        let serving = serve(listener, tls, routes, end.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serving);
        });
        Self { address, end, thread: Some(thread) }
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.end.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, routes: Routes, end: CancellationToken) {
    listener.set_nonblocking(true).expect("a socket");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    let routes = routes.prepare().into_axum_router();
    // Connections end with it.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = end.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        let (routes, tls) = (routes.clone(), tls.clone());
        connections.spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let mut routes = routes.clone();
                async move { Ok::<_, Infallible>(routes.call(request).await.unwrap_or_else(|never| match never {})) }
            });
            let http = auto::Builder::new(TokioExecutor::new());
            // Whoever has gone is gone.
            let _ = match tls {
                None => http.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => http.serve_connection(TokioIo::new(stream), service).await,
                    Err(_) => Ok(()),
                },
            };
        });
    }
}
