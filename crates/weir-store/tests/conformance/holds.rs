//! The script's authority of holds on a real server against the one in Rust: equal grants for every renewal, and equal
//! decisions for every check, on nested limits of each algorithm that supports holds.

use std::sync::Arc;

use super::{
    redis, seeds,
    store_under_test::{Reference, StoreUnderTest as _},
};
use smallvec::smallvec;
use weir_core::{
    algorithm::{Bounds, Entry, Params, find, rates},
    domain::{Charge, Key, ManualClock, Micros},
    hold::{HoldId, OnExpiry, RequestId, Reservation, ReservationStep, decide_with_holds, renew},
    plan::{Level, Limit, Origin, Plan},
    testing::{DishonestOwner, Random, fresh_seed, from_environment},
};
use weir_store::{
    MemoryStore, Store, Verdict,
    memory::{
        MemorySettings, WhenFull,
        snapshot::{Snapshot, save},
    },
    redis::RedisStore,
};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

/// 2023-11-14, in microseconds.
pub const START: Micros = 1_700_000_000_000_000;
const STEPS: usize = 40;
const TRACES: u64 = 8;
const FACTORS: [f64; 6] = [1.0, 1.0, 1.0, 0.1, 0.5, 3.0];

/// The limits on two keys that share the first level.
pub struct Limits {
    keys: [Key; 2],
    limits: [Limit; 2],
}

impl Limits {
    pub fn new([parent, child]: &[Params; 2]) -> Self {
        let keys = ["b", "c"].map(|last| Key::new("holds", &["a", last]).expect("a key"));
        let limit = |name, params: &Params| Limit::new(Origin::Policy, Some(name), "*", 0, false, params.clone());
        Self { keys, limits: [limit("parent", parent), limit("child", child)] }
    }

    pub fn plan(&self, key: usize, cost: i64) -> Plan<'_> {
        self.plan_under(1.0, key, cost).expect("levels without a factor")
    }

    /// Makes the plan of a request with a factor; `None` if it puts a limit out of bounds.
    pub fn plan_under(&self, factor: f64, key: usize, cost: i64) -> Option<Plan<'_>> {
        let level = |depth: u8| {
            let level = Level::new(&self.keys[key], depth, 1, &self.limits[usize::from(depth) - 1], cost);
            level.under_factor(factor).ok().flatten()
        };
        Some(Plan::new(smallvec![level(1)?, level(2)?], Charge::AllOrNothing, None))
    }
}

/// Draws a step of a reservation: new ones, and repeated, valid or invalid steps of earlier ones.
pub fn reservation_step(random: &mut Random) -> ReservationStep {
    let ttl = random.pick(&[10_000, 250_000, 250_000, 10_000_000, 40_000_000_000]);
    match random.below(6) {
        0..3 => ReservationStep::Reserve { ttl, on_expiry: random.pick(&[OnExpiry::Keep, OnExpiry::Release]) },
        3 => ReservationStep::Commit { actual: random.magnitude(1_000).unsigned_abs() },
        4 => ReservationStep::Cancel,
        _ => ReservationStep::Extend { ttl },
    }
}

/// The authority under test.
pub enum Authority {
    Redis(RedisStore),
    Memory(MemoryStore<Arc<ManualClock>>),
}

impl Authority {
    pub async fn forget(&mut self, clock: &Arc<ManualClock>) {
        match self {
            Self::Redis(store) => drop(store.clear().await.expect("cleared")),
            Self::Memory(store) => *store = in_memory(clock),
        }
    }

    /// Performs maintenance, which may happen at any time and must not change decisions.
    pub fn upkeep(&mut self, clock: &Arc<ManualClock>, random: &mut Random) {
        let Self::Memory(store) = self else { return };
        if random.once_in(4) {
            store.sweep(store.shard_count());
        }
        if random.once_in(8) {
            // On a memory file system if possible: thousands of snapshots on disk would be slow.
            let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
            let path = folder.path().join("snapshot");
            save(store, &path).expect("saved");
            *store = in_memory(clock);
            Snapshot::open(&path).expect("whole").expect("there").load_into(store, |_| 1).expect("loaded");
        }
    }

    pub async fn verdict(&self, plan: &Plan<'_>) -> Verdict {
        match self {
            Self::Redis(store) => store.verdict(plan).await.expect("a verdict"),
            Self::Memory(store) => store.verdict(plan),
        }
    }

