//! Decodes reports (`RateLimitQuotaUsageReports`) and encodes assignments (`RateLimitQuotaResponse`).

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint},
};
use prost_types::Duration;
use weir_core::{
    domain::Micros,
    quota::{Assignment, Steps, Usage},
};
use weir_envoy::envoy::{
    service::rate_limit_quota::v3::rate_limit_quota_response::{
        BucketAction,
        bucket_action::{self, AbandonAction, QuotaAssignmentAction},
    },
    r#type::v3::{
        RateLimitStrategy, TokenBucket,
        rate_limit_strategy::{BlanketRule, Strategy},
    },
};

use crate::transport::fields::{Fields, Value, put_bytes};

/// The field numbers of the messages.
mod field {
    /// In a message of reports.
    pub(super) const DOMAIN: u32 = 1;
    pub(super) const USAGES: u32 = 2;
    /// In an answer to a report.
    pub(super) const BUCKET_ID: u32 = 1;
    /// In answers.
    pub(super) const ACTION: u32 = 1;
}

/// Maximum number of entries of a bucket that is kept, and maximum bytes of its id.
const MAX_ENTRIES: usize = 64;
const MAX_ID_BYTES: usize = 4 << 10;
const MICROS: u64 = 1_000_000;

/// The unanswered reports of a message. They stay encoded, since a message may contain any number of small ones.
#[derive(Debug)]
pub struct Reports(Bytes);

/// The usage of one bucket.
#[derive(Clone, PartialEq, Message)]
pub struct Report {
    /// The bucket's id, as received.
    #[prost(bytes = "bytes", tag = "1")]
    pub bucket: Bytes,
    #[prost(message, optional, tag = "2")]
    elapsed: Option<Duration>,
    #[prost(uint64, tag = "3")]
    allowed: u64,
    #[prost(uint64, tag = "4")]
    denied: u64,
}

#[derive(Clone, PartialEq, Message)]
struct BucketId {
    #[prost(btree_map = "string, string", tag = "1")]
    entries: BTreeMap<String, String>,
}

/// The assignment of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// All requests pass.
    AllowAll,
    /// No request passes.
    DenyAll,
    /// A token bucket.
    TokenBucket {
        /// Maximum number of stored tokens.
        max_tokens: u64,
        /// Tokens added in each fill interval, above 0.
        tokens_per_fill: u64,
        /// The fill interval.
        fill_seconds: u64,
    },
    /// Envoy drops the bucket.
    Abandon,
}

impl Action {
    /// Returns the action for an assignment in these steps.
    pub fn of(assignment: Assignment, steps: Steps) -> Self {
        match steps.requests(assignment.rate) {
            0 => Self::DenyAll,
            tokens_per_fill => {
                Self::TokenBucket { max_tokens: assignment.burst, tokens_per_fill, fill_seconds: steps.fill_seconds }
            }
        }
    }
}

/// Decodes a message: its domain and its reports. The domain is empty if it is left out, since only the first message
/// has one. `None` if the message is malformed.
pub fn read(message: Bytes) -> Option<(String, Reports)> {
    let mut domain = String::new();
    for field in Fields::new(&message) {
        if let (field::DOMAIN, Value::Bytes(text)) = field? {
            domain = String::from_utf8_lossy(text).into_owned();
        }
    }
    Some((domain, Reports(message)))
}

impl Iterator for Reports {
    /// An encoded [`Report`].
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut fields = Fields::new(&self.0);
        loop {
            if let (field::USAGES, Value::Bytes(usage)) = fields.next()?? {
                let (usage, rest) = (self.0.slice_ref(usage), self.0.slice_ref(fields.rest()));
                self.0 = rest;
                return Some(usage);
            }
        }
    }
}

impl Report {
    /// Returns the hits.
    pub fn usage(&self) -> Usage {
        // Clamped, so that sums do not overflow.
        let [allowed, denied, seconds] = [self.allowed, self.denied, self.elapsed.unwrap_or_default().seconds as u64]
            .map(|it| it.min(u32::MAX.into()));
        Usage { allowed, denied, elapsed: (seconds * MICROS) as Micros }
    }
}

/// Decodes the entries of a bucket's id; `None` if it is malformed or not UTF-8. A header may contain any bytes, and Envoy
/// reports them, but it reads no answer that has them.
pub fn entries(id: &[u8]) -> Option<BTreeMap<String, String>> {
    Some(BucketId::decode(id).ok()?.entries)
}

/// Whether the bucket with this id and these entries is too large to be kept.
pub fn is_large(id: &[u8], entries: &BTreeMap<String, String>) -> bool {
    id.len() > MAX_ID_BYTES || entries.len() > MAX_ENTRIES
}

/// Encodes a bucket's id with its entries sorted by key: one id for each bucket, regardless of the order in Envoy's
/// map.
pub fn id_of(entries: &BTreeMap<String, String>) -> Vec<u8> {
    BucketId { entries: entries.clone() }.encode_to_vec()
}

