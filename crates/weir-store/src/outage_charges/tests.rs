//! Tests in virtual time: which units are pending, how many, and for how long.

use std::sync::Arc;

use super::*;
use weir_core::{
    domain::{Charge, Key, ManualClock, Micros, time::SECOND},
    plan::{Level, Limit, Origin},
    testing::parse,
};

const START: Micros = 1_000 * SECOND;
const PLENTY: usize = 1_000;

struct Scene {
    clock: Arc<ManualClock>,
    charges: OutageCharges,
}

/// A limit with a burst of ten units, which refills one per second.
fn bucket(name: &str) -> Limit {
    limit(name, "token_bucket", &[("capacity", "10"), ("count", "1"), ("period", "1s")])
}

fn limit(name: &str, algorithm: &str, fields: &[(&str, &str)]) -> Limit {
    Limit::new(Origin::Policy, Some(name), "*", 0, false, parse(algorithm, fields))
}

fn key(parts: &[&str]) -> Key {
    Key::new("", parts).unwrap()
}

impl Scene {
    fn new(max_keys: usize) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let settings = OutageChargesSettings { enabled: true, max_keys };
        Self { charges: OutageCharges::new(&settings, Arc::clone(&clock), 0), clock }
    }

    /// Records `cost` units admitted by each of these limits on the whole key.
    fn admit_under(&self, key: &Key, limits: &[&Limit], cost: i64, fates: &[Fate]) {
        let level = |limit| Level::new(key, key.depth() as u8, 2, limit, cost);
        let plan = Plan::new(limits.iter().map(|limit| level(*limit)).collect(), Charge::AllOrNothing, None);
        let decisions: Vec<_> = limits.iter().map(|_| Decision::pass(10, 9, 1)).collect();
        self.charges.record(&plan, &decisions, fates);
    }

    fn admit(&self, parts: &[&str], cost: i64) {
        self.admit_under(&key(parts), &[&bucket("per-user")], cost, &[Fate::NotCharged]);
    }

    /// Takes all pending levels and returns their units, sorted.
    fn due(&self) -> Vec<u64> {
        let mut units: Vec<_> = self.take().iter().map(Due::units).collect();
        units.sort_unstable();
        units
    }

    fn take(&self) -> Vec<Due> {
        let named = |shard: usize| self.charges.due(shard, |_| true).into_iter().map(move |name| (shard, name));
        let names: Vec<_> = self.charges.shards().flat_map(named).collect();
        names.into_iter().filter_map(|(shard, name)| self.charges.take(shard, name)).collect()
    }

    fn units(&self, outcome: ChargeOutcome) -> u64 {
        self.charges.units(outcome)
    }
}

#[test]
fn units_are_summed_by_level() {
    let scene = Scene::new(PLENTY);
    for cost in [1, 2, 0, 3] {
        scene.admit(&["user", "alex"], cost);
    }
    scene.admit(&["user", "bo"], 4);
    let (alex, [inner, outer]) = (key(&["user", "alex"]), ["inner", "outer"].map(bucket));
    scene.admit_under(&alex, &[&outer, &inner], 5, &[Fate::Charged, Fate::NotCharged]);
    scene.admit_under(&alex, &[&outer, &inner], 2, &[Fate::Unknown, Fate::NotCharged]);
    assert_eq!(scene.charges.keys(), 3);
    assert_eq!(scene.due(), [4, 6, 7]);
    assert_eq!(scene.units(ChargeOutcome::Unknown), 2, "the store may have charged them");
}

#[test]
fn previews_and_dry_runs_admit_nothing() {
    let scene = Scene::new(PLENTY);
    let (key, limit) = (key(&["user", "alex"]), bucket("per-user"));
    let mut plan = Plan::new([Level::new(&key, 2, 2, &limit, 1)].into_iter().collect(), Charge::AllOrNothing, None);
    for (is_preview, dry_run) in [(true, false), (false, true)] {
        (plan.is_preview, plan.dry_run) = (is_preview, dry_run);
        scene.charges.record(&plan, &[Decision::pass(10, 9, 1)], &[Fate::NotCharged]);
    }
    assert_eq!(scene.charges.keys(), 0);
}

#[test]
fn refunds_during_an_outage_are_not_charged() {
    let scene = Scene::new(PLENTY);
    scene.admit(&["user", "alex"], 8);
    scene.clock.set(START + 5 * SECOND);
    scene.admit(&["user", "alex"], 1);
    scene.admit(&["user", "bo"], 1_000_000);
    let due = scene.take();
    let mut units: Vec<_> = due.iter().map(Due::units).collect();
    units.sort_unstable();
    assert_eq!(units, [4, 10], "five of nine are back; of a million a limit holds ten");
    due.iter().for_each(|due| scene.charges.charged(due, due.units()));
    assert_eq!((scene.units(ChargeOutcome::Charged), scene.units(ChargeOutcome::Drained)), (14, 5 + 999_990));
    scene.admit(&["user", "alex"], 3);
    scene.clock.set(START + 60 * SECOND);
    assert_eq!((scene.due(), scene.charges.keys()), (vec![], 0), "all are back");
    assert_eq!(scene.units(ChargeOutcome::Drained), 5 + 999_990 + 3);
}

