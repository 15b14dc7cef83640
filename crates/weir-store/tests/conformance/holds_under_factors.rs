//! A request's factor changes neither the held units nor the lifetime of the limit's states.

use std::sync::Arc;

use super::{
    holds::{Authority, Limits, START, in_memory, on_redis},
    store_under_test::Reference,
};
use weir_core::{
    algorithm::Params,
    domain::ManualClock,
    hold::{HoldId, OnExpiry, Renewal, Reservation, ReservationStep, decide_with_holds, renew},
    testing::parse,
};
use weir_test_redis::{Options, Server};

fn token_bucket(fields: &[(&str, &str)]) -> Params {
    parse("token_bucket", fields)
}

/// A state charged under a factor may last longer than the limit itself would keep one.
#[tokio::test]
async fn a_renewal_without_units_shortens_no_state() {
    let (server, clock) = (Server::start(Options::socket()), Arc::new(ManualClock::default()));
    let params = token_bucket(&[("capacity", "1"), ("count", "10"), ("period", "1s")]);
    let limits = Limits::new(&[params.clone(), params]);
    let (Authority::Redis(store), mut reference) = (on_redis(&server.url(), &clock), Reference::default()) else {
        panic!("a Redis")
    };
    clock.set(START);
    let charge = limits.plan_under(3.0, 0, 1).expect("a limit under a factor");
    let (ours, ..) = decide_with_holds(&charge, &mut reference.view(&charge, START), START);
    assert_eq!((ours[0].reset_after, &ours), (250_000, &store.verdict(&charge).await.expect("a verdict").decisions));
    let id = HoldId { owner: 2, number: 1 };
    let renewal = Renewal { id, sequence: 1, spent: 0, kept: 0, want: 1, ttl: 1_000 };
    let mut peek = limits.plan(0, 0);
    peek.renewal = Some(&renewal);
    for now in [START + 10_000, START + 150_000] {
        clock.set(now);
        let (ours, grant) = renew(&peek, &mut reference.view(&peek, now), now, &renewal);
        let verdict = store.verdict(&peek).await.expect("a verdict");
        assert_eq!((ours[1].remaining, grant.units), (0, 0), "{} µs later", now - START);
        assert_eq!((ours, Some(&grant)), (verdict.decisions, verdict.grant.as_deref()));
    }
}

/// The limit itself holds and burns units; a request's own cost is charged under its own factor.
#[tokio::test]
async fn a_factor_changes_nothing_of_what_is_held() {
    let (server, clock) = (Server::start(Options::socket()), Arc::new(ManualClock::default()));
    let params = token_bucket(&[("capacity", "100"), ("count", "10"), ("period", "10d")]);
    for store in [on_redis(&server.url(), &clock), Authority::Memory(in_memory(&clock))] {
        clock.set(START);
        let limits = Limits::new(&[params.clone(), params.clone()]);
        let mut reserve = limits.plan(0, 50);
        let step = ReservationStep::Reserve { ttl: 1_000_000, on_expiry: OnExpiry::Keep };
        reserve.reservation = Some(Reservation { name: b"one", step });
        assert!(store.verdict(&reserve).await.decisions[1].allowed);
        let left = async |factor, cost| {
            let plan = limits.plan_under(factor, 0, cost).expect("a limit under a factor");
            store.verdict(&plan).await.decisions[1].remaining
        };
        // Half of the 1,000 units under this factor are held.
        assert_eq!((left(0.1, 10).await, left(1.0, 0).await), (490, 49));
        assert_eq!((left(10.0, 1).await, left(1.0, 0).await), (3, 39));
        // A preview under a factor burns them.
        clock.set(START + 2_000_000);
        assert_eq!((left(0.1, 0).await, left(1.0, 0).await), (390, 39));
    }
}

/// The units spent under a factor are not cut to the limit's own maximum, though that holds a unit.
#[tokio::test]
async fn units_spent_under_a_factor_count_beside_a_hold() {
    let (server, clock) = (Server::start(Options::socket()), Arc::new(ManualClock::default()));
    let gcra = parse("gcra", &[("burst", "15"), ("count", "30"), ("period", "1h")]);
    let leaky_bucket = parse("leaky_bucket", &[("size", "10"), ("drip_rate", "1h")]);
    let decay = parse("decay", &[("max", "10"), ("resolution", "1h"), ("decay", "2")]);
    for (params, factor, most) in [(gcra, 10.0, 2), (leaky_bucket, 0.1, 99), (decay, 0.1, 99)] {
        for mut store in [on_redis(&server.url(), &clock), Authority::Memory(in_memory(&clock))] {
            store.forget(&clock).await;
            clock.set(START);
            let limits = Limits::new(&[params.clone(), params.clone()]);
            let mut reserve = limits.plan(0, 1);
            let step = ReservationStep::Reserve { ttl: 1_000_000_000, on_expiry: OnExpiry::Keep };
            reserve.reservation = Some(Reservation { name: b"one", step });
            assert!(store.verdict(&reserve).await.decisions[1].allowed);
            let mut admitted = 0;
            for _ in 0..200 {
                let plan = limits.plan_under(factor, 0, 1).expect("a limit under a factor");
                admitted += usize::from(store.verdict(&plan).await.decisions[1].allowed);
            }
            assert!(admitted <= most, "{admitted} of {most} under {factor}: {params:?}");
        }
    }
}
