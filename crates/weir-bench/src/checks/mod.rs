//! What is asked: the messages of checks, framed as gRPC carries them.

mod keys;
mod template;

use std::{fmt, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::RateLimitRequest,
};
use prost::Message;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

pub use self::keys::{Distribution, Keys};
use self::template::Template;
use super::wire::{PREFIX, answers::Kind};
use weir_core::domain::time::{DAY, format_duration};
use weir_core::proto::{CheckBatchRequest, CheckRequest, Gcra, Limit, LimitSpec, limit::Algorithm};

/// How much is allocated at once for bodies.
const CHUNK: usize = 64 << 10;
/// How the segment of a key is told whose limit is to be used up.
const SPENT: &str = "spent-";
/// Most keys whose limit is used up: each is asked before the load begins, and gets something back meanwhile.
const MAX_SPENT_KEYS: u64 = 100;

/// What stands for the number in a key.
pub const NUMBER: &str = "{}";

/// A limit that checks bring along: `burst` + 1 at once, then `count` each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnLimit {
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

/// What every check says.
#[derive(Clone, Debug)]
pub struct Asked {
    pub domain: String,
    /// The key's segments, in which [`NUMBER`] stands for the number.
    pub key: Vec<String>,
    /// Units; none: the service's default, which is 1.
    pub cost: Option<i64>,
    /// The limit that the check brings along; none: the service's policy decides.
    pub limit: Option<OwnLimit>,
    /// How many prefixes of the key have it, from the whole key upwards.
    pub levels: usize,
    pub summary_only: bool,
}

impl Asked {
    /// The key with these digits.
    fn key(&self, digits: &str) -> Vec<String> {
        self.key.iter().map(|segment| segment.replace(NUMBER, digits)).collect()
    }

    /// Units, as the service reads them.
    pub fn units(&self) -> i64 {
        self.cost.unwrap_or(1)
    }

    /// A check of `key` with these limits.
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

    /// The limits, root first. Where they are `spent`, the deepest one lets one check pass in a day.
    fn limits(&self, spent: bool) -> Option<Vec<Limit>> {
        let limit = self.limit?;
        let depths = self.key.len() + 1 - self.levels..=self.key.len();
        let mut limits: Vec<_> = depths.map(|depth| limit.at(depth)).collect();
        if let (true, Some(deepest)) = (spent, limits.last_mut()) {
            let units = self.units().unsigned_abs();
            let once = OwnLimit { burst: units.saturating_sub(1), count: units, period_us: DAY };
            *deepest = once.at(self.key.len());
        }
        Some(limits)
    }

    /// The check of a key whose limit is not, or is, to be used up.
    pub fn native(&self, digits: &str, spent: bool) -> CheckRequest {
        let key = if spent { self.key(&format!("{SPENT}{digits}")) } else { self.key(digits) };
        self.check(key, self.limits(spent))
    }

