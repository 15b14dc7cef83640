//! Concurrency limits: slots, which reservations take and release.

use serde_json::json;
use tonic::{Code, Status};
use weir::proto::{CheckAllRequest, CheckBatchRequest, CheckRequest, Concurrency, ReserveRequest, limit::Algorithm};

use crate::support::{
    Folder, Server, eventually_async,
    http::Client as Http,
    requests::{check, limit, peek, reset, seconds_long, with_limits},
    reservations::{Client, HOUR, cancel, commit, extend, left, millis, reserve, settled, wanted},
    server::Setup,
    slots::{crowd, slot},
};

const POLICY: &str = "
schema:
  tenant:
    children:
      '*':
        limits: [{ concurrency: { max: 3, ttl: 1h }, name: tenant-slots }]
        children:
          '*':
            limits:
              - { concurrency: { max: 2, ttl: 30m }, name: user-slots }
              - { token_bucket: { capacity: 1000, count: 1, period: 1d }, name: units }
  seats: { limits: [{ concurrency: { max: 1, ttl: 1h, check: peek }, name: seat }, { gcra: { burst: 9, count: 1, period: 1d } }] }
  short: { children: { '*': { limits: [{ concurrency: { max: 2, ttl: 2s }, name: short }] } } }
  watched: { limits: [{ concurrency: { max: 1, ttl: 1h }, shadow: true, name: watched }] }
  crowd: { limits: [{ concurrency: { max: 5, ttl: 20s }, name: crowd }] }
  units: { limits: [[9, 1, 60]] }
";
const ALEX: [&str; 3] = ["tenant", "acme", "alex"];
const OLGA: [&str; 3] = ["tenant", "acme", "olga"];

/// Takes a slot, and this many units.
async fn taken<S: ToString>(client: &mut Client, key: &[S], cost: i64) -> String {
    let check = CheckRequest { cost: Some(cost), ..check(key) };
    let answer = reserve(client, ReserveRequest { check: Some(check), ..ReserveRequest::default() }).await;
    assert!(answer.decision.as_ref().is_some_and(|decision| decision.allowed), "{answer:?}");
    answer.hold
}

/// Returns the remaining units and slots of each level of the key.
async fn levels_left(client: &mut Client, key: &[&str]) -> Vec<u64> {
    let answer = client.check(peek(key)).await.expect("an answer").into_inner();
    answer.levels.into_iter().map(|level| level.remaining).collect()
}

fn code(outcome: Result<impl std::fmt::Debug, Status>) -> Code {
    outcome.expect_err("an error").code()
}

#[tokio::test]
async fn a_reservation_takes_a_slot_of_each_level_whatever_it_costs() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let first = taken(&mut client, &ALEX, 400).await;
    assert_eq!(levels_left(&mut client, &ALEX).await, [2, 1, 600]);
    let second = taken(&mut client, &ALEX, 1).await;
    let full = reserve(&mut client, slot(&ALEX)).await;
    let decision = full.decision.expect("a decision");
    assert_eq!((decision.allowed, decision.binding, &*full.hold), (false, Some(1), ""));
    assert_eq!(decision.retry_after, Some(seconds_long(1)), "when a slot is released is unknown");
    let levels: Vec<_> = decision.levels.iter().map(|level| (level.limit, level.remaining, level.allowed)).collect();
    assert_eq!(levels, [(3, 1, true), (2, 0, false), (1_000, 599, true)]);

    let other = taken(&mut client, &OLGA, 1).await;
    let full = reserve(&mut client, slot(&OLGA)).await.decision.expect("a decision");
    assert_eq!((full.allowed, full.binding), (false, Some(0)), "the tenant's are all taken");
    assert_eq!(commit(&mut client, &first, Some(1_000)).await.expect("settled"), settled(1_000, 0, 600));
    assert_eq!(levels_left(&mut client, &ALEX).await, [1, 1, 0], "units are charged, slots are not");
    for _ in 0..2 {
        assert_eq!(cancel(&mut client, &second).await.expect("settled").refunded, 1);
        assert_eq!(levels_left(&mut client, &ALEX).await[..2], [2, 2], "a slot is given back once");
    }
    commit(&mut client, &other, None).await.expect("settled");
    assert_eq!(levels_left(&mut client, &OLGA).await, [3, 2, 999]);
}