#[test]
fn refunds_are_of_what_was_admitted_here() {
    let scene = Scene::new(PLENTY);
    scene.admit(&["user", "alex"], -3);
    assert_eq!(scene.charges.keys(), 0, "of the store's");
    scene.admit(&["user", "alex"], 5);
    scene.admit(&["user", "alex"], -3);
    assert_eq!(scene.due(), [2]);
    assert_eq!(scene.units(ChargeOutcome::Returned), 3);
}

#[test]
fn the_number_of_waiting_levels_is_bounded() {
    let scene = Scene::new(3);
    for user in ["a", "b", "c", "d", "d", "a"] {
        scene.admit(&["user", user], 2);
    }
    assert_eq!((scene.charges.keys(), scene.units(ChargeOutcome::Full)), (3, 4));
    assert_eq!(scene.due(), [2, 2, 4]);
    // Capacity becomes free when units are charged or dropped, not while they are in flight.
    let scene = Scene::new(1);
    scene.admit(&["user", "a"], 2);
    let due = scene.take();
    scene.admit(&["user", "b"], 3);
    assert_eq!(scene.units(ChargeOutcome::Full), 3);
    due.iter().for_each(|due| scene.charges.give_up(due, ChargeOutcome::Unknown));
    scene.admit(&["user", "b"], 3);
    assert_eq!((scene.due(), scene.units(ChargeOutcome::Unknown)), (vec![3], 2));
}

#[test]
fn large_states_count_as_several_keys() {
    let scene = Scene::new(PLENTY);
    let log = limit("log", "sliding_log", &[("count", "640"), ("period", "1h")]);
    scene.admit_under(&key(&["user"]), &[&log], 1, &[Fate::NotCharged]);
    assert_eq!(scene.charges.keys(), 11);
    assert_eq!(scene.charges.give_all_up(), (1, 0));
    assert_eq!((scene.charges.keys(), scene.units(ChargeOutcome::Shutdown)), (0, 1));
}

#[test]
fn unsent_charges_are_merged_with_newer_ones() {
    let scene = Scene::new(PLENTY);
    scene.admit(&["user", "alex"], 3);
    scene.admit(&["user", "bo"], 2);
    let due = scene.take();
    scene.admit(&["user", "alex"], 4);
    due.into_iter().for_each(|due| scene.charges.put_back(due));
    assert_eq!((scene.charges.keys(), scene.due()), (2, vec![2, 7]));
}

#[test]
fn a_reset_drops_what_waits_and_what_is_on_its_way() {
    let admitted = || {
        let scene = Scene::new(PLENTY);
        for parts in [&["user", "alex"][..], &["user", "alex", "trade"], &["user", "alexa"]] {
            scene.admit(parts, 1);
        }
        scene
    };
    let alex = key(&["user", "alex"]);
    for (subtree, left) in [(false, 2), (true, 1)] {
        let scene = admitted();
        scene.charges.reset(alex.prefix(2), subtree);
        assert_eq!((scene.due().len(), scene.units(ChargeOutcome::Reset)), (left, 3 - left as u64));
    }
    let scene = admitted();
    let due = scene.take();
    scene.charges.reset(alex.prefix(2), false);
    due.into_iter().for_each(|due| scene.charges.put_back(due));
    assert_eq!((scene.charges.keys(), scene.units(ChargeOutcome::Reset)), (0, 3));
}

#[test]
fn limits_that_are_in_force_no_more_are_dropped() {
    let scene = Scene::new(PLENTY);
    let (alex, [old, kept]) = (key(&["user", "alex"]), ["old", "kept"].map(bucket));
    let spec = Limit::new(Origin::Request, Some("old"), "*", 0, false, old.params.clone());
    scene.admit_under(&alex, &[&old, &kept, &spec], 2, &[Fate::NotCharged; 3]);
    scene.charges.retain(|name| name == [alex.prefix(2), kept.ident()].concat());
    assert_eq!((scene.due(), scene.units(ChargeOutcome::Policy)), (vec![2, 2], 2), "a request's own limit stays");
}

#[test]
fn units_in_flight_at_the_end_are_counted_once() {
    let scene = Scene::new(PLENTY);
    for user in ["a", "b", "c"] {
        scene.admit(&["user", user], 2);
    }
    let mut due = scene.take();
    scene.admit(&["user", "d"], 3);
    scene.charges.charged(&due.remove(0), 2);
    assert_eq!(scene.charges.give_all_up(), (3, 4));
    scene.charges.charged(&due.remove(0), 2);
    scene.charges.put_back(due.remove(0));
    assert!(scene.due().is_empty(), "nothing is stored any more");
    let units = [ChargeOutcome::Charged, ChargeOutcome::Shutdown, ChargeOutcome::Unknown].map(|it| scene.units(it));
    assert_eq!(units, [2, 3, 4]);
}
