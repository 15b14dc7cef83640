//! The checks of a load, encoded and framed for gRPC.

mod keys;
mod template;

use std::{fmt, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use weir_envoy::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::RateLimitRequest,
};

pub(crate) use self::keys::{Distribution, Keys};
use self::template::Template;
use super::wire::{PREFIX, answers::Kind};
use weir_core::domain::time::{DAY, format_duration};
use weir_core::proto::{CheckBatchRequest, CheckRequest, Gcra, Limit, LimitSpec, limit::Algorithm};

/// Size of the allocations for bodies, in bytes.
const CHUNK: usize = 64 << 10;
/// Prefix of the number in keys whose limits are exhausted.
const EXHAUSTED: &str = "exhausted-";
/// Maximum number of keys whose limits are exhausted: exhausting them takes time, in which the first ones refill.
const MAX_EXHAUSTED_KEYS: u64 = 100;

/// Placeholder of the number in a key.
pub(crate) const NUMBER: &str = "{}";

/// A limit of requests: a burst of `burst` + 1, then `count` per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnLimit {
    pub burst: u64,
    pub count: u64,
    /// In microseconds.
    pub period_us: i64,
}

impl fmt::Display for OwnLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.burst, self.count, format_duration(self.period_us))
    }
}

impl OwnLimit {
    fn at(self, depth: usize) -> Limit {
        let seconds = self.period_us / 1_000_000;
        let nanos = (self.period_us % 1_000_000 * 1_000) as i32;
        let period = Some(prost_types::Duration { seconds, nanos });
        let gcra = Gcra { burst: self.burst, count: self.count, period };
        Limit { depth: depth as u32, algorithm: Some(Algorithm::Gcra(gcra)), ..Limit::default() }
    }
}

/// The common part of all checks of a load.
#[derive(Clone, Debug)]
pub(crate) struct CheckSpec {
    pub domain: String,
    /// The segments of the key, with [`NUMBER`] in place of the number.
    pub key: Vec<String>,
    /// Units; `None`: the service's default, which is 1.
    pub cost: Option<i64>,
    /// The limit of the requests; `None`: the service's policy decides.
    pub limit: Option<OwnLimit>,
    /// Number of levels that have the limit, from the whole key upwards.
    pub levels: usize,
    pub summary_only: bool,
}

impl CheckSpec {
    /// Returns the key with `digits` as its number.
    fn key(&self, digits: &str) -> Vec<String> {
        self.key.iter().map(|segment| segment.replace(NUMBER, digits)).collect()
    }

    /// Returns the units of a check.
    pub(crate) fn units(&self) -> i64 {
        self.cost.unwrap_or(1)
    }

    /// Makes a check of `key` with these limits.
    fn check(&self, key: Vec<String>, limits: Option<Vec<Limit>>) -> CheckRequest {
        CheckRequest {
            domain: self.domain.clone(),
            key,
            limit_spec: limits.map(|limits| LimitSpec { limits, charge: 0 }),
            cost: self.cost,
            summary_only: self.summary_only,
            ..CheckRequest::default()
        }
    }

    /// Returns the limits, root first. With `is_exhausted` the deepest one allows one check a day.
    fn limits(&self, is_exhausted: bool) -> Option<Vec<Limit>> {
        let limit = self.limit?;
        let depths = self.key.len() + 1 - self.levels..=self.key.len();
        let mut limits: Vec<_> = depths.map(|depth| limit.at(depth)).collect();
        if let (true, Some(deepest)) = (is_exhausted, limits.last_mut()) {
            let units = self.units().unsigned_abs();
            let once = OwnLimit { burst: units.saturating_sub(1), count: units, period_us: DAY };
            *deepest = once.at(self.key.len());
        }
        Some(limits)
    }

    /// Makes a check of the key with this number, or of one whose limit is exhausted before the load.
    pub(crate) fn native(&self, digits: &str, is_exhausted: bool) -> CheckRequest {
        let key = if is_exhausted { self.key(&format!("{EXHAUSTED}{digits}")) } else { self.key(digits) };
        self.check(key, self.limits(is_exhausted))
    }

