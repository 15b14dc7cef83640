//! Failures that no caller notices, and failures that affect only one key or one server.

use std::time::{Duration, Instant};

use weir::proto::{CheckBatchRequest, CheckResponse};
use weir_test_redis::{Cluster, ClusterOptions, Options, Reply, Server, eventually};

use super::{
    callers::{RULES, of_rule},
    scene::{Scene, service},
};
use crate::{
    service::{hash_in, hash_of, patient, runtime},
    support::{Server as Service, crowd, eventually_async, requests::check, server::Setup},
};

/// Configures a service with a long timeout, so that short failures stay unnoticed even on a busy machine.
fn patient_service(url: &str) -> Setup {
    service(url).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "10s")
}

#[test]
fn a_flushed_script_is_reloaded_without_errors() {
    let redis = Server::start(Options::socket());
    let mut scene = Scene::start_well("SCRIPT FLUSH", patient_service(&redis.url()));
    for _ in 0..20 {
        redis.cli(&["SCRIPT", "FLUSH"]);
        scene.wait_for_recovery();
    }
    assert!(redis.cli(&["INFO", "errorstats"]).contains("errorstat_NOSCRIPT"));
    scene.assert_unnoticed();
    scene.finish(true);
}

#[test]
fn a_batch_is_decided_in_order_although_the_script_was_flushed() {
    const CHECKS: usize = 100;
    const ALLOWED: usize = 50;
    let redis = Server::start(Options::socket());
    let limits = format!("[{{ fixed_window: {{ count: {ALLOWED}, period: 31d }} }}]");
    let policy = format!("schema: {{ user: {{ children: {{ '*': {{ limits: {limits} }} }} }} }}");
    let service = patient(&redis.url()).policy(&policy).start();
    let runtime = runtime();
    let mut client = runtime.block_on(service.client());
    for user in 0..5 {
        redis.cli(&["SCRIPT", "FLUSH"]);
        let batch = CheckBatchRequest { checks: vec![check(&["user", &user.to_string()]); CHECKS] };
        let answers = runtime.block_on(client.check_batch(batch)).expect("answers").into_inner().results;
        let allowed: Vec<_> = answers.iter().map(|answer| answer.allowed && !answer.degraded).collect();
        assert_eq!(allowed, [[true; ALLOWED], [false; CHECKS - ALLOWED]].concat());
    }
    assert!(redis.cli(&["INFO", "errorstats"]).contains("errorstat_NOSCRIPT"));
}

#[test]
fn reconnecting_between_two_checks_causes_no_errors() {
    let mut redis = Server::start(Options::port());
    let mut scene = Scene::start_well("between checks", patient_service(&redis.url()));
    scene.quietly(|| {
        let killed = redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
        assert_ne!(killed, "0");
    });
    scene.wait_for_recovery();
    scene.quietly(|| redis.restart());
    scene.wait_for_recovery();
    scene.assert_unnoticed();
    scene.finish(false);
}

#[test]
fn an_unusable_hash_fails_only_its_own_checks() {
    let redis = Server::start(Options::socket());
    let service = patient_service(&redis.url()).env("WEIR_LOG__LEVEL", "info,weir_store=debug").start();
    let runtime = runtime();
    for (rule, name) in RULES.iter().enumerate() {
        let hash = hash_in(name, &["few", "broken"]);
        let ask = |user: &str| runtime.block_on(ask(&service, rule, user));
        let by_rule = |answer: Result<CheckResponse, tonic::Status>| match *name {
            "error" => answer.is_err_and(|status| status.message() == "the store does not answer"),
            "deny" => answer.is_ok_and(|answer| answer.degraded && !answer.allowed),
            _ => answer.is_ok_and(|answer| answer.degraded && answer.allowed),
        };
        let shared = |answer: Result<CheckResponse, tonic::Status>| answer.is_ok_and(|answer| !answer.degraded);

        redis.command(&[b"SET".as_slice(), &hash, b"no hash"]);
        assert!(by_rule(ask("broken")), "{name}: another type");
        eventually("it is logged", || {
            let line = format!("{name}\\\\x03few\\\\x06broken");
            let log = service.log();
            log.iter().any(|found| found.contains(&line)).then_some(()).ok_or_else(|| log.join("\n"))
        });
        assert!(shared(ask(&format!("other {name}"))));
        redis.command(&[b"DEL".as_slice(), &hash]);
        assert!(shared(ask("broken")), "{name}: gone");
        let Reply::Array(fields) = redis.command(&[b"HKEYS".as_slice(), &hash]) else { panic!("no fields") };
        let Reply::BulkString(field) = &fields[0] else { panic!("no name") };
        redis.command(&[b"HSET".as_slice(), &hash, field, b"no state"]);
        assert!(by_rule(ask("broken")), "{name}: no state");
        let reset = service.run(&["reset", "few", "broken", "--domain", name]);
        assert_eq!(reset.code, 0, "{reset:?}");
        assert!(shared(ask("broken")), "{name}: forgotten");
    }
    let text = service.get("/metrics").1;
    assert!(text.contains("weir_store_errors_total{store=\"redis\",kind=\"corrupt\"} 8"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("weir_store_server_up{") && line.ends_with("} 1")));
}

async fn ask(service: &Service, rule: usize, user: &str) -> Result<CheckResponse, tonic::Status> {
    let answer = service.client().await.check(of_rule(rule, check(&["few", user]))).await;
    answer.map(tonic::Response::into_inner)
}

#[test]
fn a_stopped_master_affects_only_its_own_keys() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let timeout = Duration::from_secs(1);
    let service = patient(&cluster.url())
        .env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", &format!("{}ms", timeout.as_millis()))
        .policy(&crowd::schema(700))
        .start();
    let user_on = |node: usize| {
        let mut users = (0..).map(|number| format!("user{number}"));
        users.find(|user| cluster.owner(cluster.slot(&hash_of(&["gcra", user]))) == node).expect("there are three")
    };
    let users = [0, 1, 2].map(user_on);
    runtime().block_on(async {
        let mut client = service.client().await;
        let mut degraded = async |user: &str| {
            let since = Instant::now();
            let answer = client.check(check(&["gcra", user, "trade"])).await.expect("an answer").into_inner();
            assert!(since.elapsed() < 10 * timeout);
            answer.degraded
        };
        for user in &users {
            eventually_async("a first answer", async || (!degraded(user).await).then_some(())).await;
        }
        cluster.nodes[1].pause();
        for _ in 0..10 {
            assert!(!degraded(&users[0]).await);
            assert!(degraded(&users[1]).await);
            assert!(!degraded(&users[2]).await);
        }
        cluster.nodes[1].resume();
        eventually_async("it is asked again", async || (!degraded(&users[1]).await).then_some(())).await;
    });
}
