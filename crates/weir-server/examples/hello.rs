//! Answers every request with a greeting until Ctrl-C, then closes connections gracefully.

use std::{error::Error, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
};
use weir_server::{
    Connected, ConnectionSettings, Drain, RuntimeKind, Serve, Server, Traffic, Workers, metrics::ListenerMetrics,
};
use weir_telemetry::Registry;

struct Hello(Connected);

impl Serve for Hello {
    type Body = Full<Bytes>;

    fn on(&self, connected: Connected) -> Self {
        Self(connected)
    }

    async fn serve(self: Arc<Self>, _request: Request<Incoming>) -> Response<Full<Bytes>> {
        // Every client is served, without authentication.
        let _in_flight = self.0.begin(true);
        Response::new(Full::from("hello\n"))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let workers = Workers::start("hello", 2, RuntimeKind::PerCore)?;
    let drain = Drain::default();
    let server = Server {
        listener: workers.listen(&"127.0.0.1:8089".parse()?).await?,
        service: Arc::new(Hello(Connected::new(drain.clone()))),
        workers: workers.handles(),
        settings: ConnectionSettings {
            name: "hello",
            http2_only: false,
            max_connections: 1_000,
            max_streams: 100,
            traffic: Traffic::default(),
        },
        metrics: ListenerMetrics::new(&Registry::default(), "hello"),
        drain: drain.clone(),
        tls: None,
        clients: None,
    };
    println!("listening on {}", server.listener.address());
    let serving = server.start();
    tokio::signal::ctrl_c().await?;
    drain.close();
    serving.await?;
    drain.finish(Duration::from_secs(5)).await;
    tokio::task::spawn_blocking(|| workers.stop()).await?;
    Ok(())
}
