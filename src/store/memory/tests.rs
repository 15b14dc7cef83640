//! The store as a whole: bounded, nothing live forgotten, and exact under many threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::*;
use crate::{
    algorithm::{Bounds, find},
    domain::{Charge, ManualClock, time::SECOND},
    plan::{Level, Limit, Origin},
};

/// `count` per second.
fn per_second(count: &str, period: &str) -> Limit {
    let source: &[(&str, &str)] = &[("count", count), ("period", period)];
    let params = (find("fixed_window").unwrap().parse)(&source, &Bounds::default()).unwrap();
    Limit::new(Origin::Policy, None, "*", 0, false, params)
}

fn ask<C: Clock>(store: &MemoryStore<C>, limit: &Limit, key: &Key, depths: &[u8]) -> bool {
    let levels = depths.iter().map(|depth| Level::new(key, *depth, 2, limit, 1));
    store.decide_now(&Plan::new(levels.collect(), Charge::AllOrNothing, None)).iter().all(|level| level.allowed)
}

fn key(parts: &[&str]) -> Key {
    Key::new("", parts).unwrap()
}

#[test]
fn a_full_store_forgets_nothing_live_and_takes_what_has_expired() {
    const MOST: usize = 1_000;
    let (clock, limit) = (Arc::new(ManualClock::new(5 * SECOND)), per_second("1", "1s"));
    let store = MemoryStore::new(MemorySettings { max_keys: MOST }, Arc::clone(&clock));
    let keys: Vec<_> = (0..MOST).map(|user| key(&["user", &user.to_string()])).collect();
    assert!(keys.iter().all(|key| ask(&store, &limit, key, &[2])));
    assert!(!ask(&store, &limit, &key(&["user", "one too many"]), &[2]));
    assert!(!ask(&store, &limit, &key(&["user", "0", "below"]), &[2, 3]), "one of its levels is new");
    assert!(keys.iter().all(|key| !ask(&store, &limit, key, &[2])), "every key is used up");
    assert_eq!(store.stats(), MemoryStats { keys: MOST, lacked_room: 1, expired: 0 });

    clock.set(6 * SECOND);
    let others: Vec<_> = (0..MOST).map(|user| key(&["other", &user.to_string()])).collect();
    assert!(others.iter().all(|key| ask(&store, &limit, key, &[2])));
    assert_eq!(store.stats().keys, MOST);
    store.sweep(store.shard_count());
    assert_eq!(store.stats(), MemoryStats { keys: MOST, lacked_room: 1, expired: MOST });
}

#[test]
fn resets_reach_the_key_what_is_below_it_and_nothing_else() {
    let limit = per_second("1", "1h");
    let store = MemoryStore::new(MemorySettings::default(), Arc::new(ManualClock::new(SECOND)));
    let paths = [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "bc"], &["ab"], &["a", "d", "e"]].map(key);
    let fill = || {
        for key in &paths {
            ask(&store, &limit, key, &[key.depth() as u8]);
        }
    };
    let live = || paths.iter().filter(|key| !ask(&store, &limit, key, &[key.depth() as u8])).count();
    for (path, subtree, existed, left) in [
        (&["a", "b"][..], false, true, 5),
        (&["a", "b"], true, true, 4),
        (&["a"], false, true, 5),
        (&["a"], true, true, 1),
        (&["a", "d"], true, false, 5),
        (&["z"], true, false, 6),
    ] {
        fill();
        assert_eq!(store.reset_now(&key(path), 2, subtree), existed, "{path:?}");
        assert_eq!(store.stats().keys, left, "{path:?}");
        assert_eq!(live(), left, "{path:?}");
    }
}

#[test]
fn plans_over_several_anchors_neither_block_each_other_nor_admit_too_much() {
    const THREADS: usize = 4;
    const EACH: usize = 5_000;
    const LIMIT: usize = 7_000;
    let limit = per_second(&LIMIT.to_string(), "31d");
    let store = MemoryStore::new(MemorySettings::default(), ManualClock::new(SECOND));
    let admitted = AtomicUsize::new(0);
    thread::scope(|scope| {
        for offset in 0..THREADS {
            let (store, limit, admitted) = (&store, &limit, &admitted);
            scope.spawn(move || {
                for number in 0..EACH {
                    // The one at the root is shared by all; the other is in any shard.
                    let key = key(&["root", &((number * 7 + offset) % 50).to_string()]);
                    let depths: &[u8] = if number % 2 == 0 { &[1, 2] } else { &[1] };
                    admitted.fetch_add(usize::from(ask(store, limit, &key, depths)), Ordering::Relaxed);
                    if number % 100 == 0 {
                        store.sweep(8);
                        store.reset_now(&Key::new("", &["elsewhere"]).unwrap(), 2, true);
                    }
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), LIMIT);
}

#[test]
fn many_at_once_find_the_room_of_what_has_expired() {
    const THREADS: usize = 4;
    const MOST: usize = 40_000;
    let (clock, limit) = (Arc::new(ManualClock::new(5 * SECOND)), per_second("1", "1s"));
    let store = MemoryStore::new(MemorySettings { max_keys: MOST }, Arc::clone(&clock));
    for number in 0..MOST {
        ask(&store, &limit, &key(&["old", &number.to_string()]), &[2]);
    }
    clock.set(7 * SECOND);
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, limit, refused) = (&store, &limit, &refused);
            scope.spawn(move || {
                for number in 0..MOST / THREADS / 2 {
                    let key = key(&["new", &thread.to_string(), &number.to_string()]);
                    refused.fetch_add(usize::from(!ask(store, limit, &key, &[3])), Ordering::Relaxed);
                }
            });
        }
    });
    // What the others hold at that moment cannot be looked at, so a few may be refused; half of the room is never needed.
    assert!(refused.load(Ordering::Relaxed) < MOST / 100, "{refused:?} of {} were refused", MOST / 2);
}
