//! Resets of more states than one page, with concurrent changes.

use std::time::{Duration, Instant};

use tokio::task::yield_now;
use weir_core::domain::Key;

use super::{
    duplicates::START,
    redis::{OnRedis, PREFIX},
    store_under_test::StoreUnderTest,
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Reply, Server};

const STATES: usize = 50_000;

/// Number of segments of the anchor.
const ANCHOR: u8 = 2;

/// Adds states below a key to the hash that stores them.
const FILL: &str = "
local numbers = {}
for number = 1, ARGV[3] do numbers[number] = number + 2 ^ 40 end
local state = cmsgpack.pack(9e15, numbers)
for number = 1, ARGV[1] do
  redis.call('HSET', KEYS[1], ARGV[2] .. string.char(5) .. string.format('%05d', number) .. string.char(255) .. 'limit', state)
end";

struct Scene {
    key: Key,
    hash: Vec<u8>,
}

impl Scene {
    fn new(key: &[&str]) -> Self {
        let key = Key::new("", key).expect("a key");
        let hash = [PREFIX.as_bytes(), key.prefix(ANCHOR.into())].concat();
        Self { key, hash }
    }

    /// Adds states that consist of this many numbers.
    fn fill(&self, server: &Server, states: usize, numbers: usize) {
        server.command(&[b"CONFIG", &b"RESETSTAT"[..]]);
        let beginning = &self.key.prefix(self.key.depth())[self.key.prefix(ANCHOR.into()).len()..];
        let [states, numbers] = [states, numbers].map(|number| number.to_string());
        server.command(&[b"EVAL", FILL.as_bytes(), b"1", &self.hash, states.as_bytes(), beginning, numbers.as_bytes()]);
    }

    /// Resets the key with its subtree, and calls `then` after two pages. Returns whether `then` was in time, according
    /// to its result.
    async fn reset_while(&self, store: &mut OnRedis<'_>, server: &Server, then: impl FnOnce() -> bool) -> bool {
        let after_two_pages = async {
            // One call reads about a thousand states, ten at a time.
            pages_served(server, 101).await;
            then()
        };
        let (done, in_time) = tokio::join!(store.reset(&self.key, ANCHOR, true, START), after_two_pages);
        assert!(done.removed, "{done:?}");
        in_time
    }
}

/// Waits until the server has served this many pages.
pub async fn pages_served(server: &Server, number: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while pages(server) < number {
        assert!(Instant::now() < until, "not {number} pages");
        yield_now().await;
    }
}

/// Returns the number of `HSCAN` commands that the server has served.
pub fn pages(server: &Server) -> usize {
    server.calls().get("hscan").copied().unwrap_or_default()
}

#[tokio::test]
async fn a_reset_during_which_something_is_held_forgets_all_else() {
    let server = Server::start(Options::socket());
    let mut store = OnRedis::new("Redis", &server.url(), vec![&server]);
    let scene = Scene::new(&["user", "alex"]);
    let holds = || {
        server.command(&[b"HSET", &scene.hash[..], b"held", b"1"]);
        server.command(&[b"HLEN", &scene.hash[..]]) != Reply::Int(1)
    };
    let mut in_time = false;
    while !in_time {
        scene.fill(&server, STATES, 1);
        in_time = scene.reset_while(&mut store, &server, holds).await;
        let left = store.fields();
        assert!(left.iter().all(|(_, field, _)| field == b"held"), "{} of {STATES} are left", left.len());
        store.forget().await;
    }
}

#[tokio::test]
async fn a_call_of_a_reset_reads_a_bounded_number_of_bytes() {
    let server = Server::start(Options::socket());
    let mut store = OnRedis::new("Redis", &server.url(), vec![&server]);
    let scene = Scene::new(&["user", "alex"]);
    // 300 states of 27 KB, of which a call reads at most 131,072 bytes and a page of about ten more.
    scene.fill(&server, 300, 3_000);
    let done = store.reset(&scene.key, ANCHOR, true, START).await;
    let calls = server.calls()["evalsha"];
    assert!(done.removed && store.fields().is_empty() && calls >= 15, "{done:?} in {calls} calls");
}

#[tokio::test]
async fn a_reset_during_which_the_slot_moves_forgets_all() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let mut store = OnRedis::new("a Cluster", &cluster.url(), cluster.nodes.iter().collect());
    let scene = Scene::new(&["user", "alex", "part"]);
    let slot = cluster.slot(&scene.hash);
    let mut in_time = false;
    while !in_time {
        let owner = cluster.owner(slot);
        let other = cluster.masters().into_iter().find(|master| *master != owner).expect("another master");
        scene.fill(&cluster.nodes[owner], STATES, 1);
        let migration = cluster.begin_migration(slot, other);
        let moves = || migration.move_some("1") == 1;
        in_time = scene.reset_while(&mut store, &cluster.nodes[owner], moves).await;
        migration.finish();
        let left = store.fields();
        assert!(left.is_empty(), "{} of {STATES} are left", left.len());
    }
}
