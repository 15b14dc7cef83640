//! Deterministic simulation of several replicas on one shared store: the real stores with their pipelines, leases,
//! circuit breakers and charges after outages, in virtual time on one thread, with a Redis that runs the real script. A
//! seed determines limits, load and faults, and replays to the byte.
//!
//! Runs the seeds from 0. `WEIR_SIMULATE_SECONDS=60` runs new seeds for that long, `WEIR_SEED=7` only that seed.

#![allow(clippy::expect_used)]

mod case;
mod event;
mod network;
mod oracle;
mod record;
mod redis;
mod replica;
mod topology;
mod world;

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use weir_core::testing::{Random, fresh_seed, from_environment};

use self::{case::Case, record::Figures, world::World};

/// Minimum number of seeds, however slow the machine is.
const LEAST_SEEDS: u64 = 40;
/// Kinds of faults that the first [`LEAST_SEEDS`] seeds have, on any machine.
const CERTAIN: [&str; 17] = [
    "connection lost after the command",
    "connection lost before the command",
    "drain",
    "failover of a master that is gone",
    "failover of a master that lives",
    "long delay",
    "machine lost",
    "new policy",
    "partition",
    "pause",
    "pause longer than a ttl",
    "planned failover of a Cluster",
    "process killed",
    "scripts lost",
    "slots move",
    "stalled after the command",
    "stalled before the command",
];
/// Number of seeds with clients that hold leases.
const WITH_CLIENTS: u64 = 10;
/// Kinds of faults that these have.
const CERTAIN_WITH_CLIENTS: [&str; 8] = [
    "abandoned call",
    "drain",
    "new policy",
    "partition",
    "pause longer than a ttl",
    "request for a lease sent again",
    "reset",
    "scripts lost",
];
/// Duration in seconds of the run from seed 0.
const SECONDS: u64 = 60;
/// Minimum percentage that several replicas admit of the units that one limiter would admit.
const LEAST_PERCENT: u64 = 95;

fn run(seed: u64) -> Result<(Case, Figures), String> {
    let random = Random::new(seed);
    run_case(seed, Case::draw(&mut random.clone()), &random)
}

fn run_case(seed: u64, case: Case, random: &Random) -> Result<(Case, Figures), String> {
    let record = World::new(case.clone(), random).run();
    let record = record.map_err(|why| format!("replay with WEIR_SEED={seed}: {why}\n{case:#?}"))?;
    Ok((case, record.figures))
}

/// The figures of many runs.
#[derive(Default)]
struct Total {
    schedules: u64,
    figures: Figures,
    /// In runs without faults: the smallest ratio to one limiter, in thousandths, and its seed.
    worst: Option<(u64, u64)>,
    calm: [u64; 2],
}

impl Total {
    fn add(&mut self, seed: u64, case: &Case, run: &Figures) {
        self.schedules += 1;
        self.figures.add(run);
        if case.is_calm() && run.exact > 0 {
            let share = (run.admitted * 1_000 / run.exact, seed);
            self.worst = Some(self.worst.map_or(share, |worst| worst.min(share)));
            self.calm = [self.calm[0] + run.admitted, self.calm[1] + run.exact];
        }
    }

    /// Requires that faults of these kinds have occurred.
    fn require(&self, kinds: &[&str]) {
        let missing: Vec<_> = kinds.iter().filter(|kind| !self.figures.faults.contains_key(**kind)).collect();
        assert!(missing.is_empty(), "never occurred: {missing:?}");
    }
}

