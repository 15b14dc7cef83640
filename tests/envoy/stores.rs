//! The tables, on every store.

use std::sync::Arc;

use weir_core::domain::ManualClock;
use weir_settings::Time;
use weir_store::{
    MemoryStore, StoreUrl,
    memory::MemorySettings,
    redis::{RedisStore, settings::RedisSettings},
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

use crate::table::{all_cases, tell_all};

pub fn memory(clock: Arc<ManualClock>) -> MemoryStore<Arc<ManualClock>> {
    MemoryStore::new(MemorySettings::default(), clock)
}

/// Connects to a store at `url`, with a prefix of its own.
pub fn redis(url: &str, number: usize, clock: Arc<ManualClock>) -> RedisStore {
    let Ok(StoreUrl::Redis(url)) = url.parse() else { panic!("{url} is no Redis") };
    let settings = RedisSettings {
        key_prefix: format!("story{number}:"),
        // Timeouts are not tested here.
        command_timeout: Time::seconds(60),
        connect_timeout: Time::seconds(60),
        ..RedisSettings::default()
    };
    RedisStore::start(&url, &settings, Some(clock), std::sync::Arc::default()).expect("a thread")
}

#[tokio::test]
async fn memory_matches_the_tables() {
    tell_all(|_, clock| memory(clock)).await;
}

#[tokio::test]
async fn redis_matches_the_tables() {
    let server = Server::start(Options::socket());
    tell_all(|number, clock| redis(&server.url(), number, clock)).await;
}

#[tokio::test]
async fn a_cluster_matches_the_tables() {
    let cluster = Cluster::start(&ClusterOptions::default());
    tell_all(|number, clock| redis(&cluster.url(), number, clock)).await;
}

#[test]
fn the_tables_have_enough_cases() {
    let cases = all_cases();
    let lines: usize = cases.iter().map(|case| case.lines.lines().count()).sum();
    let stories = cases.len();
    assert!(stories >= 80 && lines >= 200, "{stories} stories, {lines} lines");
}
