//! Tests of holds, and of the records of reservations and request ids.

use super::*;

#[test]
fn granted_units_are_charged_in_a_full_store_under_every_rule() {
    for when_full in [WhenFull::Deny, WhenFull::Allow, WhenFull::Evict] {
        let (limit, held) = (per_second("1", "31d"), key(&["held", "a"]));
        let settings = MemorySettings { max_keys: MOST, when_full };
        let store = MemoryStore::new(settings, Arc::new(ManualClock::new(0)));
        let level = Level::new(&held, 2, 2, &limit, 0);
        let plan = Plan::new([level].into_iter().collect(), Charge::AllOrNothing, None);
        let id = HoldId { owner: 1, number: 1 };
        let renewal = |sequence, spent, want| Renewal { id, sequence, spent, kept: 0, want, ttl: SECOND };
        assert_eq!(store.renew_now(&plan, &renewal(1, 0, 1)).units, 1);
        for user in 0..MOST {
            ask(&store, &limit, &key(&["user", &user.to_string()]), &[2]);
        }
        assert_eq!(store.stats().keys, MOST);
        store.renew_now(&plan, &renewal(2, 1, 0));
        assert!(is_spent(&store, &limit, &held), "{when_full:?}");
    }
}

#[test]
fn a_lease_of_a_known_key_is_renewed_in_a_full_store_and_needs_no_room() {
    for when_full in [WhenFull::Deny, WhenFull::Allow, WhenFull::Evict] {
        let (limit, held) = (per_second("100", "31d"), key(&["held", "a"]));
        let store = MemoryStore::new(MemorySettings { max_keys: MOST, when_full }, Arc::new(ManualClock::new(0)));
        let id = HoldId { owner: 1, number: 1 };
        let renew = |sequence, spent| {
            let renewal = Renewal { id, sequence, spent, kept: 0, want: 10, ttl: SECOND };
            let level = Level::new(&held, 2, 2, &limit, 0);
            let mut plan = Plan::new([level].into_iter().collect(), Charge::AllOrNothing, None);
            plan.renewal = Some(&renewal);
            store.verdict(&plan).grant.unwrap().units
        };
        assert_eq!(renew(1, 0), 10);
        // The first renewal charges the key, so that it has a state.
        assert_eq!(renew(2, 10), 10);
        // States of the others expire first, so that an eviction takes one of them.
        let shorter = per_second("100", "30d");
        for user in 0..MOST {
            ask(&store, &shorter, &key(&["user", &user.to_string()]), &[2]);
        }
        let before = store.stats();
        assert_eq!((renew(3, 20), store.stats()), (10, before), "{when_full:?}");
    }
}

/// The units count no longer, but their hold was renewed and has not ended.
#[test]
fn a_repeated_renewal_is_recognized_until_its_deadline() {
    let (clock, limit, key) = (Arc::new(ManualClock::new(0)), per_second("10", "1s"), key(&["held", "a"]));
    let store = MemoryStore::new(MemorySettings::default(), Arc::clone(&clock));
    let plan = Plan::new([Level::new(&key, 2, 2, &limit, 0)].into_iter().collect(), Charge::AllOrNothing, None);
    let id = HoldId { owner: 1, number: 1 };
    let renew = |sequence, spent, want| {
        store.renew_now(&plan, &Renewal { id, sequence, spent, kept: 0, want, ttl: 60 * SECOND }).units
    };
    assert_eq!(renew(1, 0, 4), 4);
    clock.set(50 * SECOND);
    assert_eq!(renew(2, 4, 0), 0);
    clock.set(70 * SECOND);
    store.sweep(store.shard_count());
    assert_eq!(renew(1, 0, 4), 0);
    clock.set(200 * SECOND);
    store.sweep(store.shard_count());
    assert_eq!(store.stats().keys, 0);
}

#[test]
fn memory_of_expired_records_is_freed_though_others_stay() {
    let clock = Arc::new(ManualClock::new(0));
    let (limit, key) = (per_second("2000", "1s"), key(&["user", "a"]));
    let store = MemoryStore::new(MemorySettings::default(), Arc::clone(&clock));
    let ask = |id: usize, window| {
        let request = RequestId { name: id.to_be_bytes()[..].into(), fingerprint: [0; 8], window };
        let level = Level::new(&key, 2, 2, &limit, 1);
        let mut plan = Plan::new([level].into_iter().collect(), Charge::AllOrNothing, None);
        plan.request = Some(&request);
        store.verdict(&plan);
    };
    let capacity = || {
        let shards = store.shards.iter().map(|shard| shard.lock().holds().map_or(0, |holds| holds.capacity()));
        shards.sum::<usize>()
    };
    ask(MOST, 1_000 * SECOND);
    (0..MOST).for_each(|id| ask(id, SECOND));
    assert!(capacity() >= MOST - 1);
    clock.set(100 * SECOND);
    store.sweep(store.shard_count());
    assert!(capacity() < 10, "{}", capacity());
}

