use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tokio::{task::JoinSet, time::sleep};
use weir_client::{BreakerSettings, BreakerState, Check, Client, OnFailure, Source};

use crate::{
    leased::import,
    support::{Redis, Setup, TIMEOUT, Weir, dir, eventually, patient, streaming},
};

const KEY: [&str; 2] = ["api", "alex"];
const UNITS: u64 = 5_000;
const TTL: Duration = Duration::from_millis(500);

/// Makes a policy that leases `units` in 30 days, with a TTL of half a second.
fn policy(units: u64) -> String {
    let limit = format!("fixed_window: {{ count: {units}, period: 30d }}");
    format!("lease: {{ ttl: 500ms }}\nschema: {{ api: {{ children: {{ '*': {{ limits: [{{ {limit} }}] }} }} }} }}")
}

fn leasing(target: &str) -> Client {
    patient(target).lease(true).build().expect("a client")
}

/// Checks until the key is refused. Returns the number of allowed checks, and of those decided without a call.
async fn exhaust(weir: &Client) -> (u64, u64) {
    let (check, mut allowed, mut leased) = (Check::new(KEY), 0, 0);
    loop {
        let decision = weir.check(&check).await.unwrap();
        if !decision.allowed {
            assert!(decision.retry_after.is_some(), "{decision:?}");
            return (allowed, leased);
        }
        allowed += 1;
        leased += u64::from(decision.source == Source::Lease);
    }
}

async fn until_leased(weir: &Client) {
    eventually("a lease", async || (weir.check(KEY).await.ok()?.source == Source::Lease).then_some(())).await;
}

