//! Tests of the near cache in virtual time: which refusals are cached, for which requests, and for how long.

use std::sync::Arc;

use super::*;
use weir_core::{
    domain::{Decision, Key, ManualClock, OnStoreFailure, time::SECOND},
    plan::{Level, Limit, Origin},
    testing::parse,
};

const START: Micros = 1_000 * SECOND;
const AGE: Micros = 50_000;

/// A cache, its clock, and two limits: on two segments and on three.
struct Scene {
    clock: Arc<ManualClock>,
    cache: NearCache<Arc<ManualClock>>,
    limits: [Limit; 2],
    key: Key,
}

/// The parameters of a request except its key.
#[derive(Clone, Copy)]
struct Request {
    cost: i64,
    max_wait: Option<Micros>,
    version: Option<u64>,
    charge: Charge,
}

const USUAL: Request = Request { cost: 2, max_wait: None, version: Some(7), charge: Charge::AllOrNothing };

fn window(fields: &[(&str, &str)], shadow: bool) -> Limit {
    Limit::new(Origin::Policy, None, "*", 0, shadow, parse("fixed_window", fields))
}

fn key(parts: &[&str]) -> Key {
    Key::new("", parts).unwrap()
}

impl Scene {
    fn new() -> Self {
        Self::of(&NearCacheSettings { max_age: Time(AGE), ..NearCacheSettings::default() })
    }

    fn of(settings: &NearCacheSettings) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let limit = || window(&[("count", "9"), ("period", "60s")], false);
        let cache = NearCache::new(settings, Arc::clone(&clock), &Registry::default());
        Self { clock, cache, limits: [limit(), limit()], key: key(&["user", "alex", "trade"]) }
    }

    fn plan<'a>(&'a self, key: &'a Key, terms: Request) -> Plan<'a> {
        let level = |(limit, depth)| Level::new(key, depth, 2, limit, terms.cost);
        let mut plan = Plan::new(self.limits.iter().zip([2, 3]).map(level).collect(), terms.charge, terms.max_wait);
        plan.policy_version = terms.version;
        plan.on_store_failure = OnStoreFailure::Error;
        plan
    }

    fn at(&self, after: Micros) -> &Self {
        self.clock.set(START + after);
        self
    }

    fn refusal(&self, plan: &Plan<'_>) -> Option<Decisions> {
        self.cache.refusal(plan, self.cache.lookup())
    }

    /// Caches a refusal with this `retry_after`.
    fn refused(&self, terms: Request, retry: Option<Micros>) -> Inserted {
        let plan = self.plan(&self.key, terms);
        self.cache.insert(&plan, self.cache.lookup(), &refusal(retry))
    }

    fn knows(&self, terms: Request) -> bool {
        self.refusal(&self.plan(&self.key, terms)).is_some()
    }
}

fn refusal(retry: Option<Micros>) -> Decisions {
    [Decision::pass(9, 4, 70_000), Decision::refuse(9, 0, retry, 60_000)].into_iter().collect()
}

#[test]
fn a_refusal_is_cached_until_max_age_with_decreasing_times() {
    let scene = Scene::new();
    assert_eq!(scene.refused(USUAL, Some(SECOND)), Inserted::Cached);
    let plan = scene.plan(&scene.key, USUAL);
    assert_eq!(scene.refusal(&plan), Some(refusal(Some(SECOND))));
    let later = scene.at(AGE - 1).refusal(&plan).unwrap();
    assert_eq!((later[1].retry_after, later[1].reset_after), (Some(SECOND - AGE + 1), 60_000 - AGE + 1));
    assert_eq!((later[0].reset_after, later[0].remaining), (70_000 - AGE + 1, 4));
    assert!(!scene.at(AGE).knows(USUAL));
}

