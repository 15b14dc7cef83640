//! The test case of a seed: limits, load and faults.

use smallvec::SmallVec;
use weir_core::{
    algorithm::Params,
    domain::{
        Charge, Key, Micros, OnStoreFailure,
        time::{DAY, SECOND},
    },
    plan::{Level, Limit, Origin, Plan},
    testing::{LimitDefinition, Random, bucket, limits, parse},
};

use super::{event::Fault, topology::Topology};

/// Fault rates: the mean interval in microseconds, or one in this many packets; 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub long_delay: u32,
    pub split: u32,
    pub lose_connection: u32,
    pub stall_connection: u32,
    /// Mean number of commands per loss of the script cache.
    pub lose_scripts: u32,
    pub cut: Micros,
    pub pause: Micros,
    pub crash: Micros,
    pub drain: Micros,
    pub reset: Micros,
    pub new_policy: Micros,
    pub abandon: u32,
    pub restart: Micros,
    /// Mean number of restarts or failovers per data loss, of all data or of the latest writes.
    pub lose_data: u32,
    pub move_slots: Micros,
    pub drift: bool,
}

/// The kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Checks of a few hot keys whose units are leased.
    Leases,
    /// Checks of a few hot keys, without leases.
    Shared,
    /// Checks with a key each, so that the outcome of each one is known. This rule decides store failures.
    Single(OnStoreFailure),
    /// Checks with a key and an ID each: a caller without an answer retries on another replica.
    Repeated,
    /// Reservations with a key each, settled on another replica, and repeatedly until that is answered.
    Reserved,
    /// Slots of a few keys, held for a while; some holders die.
    Slots,
}

impl Scene {
    /// Whether each request has its own key.
    pub fn has_own_keys(self) -> bool {
        matches!(self, Self::Single(_) | Self::Repeated | Self::Reserved)
    }

    /// Whether callers use their answers in further requests.
    pub fn has_callers(self) -> bool {
        matches!(self, Self::Repeated | Self::Reserved | Self::Slots)
    }
}

#[derive(Clone, Debug)]
pub struct Case {
    pub scene: Scene,
    pub topology: Topology,
    pub replicas: usize,
    pub users: usize,
    /// The limits from the root; the last one is each user's own.
    pub levels: Vec<(Params, LimitDefinition)>,
    /// The last limit under every second policy.
    pub other: Option<(Params, LimitDefinition)>,
    pub anchor: u8,
    pub ttl: Micros,
    pub command_timeout: Micros,
    pub pool_size: usize,
    pub max_batch: usize,
    pub latency: Micros,
    pub rates: [i64; 4],
    pub length: Micros,
    pub faults: Faults,
    /// Number of clients that hold leases.
    pub clients: usize,
    /// For one in this many lease requests the stream ends before the answer, so that it is repeated elsewhere.
    pub end_stream: u32,
    /// Whether the case continues after the last fault, until all replicas have stopped.
    pub recovers: bool,
}

impl Case {
    /// Draws a case with leases, without faults except clock drift.
    pub fn calm(random: &mut Random) -> Self {
        loop {
            let case = Self::draw(random);
            let faults = Faults { drift: case.faults.drift, ..Faults::default() };
            let case = Self { faults, other: None, ..case };
            if case.scene == Scene::Leases && case.topology == Topology::Alone && case.is_calm() {
                return case;
            }
        }
    }

    /// Draws a case with clients that hold leases.
    pub fn with_clients(random: &mut Random) -> Self {
        loop {
            let case = Self::draw(random);
            if case.clients > 0 {
                return case;
            }
        }
    }

    /// Makes a case with one replica, which gets no checks until the end, and only the faults of a test.
    pub fn directed(topology: Topology, length: Micros) -> Self {
        Self {
            scene: Scene::Shared,
            topology,
            replicas: 1,
            users: 32,
            levels: vec![plenty()],
            other: None,
            anchor: 2,
            ttl: 250_000,
            command_timeout: 50_000,
            pool_size: 2,
            max_batch: 4,
            latency: 300,
            rates: [0; 4],
            length,
            faults: Faults::default(),
            clients: 0,
            end_stream: 0,
            recovers: true,
        }
    }

