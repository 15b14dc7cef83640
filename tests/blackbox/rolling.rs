//! Rolling restarts under load: every call is answered, and every unit is counted once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::task::JoinSet;
use tonic::{Code, transport::Endpoint};
use weir::proto::{CheckRequest, CheckResponse, rate_limiter_client::RateLimiterClient};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{
    Folder, Server, eventually, in_time,
    requests::{check, peek, was_never_sent},
    server::Setup,
};

const CALLERS: usize = 8;
/// Pause between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(1);
/// Trades of a user. None refills within a day.
const TRADES: u64 = 3_000;
/// Units of a user in all, never exhausted here. None refills within ten minutes.
const ALL: u64 = 1_000_000;
/// Number of calls answered while a replica is down.
const MEANWHILE: u64 = 200;
const TRADE: [&str; 3] = ["user", "alex", "trade"];
const OTHER: [&str; 3] = ["user", "alex", "other"];
const PASSED: &str = "weir_checks_total{domain=\"default\",transport=\"grpc\",outcome=\"allowed\"}";

/// The addresses and the policy of the services, which outlive each process.
struct ReplicaDir(Folder);

impl ReplicaDir {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn address(&self, number: usize) -> String {
        format!("unix:{}", self.0.path(&format!("{number}.sock")))
    }

    /// Configures a service with a shutdown delay, as operators use it.
    fn setup(&self, number: usize) -> Setup {
        let policy = format!(
            "schema: {{ user: {{ children: {{ '*': {{ limits: [[{}, 1, 600]], children: {{ trade: {{ limits: [[{}, 1, \
             86400]] }} }} }} }} }} }}",
            ALL - 1,
            TRADES - 1
        );
        let setup = Setup::new().policy(&policy).env("WEIR_GRPC__LISTEN", &self.address(number));
        setup.env("WEIR_SHUTDOWN__DELAY", "300ms")
    }
}

/// A caller that uses the services in turn, over separate connections.
struct Caller {
    services: Vec<RateLimiterClient<tonic::transport::Channel>>,
    turn: usize,
}

impl Caller {
    fn of(dir: &ReplicaDir, services: usize, turn: usize) -> Self {
        let address = |number| Endpoint::from_shared(dir.address(number)).expect("an address");
        let services = (0..services).map(|number| RateLimiterClient::new(address(number).connect_lazy())).collect();
        Self { services, turn }
    }

    /// Returns the answer of the first service that accepts the call, starting with the next in turn.
    async fn ask(&mut self, request: &CheckRequest) -> Option<CheckResponse> {
        for _ in 0..self.services.len() {
            self.turn = (self.turn + 1) % self.services.len();
            match self.services[self.turn].check(request.clone()).await {
                Ok(answer) => return Some(answer.into_inner()),
                // There was no connection, or it ended before the call was sent.
                Err(status) => assert!(
                    status.code() == Code::Unavailable || was_never_sent(&status),
                    "it may have been charged: {status:?}"
                ),
            }
        }
        None
    }

    /// Returns the answer of any service; a single one is waited for.
    async fn answer(&mut self, request: &CheckRequest) -> CheckResponse {
        let answer = in_time("an answer", async {
            loop {
                if let Some(answer) = self.ask(request).await {
                    break answer;
                }
                assert_eq!(self.services.len(), 1, "no service takes the call");
                tokio::time::sleep(PAUSE).await;
            }
        });
        let answer = answer.await;
        assert!(!answer.degraded);
        answer
    }

    /// Sends checks until all services have been replaced and no trade is left.
    async fn proceed(mut self, seen: Arc<Seen>) {
        let (trade, other) = (check(&TRADE), check(&OTHER));
        while !(seen.replaced.load(Relaxed) && seen.refused.load(Relaxed) > 0) {
            let passed = self.answer(&trade).await.allowed;
            if passed { &seen.trades } else { &seen.refused }.fetch_add(1, Relaxed);
            assert!(self.answer(&other).await.allowed);
            seen.others.fetch_add(1, Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Numbers of answers that the callers got, by kind.
#[derive(Default)]
struct Seen {
    trades: AtomicU64,
    refused: AtomicU64,
    others: AtomicU64,
    replaced: AtomicBool,
}

/// Stops and restarts each service under load, and compares the counts. It blocks, so callers need separate threads.
async fn replace_each(dir: &ReplicaDir, setup: impl Fn(usize) -> Setup, services: usize, rounds: usize) {
    let mut running: Vec<_> = (0..services).map(|number| setup(number).start()).collect();
    let seen = Arc::<Seen>::default();
    let mut callers = JoinSet::new();
    for turn in 0..CALLERS {
        callers.spawn(Caller::of(dir, services, turn).proceed(Arc::clone(&seen)));
    }
    for number in (0..services).cycle().take(rounds * services) {
        is_asked(&running[number]);
        running[number].stop();
        assert!(running[number].log_lines("shutdown timeout: unfinished calls were closed").is_empty());
        let before = seen.others.load(Relaxed);
        if services > 1 {
            eventually("others answer", || (seen.others.load(Relaxed) >= before + MEANWHILE).then_some(()));
        }
        running[number] = setup(number).start();
    }
    running.iter().for_each(is_asked);
    seen.replaced.store(true, Relaxed);
    callers.join_all().await;

    let others = seen.others.load(Relaxed);
    println!("{others} other things, {TRADES} trades, {} refused", seen.refused.load(Relaxed));
    assert_eq!(seen.trades.load(Relaxed), TRADES);
    let answer = Caller::of(dir, services, 0).answer(&peek(&TRADE)).await;
    let left: Vec<_> = answer.levels.iter().map(|level| level.remaining).collect();
    assert_eq!(left, [ALL - TRADES - others, 0]);
}

/// Waits until callers use a service.
fn is_asked(service: &Server) {
    eventually("it is asked", || (service.metric(PASSED) > 0.0).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_on_redis_loses_no_calls_or_counts() {
    let (redis, dir) = (Redis::start(Options::socket()), ReplicaDir::new());
    replace_each(&dir, |number| dir.setup(number).shared(&redis), 3, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarting_with_a_snapshot_loses_no_counts() {
    let dir = ReplicaDir::new();
    let setup =
        |number| dir.setup(number).snapshot(dir.0.path("weir.snapshot")).env("WEIR_STORE__SNAPSHOT__EVERY", "1d");
    replace_each(&dir, setup, 1, 3).await;
}
