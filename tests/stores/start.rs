//! Starts with a shared store: contradictory settings are rejected in one sentence without secrets, slow connections are
//! waited for, and a start that waits for the store can be stopped.

use std::{fs, time::Duration};

use futures_util::future::join_all;
use weir::proto::r#override::Change;
use weir_envoy::envoy::service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server, Silent, free_port};

use crate::{
    service::{patient, runtime},
    support::{
        crowd::schema,
        envoy::{descriptor, should_rate_limit},
        eventually_async, finish,
        overrides::{over, try_set},
        requests::check,
        weir,
    },
    wire::Wire,
};

#[test]
fn contradictory_store_settings_are_rejected_at_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("a path").to_owned()
    };
    let (empty, junk) = (path("empty", "\n"), path("junk.pem", "junk"));
    let redis = ("WEIR_STORE__URL", "redis://user:geheim@127.0.0.1:1");
    let tls = ("WEIR_STORE__URL", "rediss://:geheim@127.0.0.1:1");
    for (variables, expected) in [
        (&[("WEIR_STORE__URL", "rediss//:geheim@h")][..], "store.url"),
        (&[("WEIR_STORE__URL", "redis://user@h")], "has no password"),
        (&[redis, ("WEIR_STORE__REDIS__PASSWORD_FILE", &empty)], "empty"),
        (&[redis, ("WEIR_STORE__REDIS__MAX_BATCH", "0")], "store.redis.max_batch"),
        (&[tls, ("WEIR_STORE__REDIS__TLS__CA", &junk)], "junk.pem"),
    ] {
        let run = finish(weir().arg("serve").envs(variables.iter().copied()));
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{variables:?}: {run:?}");
        assert!(run.err.contains(expected), "{variables:?}: {expected} is missing: {}", run.err);
        assert!(!run.err.contains("geheim"), "{}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    }
}

/// For files that do not set `on_store_failure`.
#[test]
fn without_the_store_descriptors_are_decided_as_the_setting_says() {
    let policy = "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: day, requests_per_unit: 9 } }";
    let nowhere = format!("redis://127.0.0.1:{}", free_port());
    for (rule, expected) in
        [("allow", Ok(Code::Ok)), ("deny", Ok(Code::OverLimit)), ("error", Err(tonic::Code::Unavailable))]
    {
        let service = patient(&nowhere).policy(policy).env("WEIR_ENVOY__ON_STORE_FAILURE", rule).start();
        let descriptors = vec![descriptor(&["k", "v"], 1)];
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, ..RateLimitRequest::default() };
        let answer = runtime().block_on(async { should_rate_limit(service.channel().await, request).await });
        let code = answer.map(|answer| answer.overall_code).map_err(|status| status.code());
        assert_eq!(code, expected.map(|code| code as i32), "{rule}");
    }
}

/// A connection takes several round trips, so over a slow network longer than a check may. That ends only the checks
/// before the first connection.
#[test]
fn connections_that_are_slower_than_a_check_may_be_open_no_circuit_breaker_later() {
    let redis = Server::start(Options::socket());
    let wire = Wire::to(&redis, Duration::from_millis(500));
    let service = patient(&wire.url()).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "2s").policy(&schema(700)).start();
    runtime().block_on(async {
        let client = service.client().await;
        // The connections share the keys.
        let is_shared = async |user: u32| {
            let answer = client.clone().check(check(&["gcra", &format!("user{user}"), "trade"])).await;
            let answer = answer.expect("an answer").into_inner();
            assert_eq!(answer.levels.len(), 2);
            (!answer.degraded).then_some(())
        };
        eventually_async("the store answers", async || is_shared(0).await).await;
        for _ in 0..3 {
            let answers = join_all((0..20).map(&is_shared)).await;
            assert!(answers.iter().all(Option::is_some), "{answers:?}");
        }
    });
}

/// A connection takes longer than a check may, and a Cluster's slot map too.
#[test]
fn a_ban_holds_and_counts_are_shared_from_the_first_request_on_over_a_slow_network() {
    let (redis, cluster) = (Server::start(Options::socket()), Cluster::start(&ClusterOptions::default()));
    for (url, scheme, server) in
        [(redis.url(), "redis://", &redis), (cluster.url(), "redis-cluster://", &cluster.nodes[0])]
    {
        let first = patient(&url).policy(&schema(700)).start();
        let banned = over(&["gcra", "banned"], Change::Ban(true));
        runtime().block_on(try_set(&first, banned, None)).expect("it is set");
        let wire = Wire::to(server, Duration::from_millis(400)).url().replace("redis://", scheme);
        let setup = patient(&wire).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "1s").policy(&schema(700));
        let service = setup.start();
        runtime().block_on(async {
            let client = service.client().await;
            let ask = async |user: &str| client.clone().check(check(&["gcra", user, "trade"])).await;
            let answer = ask("banned").await.expect("an answer").into_inner();
            assert_ne!(answer.ban_reason, "", "{scheme}");
            let users: Vec<_> = (0..20).map(|user| format!("user{user}")).collect();
            for answer in join_all(users.iter().map(|user| ask(user))).await {
                assert!(!answer.expect("an answer").into_inner().degraded, "{scheme}");
            }
        });
        let log = service.log();
        assert!(!log.iter().any(|line| line.contains("circuit breaker open")), "{scheme}: {log:#?}");
    }
}

/// The overrides are read before the ports are opened.
#[test]
fn a_start_that_waits_for_a_silent_store_is_stopped_by_a_signal() {
    let store = Silent::start();
    for runtime in ["per_core", "multi_thread"] {
        let setup = patient(&store.url()).env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "60s");
        let mut service = setup.env("WEIR_GRPC__RUNTIME", runtime).policy(&schema(700)).start();
        service.stop();
        service.wait_for_log("stopped during startup");
        assert!(service.log_lines("draining: readiness fails, calls are still served").is_empty());
    }
}
