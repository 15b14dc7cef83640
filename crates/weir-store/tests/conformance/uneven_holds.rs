//! Holds on some of a plan's levels, that end at different times: the stores agree on the counts.

use std::sync::Arc;

use weir_core::{
    domain::{Charge, Key, ManualClock, Micros, time::SECOND},
    hold::{HoldId, OnExpiry, Outcome, Renewal, Reservation, ReservationStep},
    plan::{Decisions, Level, Limit, Origin, Plan},
    testing::parse,
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

use super::{
    holds::{Authority, START, in_memory, on_redis},
    redis::{OnRedis, number},
};

const HOUR: Micros = 3_600 * SECOND;

fn limit(name: &'static str, capacity: &str) -> Limit {
    let params = parse("token_bucket", &[("capacity", capacity), ("count", "1"), ("period", "1h")]);
    Limit::new(Origin::Policy, Some(name), "*", 0, false, params)
}

fn key() -> Key {
    Key::new("uneven", &["a", "b"]).expect("a key")
}

fn plan<'a>(key: &'a Key, limits: &'a [Limit; 2], anchor: u8, cost: i64) -> Plan<'a> {
    let levels = limits.iter().zip(1..).map(|(limit, depth)| Level::new(key, depth, anchor, limit, cost));
    Plan::new(levels.collect(), Charge::AllOrNothing, None)
}

/// Settles a lease at one level before the other, and returns the levels' decisions.
async fn settled_one_after_the_other(store: &Authority) -> Decisions {
    let (key, limits) = (key(), [limit("parent", "100"), limit("child", "100")]);
    let id = HoldId { owner: 7, number: 1 };
    let begins = Renewal { id, sequence: 1, spent: 0, kept: 0, want: 10, ttl: 10 * SECOND };
    let settles = Renewal { sequence: 2, spent: 4, want: 0, ..begins };
    // The last time, the first level knows the renewal and the second one does not.
    for (levels, renewal) in [(2, &begins), (1, &settles), (2, &settles)] {
        let mut renewed = plan(&key, &limits, 1, 0).only(|index| index < levels);
        renewed.renewal = Some(renewal);
        let grant = store.verdict(&renewed).await.grant.expect("a grant");
        assert_eq!(grant.units, renewal.want);
    }
    store.verdict(&plan(&key, &limits, 1, 0)).await.decisions
}

#[tokio::test]
async fn a_level_settles_what_another_one_has_settled_before() {
    let (server, clock) = (Server::start(Options::socket()), Arc::new(ManualClock::default()));
    clock.set(START);
    let ours = settled_one_after_the_other(&Authority::Memory(in_memory(&clock))).await;
    assert_eq!(ours.iter().map(|decision| decision.remaining).collect::<Vec<_>>(), [96, 96]);
    assert_eq!(settled_one_after_the_other(&on_redis(&server.url(), &clock)).await, ours);
}

/// Returns a refusal at the parent, of a key whose reservation below has ended.
async fn refused_after_a_hold(store: &Authority, clock: &ManualClock) -> Decisions {
    let (key, limits) = (key(), [limit("parent", "1"), limit("child", "100")]);
    clock.set(START);
    let mut reserved = plan(&key, &limits, 2, 5).only(|index| index == 1);
    let step = ReservationStep::Reserve { ttl: SECOND, on_expiry: OnExpiry::Release };
    reserved.reservation = Some(Reservation { name: b"one", step });
    let outcome = store.verdict(&reserved).await.reservation;
    assert!(matches!(outcome.as_deref(), Some(Outcome::Reserved { .. })));
    clock.set(START + 2 * SECOND);
    store.verdict(&plan(&key, &limits, 2, 2)).await.decisions
}

#[tokio::test]
async fn a_refusal_at_another_anchor_does_not_count_ended_holds() {
    let (cluster, clock) = (Cluster::start(&ClusterOptions::default()), Arc::new(ManualClock::default()));
    let ours = refused_after_a_hold(&Authority::Memory(in_memory(&clock)), &clock).await;
    assert_eq!(ours.iter().map(|decision| decision.remaining).collect::<Vec<_>>(), [1, 100]);
    assert_eq!(refused_after_a_hold(&on_redis(&cluster.url(), &clock), &clock).await, ours);
}

#[tokio::test]
async fn a_hash_is_marked_as_held_until_its_last_hold_has_ended() {
    let server = Server::start(Options::socket());
    let redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    let (key, limits) = (key(), [limit("parent", "100"), limit("child", "100")]);
    redis.clock().set(START);
    let held = || {
        let value = redis.fields().into_iter().find_map(|(_, field, value)| (field == b"held").then_some(value));
        number(&mut &value.expect("marked")[..]) as Micros
    };
    let mut reserved = plan(&key, &limits, 1, 1);
    let step = ReservationStep::Reserve { ttl: HOUR, on_expiry: OnExpiry::Keep };
    reserved.reservation = Some(Reservation { name: b"one", step });
    let outcome = redis.store().verdict(&reserved).await.expect("a verdict").reservation;
    let Some(Outcome::Reserved { expires_after }) = outcome.as_deref() else { panic!("{outcome:?}") };
    assert!(held() >= START + expires_after, "{}", held() - START);
    // A lease of another owner, for a shorter time, at one of the levels.
    let renewal = Renewal { id: HoldId { owner: 7, number: 1 }, sequence: 1, spent: 0, kept: 0, want: 1, ttl: SECOND };
    let mut leased = plan(&key, &limits, 1, 0).only(|index| index == 0);
    leased.renewal = Some(&renewal);
    redis.store().verdict(&leased).await.expect("a verdict");
    assert!(held() >= START + expires_after, "{}", held() - START);
}
