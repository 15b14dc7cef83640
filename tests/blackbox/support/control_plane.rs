//! A scripted control plane that records its requests.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{Stream, stream};
use prost::Name;
use prost_types::Any;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap, service::Routes};
use weir_envoy::{
    envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
    },
    ratelimit::config::ratelimit::v3::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit},
};

use super::{eventually, grpc_server::GrpcServer};

/// A control plane, stopped on drop.
pub struct ControlPlane {
    grpc: GrpcServer,
    state: State,
}

#[derive(Clone, Default)]
struct State(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    requests: Vec<(MetadataMap, DiscoveryRequest)>,
    /// The sender of the newest stream; without it the stream ends.
    responses: Option<mpsc::UnboundedSender<Result<DiscoveryResponse, Status>>>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for State {
    type StreamAggregatedResourcesStream = Responses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Responses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        call: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let (sender, mut responses) = mpsc::unbounded_channel();
        self.lock().responses = Some(sender);
        let (metadata, _, mut requests) = call.into_parts();
        let state = self.clone();
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                state.lock().requests.push((metadata.clone(), request));
            }
        });
        Ok(Response::new(Box::pin(stream::poll_fn(move |context| responses.poll_recv(context)))))
    }

    async fn delta_aggregated_resources(
        &self,
        _: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("only the state of the world"))
    }
}

impl ControlPlane {
    /// A free port on an address that no client connection uses, so that the port stays free until a restart.
    pub const FREE: &str = "127.0.0.2:0";

    /// Starts a control plane on a free port.
    pub fn start() -> Self {
        Self::at(Self::FREE, None)
    }

    /// Starts a control plane at this address.
    pub fn at(address: &str, tls: Option<TlsAcceptor>) -> Self {
        let state = State::default();
        let service = AggregatedDiscoveryServiceServer::new(state.clone());
        Self { grpc: GrpcServer::start(address, tls, Routes::new(service)), state }
    }

    pub fn address(&self) -> &str {
        &self.grpc.address
    }

    /// Returns its URL for `--limits`.
    pub fn limits(&self) -> String {
        format!("xds://{}", self.address())
    }

    /// Waits for the `number`th request, from 0.
    pub fn request(&self, number: usize) -> DiscoveryRequest {
        self.call(number).1
    }

    /// Waits for a request, and returns it with the metadata of its call.
    pub fn call(&self, number: usize) -> (MetadataMap, DiscoveryRequest) {
        eventually(&format!("request {number}"), || self.state.lock().requests.get(number).cloned())
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> usize {
        self.state.lock().requests.len()
    }

    /// Sends a policy on the newest stream, and waits for the ACK or NACK.
    pub fn send(&self, version: &str, resources: Vec<Any>) -> DiscoveryRequest {
        self.send_as(&RateLimitConfig::type_url(), version, resources)
    }

    /// Sends resources of this type.
    pub fn send_as(&self, type_url: &str, version: &str, resources: Vec<Any>) -> DiscoveryRequest {
        let number = self.requests();
        let response = DiscoveryResponse {
            version_info: version.to_owned(),
            nonce: format!("nonce of {version}"),
            type_url: type_url.to_owned(),
            resources,
            ..DiscoveryResponse::default()
        };
        let sent = self.state.lock().responses.as_ref().expect("a stream").send(Ok(response));
        sent.expect("the stream is open");
        self.request(number)
    }

    /// Ends the newest stream.
    pub fn end_stream(&self) {
        self.state.lock().responses = None;
    }
}

/// Makes the resource of a domain with these descriptors.
pub fn config(name: &str, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> Any {
    let config = RateLimitConfig { name: name.to_owned(), domain: domain.to_owned(), descriptors };
    Any::from_msg(&config).expect("a message")
}

/// Makes a descriptor with a limit per year.
pub fn yearly(key: &str, value: &str, requests_per_unit: u32) -> RateLimitDescriptor {
    let unit = RateLimitUnit::Year as i32;
    RateLimitDescriptor {
        key: key.to_owned(),
        value: value.to_owned(),
        rate_limit: Some(RateLimitPolicy { unit, requests_per_unit, ..RateLimitPolicy::default() }),
        ..RateLimitDescriptor::default()
    }
}
