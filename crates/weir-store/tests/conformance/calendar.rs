//! Calendar windows: units held across the end of a window, and servers whose clock differs from the replica's.

use std::{io, sync::Arc};

use futures_util::future::BoxFuture;
use smallvec::smallvec;
use tokio::runtime::Handle;
use weir_core::{
    domain::{
        Charge, Decision, Key, ManualClock, Micros,
        time::{DAY, SECOND},
    },
    hold::{HoldId, OnExpiry, Outcome, Renewal, Reservation, ReservationStep},
    plan::{Level, Limit, Origin, Plan},
    testing::parse,
};
use weir_settings::Time;
use weir_store::{
    StoreUrl,
    platform::{OsPlatform, Platform, Stream},
    redis::{RedisStore, settings::RedisSettings},
    url::Address,
};

use super::holds::{Authority, Limits, in_memory, on_redis};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

/// Midnight of 15 March 2026 and of 15 April in Berlin. Daylight saving time starts in between.
const EDGE: Micros = 1_773_529_200 * SECOND;
const NEXT: Micros = 1_776_204_000 * SECOND;

fn billing_month() -> Limits {
    let month =
        parse("fixed_window", &[("count", "10"), ("calendar", "month"), ("zone", "Europe/Berlin"), ("anchor", "15")]);
    Limits::new(&[month.clone(), month])
}

async fn peek(store: &Authority, limits: &Limits) -> Decision {
    let decisions = store.verdict(&limits.plan(0, 0)).await.decisions;
    assert_eq!(decisions[0], decisions[1]);
    decisions[0]
}

async fn reserves_over_an_edge(store: &Authority, clock: &ManualClock) {
    let limits = billing_month();
    let ask = async |cost, step| {
        let reservation = Reservation { name: b"r", step };
        let mut plan = limits.plan(0, cost);
        plan.reservation = Some(reservation);
        *store.verdict(&plan).await.reservation.expect("an outcome")
    };
    clock.set(EDGE - SECOND);
    assert_eq!(store.verdict(&limits.plan(0, 3)).await.decisions[0].reset_after, SECOND);
    let reserved = ask(6, ReservationStep::Reserve { ttl: DAY, on_expiry: OnExpiry::Keep }).await;
    assert!(matches!(reserved, Outcome::Reserved { .. }), "{reserved:?}");
    assert_eq!(peek(store, &limits).await.remaining, 1);
    // Used units are gone; held units may be used in the new window.
    clock.set(EDGE);
    assert_eq!(peek(store, &limits).await.remaining, 4);
    clock.set(EDGE + SECOND);
    let settled = ask(6, ReservationStep::Commit { actual: 2 }).await;
    assert!(matches!(settled, Outcome::Settled { actual: 2, overage: 0, .. }), "{settled:?}");
    let now = peek(store, &limits).await;
    assert_eq!((now.remaining, now.reset_after), (8, NEXT - EDGE - SECOND));
    assert_eq!(NEXT - EDGE, 31 * DAY - 3_600 * SECOND);
}

async fn leases_over_an_edge(store: &Authority, clock: &ManualClock) {
    let limits = billing_month();
    clock.set(NEXT - SECOND);
    let renewal =
        Renewal { id: HoldId { owner: 7, number: 9 }, sequence: 1, spent: 0, kept: 0, want: 4, ttl: 10 * SECOND };
    let renew = async |renewal: Renewal| {
        let mut plan = limits.plan(0, 0);
        plan.renewal = Some(&renewal);
        store.verdict(&plan).await.grant.expect("a grant").units
    };
    assert_eq!(renew(renewal).await, 4);
    clock.set(NEXT);
    assert_eq!(peek(store, &limits).await.remaining, 6);
    let told = Renewal { sequence: 2, spent: 3, want: 0, ..renewal };
    clock.set(NEXT + SECOND);
    renew(told).await;
    assert_eq!(peek(store, &limits).await.remaining, 7);
}

#[tokio::test]
async fn held_units_count_in_the_window_in_which_they_are_used() {
    let (server, cluster) = (Server::start(Options::socket()), Cluster::start(&ClusterOptions::default()));
    let clock = Arc::new(ManualClock::default());
    let memory = Authority::Memory(in_memory(&clock));
    for store in [memory, on_redis(&server.url(), &clock), on_redis(&cluster.url(), &clock)] {
        reserves_over_an_edge(&store, &clock).await;
        leases_over_an_edge(&store, &clock).await;
    }
}

/// This machine with a wrong wall clock.
struct Ahead(Micros);

impl Platform for Ahead {
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        OsPlatform.connect(address)
    }

    fn wall_clock(&self) -> Micros {
        OsPlatform.wall_clock() + self.0
    }

    fn random(&self) -> u64 {
        OsPlatform.random()
    }
}

/// The server's clock decides, however wrong the replica's is.
#[tokio::test]
async fn a_window_is_that_of_the_servers_clock() {
    let server = Server::start(Options::socket());
    let Ok(StoreUrl::Redis(url)) = server.url().parse() else { panic!("no Redis") };
    let settings = RedisSettings { command_timeout: Time::seconds(20), ..RedisSettings::default() };
    let limit = Limit::new(
        Origin::Policy,
        None,
        "*",
        0,
        false,
        parse("fixed_window", &[("count", "100"), ("calendar", "day")]),
    );
    for (number, days) in [0, 1, -1, 2, -3, 40, -40, 4_000, -9_000].into_iter().enumerate() {
        let key = Key::new("", &[number.to_string()]).expect("a key");
        let platform = Arc::new(Ahead(days * DAY));
        let store = RedisStore::start_on(platform, Handle::current(), &url, &settings, None, Arc::default());
        for charged in 1..=3 {
            let plan = Plan::new(smallvec![Level::new(&key, 1, 1, &limit, 1)], Charge::AllOrNothing, None);
            let verdict = store.verdict(&plan).await.unwrap_or_else(|error| panic!("{days} days ahead: {error:?}"));
            let decision = verdict.decisions[0];
            assert!(decision.allowed && decision.remaining == 100 - charged, "{days} days ahead: {decision:?}");
            assert_eq!((verdict.at + decision.reset_after) % DAY, 0, "{days} days ahead");
            assert!((1..=DAY).contains(&decision.reset_after), "{days} days ahead: {decision:?}");
        }
    }
}