    async fn reset(&self, key: &Key, subtree: bool) {
        match self {
            Self::Redis(store) => drop(store.reset(key, 1, subtree).await.expect("reset")),
            Self::Memory(store) => drop(store.reset_now(key, 1, subtree)),
        }
    }
}

pub fn in_memory(clock: &Arc<ManualClock>) -> MemoryStore<Arc<ManualClock>> {
    MemoryStore::new(MemorySettings { max_keys: 1_000, ..MemorySettings::default() }, Arc::clone(clock))
}

async fn trace(store: &mut Authority, clock: &Arc<ManualClock>, limits: &Limits, seed: u64, random: &mut Random) {
    let (mut reference, mut now) = (Reference::default(), START);
    let mut owners = [[DishonestOwner::default(); 2]; 2];
    let is_kept_up = matches!(store, Authority::Memory(_)) && random.once_in(2);
    let kinds = if limits.plan(0, 1).is_holdable() { 3 } else { 2 };
    // A factor changes the drip rate of a leaky bucket: one that is empty for the limit itself may hold units under the
    // factor. Next to holds Redis keeps its state, which is forgotten here.
    let drips = limits.limits.iter().any(|limit| matches!(limit.params, Params::LeakyBucket(_)));
    let factors: &[f64] = if drips { &[1.0] } else { &FACTORS };
    store.forget(clock).await;
    for step in 0..STEPS {
        let place =
            || format!("WEIR_SEED={seed}, {:?}, step {step}", limits.limits.each_ref().map(|limit| &limit.params));
        now += random.pick(&[0, 1, 1_000, 100_000, 400_000, 30_000_000]);
        clock.set(now);
        if is_kept_up {
            store.upkeep(clock, random);
        }
        let key = random.below(2);
        if random.once_in(12) {
            let (subtree, depth) = (random.once_in(2), 1 + random.below(2));
            let segments = [&["a"][..], &["a", "b"][..]][depth - 1];
            let reset = Key::new("holds", segments).expect("a key");
            reference.reset(&reset, 1, subtree, now).await;
            store.reset(&reset, subtree).await;
            continue;
        }
        let reservation = Reservation {
            name: random.pick(&[&b"one"[..], b"two", b"three", b"four", b"five", b"six"]),
            step: reservation_step(random),
        };
        let request = RequestId {
            name: random.pick(&[&b"id"[..], b"di", b"one"]).into(),
            fingerprint: [random.pick(&[1, 1, 1, 255]); 8],
            window: random.pick(&[1_000, 60_000_000]),
        };
        let kind = random.below(kinds);
        let owner = random.below(2);
        // Owners 0 and 1 are reserved for reservations.
        let number = (2 + 2 * key + owner) as u64;
        let id = HoldId { owner: number, number: u64::MAX - number };
        let renewal = (kind == 2).then(|| owners[key][owner].renewal(id, 100, random));
        // A reservation's cost is at least 0; others may be refunds.
        let costs: &[i64] = if kind == 0 { &[0, 0, 1, 1, 5] } else { &[0, 0, 1, 1, 5, -1, -3] };
        let (cost, factor) = (random.pick(costs), random.pick(if kind == 1 { factors } else { &[1.0] }));
        let Some(mut plan) = limits.plan_under(factor, key, cost) else { continue };
        plan.reservation = (kind == 0).then_some(reservation);
        if kind == 1 {
            plan.charge = random.pick(&[Charge::AllOrNothing, Charge::Independent, Charge::OverLimitOnly]);
        }
        // Settlements have no request ID.
        let is_new = plan.reservation.is_none_or(|reservation| reservation.step.is_new());
        plan.request = (kind < 2 && is_new && random.once_in(3)).then_some(&request);
        plan.renewal = renewal.as_ref();
        let mut view = reference.view(&plan, now);
        let verdict = store.verdict(&plan).await;
        let ours = if let Some(renewal) = &renewal {
            let (ours, grant) = renew(&plan, &mut view, now, renewal);
            assert_eq!(verdict.grant.as_deref(), Some(&grant), "the grant for {renewal:?}: {}", place());
            owners[key][owner].answered(renewal, &grant);
            ours
        } else {
            let (ours, outcome, idempotency) = decide_with_holds(&plan, &mut view, now);
            assert_eq!(outcome, verdict.reservation.map(|outcome| *outcome), "{reservation:?}: {}", place());
            assert_eq!(idempotency, verdict.idempotency, "{request:?}: {}", place());
            ours
        };
        assert_eq!(ours, verdict.decisions, "{}", place());
    }
}