impl fmt::Display for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures {
            events,
            checks,
            admitted,
            leased,
            granted,
            held,
            settled,
            degraded,
            failed,
            calls,
            clean_stops,
            faults,
            ..
        } = &self.figures;
        writeln!(f, "{} schedules, {events} events, {checks} checks, {calls} calls of the script", self.schedules)?;
        writeln!(f, "{admitted} admitted, {leased} of them from leases; {degraded} degraded, {failed} failed")?;
        writeln!(f, "{granted} units granted to clients")?;
        writeln!(f, "{held} reservations held, {settled} settled; {clean_stops} clean stops")?;
        if let Some((worst, seed)) = self.worst {
            let share = self.calm[0] as f64 * 100.0 / self.calm[1] as f64;
            let worst = worst as f64 / 10.0;
            writeln!(f, "without faults {share:.1} % of one exact limiter, at worst {worst:.1} % (seed {seed})")?;
        }
        faults.iter().try_for_each(|(name, count)| writeln!(f, "{count:>8} {name}"))
    }
}

/// The seeds to run until the time is over: those from 0, or as set by the environment.
struct Seeds {
    only: Option<u64>,
    first: u64,
    until: Instant,
    next: AtomicU64,
    is_over: AtomicBool,
}

impl Seeds {
    fn new() -> Self {
        let seconds = from_environment("WEIR_SIMULATE_SECONDS");
        Self {
            only: from_environment("WEIR_SEED"),
            first: seconds.map_or(0, |_| fresh_seed()),
            until: Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS)),
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    fn next(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Relaxed);
        if self.is_over.load(Relaxed) {
            return None;
        }
        match self.only {
            Some(seed) => (number == 0).then_some(seed),
            None => (number < LEAST_SEEDS || Instant::now() < self.until).then(|| self.first.wrapping_add(number)),
        }
    }

    /// Whether these are the seeds from 0, at least [`LEAST_SEEDS`].
    fn are_from_zero(&self) -> bool {
        self.only.is_none() && self.first == 0
    }

    fn stop(&self) {
        self.is_over.store(true, Relaxed);
    }
}

#[test]
fn a_seed_replays_to_the_byte() {
    for seed in 0..4 {
        let [first, again] = [(); 2].map(|()| run(seed).expect("no violation").1.trace);
        assert_eq!(first, again, "seed {seed}");
    }
}

/// The total is compared with one exact limiter. Leases of few units, of limits that are reached again and again, cost
/// most.
#[test]
fn without_faults_a_fleet_gets_what_one_limiter_gives() {
    let mut total = Total::default();
    for seed in 0..16 {
        let random = Random::new(seed);
        let (case, figures) = run_case(seed, Case::calm(&mut random.clone()), &random).expect("no violation");
        total.add(seed, &case, &figures);
    }
    println!("{total}");
    let [admitted, exact] = total.calm;
    assert!(admitted * 100 >= exact * LEAST_PERCENT, "{admitted} of {exact}");
}

#[test]
fn clients_with_leases_break_no_promise() {
    let mut total = Total::default();
    for seed in 0..WITH_CLIENTS {
        let random = Random::new(seed);
        let (case, figures) =
            run_case(seed, Case::with_clients(&mut random.clone()), &random).unwrap_or_else(|why| panic!("{why}"));
        total.add(seed, &case, &figures);
    }
    println!("{total}");
    total.require(&CERTAIN_WITH_CLIENTS);
    assert!(total.figures.granted > 0, "clients are granted nothing");
}

#[test]
fn no_schedule_breaks_a_promise() {
    let (seeds, total, found) = (Seeds::new(), Mutex::new(Total::default()), Mutex::new(None));
    let since = Instant::now();
    let work = || {
        while let Some(seed) = seeds.next() {
            match run(seed) {
                Ok((case, figures)) => total.lock().add(seed, &case, &figures),
                Err(why) => {
                    seeds.stop();
                    found.lock().get_or_insert((since.elapsed(), why));
                }
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, Into::into);
        (0..cores).for_each(|_| drop(scope.spawn(work)));
    });
    let total = total.into_inner();
    println!("{total}");
    if let Some((after, why)) = found.into_inner() {
        panic!("after {after:?}: {why}");
    }
    if seeds.are_from_zero() {
        total.require(&CERTAIN);
    }
}
