//! The client of one control plane: a stream of responses, each answered by ACK or NACK.

use std::{hash::BuildHasher, sync::Arc, time::Duration};

use foldhash::quality::RandomState;
use futures_util::stream;
use metrics::Gauge;
use prost::Name;
use prost_types::Struct;
use tokio::{
    sync::{
        Mutex,
        mpsc::{self, error::TrySendError},
    },
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tonic::{Code, Request, Status, Streaming};
use tracing::{info, warn};
use weir_envoy::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DiscoveryRequest, DiscoveryResponse, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    google::rpc,
    ratelimit::config::ratelimit::v3::RateLimitConfig,
};
use weir_settings::Problems;

use super::settings::{SCHEME, XdsSettings};
use crate::dial;

/// Timeout of an attempt to connect: name resolution, TCP, TLS and HTTP/2.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests that wait to be sent: the first one and one answer.
const MAX_REQUESTS: usize = 2;
/// Maximum number of problems in a NACK.
const MAX_LISTED_PROBLEMS: usize = 10;
/// Maximum delay before a response that repeats a rejected one is rejected again.
const MAX_PAUSE_OF_REPEATED: Duration = Duration::from_secs(5);
/// Time without data after which the connection is pinged (HTTP/2). Servers of grpc-go close connections that ping more
/// often than every five minutes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(330);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// A subscription to the policy of a control plane, for the life of the process.
pub struct Client {
    address: String,
    settings: XdsSettings,
    node: Node,
    connected: Gauge,
    /// Locked while files are read.
    reading: Arc<Mutex<()>>,
    /// The version of the last response accepted on this stream.
    version: String,
    stream: Option<Stream>,
    pause: Duration,
    hasher: RandomState,
    /// The last response, if it was rejected.
    rejected: Option<Rejected>,
}

struct Stream {
    opened: Instant,
    /// `None`: the control plane has not read the last ones.
    requests: Option<mpsc::Sender<DiscoveryRequest>>,
    responses: Streaming<DiscoveryResponse>,
}

/// A response that was rejected.
struct Rejected {
    hash: u64,
    error: rpc::Status,
    pause: Duration,
}

impl Client {
    /// Creates the client of the control plane at `host:port`, not connected yet; `connected` is 1 from the first
    /// response of a stream to its end.
    ///
    /// # Errors
    /// A message that names the setting or the file.
    pub fn new(address: &str, settings: &XdsSettings, connected: Gauge) -> Result<Self, String> {
        settings.check(Some(address))?;
        settings.destination(address)?;
        connected.set(0.0);
        let metadata = settings.metadata().collect::<Result<Vec<_>, _>>()?;
        let metadata = metadata.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        let metadata = Struct { fields: metadata.collect() };
        let node = Node {
            id: settings.node_id.clone(),
            metadata: (!metadata.fields.is_empty()).then_some(metadata),
            user_agent_name: "weir".to_owned(),
            ..Node::default()
        };
        let (address, pause) = (address.to_owned(), settings.backoff.initial.duration());
        let (settings, hasher) = (settings.clone(), RandomState::default());
        let (version, stream, rejected) = (String::new(), None, None);
        let reading = Arc::default();
        Ok(Self { address, settings, node, connected, reading, version, stream, pause, hasher, rejected })
    }

