//! Replicas on one Redis that are stopped under load: no call fails, and each check is charged once.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::task::JoinSet;
use weir_client::{BreakerState, Check, Client, Error};

use crate::support::{Redis, Setup, Weir, dir, eventually, patient};

const CALLERS: usize = 16;
const UNITS: u64 = 1_000_000;
const KEY: [&str; 2] = ["user", "alex"];

struct Replicas {
    setups: Vec<Setup>,
    running: Vec<Option<Weir>>,
    _redis: Redis,
    _dir: TempDir,
}

impl Replicas {
    fn start(count: usize) -> Self {
        let (redis, dir) = (Redis::start(), dir());
        let limit = format!("fixed_window: {{ count: {UNITS}, period: 30d }}");
        let policy = format!("schema: {{ user: {{ children: {{ '*': {{ limits: [{{ {limit} }}] }} }} }} }}");
        let setup = |number| {
            let setup = Setup::new(&dir, &policy).socket(&format!("{number}.sock")).shared(&redis);
            // Operators use such a delay for clients that do not retry calls.
            setup.env("WEIR_SHUTDOWN__DELAY", "100ms")
        };
        let setups: Vec<_> = (0..count).map(setup).collect();
        let running = setups.iter().map(|setup| Some(setup.start())).collect();
        Self { setups, running, _redis: redis, _dir: dir }
    }

    fn target(&self) -> String {
        self.running.iter().flatten().map(|weir| weir.address.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// Callers that check until they are stopped, and the number of answers.
struct Load {
    answered: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    callers: JoinSet<()>,
}

impl Load {
    fn start(weir: &Client) -> Self {
        let (answered, stop, mut callers) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default(), JoinSet::new());
        for _ in 0..CALLERS {
            let (weir, answered, stop) = (weir.clone(), Arc::clone(&answered), Arc::clone(&stop));
            callers.spawn(async move {
                while !stop.load(Relaxed) {
                    let decision = weir.check(KEY).await.expect("no call fails");
                    assert!(decision.allowed && !decision.degraded, "{decision:?}");
                    answered.fetch_add(1, Relaxed);
                }
            });
        }
        Self { answered, stop, callers }
    }

    /// Waits for 500 more answers.
    async fn proceeds(&self) {
        let before = self.answered.load(Relaxed);
        eventually("more answers", async || (self.answered.load(Relaxed) > before + 500).then_some(())).await;
    }

    /// Stops the callers and compares the charged units with the number of answers.
    async fn was_charged_once(self, weir: &Client) {
        self.stop.store(true, Relaxed);
        self.callers.join_all().await;
        let left = weir.check(Check::new(KEY).cost(0)).await.unwrap().remaining;
        assert_eq!(UNITS - left, self.answered.load(Relaxed));
    }
}

async fn a_killed_replica_fails_no_call(coalesce: bool) {
    let mut replicas = Replicas::start(2);
    let weir = patient(&replicas.target()).coalesce(coalesce).build().unwrap();
    let load = Load::start(&weir);
    load.proceeds().await;
    drop(replicas.running[0].take());
    load.proceeds().await;
    load.was_charged_once(&weir).await;
}

async fn a_rolling_restart_fails_no_call(coalesce: bool) {
    let mut replicas = Replicas::start(2);
    let weir = patient(&replicas.target()).coalesce(coalesce).build().unwrap();
    let load = Load::start(&weir);
    for number in 0..2 {
        load.proceeds().await;
        let ending = replicas.running[number].take().unwrap();
        tokio::task::spawn_blocking(|| ending.end()).await.unwrap();
        load.proceeds().await;
        let started = replicas.running[number].insert(replicas.setups[number].start());
        // The other replica is killed only once this one gets checks.
        eventually("it is asked", async || started.is_asked().then_some(())).await;
    }
    load.proceeds().await;
    load.was_charged_once(&weir).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_replica_leaves_the_circuit_breaker_closed() {
    let replicas = Replicas::start(2);
    let weir = patient(&replicas.target()).build().unwrap();
    let running: Vec<_> = replicas.running.iter().flatten().collect();
    eventually("both are asked", async || {
        weir.check(KEY).await.unwrap();
        running.iter().all(|replica| replica.is_asked()).then_some(())
    })
    .await;
    running[0].freeze();
    let check = Check::new(KEY).deadline(Duration::from_secs(1));
    for _ in 0..3 {
        let checks: JoinSet<_> =
            (0..20).map(|_| (weir.clone(), check.clone())).map(async |(weir, check)| weir.check(check).await).collect();
        let codes: HashSet<_> = checks
            .join_all()
            .await
            .into_iter()
            .map(|result| result.map(drop).map_err(|error| matches!(error, Error::DeadlineExceeded(_))))
            .collect();
        assert_eq!(codes, HashSet::from([Ok(()), Err(true)]));
    }
    assert_eq!(weir.breaker_state(), BreakerState::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_fails_no_call_of_its_own() {
    a_killed_replica_fails_no_call(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_fails_no_call_over_a_stream() {
    a_killed_replica_fails_no_call(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_no_call_of_its_own() {
    a_rolling_restart_fails_no_call(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_fails_no_call_over_a_stream() {
    a_rolling_restart_fails_no_call(true).await;
}