    /// The same as Envoy asks: the segments are the keys and values of one descriptor's entries.
    pub fn envoy(&self, digits: &str, spent: bool) -> RateLimitRequest {
        let segments = self.native(digits, spent).key;
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

/// A message behind its prefix.
pub fn framed(message: &impl Message) -> Vec<u8> {
    let mut bytes = vec![0; PREFIX];
    message.encode_raw(&mut bytes);
    let length = (bytes.len() - PREFIX) as u32;
    bytes[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The messages of a load, and how they are drawn.
#[derive(Debug)]
pub struct Requests {
    /// What answers are like.
    pub kind: Kind,
    /// The checks of one call.
    pub checks: usize,
    live: (Keys, Template),
    /// Those that are to be refused, and their share.
    spent: Option<(Keys, Template, f64)>,
}

impl Requests {
    /// The messages of calls with so many checks each, a share of which (0 to 1) is to be refused.
    pub fn new(asked: &Asked, kind: Kind, checks: usize, keys: Keys, count: u64, refusals: f64) -> Self {
        let template = |count, spent| {
            Template::new(count, |digits| match kind {
                Kind::Check => framed(&asked.native(digits, spent)),
                // A batch is the sum of batches of one.
                Kind::Batch => CheckBatchRequest { checks: vec![asked.native(digits, spent)] }.encode_to_vec(),
                Kind::Envoy => framed(&asked.envoy(digits, spent)),
            })
        };
        let spent_count = spent_keys(count);
        let spent = (refusals > 0.0).then(|| (Keys::Uniform(spent_count), template(spent_count, true), refusals));
        Self { kind, checks, live: (keys, template(count, false)), spent }
    }

    fn write_one(&self, rng: &mut ChaCha8Rng, out: &mut BytesMut) {
        let (keys, template) = match &self.spent {
            Some((keys, template, share)) if rng.random::<f64>() < *share => (keys, template),
            _ => (&self.live.0, &self.live.1),
        };
        template.write(keys.draw(rng), out);
    }
}

/// How many keys are used up where there are so many others.
pub fn spent_keys(keys: u64) -> u64 {
    keys.min(MAX_SPENT_KEYS)
}

/// Makes bodies, with random numbers of its own.
pub struct Asker {
    requests: Arc<Requests>,
    rng: ChaCha8Rng,
    buffer: BytesMut,
}

impl Asker {
    /// Of one of several callers, each of whom has random numbers of his own from the same seed.
    pub fn new(requests: Arc<Requests>, seed: u64, caller: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(caller);
        Self { requests, rng, buffer: BytesMut::new() }
    }

    /// How many checks a call has, and how its answer is read.
    pub fn call(&self) -> (u64, Kind) {
        (self.requests.checks as u64, self.requests.kind)
    }

    /// The body of the next call.
    pub fn body(&mut self) -> Bytes {
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

    /// So many messages of a stream.
    pub fn messages(&mut self, count: usize) -> Bytes {
        self.reserve(count);
        for _ in 0..count {
            self.requests.write_one(&mut self.rng, &mut self.buffer);
        }
        self.buffer.split().freeze()
    }

    fn reserve(&mut self, checks: usize) {
        let longest = self.requests.live.1.len().max(self.requests.spent.as_ref().map_or(0, |spent| spent.1.len()));
        let needed = PREFIX + checks * longest;
        if self.buffer.capacity() < needed {
            self.buffer.reserve(needed.max(CHUNK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked {
            domain: "d".to_owned(),
            key: ["user", "{}", "trade"].map(str::to_owned).to_vec(),
            cost: Some(3),
            limit: Some(OwnLimit { burst: 9, count: 10, period_us: 1_500_000 }),
            levels: 2,
            summary_only: true,
        }
    }

    fn requests(kind: Kind, checks: usize, refusals: f64) -> Asker {
        let keys = Keys::new(1_000, Distribution::Uniform, 1.0).unwrap();
        let requests = Requests::new(&asked(), kind, checks, keys, 1_000, refusals);
        Asker::new(Arc::new(requests), 1, 0)
    }

    /// The messages within a body.
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
    fn limits_stand_on_the_deepest_prefixes() {
        let check = asked().native("07", false);
        assert_eq!(check.key, ["user", "07", "trade"]);
        let limits = check.limit_spec.unwrap().limits;
        let gcra = Gcra { burst: 9, count: 10, period: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }) };
        assert_eq!(limits.iter().map(|limit| limit.depth).collect::<Vec<_>>(), [2, 3]);
        assert!(limits.iter().all(|limit| limit.algorithm == Some(Algorithm::Gcra(gcra))));
        assert_eq!(Asked { limit: None, ..asked() }.native("1", true).limit_spec, None);
    }

    #[test]
    fn a_spent_key_passes_one_check_a_day() {
        let check = asked().native("07", true);
        assert_eq!(check.key, ["user", "spent-07", "trade"]);
        let limits = check.limit_spec.unwrap().limits;
        let day = Some(prost_types::Duration { seconds: 86_400, nanos: 0 });
        assert_eq!(limits[1].algorithm, Some(Algorithm::Gcra(Gcra { burst: 2, count: 3, period: day })));
        assert_ne!(limits[0].algorithm, limits[1].algorithm);
    }

    #[test]
    fn bodies_are_read_as_what_was_asked() {
        let mut calls = requests(Kind::Check, 1, 0.25);
        let mut spent = 0;
        for body in unframed(calls.messages(400)) {
            let check = CheckRequest::decode(body).unwrap();
            let number = check.key[1].trim_start_matches(SPENT).to_owned();
            assert!(check == asked().native(&number, false) || check == asked().native(&number, true));
            spent += usize::from(check.key[1].starts_with(SPENT));
        }
        assert!((70..130).contains(&spent), "{spent}");
        assert_eq!(unframed(calls.body()).len(), 1);
        let [batch] = &unframed(requests(Kind::Batch, 50, 0.0).body())[..] else { panic!("one message") };
        assert_eq!(CheckBatchRequest::decode(&batch[..]).unwrap().checks.len(), 50);
    }

    #[test]
    fn envoy_gets_pairs() {
        let asked = Asked { key: ["user", "{}", "action", "trade"].map(str::to_owned).to_vec(), ..asked() };
        let request = asked.envoy("3", false);
        let entries: Vec<_> = request.descriptors[0].entries.iter().map(|it| (&it.key[..], &it.value[..])).collect();
        assert_eq!(entries, [("user", "3"), ("action", "trade")]);
        assert_eq!((request.hits_addend, &request.domain[..]), (3, "d"));
    }

    #[test]
    fn equal_seeds_ask_the_same() {
        assert_eq!(requests(Kind::Check, 1, 0.5).messages(100), requests(Kind::Check, 1, 0.5).messages(100));
    }
}