/// Returns limits of parent and child: of each algorithm that supports holds, and of slots next to units.
pub fn examples() -> impl Iterator<Item = [Params; 2]> {
    let parsed = |entry: &'static Entry| {
        entry.examples.iter().filter_map(|example| (entry.parse)(example, &Bounds::default()).ok())
    };
    let held = rates().flat_map(parsed).filter(|params| params.holdable().is_ok());
    let beside = rates().filter_map(move |entry| parsed(entry).find(|params| params.holdable().is_ok()));
    let slots = || find("concurrency").into_iter().flat_map(parsed).cycle();
    held.map(|params| [params.clone(), params])
        .chain(slots().zip(beside.clone()).map(|(slots, units)| [slots, units]))
        .chain(beside.zip(slots()).map(|(units, slots)| [units, slots]))
        .chain(slots().zip(slots().skip(1)).take(3).map(|(parent, child)| [parent, child]))
}

pub fn on_redis(url: &str, clock: &Arc<ManualClock>) -> Authority {
    Authority::Redis(redis::start(url, clock))
}

async fn stories_on(url: &str) {
    let clock = Arc::new(ManualClock::default());
    traces(TRACES, &mut on_redis(url, &clock), &clock).await;
}

async fn traces(usual: u64, store: &mut Authority, clock: &Arc<ManualClock>) {
    for seed in seeds(usual) {
        for (stream, params) in examples().enumerate() {
            let mut random = Random::new(seed).fork(stream as u64);
            trace(store, clock, &Limits::new(&params), seed, &mut random).await;
        }
    }
}

#[tokio::test]
async fn redis_grants_what_the_reference_grants() {
    let server = Server::start(Options::socket());
    stories_on(&server.url()).await;
}

#[tokio::test]
async fn a_cluster_grants_what_the_reference_grants() {
    let cluster = Cluster::start(&ClusterOptions::default());
    stories_on(&cluster.url()).await;
}

#[tokio::test]
async fn memory_holds_what_the_reference_holds() {
    let clock = Arc::new(ManualClock::default());
    traces(2 * TRACES, &mut Authority::Memory(in_memory(&clock)), &clock).await;
}

/// However full the store is: its count equals its contents, so it is 0 after all has expired.
#[test]
fn a_full_memory_counts_what_it_holds() {
    const MAX_KEYS: usize = 8;
    let seed = from_environment("WEIR_SEED").unwrap_or_else(fresh_seed);
    let policies = [WhenFull::Deny, WhenFull::Allow, WhenFull::Evict];
    for (stream, (params, when_full)) in
        examples().flat_map(|params| policies.map(|when_full| (params.clone(), when_full))).enumerate()
    {
        let mut random = Random::new(seed).fork(stream as u64);
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(MemorySettings { max_keys: MAX_KEYS, when_full }, Arc::clone(&clock));
        let (limits, mut now) = (Limits::new(&params), START);
        for _ in 0..200 {
            now += random.pick(&[0, 1, 1_000, 400_000, 3_000_000]);
            clock.set(now);
            let name = [random.below(40) as u8];
            let reservation = Reservation { name: &name, step: reservation_step(&mut random) };
            let id = [random.below(40) as u8];
            let request = RequestId { name: id[..].into(), fingerprint: [0; 8], window: 1_000_000 };
            let mut plan = limits.plan(random.below(2), random.pick(&[0, 1, 1, 5]));
            plan.reservation = random.once_in(2).then_some(reservation);
            let is_new = plan.reservation.is_none_or(|reservation| reservation.step.is_new());
            plan.request = (is_new && random.once_in(2)).then_some(&request);
            store.verdict(&plan);
            if random.once_in(12) {
                store.reset_now(&Key::new("holds", &["a"]).expect("a key"), 1, random.once_in(2));
            }
            // Settlements are stored even if the store is full.
            assert!(
                store.stats().keys <= MAX_KEYS + 3,
                "WEIR_SEED={seed}, {when_full:?}, {params:?}: {:?}",
                store.stats()
            );
        }
        clock.set(now + (1 << 50));
        (0..3).for_each(|_| store.sweep(store.shard_count()));
        assert_eq!(store.stats().keys, 0, "WEIR_SEED={seed}, {when_full:?}, {params:?}");
    }
}