#[tokio::test]
async fn the_limits_say_how_long_a_slot_lasts_at_most() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let minutes = |lasts: Option<prost_types::Duration>| lasts.map_or(0, |lasts| lasts.seconds / 60);
    for (ttl, least, most) in [(None, 28, 30), (millis(24 * HOUR), 28, 30), (millis(HOUR / 12), 4, 5)] {
        let answer = reserve(&mut client, ReserveRequest { ttl, ..slot(&ALEX) }).await;
        assert!((least..=most).contains(&minutes(answer.expires_after)), "{answer:?}");
        let longer = client.extend(weir::proto::ExtendRequest { hold: answer.hold.clone(), ttl }).await;
        let longer = longer.expect("extended").into_inner();
        assert!((least..=most).contains(&minutes(longer.expires_after)), "{longer:?}");
        cancel(&mut client, &answer.hold).await.expect("settled");
    }
    let status = client.reserve(slot(&["units"])).await.expect_err("no limit says");
    assert_eq!(crate::support::requests::refusal(&status), (Code::InvalidArgument, Some("ttl".to_owned())));
    let unlimited = reserve(&mut client, slot(&["elsewhere"])).await;
    assert!(!unlimited.hold.is_empty(), "nothing is held, so nothing need say how long");

    // A request may contain a concurrency limit.
    let own = |max, on_check| {
        let slots = Concurrency { max, ttl: Some(seconds_long(3_600)), check: on_check };
        with_limits(check(&["own"]), vec![limit(Algorithm::Concurrency(slots))])
    };
    let request = || ReserveRequest { check: Some(own(1, 0)), ..ReserveRequest::default() };
    let hold = reserve(&mut client, request()).await.hold;
    assert!(!hold.is_empty() && reserve(&mut client, request()).await.hold.is_empty());
    assert_eq!(code(client.check(own(1, 0)).await), Code::FailedPrecondition);
    assert!(!client.check(own(1, 2)).await.expect("an answer").into_inner().allowed);
    assert!(client.check(own(2, 2)).await.expect("an answer").into_inner().allowed, "the limit was raised");
    assert_eq!(code(client.check(own(1, 3)).await), Code::InvalidArgument);
    cancel(&mut client, &hold).await.expect("settled");
    assert!(!reserve(&mut client, request()).await.hold.is_empty());
}

#[tokio::test]
async fn slots_are_extended_after_the_policy_has_removed_their_limit() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let hold = taken(&mut client, &["seats"], 1).await;
    server.replace_policy(&POLICY.replace("{ concurrency: { max: 1, ttl: 1h, check: peek }, name: seat }, ", ""));
    server.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 1.0);
    let longer = client.extend(weir::proto::ExtendRequest { hold, ttl: None }).await.expect("extended").into_inner();
    assert!((56..=60).contains(&longer.expires_after.expect("a time").seconds), "{longer:?}");
}

#[tokio::test]
async fn a_check_of_a_concurrency_limit_is_rejected() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let status = client.check(check(&ALEX)).await.expect_err("only reservations");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("`tenant-slots`") && status.message().contains("Reserve"), "{status:?}");
    let batch = CheckBatchRequest { checks: vec![check(&ALEX), check(&["seats"])] };
    let results = client.check_batch(batch).await.expect("answers").into_inner().results;
    assert_eq!((results[0].error.as_ref().map(|error| error.code), results[1].allowed), (Some(9), true));
    let all = CheckAllRequest { checks: vec![check(&["seats"]), check(&ALEX)] };
    assert_eq!(code(client.check_all(all).await), Code::FailedPrecondition);
    let all = CheckAllRequest { checks: vec![check(&["seats"]), peek(&ALEX)] };
    assert!(client.check_all(all).await.expect("an answer").into_inner().allowed, "a preview takes no slot");
    let refund = CheckRequest { cost: Some(-1), ..check(&ALEX) };
    assert!(client.check(refund).await.expect("an answer").into_inner().allowed, "nor does a refund");
    let mut http = Http::connect(&server.http).expect("it accepts connections");
    let refused = http.post("/v1/check", &json!({ "key": ALEX }));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!(9)));
    let printed = server.run(&[&["check"], &ALEX[..]].concat());
    assert!(printed.code == 2 && printed.err.contains("use Reserve"), "{printed:?}");

    let holds = [taken(&mut client, &ALEX, 1).await, taken(&mut client, &ALEX, 1).await];
    let dry = client.check(CheckRequest { dry_run: true, ..check(&ALEX) }).await.expect("an answer").into_inner();
    assert_eq!((dry.allowed, dry.binding), (false, Some(1)), "a preview tells whether a slot is free");
    cancel(&mut client, &holds[0]).await.expect("settled");
    let dry = client.check(CheckRequest { dry_run: true, ..check(&ALEX) }).await.expect("an answer").into_inner();
    assert!(dry.allowed);
}

