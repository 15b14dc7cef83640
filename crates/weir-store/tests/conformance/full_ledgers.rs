//! Full ledgers: memory and Redis refuse the same reservations and leases as the reference.

use std::sync::Arc;

use weir_core::{
    domain::{Charge, Key, ManualClock, Micros, time::SECOND},
    hold::{
        HoldId, MAX_HOLDS, MAX_LEASES_ABOVE, OnExpiry, Outcome, Renewal, Reservation, ReservationStep,
        decide_with_holds, renew,
    },
    plan::{Level, Limit, Origin, Plan},
    testing::parse,
};
use weir_test_redis::{Options, Server};

use super::{
    holds::{Authority, Limits, START, in_memory, on_redis},
    store_under_test::Reference,
};

/// More reservations with different ends than a ledger holds.
const RESERVATIONS: i32 = 90;

/// Returns TTLs from 10 s to a day, each an eighth or so longer than the one before.
fn ttl(number: i32) -> Micros {
    (10.0 * 8_640_f64.powf(f64::from(number) / f64::from(RESERVATIONS))) as Micros * SECOND
}

async fn fill(store: &Authority, clock: &ManualClock) {
    let params = parse("token_bucket", &[("capacity", "100000"), ("count", "1"), ("period", "1h")]);
    let (limits, mut reference) = (Limits::new(&[params.clone(), params]), Reference::default());
    clock.set(START);
    let (mut reserved, mut refused) = (0, 0);
    for (step, kind) in [(0, 0), (1, 0), (0, 1), (2, 1)] {
        for number in 0..RESERVATIONS {
            let name = [number as u8, kind];
            let on_expiry = if kind == 0 { OnExpiry::Keep } else { OnExpiry::Release };
            let step = match step {
                0 => ReservationStep::Reserve { ttl: ttl(number), on_expiry },
                1 => ReservationStep::Extend { ttl: ttl((number + 3) % RESERVATIONS) },
                _ => ReservationStep::Commit { actual: 2 },
            };
            let mut plan = limits.plan((number % 2) as usize, i64::from(step.is_new()));
            plan.reservation = Some(Reservation { name: &name, step });
            let (decisions, outcome, _) = decide_with_holds(&plan, &mut reference.view(&plan, START), START);
            let verdict = store.verdict(&plan).await;
            assert_eq!(
                (verdict.reservation.as_deref(), &verdict.decisions),
                (outcome.as_ref(), &decisions),
                "{step:?}"
            );
            reserved += usize::from(matches!(outcome, Some(Outcome::Reserved { .. })));
            refused += usize::from(matches!(outcome, Some(Outcome::Refused)));
        }
    }
    assert_eq!(reserved, MAX_HOLDS / 2, "{refused} refused");
    let mut granted = 0;
    for number in 0..MAX_HOLDS as u64 + 10 {
        let id = HoldId { owner: 100 + number, number: 1 };
        let renewal = Renewal { id, sequence: 1, spent: 0, kept: 0, want: 5, ttl: SECOND };
        let mut plan = limits.plan(0, 0);
        plan.renewal = Some(&renewal);
        let (_, grant) = renew(&plan, &mut reference.view(&plan, START), START, &renewal);
        assert_eq!(store.verdict(&plan).await.grant.as_deref(), Some(&grant), "owner {number}");
        granted += usize::from(grant.units > 0);
    }
    assert_eq!(granted, MAX_HOLDS / 2);
}

/// Leases a nested key to more holders than other keys below the same limit may have, then another one, to none, and then
/// the first one's node alone, which has two limits, until all is full.
async fn lease(store: &Authority, clock: &ManualClock) {
    const MORE: u64 = MAX_LEASES_ABOVE as u64 + 4;
    let params = parse("token_bucket", &[("capacity", "100000"), ("count", "1"), ("period", "1h")]);
    let limit = |name| Limit::new(Origin::Policy, Some(name), "*", 0, false, params.clone());
    let limits = ["parent", "child", "sibling"].map(limit);
    let keys = ["b", "c", "b"].map(|last| Key::new("full", &["a", last]).expect("a key"));
    let (mut reference, mut granted) = (Reference::default(), [0; 3]);
    clock.set(START);
    for number in 0..MAX_HOLDS as u64 + 50 {
        let part = (number / MORE).min(2) as usize;
        let levels = limits.iter().zip([1, 2, 2]).skip(part / 2);
        let levels = levels.map(|(limit, depth)| Level::new(&keys[part], depth, 1, limit, 0));
        let id = HoldId { owner: 100 + number, number: 1 };
        let renewal = Renewal { id, sequence: 1, spent: 0, kept: 0, want: 5, ttl: SECOND };
        let mut plan = Plan::new(levels.collect(), Charge::AllOrNothing, None);
        plan.renewal = Some(&renewal);
        let (_, grant) = renew(&plan, &mut reference.view(&plan, START), START, &renewal);
        assert_eq!(store.verdict(&plan).await.grant.as_deref(), Some(&grant), "owner {number}");
        granted[part] += usize::from(grant.units > 0);
    }
    assert_eq!(granted, [MORE as usize, 0, MAX_HOLDS - MORE as usize]);
}

#[tokio::test]
async fn memory_refuses_what_the_reference_refuses() {
    let clock = Arc::new(ManualClock::default());
    fill(&Authority::Memory(in_memory(&clock)), &clock).await;
    lease(&Authority::Memory(in_memory(&clock)), &clock).await;
}

#[tokio::test]
async fn redis_refuses_what_the_reference_refuses() {
    let (server, clock) = (Server::start(Options::socket()), Arc::new(ManualClock::default()));
    let store = on_redis(&server.url(), &clock);
    fill(&store, &clock).await;
    lease(&store, &clock).await;
}
