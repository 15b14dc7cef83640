//! Slots of a Cluster that migrate under load: counts stay exact, and no answer is degraded.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use weir_test_redis::{Cluster, ClusterOptions, eventually};

use crate::{
    service::{hash_of, replicas, runtime},
    support::{
        Server,
        crowd::{self, Tally},
        requests::check,
    },
};

/// Minimum number of answers between two steps of a slot migration; there are six such steps.
const ANSWERS_A_STEP: u64 = 40;
/// Units of a key, so few that they are exhausted during the migration.
const UNITS: u64 = 160;
/// Maximum number of keys that one step of a migration moves: all of the slot.
const ALL: &str = "100";

/// Number of concurrent clients.
const ASKING: usize = 16;

#[test]
fn counts_stay_exact_while_slots_move() {
    // Even if a busy machine lets a master wait, no replica may take over: it may lack counts.
    let settings = vec![("cluster-node-timeout".to_owned(), "60000".to_owned())];
    let cluster = Cluster::start(&ClusterOptions { replicas: 1, settings });
    let services = replicas(&cluster.url(), &crowd::schema(UNITS));
    let runtime = runtime();
    for algorithm in weir_core::algorithm::rates() {
        let slot = cluster.slot(&hash_of(&[algorithm.name, "alex"]));
        let answers = AtomicU64::new(0);
        let tally = std::thread::scope(|scope| {
            let moving = scope.spawn(|| there_and_back(&cluster, slot, &answers));
            let tally = runtime.block_on(ask_while(&services, algorithm.name, &answers, || !moving.is_finished()));
            moving.join().expect("the slot moves");
            tally
        });
        let given = crowd::given(algorithm, UNITS);
        assert!(tally.answered > given);
        assert_eq!((tally.degraded, tally.allowed), (0, given), "{}: {tally:?}", algorithm.name);
        runtime.block_on(crowd::above_is_charged_as_often(UNITS, &services[0], algorithm, "alex"));
    }
    left_half_way(&cluster, &services);
}

/// Leaves a slot half migrated (its owner answers ASK), and gives it back at the end.
fn left_half_way(cluster: &Cluster, services: &[Server]) {
    let (algorithm, user) = ("gcra", "eve");
    let hash = hash_of(&[algorithm, user]);
    let slot = cluster.slot(&hash);
    let other = cluster.masters().into_iter().find(|node| *node != cluster.owner(slot)).expect("another");
    let runtime = runtime();
    let mut client = runtime.block_on(services[0].client());
    let first = runtime.block_on(client.check(check(&[algorithm, user, "trade"]))).expect("an answer").into_inner();
    let migration = cluster.begin_migration(slot, other);
    assert_eq!(migration.move_some(ALL), 1);

    let mut tally = Tally::default();
    tally.add(&first);
    tally += runtime.block_on(crowd::ask(services, ASKING, algorithm, user));
    let owner = cluster.owner(slot);
    assert!(
        cluster.nodes[owner].try_command(&[b"TYPE".as_slice(), &hash]).is_ok_and(|reply| {
            matches!(reply, weir_test_redis::Reply::ServerError(error) if error.code() == "ASK")
        })
    );
    migration.move_back();
    tally += runtime.block_on(crowd::ask(services, ASKING, algorithm, user));
    let expected = Tally { answered: 1 + 2 * crowd::asked(ASKING), allowed: UNITS, ..Tally::default() };
    assert_eq!(tally, expected);
}

/// Migrates a slot to another master and back, with checks between all steps.
fn there_and_back(cluster: &Cluster, slot: u16, answers: &AtomicU64) {
    let owner = cluster.owner(slot);
    let other = cluster.masters().into_iter().find(|node| *node != owner).expect("another");
    for to in [other, owner] {
        let some_answers = || {
            let from = answers.load(Ordering::Relaxed);
            eventually("checks are answered", || match answers.load(Ordering::Relaxed) - from {
                enough if enough >= ANSWERS_A_STEP => Ok(()),
                few => Err(format!("{few} so far")),
            });
        };
        some_answers();
        let migration = cluster.begin_migration(slot, to);
        some_answers();
        assert_eq!(migration.move_some(ALL), 1);
        some_answers();
        if to == owner {
            // As redis-cli did before Redis 7.
            migration.finish_source_first(Duration::from_millis(30));
        } else {
            migration.finish();
        }
    }
}

/// Sends checks of one key from all clients, one at a time each, while `go_on` returns true.
async fn ask_while(services: &[Server], algorithm: &str, answers: &AtomicU64, go_on: impl Fn() -> bool) -> Tally {
    let clients = (0..ASKING).map(|number| {
        let go_on = &go_on;
        async move {
            let mut client = services[number % services.len()].client().await;
            let mut tally = Tally::default();
            while go_on() {
                tally.add(&client.check(check(&[algorithm, "alex", "trade"])).await.expect("an answer").into_inner());
                answers.fetch_add(1, Ordering::Relaxed);
            }
            tally
        }
    });
    futures_util::future::join_all(clients).await.into_iter().sum()
}