/// Returns the units that are left for another client.
async fn left(service: &Weir) -> u64 {
    service.client().check(Check::new(KEY).cost(0)).await.unwrap().remaining
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_of_one_redis_admit_no_more_than_the_limit() {
    let (redis, dir) = (Redis::start(), dir());
    let setup = Setup::new(&dir, &policy(UNITS)).shared(&redis);
    let replicas = [setup.start(), setup.start()];
    let [one, other] = replicas.each_ref().map(|replica| leasing(&replica.address));
    let (first, second) = tokio::join!(exhaust(&one), exhaust(&other));
    // One client may hold units while the other is refused.
    let (again, last) = (exhaust(&one).await, exhaust(&other).await);
    let allowed = first.0 + second.0 + again.0 + last.0;
    assert!(allowed <= UNITS, "{allowed}");
    assert!((first.1 + second.1) * 2 > UNITS, "{first:?} {second:?}");
    assert_eq!(left(&replicas[0]).await, 0);
}

#[tokio::test]
async fn a_decision_reports_its_source() {
    let dir = dir();
    let service = Setup::new(&dir, &policy(UNITS)).start();
    let weir = patient(&service.address).lease(true).on_failure(OnFailure::Deny).build().unwrap();
    until_leased(&weir).await;
    let check = Check::new(KEY);
    let decision = eventually("a lease", async || {
        Some(weir.check(&check).await.unwrap()).filter(|decision| decision.source == Source::Lease)
    });
    let decision = decision.await;
    assert!(decision.allowed && decision.leased && decision.limit == 0 && decision.levels.is_empty(), "{decision:?}");
    for ordinary in [check.clone().lease(false), check.clone().request_id("1"), check.clone().dry_run()] {
        assert_eq!(weir.check(ordinary).await.unwrap().source, Source::Service);
    }
    let unused = Check::new(["api", "berta"]).lease(false);
    for _ in 0..5 {
        assert_eq!(weir.check(&unused).await.unwrap().source, Source::Service);
    }
}

#[tokio::test]
async fn a_cost_above_the_limit_is_refused_without_a_hold_off() {
    let dir = dir();
    let service = Setup::new(&dir, &policy(UNITS)).start();
    let weir = leasing(&service.address);
    until_leased(&weir).await;
    for _ in 0..3 {
        let decision = weir.check(Check::new(KEY).cost(UNITS as i64 + 1)).await.unwrap();
        assert!(decision.never && decision.source == Source::Service, "{decision:?}");
    }
}

#[tokio::test]
async fn a_refusal_by_a_lease_has_an_exact_retry() {
    let dir = dir();
    let service = Setup::new(&dir, &policy(UNITS)).start();
    let weir = leasing(&service.address);
    exhaust(&weir).await;
    let refusal_by = async |source: Source| {
        eventually("a refusal", async || {
            let decision = weir.check(KEY).await.unwrap();
            decision.retry_after.filter(|_| decision.source == source)
        })
        .await
    };
    let by_service = refusal_by(Source::Service).await;
    let by_lease = refusal_by(Source::Lease).await;
    assert!(by_lease <= by_service && by_lease + TIMEOUT > by_service, "{by_lease:?} {by_service:?}");
}

#[tokio::test]
async fn the_example_of_the_readme() {
    let dir = dir();
    let service = Setup::new(&dir, &policy(UNITS)).start();
    service.client().check(KEY).await.unwrap();
    // The client has the default deadline, which a busy machine may miss.
    let leased = eventually("no outage", async || import(&service.address, 300).await.ok()).await;
    assert!(leased > 0);
}

#[tokio::test]
async fn close_gives_back_at_once() {
    let dir = dir();
    let service = Setup::new(&dir, &policy(UNITS)).start();
    let (weir, mut allowed) = (leasing(&service.address), 0);
    let check = Check::new(KEY);
    while weir.check(&check).await.unwrap().source != Source::Lease || left(&service).await + allowed + 1 == UNITS {
        allowed += 1;
    }
    weir.close().await;
    assert_eq!(left(&service).await + allowed + 1, UNITS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_fails_no_check_and_admits_no_more() {
    let (redis, dir) = (Redis::start(), dir());
    let setup = Setup::new(&dir, &policy(UNITS)).shared(&redis);
    let mut replicas = [Some(setup.start()), Some(setup.start())];
    let target = replicas.each_ref().map(|replica| replica.as_ref().unwrap().address.clone()).join(",");
    let weir = leasing(&target);
    let (check, mut allowed) = (Check::new(KEY), 0);
    for kill in [0, 1] {
        let enough = allowed + 1_000;
        while allowed < enough {
            allowed += u64::from(weir.check(&check).await.unwrap().allowed);
        }
        drop(replicas[kill].take());
        if kill == 0 {
            let before = allowed;
            while allowed < before + 500 {
                allowed += u64::from(weir.check(&check).await.unwrap().allowed);
            }
        }
    }
    // The client spends its held units while no replica runs; then its checks fail.
    let short = check.clone().deadline(Duration::from_millis(200));
    eventually("an outage", async || weir.check(&short).await.ok().is_none().then_some(())).await;
    let service = Setup::new(&dir, &policy(UNITS)).shared(&redis).start();
    assert!(left(&service).await <= UNITS - allowed);
}

#[tokio::test]
async fn a_replica_that_does_not_answer_is_left() {
    let (redis, dir) = (Redis::start(), dir());
    let setup = Setup::new(&dir, &policy(1_000_000)).shared(&redis);
    let replicas = [setup.start(), setup.start()];
    let target = replicas.each_ref().map(|replica| replica.address.clone()).join(",");
    let breaker = BreakerSettings { failures: 0, ..BreakerSettings::default() };
    let deadline = Duration::from_millis(200);
    let weir = Client::builder(target).lease(true).deadline(deadline).breaker(breaker).build().unwrap();
    // Calls to a frozen replica time out, so the checks of one caller alone would not make a key hot.
    let (leased, mut callers) = (Arc::<AtomicU64>::default(), JoinSet::new());
    for _ in 0..8 {
        let (weir, leased) = (weir.clone(), Arc::clone(&leased));
        callers.spawn(async move {
            loop {
                let decision = weir.check(KEY).await;
                leased.fetch_add(u64::from(decision.is_ok_and(|it| it.source == Source::Lease)), Relaxed);
                sleep(Duration::from_millis(1)).await;
            }
        });
    }
    for replica in &replicas {
        replica.freeze();
        // Units leased before have expired by then.
        sleep(TTL).await;
        let before = leased.load(Relaxed);
        eventually("a lease of the other", async || (leased.load(Relaxed) > before + 100).then_some(())).await;
        replica.signal(Signal::CONT);
    }
}

#[tokio::test]
async fn a_changed_policy_is_in_force_within_the_ttl() {
    let dir = dir();
    let service = Setup::new(&dir, &policy(UNITS)).start();
    let weir = leasing(&service.address);
    until_leased(&weir).await;
    let unleased = policy(1).replace("lease: { ttl: 500ms }\n", "");
    fs::write(dir.path().join("limits.yaml"), unleased).unwrap();
    let check = Check::new(KEY);
    eventually("the new limit", async || {
        let decision = weir.check(&check).await.unwrap();
        (!decision.allowed && decision.source == Source::Service && decision.limit == 1).then_some(())
    })
    .await;
    fs::write(dir.path().join("limits.yaml"), policy(2 * UNITS)).unwrap();
    until_leased(&weir).await;
}

#[tokio::test]
async fn while_the_service_rejects_the_stream_calls_decide() {
    let dir = dir();
    let service = Setup::new(&dir, &policy(UNITS)).env("WEIR_GRPC__MAX_OPEN_STREAMS", "1").start();
    let other = streaming(&service).await;
    let breaker = BreakerSettings { failures: 1, ..BreakerSettings::default() };
    let weir = patient(&service.address).lease(true).retries(0).breaker(breaker).build().unwrap();
    let started = Instant::now();
    for number in 0..50 {
        let decision = weir.check(KEY).await.unwrap();
        assert!(decision.allowed && decision.source == Source::Service, "{decision:?}");
        for _ in 0..4 {
            assert!(weir.check(["api", &number.to_string()]).await.unwrap().allowed);
        }
    }
    assert!(service.rejected_streams() <= 1 + started.elapsed().as_secs(), "it is asked for once a second at most");
    assert_eq!(left(&service).await, UNITS - 50);
    // The stream is opened again.
    other.close().await;
    until_leased(&weir).await;
    assert_eq!(weir.breaker_state(), BreakerState::Closed);
}
