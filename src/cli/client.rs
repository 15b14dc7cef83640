//! The client of the commands that call a service.

use std::sync::OnceLock;

use clap::Args;
use hyper::header::HeaderValue;
use tonic::{
    Code, Request, Response, Status,
    metadata::MetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use weir_server::dial::{Destination, Options};

use super::{Failure, block_on};
use crate::{dial, proto::code_name};

#[derive(Args)]
pub(super) struct Client {
    #[command(flatten)]
    options: Options,
    /// The service, once it was connected to.
    #[arg(skip)]
    destination: OnceLock<Destination>,
}

/// Parts of tonic's messages about a response that is not gRPC's: without a status, and with text for a message.
const NOT_GRPC: [&str; 2] = ["grpc-status header missing", "invalid compression flag"];

/// Message of tonic for a call that has timed out, which it reports as cancelled by the client.
const TIMED_OUT: &str = "Timeout expired";

/// A service, every call to which carries the token.
pub(super) type Service = InterceptedService<Channel, ByToken>;

/// Adds the bearer token to calls, if there is one.
#[derive(Clone)]
pub(super) struct ByToken(Option<HeaderValue>);

impl Interceptor for ByToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            let value = MetadataValue::try_from(value.as_bytes());
            let mut value = value.map_err(|_| Status::invalid_argument("the token is not text"))?;
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

impl Client {
    pub(super) async fn connect(&self) -> Result<Service, Failure> {
        let (destination, token) = (self.options.destination()?, ByToken(self.options.authorization()?));
        let destination = self.destination.get_or_init(|| destination);
        let timeout = self.options.timeout();
        let channel = dial::channel(destination, |endpoint| endpoint.connect_timeout(timeout).timeout(timeout)).await;
        let channel = channel.map_err(|error| format!("cannot reach a service at {destination}: {error}"))?;
        Ok(InterceptedService::new(channel, token))
    }

    /// Makes one call, and returns the response.
    pub(super) fn call<T>(&self, call: impl AsyncFnOnce(Service) -> Result<Response<T>, Status>) -> Result<T, Failure> {
        block_on(async {
            let answer = call(self.connect().await?).await;
            Ok(answer.map_err(|status| self.failure(&status))?.into_inner())
        })
    }

    /// Returns the reason why a call failed.
    pub(super) fn failure(&self, status: &Status) -> Failure {
        let code = status.code();
        if let Some(found) = self.destination.get().and_then(Destination::unexpected) {
            return Failure(found.to_owned());
        }
        if NOT_GRPC.iter().any(|text| status.message().contains(text)) {
            return Failure(
                "an HTTP server answers there, and not gRPC: by default the gRPC port is 8081, and HTTP is 8080"
                    .to_owned(),
            );
        }
        if code == Code::Cancelled && status.message() == TIMED_OUT {
            let service = self.destination.get().map(|destination| format!(" from {destination}")).unwrap_or_default();
            let code = code_name(Code::DeadlineExceeded as i32);
            return Failure(format!("no answer{service} within {:?} ({code})", self.options.timeout()));
        }
        // The cause of a broken connection, such as a rejected certificate, is not in the message.
        let broken = matches!(code, Code::Unknown | Code::Unavailable | Code::Internal | Code::Cancelled);
        match std::error::Error::source(status).filter(|_| broken) {
            Some(error) => Failure(format!("{}{}", dial::cause(error), self.certificate_hint())),
            None => Failure(format!("{} ({})", status.message(), code_name(code as i32))),
        }
    }

    /// Returns the likely cause of a broken connection over TLS: in TLS 1.3 a service rejects the client after the
    /// handshake.
    fn certificate_hint(&self) -> &'static str {
        match self.destination.get().is_some_and(|destination| destination.scheme() == "https") {
            false => "",
            true if self.options.has_certificate() => "; the service may not accept the client certificate",
            true => "; the service may require a client certificate: --tls-cert FILE --tls-key FILE",
        }
    }
}
