//! What the commands share that talk to a service.

use std::{future::Future, time::Duration};

use clap::Args;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use super::Failure;
use crate::{domain::time::parse_duration, settings::Listen};

#[derive(Args)]
pub struct Client {
    /// The service: host:port or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    addr: Listen,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_timeout)]
    timeout: Duration,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_duration(text).map(|micros| Duration::from_micros(micros.unsigned_abs()))
}

impl Client {
    /// Where the service is.
    pub fn address(&self) -> &Listen {
        &self.addr
    }

    /// How long to wait for an answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A connection to the service.
    pub async fn connect(&self) -> Result<Channel, Failure> {
        let (endpoint, socket) = match &self.addr {
            Listen::Tcp(address) => (Endpoint::try_from(format!("http://{address}"))?, None),
            // A unix socket has no authority; the URI is only what HTTP/2 must carry.
            Listen::Unix(path) => (Endpoint::from_static("http://localhost"), Some(path.clone())),
        };
        let endpoint = endpoint.connect_timeout(self.timeout).timeout(self.timeout);
        let connected = match socket {
            None => endpoint.connect().await,
            Some(path) => {
                let connector = tower::service_fn(move |_| {
                    let path = path.clone();
                    async move { UnixStream::connect(path).await.map(TokioIo::new) }
                });
                endpoint.connect_with_connector(connector).await
            }
        };
        connected.map_err(|error| Failure(format!("cannot reach a service at {}: {}", self.addr, cause(&error))))
    }

    /// Waits for a call, as long as was asked for.
    pub async fn call<T>(&self, call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Failure> {
        match call.await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => {
                let code = format!("{:?}", status.code());
                Err(Failure(format!("{} ({code})", status.message())))
            }
        }
    }
}

/// The innermost reason of an error: the outer ones say no more than "transport error".
fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