#[tokio::test]
async fn with_peek_or_shadow_mode_checks_pass_without_slots() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    for left in [9, 8] {
        let answer = client.check(check(&["seats"])).await.expect("an answer").into_inner();
        let levels: Vec<_> = answer.levels.iter().map(|level| level.remaining).collect();
        assert_eq!((answer.allowed, &levels[..]), (true, &[1, left][..]), "units are charged, no slot is taken");
    }
    let hold = taken(&mut client, &["seats"], 1).await;
    let answer = client.check(check(&["seats"])).await.expect("an answer").into_inner();
    assert_eq!((answer.allowed, answer.binding), (false, Some(0)));
    cancel(&mut client, &hold).await.expect("settled");
    assert_eq!(levels_left(&mut client, &["seats"]).await, [1, 8]);
    assert_eq!(server.metric("weir_charged_units_total{domain=\"default\",limit=\"seat\"}"), 1.0, "slots taken");

    // A limit in shadow mode never refuses.
    assert!(client.check(check(&["watched"])).await.expect("an answer").into_inner().allowed);
    let all = CheckAllRequest { checks: vec![check(&["watched"]), check(&["seats"])] };
    assert!(client.check_all(all).await.expect("an answer").into_inner().allowed);
    let holds = [taken(&mut client, &["watched"], 1).await, taken(&mut client, &["watched"], 1).await];
    assert_eq!(
        server.metric("weir_decisions_total{domain=\"default\",limit=\"watched\",outcome=\"shadow_limited\"}"),
        1.0
    );
    for hold in holds {
        cancel(&mut client, &hold).await.expect("settled");
    }
    assert_eq!(levels_left(&mut client, &["watched"]).await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_survive_resets_and_restarts() {
    let dir = Folder::new();
    let start = || Setup::new().policy(POLICY).snapshot(dir.path("weir.snapshot")).start();
    let mut first = start();
    let mut client = first.client().await;
    let holds = [taken(&mut client, &ALEX, 5).await, taken(&mut client, &ALEX, 1).await];
    client.reset(reset(&ALEX[..2], true)).await.expect("a reset");
    assert_eq!(levels_left(&mut client, &ALEX).await[..2], [1, 0], "who holds a slot still runs");
    first.stop();
    let second = start();
    let mut client = second.client().await;
    assert!(reserve(&mut client, slot(&ALEX)).await.hold.is_empty());
    commit(&mut client, &holds[0], None).await.expect("settled");
    assert_eq!(levels_left(&mut client, &ALEX).await[..2], [2, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_slots_are_held_than_there_are() {
    let server = [Server::with_policy(POLICY)];
    let seen = crowd(&server, &["crowd"], 5, || ()).await;
    assert!(seen.most == 5 && seen.died > 0, "{seen:?}");
}

#[tokio::test]
async fn a_slot_whose_holder_died_is_free_again_and_a_late_release_frees_no_other() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let key = ["short", "a"];
    let dead = [taken(&mut client, &key, 1).await, taken(&mut client, &key, 1).await];
    assert!(reserve(&mut client, slot(&key)).await.hold.is_empty());
    eventually_async("the slots are free", async || (left(&mut client, &key).await == 2).then_some(())).await;
    let alive = taken(&mut client, &key, 1).await;
    for hold in &dead {
        assert_eq!(code(cancel(&mut client, hold).await), Code::NotFound);
        assert_eq!(code(commit(&mut client, hold, None).await), Code::NotFound);
        assert_eq!(code(extend(&mut client, hold, 2_000).await), Code::NotFound);
    }
    assert!(left(&mut client, &key).await == 1 || extend(&mut client, &alive, 2_000).await.is_err());

    // Units of other limits may be reserved for a shorter time.
    let kept = reserve(&mut client, wanted(&ALEX, 10, 200)).await;
    assert!(!kept.hold.is_empty());
    eventually_async("it is over", async || (levels_left(&mut client, &ALEX).await[1] == 2).then_some(())).await;
    assert_eq!(levels_left(&mut client, &ALEX).await, [3, 2, 990], "units are kept, slots are given back");
}