    /// Makes the same check as Envoy's request: segments are the keys and values of one descriptor.
    pub(crate) fn envoy(&self, digits: &str, is_exhausted: bool) -> RateLimitRequest {
        let segments = self.native(digits, is_exhausted).key;
        let entries = segments.chunks(2).map(|pair| Entry {
            key: pair.first().cloned().unwrap_or_default(),
            value: pair.get(1).cloned().unwrap_or_default(),
        });
        let descriptor = RateLimitDescriptor { entries: entries.collect(), ..Default::default() };
        RateLimitRequest {
            domain: self.domain.clone(),
            descriptors: vec![descriptor],
            hits_addend: self.cost.map_or(0, |cost| u32::try_from(cost).unwrap_or(u32::MAX)),
        }
    }
}

/// Encodes a message with its gRPC prefix.
pub(crate) fn framed(message: &impl Message) -> Vec<u8> {
    let mut bytes = vec![0; PREFIX];
    message.encode_raw(&mut bytes);
    let length = (bytes.len() - PREFIX) as u32;
    bytes[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The requests of a load.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The type of answers.
    pub kind: Kind,
    /// Number of checks in a call.
    pub checks: usize,
    live: (Keys, Template),
    /// Checks of exhausted keys, and their share of all checks.
    exhausted: Option<(Keys, Template, f64)>,
}

impl Requests {
    /// Makes requests of `checks` checks each; the share `refusals` (0 to 1) of them is to be refused.
    pub(crate) fn new(spec: &CheckSpec, kind: Kind, checks: usize, keys: Keys, count: u64, refusals: f64) -> Self {
        let template = |count, is_exhausted| {
            Template::new(count, |digits| match kind {
                Kind::Check => framed(&spec.native(digits, is_exhausted)),
                // The encoding of a batch is the concatenation of batches of one.
                Kind::Batch => CheckBatchRequest { checks: vec![spec.native(digits, is_exhausted)] }.encode_to_vec(),
                Kind::Envoy => framed(&spec.envoy(digits, is_exhausted)),
            })
        };
        let exhausted_count = exhausted_keys(count);
        let exhausted =
            (refusals > 0.0).then(|| (Keys::Uniform(exhausted_count), template(exhausted_count, true), refusals));
        Self { kind, checks, live: (keys, template(count, false)), exhausted }
    }

    fn write_one(&self, rng: &mut ChaCha8Rng, out: &mut BytesMut) {
        let (keys, template) = match &self.exhausted {
            Some((keys, template, share)) if rng.random::<f64>() < *share => (keys, template),
            _ => (&self.live.0, &self.live.1),
        };
        template.write(keys.draw(rng), out);
    }
}

/// Returns the number of exhausted keys, for a load on `keys` keys.
pub(crate) fn exhausted_keys(keys: u64) -> u64 {
    keys.min(MAX_EXHAUSTED_KEYS)
}

/// A writer of request bodies, with its own random numbers.
pub(crate) struct RequestWriter {
    requests: Arc<Requests>,
    rng: ChaCha8Rng,
    buffer: BytesMut,
}

impl RequestWriter {
    /// Makes the writer of one caller; each caller has its own stream of the same seed.
    pub(crate) fn new(requests: Arc<Requests>, seed: u64, caller: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(caller);
        Self { requests, rng, buffer: BytesMut::new() }
    }

    /// Returns the number of checks in a call, and the type of its answer.
    pub(crate) fn call(&self) -> (u64, Kind) {
        (self.requests.checks as u64, self.requests.kind)
    }

    /// Writes the body of the next call.
    pub(crate) fn body(&mut self) -> Bytes {
        if self.requests.kind != Kind::Batch {
            return self.messages(1);
        }
        self.reserve(self.requests.checks);
        self.buffer.put_bytes(0, PREFIX);
        for _ in 0..self.requests.checks {
            self.requests.write_one(&mut self.rng, &mut self.buffer);
        }
        let length = (self.buffer.len() - PREFIX) as u32;
        self.buffer[1..PREFIX].copy_from_slice(&length.to_be_bytes());
        self.buffer.split().freeze()
    }

    /// Writes `count` messages of a stream.
    pub(crate) fn messages(&mut self, count: usize) -> Bytes {
        self.reserve(count);
        for _ in 0..count {
            self.requests.write_one(&mut self.rng, &mut self.buffer);
        }
        self.buffer.split().freeze()
    }

    fn reserve(&mut self, checks: usize) {
        let longest = self.requests.live.1.len().max(self.requests.exhausted.as_ref().map_or(0, |it| it.1.len()));
        let needed = PREFIX + checks * longest;
        if self.buffer.capacity() < needed {
            self.buffer.reserve(needed.max(CHUNK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> CheckSpec {
        CheckSpec {
            domain: "d".to_owned(),
            key: ["user", "{}", "trade"].map(str::to_owned).to_vec(),
            cost: Some(3),
            limit: Some(OwnLimit { burst: 9, count: 10, period_us: 1_500_000 }),
            levels: 2,
            summary_only: true,
        }
    }

    fn writer(kind: Kind, checks: usize, refusals: f64) -> RequestWriter {
        let keys = Keys::new(1_000, Distribution::Uniform, 1.0).unwrap();
        let requests = Requests::new(&spec(), kind, checks, keys, 1_000, refusals);
        RequestWriter::new(Arc::new(requests), 1, 0)
    }

    /// Splits a body into its messages.
    fn unframed(mut body: Bytes) -> Vec<Bytes> {
        let mut messages = Vec::new();
        while !body.is_empty() {
            let prefix = body.split_to(PREFIX);
            let length = u32::from_be_bytes(prefix[1..].try_into().unwrap());
            messages.push(body.split_to(length as usize));
        }
        messages
    }

    #[test]
    fn limits_are_on_the_deepest_levels() {
        let check = spec().native("07", false);
        assert_eq!(check.key, ["user", "07", "trade"]);
        let limits = check.limit_spec.unwrap().limits;
        let gcra = Gcra { burst: 9, count: 10, period: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }) };
        assert_eq!(limits.iter().map(|limit| limit.depth).collect::<Vec<_>>(), [2, 3]);
        assert!(limits.iter().all(|limit| limit.algorithm == Some(Algorithm::Gcra(gcra))));
        assert_eq!(CheckSpec { limit: None, ..spec() }.native("1", true).limit_spec, None);
    }

    #[test]
    fn an_exhausted_key_allows_one_check_a_day() {
        let check = spec().native("07", true);
        assert_eq!(check.key, ["user", "exhausted-07", "trade"]);
        let limits = check.limit_spec.unwrap().limits;
        let day = Some(prost_types::Duration { seconds: 86_400, nanos: 0 });
        assert_eq!(limits[1].algorithm, Some(Algorithm::Gcra(Gcra { burst: 2, count: 3, period: day })));
        assert_ne!(limits[0].algorithm, limits[1].algorithm);
    }

    #[test]
    fn bodies_decode_to_their_checks() {
        let mut calls = writer(Kind::Check, 1, 0.25);
        let mut exhausted = 0;
        for body in unframed(calls.messages(400)) {
            let check = CheckRequest::decode(body).unwrap();
            let number = check.key[1].trim_start_matches(EXHAUSTED).to_owned();
            assert!(check == spec().native(&number, false) || check == spec().native(&number, true));
            exhausted += usize::from(check.key[1].starts_with(EXHAUSTED));
        }
        assert!((70..130).contains(&exhausted), "{exhausted}");
        assert_eq!(unframed(calls.body()).len(), 1);
        let [batch] = &unframed(writer(Kind::Batch, 50, 0.0).body())[..] else { panic!("one message") };
        assert_eq!(CheckBatchRequest::decode(&batch[..]).unwrap().checks.len(), 50);
    }

    #[test]
    fn envoy_segments_are_pairs() {
        let spec = CheckSpec { key: ["user", "{}", "action", "trade"].map(str::to_owned).to_vec(), ..spec() };
        let request = spec.envoy("3", false);
        let entries: Vec<_> = request.descriptors[0].entries.iter().map(|it| (&it.key[..], &it.value[..])).collect();
        assert_eq!(entries, [("user", "3"), ("action", "trade")]);
        assert_eq!((request.hits_addend, &request.domain[..]), (3, "d"));
    }

    #[test]
    fn equal_seeds_produce_equal_checks() {
        assert_eq!(writer(Kind::Check, 1, 0.5).messages(100), writer(Kind::Check, 1, 0.5).messages(100));
    }
}
