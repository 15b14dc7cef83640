//! Pages of stored states, and reads of documents, that are larger than one reply.

use std::time::{Duration, Instant};

use weir_core::{
    domain::{Charge, Key, time::SECOND},
    plan::{Level, Limit, Origin, Plan},
    testing::parse,
};
use weir_store::{
    documents::{ChangeId, Changes},
    scan::{MAX_PAGE, Scan, Wanted},
};

use super::{
    redis::{OnRedis, PREFIX},
    resets::{pages, pages_served},
    store_under_test::StoreUnderTest,
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

/// Number of fields of each hash.
const FIELDS: usize = 300;
/// Bytes of a value: all fields of a hash are more than one reply may have.
const VALUE: usize = 64 << 10;
/// Adds states below a key to the hash that stores them.
const FILL: &str = "
local state = cmsgpack.pack(9e15, {1}) .. string.rep('x', ARGV[3])
for number = 1, ARGV[1] do
  redis.call('HSET', KEYS[1], ARGV[2] .. string.char(5) .. string.format('%05d', number) .. string.char(255) .. 'limit', state)
end";
/// Number of documents, several pages.
const DOCUMENTS: usize = 20_000;
/// Adds documents.
const FILL_DOCUMENTS: &str =
    "for number = 1, ARGV[1] do redis.call('HSET', KEYS[1], string.format('%05d', number), 'x') end";

#[tokio::test]
async fn states_of_any_size_are_listed() {
    let server = Server::start(Options::socket());
    let store = OnRedis::new("Redis", &server.url(), vec![&server]);
    // Only one hash is large in the last case, between many small ones.
    for (hashes, fields, large) in [(3, FIELDS, 3), (FIELDS, 3, FIELDS), (200, FIELDS, 1)] {
        server.command(&["FLUSHALL"]);
        for number in 0..hashes {
            let value = if number < large { VALUE } else { 1 };
            let key = Key::new("", &["user", &number.to_string()]).expect("a key");
            let (hash, begin) =
                ([PREFIX.as_bytes(), key.prefix(2)].concat(), &key.prefix(key.depth())[key.prefix(2).len()..]);
            let numbers = [fields.to_string(), value.to_string()];
            server.command(&[
                b"EVAL",
                FILL.as_bytes(),
                b"1",
                &hash,
                numbers[0].as_bytes(),
                begin,
                numbers[1].as_bytes(),
            ]);
        }
        let one = Key::new("", &["user", "0"]).expect("a key");
        let only = Some(one.prefix(2).to_vec());
        for (prefix, anchor_path, expected) in
            [(Vec::new(), None, hashes * fields), (one.prefix(2).to_vec(), only, fields)]
        {
            let scan = Scan { prefix, anchor_path, wanted: Wanted::States, count: MAX_PAGE };
            let (mut cursor, mut found) = (None, 0);
            loop {
                let page = store.store().scan(&scan, cursor.as_deref()).await.expect("a page");
                found += page.states.len();
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "{hashes} hashes of {fields} fields");
        }
    }
}

#[tokio::test]
async fn documents_are_read_completely_or_not_at_all_while_their_slot_moves() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let store = OnRedis::new("a Cluster", &cluster.url(), cluster.nodes.iter().collect());
    let documents = store.store().documents("notes");
    let hash = format!("{PREFIX}{{notes}}");
    let slot = cluster.slot(hash.as_bytes());
    let mut in_time = false;
    while !in_time {
        let owner = cluster.owner(slot);
        let other = cluster.masters().into_iter().find(|master| *master != owner).expect("another master");
        cluster.nodes[owner].command(&["CONFIG", "RESETSTAT"]);
        cluster.nodes[owner].command(&["EVAL", FILL_DOCUMENTS, "1", &hash, &DOCUMENTS.to_string()]);
        let migration = cluster.begin_migration(slot, other);
        let move_after_two_pages = async {
            pages_served(&cluster.nodes[owner], 2).await;
            let before = pages(&cluster.nodes[owner]);
            migration.move_some("1") == 1 && before < DOCUMENTS / 1_000
        };
        let (read, moved) = tokio::join!(documents.changes(Some(ChangeId::default())), move_after_two_pages);
        migration.finish();
        in_time = moved;
        if let Ok(Changes::All { documents, .. }) = read {
            assert_eq!(documents.len(), DOCUMENTS);
        }
    }
    let read = documents.changes(Some(ChangeId::default())).await.expect("an answer");
    assert!(matches!(read, Changes::All { documents, since: None, .. } if documents.len() == DOCUMENTS));
}

#[tokio::test]
async fn expired_states_are_not_listed() {
    let server = Server::start(Options::socket());
    let mut store = OnRedis::new("Redis", &server.url(), vec![&server]);
    let key = Key::new("", &["user", "alex"]).expect("a key");
    let limit = |name, period| {
        let params = parse("fixed_window", &[("count", "9"), ("period", period)]);
        Limit::new(Origin::Policy, Some(name), "*", 0, false, params)
    };
    let limits = [limit("short", "1s"), limit("long", "1h")];
    let levels = limits.iter().map(|limit| Level::new(&key, 2, 2, limit, 1)).collect();
    let start = 3_600 * SECOND;
    store.decide(&Plan::new(levels, Charge::AllOrNothing, None), start).await;
    let scan = Scan { prefix: Vec::new(), anchor_path: None, wanted: Wanted::States, count: MAX_PAGE };
    for (after, listed) in [(0, 2), (SECOND, 1), (3_600 * SECOND, 0)] {
        store.clock().set(start + after);
        assert_eq!(store.store().scan(&scan, None).await.expect("a page").states.len(), listed, "after {after}");
    }
    assert_eq!(store.fields().len(), 2, "both are still stored");
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_at_the_deadline_of_the_command() {
    let server = Server::start(Options::socket());
    // Its timeouts are longer.
    let store = OnRedis::new("Redis", &server.url(), vec![&server]);
    store.store().publish_status("one", b"up".to_vec()).await.expect("published");
    server.pause();
    let started = Instant::now();
    store.store().delete_statuses(vec![b"one".to_vec()]).await.expect_err("it does not answer");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
