//! States in Redis as written by version 0.2. Replicas of two adjacent minor versions share a server, so each must read
//! the other's states. A change of the layout fails here: it needs a reader of the previous form, a new form that is
//! written one minor version later, and another fixture next to this one.

use std::collections::BTreeMap;

use weir_core::{
    algorithm::{Bounds, rates},
    domain::{Charge, Key, Micros, time::SECOND},
    plan::{Level, Limit, Origin, Plan},
};

use super::{
    redis::OnRedis,
    store_under_test::{Reference, StoreUnderTest},
};
use weir_test_redis::{Options, Server};

/// A line for each field of each hash: the key without the prefix, the field, and the value, in hexadecimal.
const WRITTEN: &str = include_str!("layout-0.2.txt");
/// The time at which it was written.
pub const THEN: Micros = 1_790_000_000_123_456;
const COST: i64 = 3;
const ANCHOR: u8 = 2;

const LONG: &str = "a segment of over sixty-four bytes, of which names of states hold a hash instead";

struct Counted {
    key: Key,
    limit: Limit,
}

/// Returns a limit of every algorithm, and for one algorithm the other components of a state's name.
fn all() -> Vec<Counted> {
    let limit = |origin, name, ordinal, algorithm: &str| {
        let entry = rates().find(|entry| entry.name == algorithm).expect("an algorithm");
        let params = (entry.parse)(entry.examples[0], &Bounds::default()).expect("an example");
        Limit::new(origin, name, "*", ordinal, false, params)
    };
    let counted = |domain, path: &[&str], limit| Counted { key: Key::new(domain, path).expect("a key"), limit };
    let algorithms =
        rates().map(|entry| counted("", &["user", entry.name], limit(Origin::Policy, None, 0, entry.name)));
    algorithms
        .chain([
            counted("api", &["user", "alex", "trade"], limit(Origin::Policy, Some("per-trade"), 0, "gcra")),
            counted("", &["user", LONG, "{a}\r\n", LONG], limit(Origin::Policy, None, 1, "gcra")),
            counted("", &["user"], limit(Origin::Request, None, 0, "gcra")),
            counted("", &["user"], limit(Origin::Override, None, 0, "gcra")),
        ])
        .collect()
}

async fn decide(store: &mut impl StoreUnderTest, now: Micros, cost: i64) -> Vec<String> {
    let mut decisions = Vec::new();
    for Counted { key, limit } in &all() {
        let level = Level::new(key, key.depth() as u8, ANCHOR, limit, cost);
        let plan = Plan::new([level].into_iter().collect(), Charge::AllOrNothing, Some(60 * SECOND));
        decisions.push(format!("{}: {:?}", limit.ident_text(), store.decide(&plan, now).await));
    }
    decisions
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")).collect()
}

/// Returns the lines of all fields.
pub fn dump(redis: &OnRedis<'_>) -> String {
    let found: BTreeMap<_, _> =
        redis.fields().into_iter().map(|(key, field, value)| (hex(&key) + " " + &hex(&field), hex(&value))).collect();
    found.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

/// Writes the fields of these lines.
pub fn restore(redis: &OnRedis<'_>, lines: &str) {
    for line in lines.lines() {
        let [key, field, value] =
            line.split(' ').map(bytes).collect::<Vec<_>>().try_into().expect("a key, a field and a value");
        redis.put(&key, &field, &value);
    }
}

#[tokio::test]
async fn states_are_written_as_before() {
    let server = Server::start(Options::socket());
    let mut redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    decide(&mut redis, THEN, COST).await;
    let found = dump(&redis);
    assert_eq!(found.lines().count(), all().len(), "a limit without a state");
    assert!(found == WRITTEN, "the layout has changed; these are the states now:\n{found}");
}

#[tokio::test]
async fn states_written_before_are_decided_on() {
    let server = Server::start(Options::socket());
    let mut redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    restore(&redis, WRITTEN);
    let mut reference = Reference::default();
    assert_eq!(WRITTEN.lines().count(), all().len());
    let fresh = decide(&mut Reference::default(), THEN, 1).await;
    decide(&mut reference, THEN, COST).await;
    assert_eq!(redis.states(THEN).await, reference.states(THEN).await);
    for (after, cost) in [(0, 1), (1_500_000, 2), (1_500_000, -1)] {
        let [ours, theirs] =
            [decide(&mut redis, THEN + after, cost).await, decide(&mut reference, THEN + after, cost).await];
        assert_eq!(ours, theirs);
        assert!(
            after > 0 || ours.iter().zip(&fresh).all(|(ours, fresh)| ours != fresh),
            "a count started afresh: {ours:#?}"
        );
    }
    assert_eq!(redis.states(THEN).await, reference.states(THEN).await);
}
