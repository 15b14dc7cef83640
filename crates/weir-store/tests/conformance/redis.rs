//! The Redis store under test, on one server or on a Cluster, with its own prefix.

use std::sync::Arc;

use weir_core::{
    domain::{Key, ManualClock, Micros},
    plan::{Decisions, Plan},
};
use weir_settings::Time;
use weir_store::{
    ResetDone, Store, StoreUrl,
    outage_charges::OutageCharges,
    redis::{RedisStore, settings::RedisSettings},
};

use futures_util::future::join_all;
use rmp::{Marker, decode};

use super::store_under_test::{Memories, Memory, StoreUnderTest};
use weir_test_redis::{Reply, Server};

/// The prefix of all keys, with characters that are special in patterns.
pub const PREFIX: &str = "trace[*]:";

/// Returns every hash under a prefix, with its fields.
const DUMP: &str = "
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  found[#found + 1] = {key, redis.call('HGETALL', key)}
end
return found";
const REMOVE: &str = "for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end";

/// Starts a store at `url` that decides by this clock.
pub fn start(url: &str, clock: &Arc<ManualClock>) -> RedisStore {
    let Ok(StoreUrl::Redis(url)) = url.parse() else { panic!("{url} is no Redis") };
    let settings = RedisSettings {
        key_prefix: PREFIX.to_owned(),
        // Timeouts are not tested here.
        command_timeout: Time::seconds(20),
        connect_timeout: Time::seconds(20),
        ..RedisSettings::default()
    };
    RedisStore::start(&url, &settings, Some(Arc::<ManualClock>::clone(clock)), Arc::default()).expect("a thread")
}

pub struct OnRedis<'s> {
    name: &'static str,
    masters: Vec<&'s Server>,
    clock: Arc<ManualClock>,
    store: RedisStore,
}

impl<'s> OnRedis<'s> {
    /// Connects to a store at `url`, whose states are on these servers.
    pub fn new(name: &'static str, url: &str, masters: Vec<&'s Server>) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { name, masters, store: start(url, &clock), clock }
    }

    pub fn clock(&self) -> Arc<ManualClock> {
        Arc::clone(&self.clock)
    }

    /// Returns the store.
    pub fn store(&self) -> &RedisStore {
        &self.store
    }

    /// Makes later charges until the returned guard is dropped.
    pub fn charge_outages(&self, charges: &Arc<OutageCharges>) -> impl Drop + use<> {
        self.store.charge_outages(Arc::clone(charges))
    }

    /// Decides concurrent plans.
    pub async fn decide_together<'i, 'p: 'i>(
        &self,
        plans: impl Iterator<Item = &'i Plan<'p>>,
        now: Micros,
    ) -> Vec<Decisions> {
        self.clock.set(now);
        let verdicts = join_all(plans.map(|plan| self.store.verdict(plan))).await;
        verdicts.into_iter().map(|verdict| verdict.expect("it answers").decisions).collect()
    }

    /// Returns every field of every hash: the hash's key without the prefix, the field, and its value.
    pub fn fields(&self) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        for hash in self.run(DUMP) {
            let [key, fields] = <[Reply; 2]>::try_from(items(hash)).expect("a key and its fields");
            let key = bytes(key)[PREFIX.len()..].to_vec();
            let fields = items(fields).into_iter().map(bytes).collect::<Vec<_>>();
            found.extend(fields.chunks_exact(2).map(|pair| (key.clone(), pair[0].clone(), pair[1].clone())));
        }
        found
    }

    /// Writes a field directly, bypassing the store.
    pub fn put(&self, key: &[u8], field: &[u8], value: &[u8]) {
        let key = [PREFIX.as_bytes(), key].concat();
        for server in &self.masters {
            server.command(&[b"HSET", &key[..], field, value]);
        }
    }

    fn run(&self, script: &str) -> Vec<Reply> {
        let prefix = PREFIX.replace('[', "\\[").replace('*', "\\*");
        let replies = self.masters.iter().map(|server| server.command(&["EVAL", script, "0", &prefix]));
        replies.flat_map(items).collect()
    }
}

impl StoreUnderTest for OnRedis<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn forget(&mut self) {
        self.run(REMOVE);
    }

    async fn decide(&mut self, plan: &Plan<'_>, now: Micros) -> Decisions {
        self.clock.set(now);
        let verdict = self.store.verdict(plan).await.expect("it answers");
        assert!(!verdict.degraded);
        verdict.decisions
    }

    async fn reset(&mut self, key: &Key, anchor: u8, subtree: bool, now: Micros) -> ResetDone {
        self.clock.set(now);
        self.store.reset(key, anchor, subtree).await.expect("it answers")
    }

    async fn states(&mut self, now: Micros) -> Option<Memories> {
        let mut found = Memories::new();
        for (key, field, value) in self.fields() {
            let memory = memory(&value);
            if memory.expires > now {
                found.insert([key, field].concat(), memory);
            }
        }
        Some(found)
    }
}

fn items(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(items) => items,
        Reply::Nil => Vec::new(),
        other => panic!("{other:?} is no list"),
    }
}

fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::BulkString(bytes) => bytes,
        other => panic!("{other:?} is no text"),
    }
}

/// Parses a state as written by the script: its expiry and its list of numbers.
fn memory(mut value: &[u8]) -> Memory {
    let expires = number(&mut value);
    let words = decode::read_array_len(&mut value).expect("a list");
    let words = (0..words).map(|_| number(&mut value)).collect();
    assert!(value.is_empty(), "{value:?} behind a state");
    Memory { expires: expires as Micros, words }
}

/// Parses a number in any encoding of the Lua library.
pub fn number(value: &mut &[u8]) -> f64 {
    match Marker::from_u8(value[0]) {
        Marker::F64 => decode::read_f64(value).expect("a number"),
        Marker::F32 => f64::from(decode::read_f32(value).expect("a number")),
        _ => decode::read_int::<i64, _>(value).expect("a number") as f64,
    }
}