    pub fn draw(random: &mut Random) -> Self {
        let scene = match random.below(11) {
            0 => Scene::Shared,
            1 | 2 => Scene::Single(random.pick(&[OnStoreFailure::Local, OnStoreFailure::Allow, OnStoreFailure::Deny])),
            3 => Scene::Repeated,
            4 => Scene::Reserved,
            5 => Scene::Slots,
            _ => Scene::Leases,
        };
        let (single, callers) = (scene.has_own_keys(), scene.has_callers());
        let mut levels = match scene {
            Scene::Slots => vec![slots(12), slots(8)],
            _ if single => vec![plenty()],
            _ => draw_levels(random),
        };
        let mut faults = Faults::draw(random, single || callers);
        let other = (!single && !callers && random.once_in(8)).then(|| bucket(700, 100));
        if other.is_some() {
            // Commands under the old policy must arrive soon, so that the time at which the new one is effective is
            // known.
            levels = vec![bucket(700, 400)];
            let Faults { drift, lose_connection, lose_scripts, crash, drain, reset, .. } = faults;
            let kept = Faults { drift, lose_connection, lose_scripts, crash, drain, reset, ..Faults::default() };
            faults = Faults { new_policy: 500_000, ..kept };
        }
        let topology = if other.is_some() { Topology::Alone } else { Topology::draw(random, scene) };
        faults.suit(topology, !callers, random);
        // On a Cluster, levels of several anchors are decided at different times, which the definitions cannot model.
        let has_one_anchor = levels.len() > 1 && (topology.shards().is_some() || random.once_in(2));
        Self {
            topology,
            replicas: 1 + random.below(4),
            users: random.pick(&[1, 1, 2, 3]),
            anchor: if has_one_anchor { 1 } else { 2 },
            ttl: random.pick(if other.is_some() { &[50_000, 100_000] } else { &[50_000, 100_000, 250_000, 250_000] }),
            levels,
            other,
            command_timeout: random.pick(&[20_000, 50_000, 100_000]),
            pool_size: 1 + random.below(3),
            max_batch: random.pick(&[1, 4, 64]),
            latency: random.pick(&[50, 300, 1_000]),
            rates: if single { [0, 50, 200, 800] } else { [0, 50, 400, 1_500] },
            length: random.within(SECOND, 2 * SECOND),
            faults,
            recovers: single || callers || random.once_in(4),
            clients: if scene == Scene::Leases && topology == Topology::Alone && random.once_in(2) {
                1 + random.below(3)
            } else {
                0
            },
            end_stream: random.pick(&[4, 20]),
            scene,
        }
    }

    /// Whether there are no faults except clock drift, so that the admitted units can be compared with the units that
    /// one limiter admits.
    pub fn is_calm(&self) -> bool {
        let is_exact = self.clients == 0 && self.levels.iter().all(|(params, _)| params.name() != "sliding_window");
        is_exact
            && matches!(self.scene, Scene::Leases | Scene::Shared)
            && self.faults == Faults { drift: self.faults.drift, ..Faults::default() }
    }

    fn levels_of(&self, version: u64) -> impl Iterator<Item = &(Params, LimitDefinition)> {
        let (last, above) = self.levels.split_last().expect("a level");
        above.iter().chain([self.other.as_ref().filter(|_| version.is_multiple_of(2)).unwrap_or(last)])
    }

    /// Returns each user's own limit under a policy, and the time for which earlier policies may still apply.
    pub fn changed(&self, version: u64) -> Option<(LimitDefinition, Micros)> {
        self.other.as_ref()?;
        let definition = self.levels_of(version).last()?.1;
        Some((definition, self.ttl + 3 * self.command_timeout))
    }

    pub fn policy(&self, version: u64) -> Policy {
        let limit = |(index, (params, _)): (usize, &(Params, LimitDefinition))| {
            let name = ["a", "b"][index];
            let limit = Limit::new(Origin::Policy, Some(name), "*", 0, false, params.clone());
            limit.with_lease((self.scene == Scene::Leases).then_some(self.ttl))
        };
        Policy {
            version,
            limits: self.levels_of(version).enumerate().map(limit).collect(),
            anchor: self.anchor,
            on_store_failure: match self.scene {
                Scene::Single(rule) => rule,
                Scene::Leases | Scene::Shared => OnStoreFailure::Deny,
                Scene::Repeated | Scene::Reserved | Scene::Slots => OnStoreFailure::Error,
            },
        }
    }
}

