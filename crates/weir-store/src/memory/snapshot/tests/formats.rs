//! Files as written by earlier versions. A change of the format needs a number of its own, and a file beside these.

use weir_core::hold::{
    Grant, HoldId, Idempotency, OnExpiry, Outcome, Renewal, RequestId, Reservation, ReservationStep,
};

use super::*;

/// A state of `gcra`, in hexadecimal.
const FORMAT_1: &str = include_str!("format-1.hex");
/// A store as [`held`] returns it.
const FORMAT_2: &str = include_str!("format-2.hex");

const ID: HoldId = HoldId { owner: 0x0123_4567_89ab_cdef, number: u64::MAX - 1 };
const TTL: Micros = 10_000_000;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn key(number: usize) -> Key {
    Key::new("", &["stable", &number.to_string()]).unwrap()
}

fn plan<'a>(limit: &'a Limit, key: &'a Key, cost: i64) -> Plan<'a> {
    let level = Level::new(key, 2, 2, limit, cost);
    Plan::new(SmallVec::from_iter([level]), Charge::AllOrNothing, None)
}

fn lease(store: &Store, limit: &Limit, sequence: u64, spent: u64, kept: u64, want: u64) -> Grant {
    let renewal = Renewal { id: ID, sequence, spent, kept, want, ttl: TTL };
    store.renew_now(&plan(limit, &key(0), 0), &renewal)
}

fn settle(store: &Store, limit: &Limit, name: &[u8], cost: i64, step: ReservationStep) -> Outcome {
    let key = key(0);
    let mut plan = plan(limit, &key, cost);
    plan.reservation = Some(Reservation { name, step });
    *store.verdict(&plan).reservation.unwrap()
}

fn ask_with_id(store: &Store, limit: &Limit) -> (u64, Idempotency) {
    let request = RequestId { name: b"id".as_slice().into(), fingerprint: [7; 8], window: TTL };
    let key = key(0);
    let mut plan = plan(limit, &key, 1);
    plan.request = Some(&request);
    let verdict = store.verdict(&plan);
    (verdict.decisions[0].remaining, verdict.idempotency)
}

/// Returns a store with a state, and with every kind of hold and record on it: a lease of four units, an open reservation
/// of one and a settled one, and an answered request. A second state has the arrival times of two limits.
fn held() -> (Store, Limit) {
    let (store, limit) = filled(2);
    assert_eq!(lease(&store, &limit, 5, 0, 0, 4).units, 4);
    let reserve = ReservationStep::Reserve { ttl: TTL, on_expiry: OnExpiry::Release };
    for name in [b"open", b"done"] {
        assert!(matches!(settle(&store, &limit, name, 1, reserve), Outcome::Reserved { .. }));
    }
    let done = Outcome::Settled { actual: 2, overage: 1, before: false };
    assert_eq!(settle(&store, &limit, b"done", 0, ReservationStep::Commit { actual: 2 }), done);
    assert_eq!(ask_with_id(&store, &limit), (1, Idempotency::First));
    assert_eq!(ask(&store, &lower(), "stable", 1, 1), 0);
    (store, limit)
}

/// Returns a limit that shares the states of the other one.
fn lower() -> Limit {
    let params = parse("gcra", &[("burst", "1"), ("count", "10"), ("period", "20d")]);
    Limit::new(Origin::Policy, None, "*", 0, false, params)
}

#[test]
fn files_of_earlier_versions_are_read() {
    let (_dir, path) = snapshot_path();
    let (_, limit) = filled(0);
    for (format, written, states, left) in [(1, FORMAT_1, 1, 9), (2, FORMAT_2, 2, 1)] {
        let content = bytes(written.trim_end());
        assert_eq!(content[8], format);
        fs::write(&path, content).unwrap();
        let (store, _) = store(10, NOW);
        assert_eq!(load(&path, &store).unwrap(), Loaded { states, expired: 0, left_out: 0 });
        assert_eq!(ask(&store, &limit, "stable", 0, 0), left);
        assert_eq!(lease(&store, &limit, 6, 1, 3, 0).is_kept, format == 2);
        if format == 2 {
            assert_eq!(ask_with_id(&store, &limit), (1, Idempotency::Repeated));
            for (name, actual, overage, before) in [(b"open", 0, 0, false), (b"done", 2, 1, true)] {
                let settled = Outcome::Settled { actual, overage, before };
                assert_eq!(settle(&store, &limit, name, 0, ReservationStep::Cancel), settled);
            }
            assert_eq!(ask(&store, &limit, "stable", 0, 0), 2, "the cancelled unit is refunded");
            assert_eq!([ask(&store, &limit, "stable", 1, 0), ask(&store, &lower(), "stable", 1, 0)], [7, 0]);
        }
    }
}

#[test]
fn a_hold_of_all_units_of_the_largest_limit_is_read() {
    let (_dir, path) = snapshot_path();
    let params = parse("gcra", &[("burst", "4294967296"), ("count", "1000000"), ("period", "1s")]);
    let limit = Limit::new(Origin::Policy, None, "*", 0, false, params);
    let (first, second) = (store(10, NOW).0, store(10, NOW).0);
    let reserve = ReservationStep::Reserve { ttl: TTL, on_expiry: OnExpiry::Keep };
    for (name, units) in [(b"all", 1 << 32), (b"one", 1)] {
        assert!(matches!(settle(&first, &limit, name, units, reserve), Outcome::Reserved { .. }));
    }
    save(&first, &path).unwrap();
    load(&path, &second).unwrap();
    assert_eq!(ask(&second, &limit, "stable", 0, 0), 0);
    settle(&second, &limit, b"one", 0, ReservationStep::Cancel);
    assert_eq!(ask(&second, &limit, "stable", 0, 0), 1);
}

#[test]
fn a_file_has_the_earliest_format_that_has_its_states() {
    let (_dir, path) = snapshot_path();
    let charged = |factor| {
        let (store, limit) = filled(1);
        let key = key(0);
        let level = Level::new(&key, 2, 2, &limit, 1).under_factor(factor).unwrap().unwrap();
        store.verdict(&Plan::new(SmallVec::from_iter([level]), Charge::AllOrNothing, None));
        store
    };
    let expired = held().0;
    expired.clock.set(NOW + 20 * DAY);
    for (store, version) in [(charged(1.0), 1), (charged(0.7), 2), (held().0, 2), (expired, 1)] {
        save(&store, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap()[8], version);
        load(&path, &self::store(10, NOW).0).unwrap();
    }
    // Two limits on one key, without a hold.
    let (store, _) = filled(2);
    ask(&store, &lower(), "stable", 1, 1);
    save(&store, &path).unwrap();
    assert_eq!(fs::read(&path).unwrap()[8], 2);
}