#[test]
fn holds_and_stored_answers_take_places_by_their_size() {
    let (clock, limit) = (Arc::new(ManualClock::new(5 * SECOND)), per_second("1000", "1s"));
    let store = MemoryStore::new(MemorySettings::default(), Arc::clone(&clock));
    let (key, id) =
        (key(&["user", "alex"]), RequestId { name: b"id".as_slice().into(), fingerprint: [1; 8], window: SECOND });
    let plan = |levels| {
        let levels = (0..levels).map(|_| Level::new(&key, 2, 2, &limit, 1)).collect();
        Plan::new(levels, Charge::AllOrNothing, None)
    };
    let levels = 16;
    let mut asked = plan(levels);
    asked.request = Some(&id);
    store.verdict(&asked);
    let record = 1 + levels * size_of::<Decision>() / WEIGHT_BYTES;
    assert!(record > 3);
    assert_eq!(store.stats().keys, 1 + record, "its one state, and the answer");
    let holds = 20;
    for number in 1..=holds {
        let id = HoldId { owner: 1, number };
        store.renew_now(&plan(1), &Renewal { id, sequence: 1, spent: 0, kept: 0, want: 1, ttl: SECOND });
    }
    let ledger = 1 + holds as usize * size_of::<Hold>() / WEIGHT_BYTES;
    assert!(ledger > 3);
    assert_eq!(store.stats().keys, 1 + record + ledger);
    clock.set(20 * SECOND);
    store.sweep(store.shard_count());
    assert_eq!(store.stats().keys, 0);
}

/// Returns a full store, and a separate key that has used one of 100 units.
fn full_store(when_full: WhenFull) -> (MemoryStore<Arc<ManualClock>>, Limit, Key) {
    let (limit, known) = (per_second("100", "31d"), key(&["known", "a"]));
    let store = MemoryStore::new(MemorySettings { max_keys: MOST, when_full }, Arc::new(ManualClock::new(0)));
    ask(&store, &limit, &known, &[2]);
    for user in 0..MOST {
        ask(&store, &limit, &key(&["user", &user.to_string()]), &[2]);
    }
    assert_eq!(store.stats().keys, MOST);
    (store, limit, known)
}

fn ask_with_id(store: &MemoryStore<Arc<ManualClock>>, limit: &Limit, key: &Key, id: usize) -> Verdict {
    let request = RequestId { name: id.to_be_bytes()[..].into(), fingerprint: [0; 8], window: SECOND };
    let mut plan = Plan::new([Level::new(key, 2, 2, limit, 1)].into_iter().collect(), Charge::AllOrNothing, None);
    plan.request = Some(&request);
    store.verdict(&plan)
}

#[test]
fn an_answer_without_room_refuses_no_check_and_is_not_remembered() {
    for when_full in [WhenFull::Deny, WhenFull::Allow] {
        let (store, limit, known) = full_store(when_full);
        let before = store.stats().capacity_misses;
        for (id, remaining) in [(1, 98), (2, 97), (2, 96)] {
            let verdict = ask_with_id(&store, &limit, &known, id);
            assert!(verdict.decisions[0].allowed, "{when_full:?}");
            assert_eq!((verdict.decisions[0].remaining, verdict.idempotency), (remaining, Idempotency::First));
        }
        assert_eq!(store.stats().capacity_misses, before, "{when_full:?}: these checks needed no room");
        let new = ask_with_id(&store, &limit, &key(&["new", "a"]), 3);
        assert_eq!(new.decisions[0].allowed, when_full == WhenFull::Allow);
        assert_eq!(store.stats().capacity_misses, before + 1);
    }
}

#[test]
fn answers_give_way_to_states_and_to_each_other_where_the_rule_is_to_evict() {
    let (store, limit, known) = full_store(WhenFull::Evict);
    for id in 0..4 * MOST {
        let verdict = ask_with_id(&store, &limit, &key(&["user", &format!("with {id}")]), id);
        assert!(verdict.decisions[0].allowed, "{id}");
        let stats = store.stats();
        assert!(stats.keys <= MOST, "{}", stats.keys);
    }
    assert_eq!(ask_with_id(&store, &limit, &known, 4 * MOST).idempotency, Idempotency::First);
    assert_eq!(ask_with_id(&store, &limit, &known, 4 * MOST).idempotency, Idempotency::Repeated);
    let states: usize = store.shards.iter().map(|shard| shard.lock().len()).sum();
    assert!(states > MOST / 4, "{states} of {MOST} places are left to states");
}

#[test]
fn a_reservation_that_full_memory_refuses_is_counted() {
    for when_full in [WhenFull::Deny, WhenFull::Allow] {
        let (store, limit, known) = full_store(when_full);
        let before = store.stats().capacity_misses;
        for (number, key) in [known, key(&["new", "a"])].iter().enumerate() {
            let step = ReservationStep::Reserve { ttl: SECOND, on_expiry: OnExpiry::Keep };
            let mut plan =
                Plan::new([Level::new(key, 2, 2, &limit, 1)].into_iter().collect(), Charge::AllOrNothing, None);
            plan.reservation = Some(Reservation { name: b"a", step });
            let outcome = store.verdict(&plan).reservation;
            assert_eq!(outcome.as_deref(), Some(&Outcome::Refused), "{when_full:?}");
            assert_eq!(store.stats().capacity_misses, before + 1 + number, "{when_full:?}");
        }
    }
}