#[test]
fn a_cached_refusal_ends_when_the_request_would_pass() {
    let scene = Scene::new();
    assert_eq!(scene.refused(USUAL, Some(1_000)), Inserted::Cached);
    assert!(scene.at(999).knows(USUAL));
    assert!(!scene.at(1_000).knows(USUAL));
    // The store may have decided at any time since the look-up.
    let plan = scene.plan(&scene.key, USUAL);
    let lookup = scene.cache.lookup();
    scene.at(1_900);
    assert_eq!(scene.cache.insert(&plan, lookup, &refusal(Some(1_000))), Inserted::Cached);
    assert!(!scene.at(2_000).knows(USUAL));
    let lookup = scene.cache.lookup();
    scene.at(3_000);
    assert_eq!(scene.cache.insert(&plan, lookup, &refusal(Some(1_000))), Inserted::Skipped, "over before it came");
    assert_eq!(scene.refused(USUAL, None), Inserted::Cached, "never is known for as long as anything");
    assert!(scene.at(3_000 + AGE - 1).knows(USUAL) && !scene.at(3_000 + AGE).knows(USUAL));
}

#[test]
fn only_requests_with_the_same_decision_are_answered() {
    let scene = Scene::new();
    scene.refused(USUAL, Some(SECOND));
    for (other, known) in [
        (Request { cost: 3, ..USUAL }, false),
        (Request { cost: 1, ..USUAL }, false),
        (Request { cost: 0, ..USUAL }, false),
        (Request { cost: -2, ..USUAL }, false),
        (Request { max_wait: Some(1), ..USUAL }, false),
        (Request { version: Some(8), ..USUAL }, false),
        (Request { version: None, ..USUAL }, false),
        (Request { charge: Charge::Independent, ..USUAL }, false),
        (USUAL, true),
    ] {
        let Request { cost, max_wait, version, charge } = other;
        assert_eq!(scene.knows(other), known, "{cost} {max_wait:?} {version:?} {charge:?}");
    }
    let elsewhere = key(&["user", "alex", "other"]);
    assert_eq!(scene.refusal(&scene.plan(&elsewhere, USUAL)), None);
    let below = key(&["user", "alex", "trade", "deeper"]);
    assert!(scene.refusal(&scene.plan(&below, USUAL)).is_some(), "the same levels");
    let mut fewer: SmallVec<[Level<'_>; 4]> = SmallVec::new();
    fewer.push(Level::new(&scene.key, 3, 2, &scene.limits[1], 2));
    let mut fewer = Plan::new(fewer, Charge::AllOrNothing, None);
    fewer.policy_version = Some(7);
    assert_eq!(scene.refusal(&fewer), None, "other levels");
}

#[test]
fn decisions_that_can_charge_or_differ_are_not_cached() {
    let mut scene = Scene::new();
    for terms in [
        Request { cost: 0, ..USUAL },
        Request { cost: -1, ..USUAL },
        Request { version: None, ..USUAL },
        Request { charge: Charge::Independent, ..USUAL },
    ] {
        assert_eq!(scene.refused(terms, Some(SECOND)), Inserted::Skipped);
    }
    let plan = scene.plan(&scene.key, USUAL);
    let passes: Decisions = [Decision::pass(9, 4, 1), Decision::pass(9, 4, 1)].into_iter().collect();
    assert_eq!(scene.cache.insert(&plan, scene.cache.lookup(), &passes), Inserted::Skipped);
    drop(plan);
    let level = |depth| Level::new(&scene.key, depth, 2, &scene.limits[0], 2).under_factor(0.5).unwrap().unwrap();
    let mut scaled = Plan::new([2, 3].map(level).into_iter().collect(), Charge::AllOrNothing, None);
    scaled.policy_version = Some(7);
    assert_eq!(scene.cache.insert(&scaled, scene.cache.lookup(), &refusal(Some(SECOND))), Inserted::Skipped);
    drop(scaled);

    scene.limits[1] = window(&[("count", "9"), ("period", "60s")], true);
    assert_eq!(scene.refused(USUAL, Some(SECOND)), Inserted::Skipped, "only a level that watches refuses");
    scene.limits[1] = window(&[("count", "9"), ("period", "60s"), ("charge_denied", "true")], false);
    assert_eq!(scene.refused(USUAL, Some(SECOND)), Inserted::Skipped, "each refusal is charged");
    assert!(!scene.knows(USUAL));
}

#[test]
fn a_reset_clears_the_cache_and_pending_lookups() {
    let scene = Scene::new();
    scene.refused(USUAL, Some(SECOND));
    scene.cache.forget_all();
    assert!(!scene.knows(USUAL));
    let plan = scene.plan(&scene.key, USUAL);
    let lookup = scene.cache.lookup();
    scene.cache.forget_all();
    assert_eq!(scene.cache.insert(&plan, lookup, &refusal(Some(SECOND))), Inserted::Skipped);
    assert!(!scene.knows(USUAL));
    assert_eq!(scene.refused(USUAL, Some(SECOND)), Inserted::Cached);
    assert_eq!(
        scene.cache.insert(&plan, lookup, &refusal(Some(SECOND))),
        Inserted::Skipped,
        "older than what is known"
    );
    assert!(scene.knows(USUAL));
}

#[test]
fn the_cache_is_bounded_and_replaces_expired_refusals() {
    const MOST: usize = 40;
    let scene = Scene::of(&NearCacheSettings { max_age: Time(AGE), max_entries: MOST, enabled: true });
    let insert = |users: std::ops::Range<usize>| {
        let keys = users.map(|user| key(&["user", &user.to_string(), "trade"]));
        let all = keys.map(|key| {
            let plan = scene.plan(&key, USUAL);
            scene.cache.insert(&plan, scene.cache.lookup(), &refusal(Some(SECOND)))
        });
        all.filter(|inserted| *inserted == Inserted::Cached).count()
    };
    let held = || scene.cache.shards.iter().map(|shard| shard.lock().refusals.len()).sum::<usize>();
    let kept = insert(0..1_000);
    assert!(kept <= MOST && kept > MOST / 2, "{kept}");
    assert_eq!(held(), kept);
    assert_eq!(insert(1_000..2_000), 0, "those that are known stay");
    scene.at(AGE);
    assert_eq!(insert(2_000..3_000), kept);
    assert_eq!(held(), kept);
}

#[test]
fn levels_that_are_charged_for_themselves_are_known_one_by_one() {
    let mut scene = Scene::new();
    let counting = |count| window(&[("count", count), ("period", "60s"), ("charge_denied", "true")], false);
    scene.limits[1] = counting("9");
    let independent = Request { charge: Charge::Independent, version: None, ..USUAL };
    assert_eq!(scene.refused(independent, None), Inserted::Cached);
    let known = |limit: &Limit, depth, cost| {
        let level = Level::new(&scene.key, depth, 2, limit, cost);
        scene.cache.refusal_of(&level, scene.cache.lookup())
    };
    for cost in [1, 2, 1_000] {
        assert_eq!(known(&scene.limits[1], 3, cost), Some(Decision::refuse(9, 0, None, 60_000)), "whatever it costs");
    }
    for cost in [0, -1] {
        assert_eq!(known(&scene.limits[1], 3, cost), None, "{cost}");
    }
    assert_eq!(known(&scene.limits[0], 2, 1), None, "it has passed");
    assert_eq!(known(&scene.limits[1], 2, 1), None, "another key");
    assert_eq!(known(&counting("10"), 3, 1), None, "a raised limit");
    scene.at(AGE);
    assert_eq!(known(&scene.limits[1], 3, 1), None);
    let mut dry_run = scene.plan(&scene.key, independent);
    dry_run.dry_run = true;
    assert_eq!(scene.cache.insert(&dry_run, scene.cache.lookup(), &refusal(None)), Inserted::Skipped);
}
