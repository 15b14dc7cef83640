//! Leases, reservations and remembered requests in Redis as written when they were introduced, which replicas of
//! adjacent minor versions share. See [`super::layout`] for the requirements of a change of the layout.

use weir_core::{
    algorithm::{Bounds, find},
    domain::{Charge, Key, Micros, time::SECOND},
    hold::{HoldId, Idempotency, OnExpiry, Outcome, Renewal, RequestId, Reservation, ReservationStep},
    plan::{Level, Limit, Origin, Plan},
};
use weir_store::Verdict;

use super::{
    layout::{THEN, dump, restore},
    redis::OnRedis,
};
use weir_test_redis::{Options, Server};

/// As the states of [`super::layout`].
const WRITTEN: &str = include_str!("layout-holds.txt");
const COST: i64 = 3;
const HOUR: Micros = 3_600 * SECOND;

#[derive(Clone, Copy)]
enum Asked<'a> {
    Lease(&'a Renewal),
    Reservation(Reservation<'a>),
    Once(&'a RequestId),
}

/// Decides a plan at this time, on a separate key for each example.
async fn carry_out(redis: &OnRedis<'_>, now: Micros, name: &str, asked: Asked<'_>) -> Verdict {
    let algorithm = find(if name == "slot" { "concurrency" } else { "fixed_window" }).expect("an algorithm");
    let params = (algorithm.parse)(algorithm.examples[0], &Bounds::default()).expect("an example");
    let limit = Limit::new(Origin::Policy, None, "*", 0, false, params);
    let key = Key::new("", &["user", name]).expect("a key");
    let cost = if matches!(asked, Asked::Lease(_)) { 0 } else { COST };
    let level = Level::new(&key, 2, 2, &limit, cost);
    let mut plan = Plan::new([level].into_iter().collect(), Charge::AllOrNothing, None);
    match asked {
        Asked::Lease(renewal) => plan.renewal = Some(renewal),
        Asked::Reservation(reservation) => plan.reservation = Some(reservation),
        Asked::Once(id) => plan.request = Some(id),
    }
    redis.clock().set(now);
    redis.store().verdict(&plan).await.expect("a verdict")
}

async fn lease(redis: &OnRedis<'_>, now: Micros, sequence: u64, [spent, kept, want]: [u64; 3]) -> Verdict {
    let id = HoldId { owner: 0x0123_4567_89ab_cdef, number: u64::MAX - 1 };
    let renewal = Renewal { id, sequence, spent, kept, want, ttl: 10 * SECOND };
    carry_out(redis, now, "leased", Asked::Lease(&renewal)).await
}

async fn reserve(redis: &OnRedis<'_>, now: Micros, name: &str, step: ReservationStep) -> Option<Outcome> {
    let of_client = [&[7; 16][..], b"client"].concat();
    let reservation = Reservation { name: &of_client, step };
    let verdict = carry_out(redis, now, name, Asked::Reservation(reservation)).await;
    verdict.reservation.map(|outcome| *outcome)
}

async fn request(redis: &OnRedis<'_>, now: Micros) -> Verdict {
    let id = RequestId { name: b"id".as_slice().into(), fingerprint: *b"01234567", window: 60 * SECOND };
    carry_out(redis, now, "asked", Asked::Once(&id)).await
}

const KEPT: ReservationStep = ReservationStep::Reserve { ttl: HOUR, on_expiry: OnExpiry::Keep };
const RELEASED: ReservationStep = ReservationStep::Reserve { ttl: HOUR, on_expiry: OnExpiry::Release };

#[tokio::test]
async fn holds_are_written_as_before() {
    let server = Server::start(Options::socket());
    let redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    lease(&redis, THEN, 5, [0, 0, 4]).await;
    for (name, step) in [("reserved", KEPT), ("slot", RELEASED), ("settled", KEPT)] {
        assert!(matches!(reserve(&redis, THEN, name, step).await, Some(Outcome::Reserved { .. })), "{name}");
    }
    reserve(&redis, THEN, "settled", ReservationStep::Commit { actual: 2 }).await;
    assert_eq!(request(&redis, THEN).await.idempotency, Idempotency::First);
    let found = dump(&redis);
    assert!(found == WRITTEN, "the layout has changed; these are the fields now:\n{found}");
}

#[tokio::test]
async fn holds_written_before_are_recognized() {
    let server = Server::start(Options::socket());
    let redis = OnRedis::new("Redis", &server.url(), vec![&server]);
    restore(&redis, WRITTEN);
    let now = THEN + SECOND;
    let again = request(&redis, now).await;
    assert_eq!((again.idempotency, again.decisions[0].allowed), (Idempotency::Repeated, true));
    let settled = Some(Outcome::Settled { actual: 2, overage: 0, before: true });
    assert_eq!(reserve(&redis, now, "settled", ReservationStep::Cancel).await, settled);
    let settled = Some(Outcome::Settled { actual: 4, overage: 1, before: false });
    assert_eq!(reserve(&redis, now, "reserved", ReservationStep::Commit { actual: 4 }).await, settled);
    let extended = reserve(&redis, now, "slot", ReservationStep::Extend { ttl: HOUR }).await;
    assert!(matches!(extended, Some(Outcome::Extended { .. })), "{extended:?}");
    let grant = lease(&redis, now, 6, [1, 3, 0]).await.grant.expect("a grant");
    assert!(grant.is_kept && grant.settled.spent == 1, "{grant:?}");
}