    /// Waits for the next response, and reconnects as often as necessary.
    pub async fn next(&mut self) -> DiscoveryResponse {
        loop {
            let failure = match &mut self.stream {
                None => match self.subscribe().await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        continue;
                    }
                    Err(failure) => failure,
                },
                Some(Stream { requests: None, .. }) => "it reads no requests".to_owned(),
                Some(stream) => match stream.responses.message().await {
                    Ok(Some(response)) => {
                        // Not when connected: a control plane that hangs may still accept connections.
                        self.connected.set(1.0);
                        if !self.reject_again(&response).await {
                            return response;
                        }
                        continue;
                    }
                    Ok(None) => "it ended the stream".to_owned(),
                    Err(status) => reason(&status),
                },
            };
            // Not with the first response: a control plane that sends its policy and closes the stream would get a new
            // one immediately.
            let has_lasted = |stream: Stream| stream.opened.elapsed() > self.settings.backoff.max.duration();
            if self.stream.take().is_some_and(has_lasted) {
                self.pause = self.settings.backoff.initial.duration();
            }
            self.connected.set(0.0);
            let pause = self.pause.mul_f64(rand::random_range(0.5..=1.0));
            self.pause = (2 * self.pause).min(self.settings.backoff.max.duration());
            warn!(
                control_plane = self.address,
                cause = failure,
                retry_ms = pause.as_millis() as u64,
                "control plane unreachable: the last policy, if any, stays in force"
            );
            sleep(pause).await;
        }
    }

    /// Acknowledges an applied response (ACK).
    pub fn accept(&mut self, response: &DiscoveryResponse) {
        self.version.clone_from(&response.version_info);
        self.rejected = None;
        self.send(&response.nonce, None);
    }

    /// Rejects a response (NACK): the one accepted before it stays in force.
    pub fn reject(&mut self, response: &DiscoveryResponse, problems: &Problems) {
        let listed: Vec<_> = problems.0.iter().take(MAX_LISTED_PROBLEMS).map(ToString::to_string).collect();
        let error =
            rpc::Status { code: Code::InvalidArgument as i32, message: listed.join("\n"), ..Default::default() };
        let pause = self.settings.backoff.initial.duration().min(MAX_PAUSE_OF_REPEATED);
        self.rejected = Some(Rejected { hash: self.hash(response), error: error.clone(), pause });
        self.send(&response.nonce, Some(error));
    }

    /// Rejects a response again if it repeats the one that was rejected last, and returns whether it does. The delay
    /// keeps a control plane that answers each NACK with the same response (go-control-plane's SnapshotCache) from a
    /// tight loop.
    async fn reject_again(&mut self, response: &DiscoveryResponse) -> bool {
        // A large response is hashed only if there is one to compare it with.
        let is_repeated = self.rejected.as_ref().is_some_and(|rejected| rejected.hash == self.hash(response));
        let Some(rejected) = self.rejected.as_mut().filter(|_| is_repeated) else { return false };
        let (pause, error) = (rejected.pause, rejected.error.clone());
        rejected.pause = (2 * pause).min(MAX_PAUSE_OF_REPEATED);
        sleep(pause).await;
        self.send(&response.nonce, Some(error));
        true
    }

    /// Hashes the type and the resources, in any order, as control planes send them. A repeated response has another
    /// nonce and may have another version, which the policy does not depend on.
    fn hash(&self, response: &DiscoveryResponse) -> u64 {
        let head = self.hasher.hash_one(&response.type_url);
        let resources =
            response.resources.iter().map(|resource| self.hasher.hash_one((&resource.type_url, &resource.value)));
        resources.fold(head, u64::wrapping_add)
    }

    fn send(&mut self, nonce: &str, error: Option<rpc::Status>) {
        let request = self.request(nonce, error);
        if let Some(stream) = &mut self.stream {
            // Closed, it ends with its own reason.
            stream.requests.take_if(|requests| matches!(requests.try_send(request), Err(TrySendError::Full(_))));
        }
    }

    fn request(&self, nonce: &str, error_detail: Option<rpc::Status>) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: Some(self.node.clone()),
            type_url: RateLimitConfig::type_url(),
            response_nonce: nonce.to_owned(),
            error_detail,
            ..DiscoveryRequest::default()
        }
    }

    /// Opens a connection and a stream, and sends the first request: without a nonce, which belongs to a stream, and
    /// without a version, so that the control plane sends the whole policy. A restarted control plane may count its
    /// versions from zero (Envoy Gateway does), and mistake the version of an old policy for its own.
    async fn subscribe(&mut self) -> Result<Stream, String> {
        self.version.clear();
        let connecting = async {
            // Reads the current certificates, once the last read has ended: a hanging one continues after its attempt.
            let reading = Arc::clone(&self.reading).lock_owned().await;
            let (settings, address) = (self.settings.clone(), self.address.clone());
            let read = spawn_blocking(move || {
                let _reading = reading;
                settings.destination(&address)
            });
            let destination = read.await.map_err(|error| error.to_string())??;
            let channel = dial::channel(&destination, |endpoint| {
                endpoint.http2_keep_alive_interval(KEEPALIVE_INTERVAL).keep_alive_timeout(KEEPALIVE_TIMEOUT)
            });
            let channel = channel.await;
            channel.map_err(|error| destination.unexpected().map_or_else(|| error.to_string(), str::to_owned))
        };
        let too_late = |_| format!("no connection within {} s", CONNECT_TIMEOUT.as_secs());
        let channel = timeout(CONNECT_TIMEOUT, connecting).await.map_err(too_late)??;
        info!(control_plane = format!("{SCHEME}{}", self.address), "connected to the control plane");
        let (requests, mut waiting) = mpsc::channel(MAX_REQUESTS);
        requests.try_send(self.request("", None)).map_err(|error| error.to_string())?;
        let mut call = Request::new(stream::poll_fn(move |context| waiting.poll_recv(context)));
        for header in self.settings.header_pairs() {
            let (name, mut value) = header?;
            value.set_sensitive(true);
            call.metadata_mut().append(name, value);
        }
        let mut service =
            AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(self.settings.max_message_bytes);
        // Some servers send their headers only with the first response.
        let responses = service.stream_aggregated_resources(call).await.map_err(|status| reason(&status))?;
        Ok(Stream { opened: Instant::now(), requests: Some(requests), responses: responses.into_inner() })
    }
}

/// How tonic's error for a message beyond the bound starts.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// Returns the reason why a stream broke.
fn reason(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(error) => dial::cause(error),
        None if status.code() == Code::OutOfRange && status.message().starts_with(TOO_LARGE) => {
            format!("a response is larger than xds.max_message_bytes: {}", status.message())
        }
        None => format!("{} ({:?})", status.message(), status.code()),
    }
}
