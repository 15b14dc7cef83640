//! A server of gRPC and HTTP in the test process.

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

/// A server on a separate thread, stopped with its connections on drop.
pub struct GrpcServer {
    /// The listen address.
    pub address: String,
    end: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl GrpcServer {
    /// Starts a server at this address; port 0 selects a free one.
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
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, routes: Routes, end: CancellationToken) {
    listener.set_nonblocking(true).expect("a socket");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    let routes = routes.prepare().into_axum_router();
    // Connections are aborted with the set.
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
            // A client may disconnect at any time.
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
