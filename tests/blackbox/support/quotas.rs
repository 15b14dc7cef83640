//! A client of Envoy's rate limit quota service that behaves like Envoy: a stream, and the last assignment of each
//! bucket.

use std::{collections::BTreeMap, time::Duration};

use futures_util::stream;
use prost_types::Duration as WireDuration;
use tokio::{sync::mpsc, time::timeout};
use tonic::{
    Request, Status, Streaming, client::Grpc, codegen::http::uri::PathAndQuery, metadata::MetadataMap,
    transport::Channel,
};
use tonic_prost::ProstCodec;
use weir_envoy::envoy::{
    service::rate_limit_quota::v3::{
        BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
        rate_limit_quota_response::bucket_action::BucketAction, rate_limit_quota_usage_reports::BucketQuotaUsage,
    },
    r#type::v3::rate_limit_strategy::{BlanketRule, Strategy},
};

use super::TIMEOUT;

const CALL: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// The assignment of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    AllowAll,
    DenyAll,
    /// A token bucket: requests per fill, the fill interval, and the capacity.
    Tokens {
        per_fill: u32,
        fill_seconds: i64,
        max: u32,
    },
    Abandon,
}

impl Assignment {
    /// Returns the rate in requests per second.
    pub fn rate(self) -> f64 {
        match self {
            Self::Tokens { per_fill, fill_seconds, .. } => f64::from(per_fill) / fill_seconds as f64,
            Self::AllowAll => f64::INFINITY,
            Self::DenyAll | Self::Abandon => 0.0,
        }
    }
}

/// A stream of one Envoy.
pub struct QuotaStream {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    answers: Streaming<RateLimitQuotaResponse>,
    domain: Option<String>,
    /// The last assignment of each bucket, by the value of its only entry, and its TTL in seconds.
    pub assignments: BTreeMap<String, (Assignment, i64)>,
}

/// Makes the ID of a bucket `{user: NAME}`.
pub fn bucket(user: &str) -> BucketId {
    BucketId { bucket: [("user".to_owned(), user.to_owned())].into() }
}

impl QuotaStream {
    /// Opens a stream for a domain.
    pub async fn open(channel: Channel, domain: &str) -> Result<Self, Status> {
        Self::open_with(channel, domain, MetadataMap::new()).await
    }

    /// Opens a stream with metadata.
    pub async fn open_with(channel: Channel, domain: &str, metadata: MetadataMap) -> Result<Self, Status> {
        let mut service = Grpc::new(channel);
        service.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let (reports, mut sent) = mpsc::channel(16);
        let messages = stream::poll_fn(move |cx| sent.poll_recv(cx));
        let codec = ProstCodec::<RateLimitQuotaUsageReports, RateLimitQuotaResponse>::default();
        let mut request = Request::new(messages);
        *request.metadata_mut() = metadata;
        let answers = service.streaming(request, PathAndQuery::from_static(CALL), codec).await?.into_inner();
        Ok(Self { reports, answers, domain: Some(domain.to_owned()), assignments: BTreeMap::new() })
    }

    /// Reports a bucket: hits allowed and denied in `seconds`.
    pub async fn report(&mut self, bucket: BucketId, allowed: u64, denied: u64, seconds: i64) {
        self.report_all([bucket], allowed, denied, seconds).await;
    }

    /// Reports buckets in one message, each with these hits.
    pub async fn report_all(
        &mut self,
        buckets: impl IntoIterator<Item = BucketId>,
        allowed: u64,
        denied: u64,
        seconds: i64,
    ) {
        let usage = |bucket| BucketQuotaUsage {
            bucket_id: Some(bucket),
            time_elapsed: Some(WireDuration { seconds, nanos: 0 }),
            num_requests_allowed: allowed,
            num_requests_denied: denied,
        };
        let domain = self.domain.take().unwrap_or_default();
        let bucket_quota_usages = buckets.into_iter().map(usage).collect();
        let message = RateLimitQuotaUsageReports { domain, bucket_quota_usages };
        // If the stream has ended, the next answer gives the reason.
        let _ = self.reports.send(message).await;
    }

    /// Waits for a message, at most for `longest`. Returns whether one arrived.
    pub async fn hear(&mut self, longest: Duration) -> Result<bool, Status> {
        let Ok(message) = timeout(longest, self.answers.message()).await else { return Ok(false) };
        let message = message?.ok_or_else(|| Status::ok("the stream has ended"))?;
        for action in message.bucket_action {
            let user = action.bucket_id.expect("a bucket").bucket.into_values().next().expect("an entry");
            self.assignments.insert(user, assignment_of(&action.bucket_action.expect("an action")));
        }
        Ok(true)
    }

    /// Reads until the assignment of a user satisfies `is_so`.
    pub async fn until(&mut self, user: &str, is_so: impl Fn(Assignment) -> bool) -> (Assignment, i64) {
        loop {
            if let Some((assignment, seconds)) = self.assignments.get(user).filter(|(assignment, _)| is_so(*assignment))
            {
                return (*assignment, *seconds);
            }
            let came = self.hear(TIMEOUT).await.expect("the stream goes on");
            assert!(came, "no other assignment comes: {:?}", self.assignments);
        }
    }

    /// Reads the assignments that arrive within this time.
    pub async fn listen(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while self.hear(end - tokio::time::Instant::now()).await.expect("the stream goes on") {}
    }

    /// Returns the assigned rate of a user in requests per second.
    pub fn rate(&self, user: &str) -> f64 {
        self.assignments.get(user).map_or(0.0, |(assignment, _)| assignment.rate())
    }
}

fn assignment_of(action: &BucketAction) -> (Assignment, i64) {
    let BucketAction::QuotaAssignmentAction(assignment) = action else { return (Assignment::Abandon, 0) };
    let seconds = assignment.assignment_time_to_live.as_ref().expect("a time").seconds;
    let strategy = assignment.rate_limit_strategy.as_ref().expect("a strategy").strategy.as_ref().expect("a strategy");
    let assignment = match strategy {
        Strategy::BlanketRule(rule) if *rule == BlanketRule::AllowAll as i32 => Assignment::AllowAll,
        Strategy::BlanketRule(_) => Assignment::DenyAll,
        Strategy::TokenBucket(bucket) => Assignment::Tokens {
            per_fill: bucket.tokens_per_fill.expect("a number"),
            fill_seconds: bucket.fill_interval.as_ref().expect("a time").seconds,
            max: bucket.max_tokens,
        },
        Strategy::RequestsPerTimeUnit(_) => panic!("Envoy ignores it: {strategy:?}"),
    };
    (assignment, seconds)
}