/// Appends the assignment of a bucket, with this TTL.
pub fn put_action(bucket: &[u8], action: Action, ttl_seconds: u64, out: &mut BytesMut) {
    let strategy = match action {
        Action::AllowAll => Some(Strategy::BlanketRule(BlanketRule::AllowAll.into())),
        Action::DenyAll => Some(Strategy::BlanketRule(BlanketRule::DenyAll.into())),
        Action::TokenBucket { max_tokens, tokens_per_fill, fill_seconds } => Some(Strategy::TokenBucket(TokenBucket {
            max_tokens: saturated(max_tokens),
            tokens_per_fill: Some(saturated(tokens_per_fill)),
            fill_interval: Some(seconds(fill_seconds)),
        })),
        Action::Abandon => None,
    };
    let action = match strategy {
        None => bucket_action::BucketAction::AbandonAction(AbandonAction {}),
        strategy => bucket_action::BucketAction::QuotaAssignmentAction(QuotaAssignmentAction {
            assignment_time_to_live: Some(seconds(ttl_seconds)),
            rate_limit_strategy: Some(RateLimitStrategy { strategy }),
        }),
    };
    let action = BucketAction { bucket_id: None, bucket_action: Some(action) };
    // The id is already encoded.
    let id_bytes = 1 + encoded_len_varint(bucket.len() as u64) + bucket.len();
    encode_key(field::ACTION, WireType::LengthDelimited, out);
    encode_varint((id_bytes + action.encoded_len()) as u64, out);
    put_bytes(field::BUCKET_ID, bucket, out);
    // It fails only without capacity, and the buffer grows.
    let _ = action.encode(out);
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn seconds(seconds: u64) -> Duration {
    Duration { seconds: seconds as i64, nanos: 0 }
}

#[cfg(test)]
mod tests {
    use weir_envoy::envoy::service::rate_limit_quota::v3::{
        BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
        rate_limit_quota_response::bucket_action::BucketAction, rate_limit_quota_usage_reports::BucketQuotaUsage,
    };

    use super::*;

    fn bucket(entries: &[(&str, &str)]) -> BucketId {
        BucketId { bucket: entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect() }
    }

    #[test]
    fn reports_are_read_as_envoy_writes_them() {
        let id = bucket(&[("user", "alex"), ("action", "trade")]);
        let usage = BucketQuotaUsage {
            bucket_id: Some(id.clone()),
            time_elapsed: Some(Duration { seconds: 5, nanos: 999 }),
            num_requests_allowed: 7,
            num_requests_denied: u64::MAX,
        };
        let message =
            RateLimitQuotaUsageReports { domain: "api".to_owned(), bucket_quota_usages: vec![usage.clone(), usage] };
        let (domain, reports) = read(Bytes::from(message.encode_to_vec())).unwrap();
        let usages: Vec<Bytes> = reports.collect();
        assert_eq!((&*domain, usages.len()), ("api", 2));
        let report = Report::decode(usages[1].clone()).unwrap();
        assert_eq!(report.usage(), Usage { allowed: 7, denied: u32::MAX.into(), elapsed: 5_000_000 });
        let entries = entries(&report.bucket).unwrap();
        assert_eq!(entries, id.bucket.clone().into_iter().collect());
        assert_eq!(BucketId::decode(&id_of(&entries)[..]).unwrap(), id);
        assert_eq!(super::entries(b"\x0a\x06\x0a\x01k\x12\x01\xff"), None, "not UTF-8");
        assert!(read(Bytes::from_static(b"\x0a\xff")).is_none() && Report::decode(&b"\x12"[..]).is_err());
    }

    #[test]
    fn a_bucket_has_at_most_64_entries_and_an_id_of_4_kib() {
        let is_large = |count: usize, bytes: usize| {
            let bucket = (0..count).map(|number| (format!("{number}"), "v".repeat(bytes))).collect();
            let id = BucketId { bucket }.encode_to_vec();
            super::is_large(&id, &entries(&id).unwrap())
        };
        assert_eq!([is_large(64, 50), is_large(65, 1)], [false, true]);
        assert_eq!([is_large(1, 4_084), is_large(1, 4_100)], [false, true]);
    }

    #[test]
    fn actions_are_written_as_envoy_reads_them() {
        let id = bucket(&[("name", "prod")]);
        let token_bucket = Action::TokenBucket { max_tokens: 30, tokens_per_fill: 880, fill_seconds: 1 };
        let mut out = BytesMut::new();
        for action in [Action::AllowAll, Action::DenyAll, token_bucket, Action::Abandon] {
            put_action(&id.encode_to_vec(), action, 15, &mut out);
        }
        let read = RateLimitQuotaResponse::decode(out).unwrap();
        assert!(read.bucket_action.iter().all(|action| action.bucket_id.as_ref() == Some(&id)));
        let written: Vec<_> = read.bucket_action.into_iter().map(|action| action.bucket_action.unwrap()).collect();
        let mut strategies = Vec::new();
        for written in &written[..3] {
            let BucketAction::QuotaAssignmentAction(assignment) = written else { panic!("{written:?}") };
            assert_eq!(assignment.assignment_time_to_live, Some(Duration { seconds: 15, nanos: 0 }));
            strategies.push(assignment.rate_limit_strategy.as_ref().unwrap().strategy.unwrap());
        }
        assert_eq!(strategies[0], Strategy::BlanketRule(BlanketRule::AllowAll as i32));
        assert_eq!(strategies[1], Strategy::BlanketRule(BlanketRule::DenyAll as i32));
        let Strategy::TokenBucket(bucket) = &strategies[2] else { panic!("{strategies:?}") };
        assert_eq!((bucket.max_tokens, bucket.tokens_per_fill.unwrap()), (30, 880));
        assert_eq!(bucket.fill_interval, Some(Duration { seconds: 1, nanos: 0 }));
        assert!(matches!(written[3], BucketAction::AbandonAction(_)));
    }
}