impl Faults {
    /// Returns the mean interval of each fault that is scheduled by time.
    pub fn intervals(self) -> [(Fault, Micros); 8] {
        [
            (Fault::Cut, self.cut),
            (Fault::Pause, self.pause),
            (Fault::Crash, self.crash),
            (Fault::Drain, self.drain),
            (Fault::Reset, self.reset),
            (Fault::NewPolicy, self.new_policy),
            (Fault::StoreStops, self.restart),
            (Fault::MoveSlots, self.move_slots),
        ]
    }

    /// Draws a few kinds of faults, so that each occurs often.
    fn draw(random: &mut Random, is_known: bool) -> Self {
        let mut faults = Self { drift: random.once_in(2), ..Self::default() };
        if random.once_in(12) {
            return faults;
        }
        for _ in 0..1 + random.below(4) {
            match random.below(14) {
                0 => faults.long_delay = random.pick(&[5, 20, 100]),
                1 => faults.split = random.pick(&[2, 10]),
                2 => faults.lose_connection = random.pick(&[20, 100, 400]),
                3 => faults.stall_connection = random.pick(&[100, 400]),
                4 | 5 => faults.cut = random.pick(&[80_000, 200_000]),
                6 => faults.pause = random.pick(&[100_000, 300_000]),
                7 => faults.crash = random.pick(&[200_000, 400_000]),
                8 => faults.drain = 200_000,
                9 => faults.reset = random.pick(&[50_000, 200_000]),
                10 => faults.new_policy = 200_000,
                11 => faults.abandon = 20,
                12 => faults.lose_scripts = random.pick(&[10, 100]),
                _ => {
                    faults.restart = random.pick(&[200_000, 600_000]);
                    faults.lose_data = random.pick(&[0, 2]);
                }
            }
        }
        if is_known {
            // The oracle cannot check lost data, and a reset of a key that is checked once has no visible effect.
            (faults.lose_data, faults.reset) = (0, 0);
        }
        faults
    }
}

/// The current limits.
pub struct Policy {
    pub version: u64,
    limits: Vec<Limit>,
    pub anchor: u8,
    on_store_failure: OnStoreFailure,
}

impl Policy {
    /// Makes the plan of a check on a key of two segments.
    pub fn plan<'a>(&'a self, key: &'a Key, cost: i64) -> Plan<'a> {
        let first = key.depth() - self.limits.len();
        let level = |(index, limit)| Level::new(key, (first + index + 1) as u8, self.anchor, limit, cost);
        let levels: SmallVec<_> = self.limits.iter().enumerate().map(level).collect();
        let mut plan = Plan::new(levels, Charge::AllOrNothing, None);
        plan.policy_version = Some(self.version);
        plan.on_store_failure = self.on_store_failure;
        plan
    }
}

/// Makes a limit that is never reached, and whose window does not end during a case.
fn plenty() -> (Params, LimitDefinition) {
    (
        parse("fixed_window", &[("count", "1000"), ("period", "31d")]),
        LimitDefinition::Window { count: 1_000, period: 31 * DAY },
    )
}

/// Makes a limit of `max` slots, with a TTL longer than a case.
fn slots(max: u64) -> (Params, LimitDefinition) {
    (parse("concurrency", &[("max", &max.to_string()), ("ttl", "1m")]), LimitDefinition::Slots { max })
}

/// Draws limits of a few hundred units a second, or of a few units, so that they are reached soon.
fn draw_levels(random: &mut Random) -> Vec<(Params, LimitDefinition)> {
    let few = [("count", "12"), ("period", "400ms")];
    let log =
        |fields: &[_; 2], count, period| (parse("sliding_log", fields), LimitDefinition::AnySpan { count, period });
    let own = [
        vec![bucket(2_000, 1_500)],
        vec![bucket(1_500, 400), log(&[("count", "150"), ("period", "200ms")], 150, 200_000)],
        vec![bucket(50, 20)],
        vec![(parse("fixed_window", &few), LimitDefinition::Window { count: 12, period: 400_000 })],
        vec![bucket(100, 30), log(&few, 12, 400_000)],
    ];
    // In this order, each seed keeps its limits.
    let drawn = random.pick(&[1, 10, 2, 3, 5, 6, 7, 8, 11, 12, 13, 14, 0, 0]);
    limits().into_iter().chain(own).nth(drawn).expect("listed")
}
