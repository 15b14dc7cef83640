//! Readiness while the shared store is down.

use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{Server, eventually, eventually_async, requests::check, server::Setup};

const POLICY: &str = "schema: { '*': { limits: [9, 1, 86400] } }";
const NEVER: &str = "the shared store has not answered since the start\n";
const DOWN: &str = "the store does not answer\n";

fn setup(redis: &Redis) -> Setup {
    let setup = Setup::new().env("WEIR_STORE__URL", &redis.url()).policy(POLICY);
    setup.env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "200ms")
}

/// Sends checks until the circuit breaker of the store is open.
async fn find_it_down(server: &Server) {
    let mut client = server.client().await;
    let mut series = None;
    eventually_async("the store is not asked", async || {
        client.check(check(&["a"])).await.expect("an answer without the store");
        let text = server.get("/metrics").1;
        series = text.lines().find(|line| line.starts_with("weir_store_server_up")).map(str::to_owned);
        series.as_deref().is_some_and(|line| line.ends_with(" 0")).then_some(())
    })
    .await;
}

async fn wait_for_health(server: &Server, status: ServingStatus) {
    let mut health = HealthClient::new(server.channel().await);
    for service in ["", "weir.v1.RateLimiter"] {
        eventually_async("health", async || {
            let request = HealthCheckRequest { service: service.to_owned() };
            let found = health.check(request).await.expect("an answer").into_inner().status();
            (found == status).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_follows_a_required_store() {
    let redis = Redis::start(Options::socket());
    let mut server = setup(&redis).env("WEIR_STORE__REDIS__REQUIRED_FOR_READINESS", "true").start();
    eventually("ready", || (server.get("/readyz") == (200, "ready\n".to_owned())).then_some(()));
    wait_for_health(&server, ServingStatus::Serving).await;
    redis.pause();
    eventually("not ready, without a check", || (server.get("/readyz") == (503, DOWN.to_owned())).then_some(()));
    let line = server.wait_for_log("the required store is not usable: not ready");
    assert!(line["error"].is_string(), "without a check, the probe has failed: {line}");
    redis.resume();
    eventually("ready again", || (server.get("/readyz") == (200, "ready\n".to_owned())).then_some(()));
    server.wait_for_log("the required store answers: ready");
    redis.pause();
    find_it_down(&server).await;
    eventually("not ready", || (server.get("/readyz") == (503, DOWN.to_owned())).then_some(()));
    wait_for_health(&server, ServingStatus::NotServing).await;
    assert_eq!(server.run(&["health"]).code, 1);
    assert_eq!(server.get("/healthz").0, 200);
    redis.resume();
    eventually("ready again", || (server.get("/readyz") == (200, "ready\n".to_owned())).then_some(()));
    wait_for_health(&server, ServingStatus::Serving).await;
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_reports_a_store_that_was_never_reachable() {
    for (required, status, health) in [("true", 503, ServingStatus::NotServing), ("false", 200, ServingStatus::Serving)]
    {
        let mut redis = Redis::start(Options::socket());
        redis.kill();
        let mut server = setup(&redis).env("WEIR_STORE__REDIS__REQUIRED_FOR_READINESS", required).start();
        assert_eq!(server.get("/readyz"), (status, NEVER.to_owned()), "required: {required}");
        wait_for_health(&server, health).await;
        // Checks are answered despite this.
        assert!(server.check(check(&["a"])).await.degraded);
        assert_eq!(server.get("/readyz"), (status, NEVER.to_owned()));
        redis.restart();
        eventually("ready", || (server.get("/readyz") == (200, "ready\n".to_owned())).then_some(()));
        wait_for_health(&server, ServingStatus::Serving).await;
        server.stop();
    }
}

#[tokio::test]
async fn an_optional_store_does_not_affect_readiness() {
    let redis = Redis::start(Options::socket());
    let server = setup(&redis).start();
    eventually("ready", || (server.get("/readyz").0 == 200).then_some(()));
    redis.pause();
    find_it_down(&server).await;
    assert_eq!(server.get("/readyz").0, 200);
    wait_for_health(&server, ServingStatus::Serving).await;
}
