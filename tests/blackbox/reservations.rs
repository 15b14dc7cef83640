//! Reservations: units held until their real cost is known, by every surface.

use data_encoding::BASE64URL_NOPAD;
use rustix::process::Signal;
use serde_json::{Value, json};
use tonic::{Code, Status};
use weir::proto::{CancelRequest, CheckRequest, CommitRequest, CommitResponse, OnExpiry, ReserveRequest, ResetRequest};
use weir_test_redis::{Options, Server as Redis};

use crate::{
    support::{
        Server, eventually_async,
        http::{Answer, Client as Http},
        requests::{check, gcra, refusal, with_limits},
        reservations::{
            Client, HOUR, cancel, commit, crowd, extend, left, millis, most_overage, reserve, settled, wanted,
        },
        server::Setup,
    },
    tokens::{by, caller, token},
};

/// A tenant has 10,000 units and each of its users 1,000, which come back too slowly for a test to see.
const POLICY: &str = "
schema:
  tenant:
    children:
      '*':
        limits: [{ gcra: { burst: 9999, count: 1, period: 1d }, name: tenant }]
        children: { '*': { limits: [{ token_bucket: { capacity: 1000, count: 1, period: 1d }, name: user }] } }
  queue: { limits: [{ leaky_queue: { count: 1, period: 1d, burst: 5 }, name: queued }] }
  denied: { limits: [{ fixed_window: { count: 9, period: 1d, charge_denied: true }, name: counts-all }] }
";
const KEY: [&str; 3] = ["tenant", "acme", "alex"];

/// The hold of so many units of [`KEY`], for an hour.
async fn held(client: &mut Client, cost: i64) -> String {
    let answer = reserve(client, wanted(&KEY, cost, HOUR)).await;
    assert!(answer.decision.as_ref().is_some_and(|decision| decision.allowed), "{answer:?}");
    answer.hold
}

/// What the tenant and its user have left.
async fn both_left(client: &mut Client) -> (u64, u64) {
    (left(client, &KEY[..2]).await, left(client, &KEY).await)
}

fn code(outcome: Result<impl std::fmt::Debug, Status>) -> Code {
    outcome.expect_err("an error").code()
}

fn micros(duration: Option<prost_types::Duration>) -> i64 {
    duration.map_or(0, |it| it.seconds * 1_000_000 + i64::from(it.nanos) / 1_000)
}

#[tokio::test]
async fn all_levels_are_charged_and_settled_by_the_real_cost() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let answer = reserve(&mut client, wanted(&KEY, 200, HOUR)).await;
    let decision = answer.decision.clone().expect("a decision");
    assert_eq!((decision.allowed, decision.remaining, decision.levels.len()), (true, 800, 2));
    let held_for = micros(answer.expires_after);
    assert!((HOUR * 1_000 * 15 / 16..=HOUR * 1_000).contains(&held_for), "{held_for}");
    assert_eq!(both_left(&mut client).await, (9_800, 800));
    assert_eq!(commit(&mut client, &answer.hold, Some(50)).await.expect("settled"), settled(50, 150, 0));
    assert_eq!(both_left(&mut client).await, (9_950, 950));

    let hold = held(&mut client, 200).await;
    assert_eq!(commit(&mut client, &hold, Some(250)).await.expect("settled"), settled(250, 0, 50));
    assert_eq!(both_left(&mut client).await, (9_700, 700));

    let hold = held(&mut client, 200).await;
    assert_eq!(commit(&mut client, &hold, None).await.expect("settled"), settled(200, 0, 0));
    assert_eq!(both_left(&mut client).await, (9_500, 500));

    let hold = held(&mut client, 200).await;
    let cancelled = cancel(&mut client, &hold).await.expect("settled");
    assert_eq!((cancelled.charged, cancelled.refunded), (0, 200));
    assert_eq!(both_left(&mut client).await, (9_500, 500));
}

#[tokio::test]
async fn a_refused_reservation_holds_nothing_on_any_level() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let first = held(&mut client, 900).await;
    let refused = reserve(&mut client, wanted(&KEY, 200, HOUR)).await;
    let decision = refused.decision.expect("a decision");
    assert_eq!((decision.allowed, decision.remaining, decision.binding), (false, 100, Some(1)));
    assert_eq!((refused.hold.as_str(), refused.expires_after), ("", None));
    assert_eq!(both_left(&mut client).await, (9_100, 100));
    let summary =
        ReserveRequest { check: Some(CheckRequest { summary_only: true, ..check(&KEY) }), ..wanted(&KEY, 1, HOUR) };
    assert_eq!(reserve(&mut client, summary).await.decision.expect("a decision").levels, []);
    cancel(&mut client, &first).await.expect("settled");
    assert_eq!(both_left(&mut client).await, (9_999, 999));
}

#[tokio::test]
async fn an_overage_beyond_the_limit_is_a_debt() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    for (user, actual, tenant, debt) in [("alex", 800, 8_700, 300), ("olga", 5_000, 3_200, 500)] {
        let key = [KEY[0], KEY[1], user];
        client.check(CheckRequest { cost: Some(500), ..check(&key) }).await.expect("an answer");
        let hold = reserve(&mut client, wanted(&key, 100, HOUR)).await.hold;
        let overage = actual - 100;
        let expected = settled(actual, 0, overage.unsigned_abs());
        assert_eq!(commit(&mut client, &hold, Some(actual)).await.expect("settled"), expected);
        assert_eq!((left(&mut client, &key[..2]).await, left(&mut client, &key).await), (tenant, 0));
        let refused = client.check(check(&key)).await.expect("an answer").into_inner();
        // A unit comes back in a day. One Commit charges a bucket at most its limit.
        let days = refused.retry_after.expect("it can pass").seconds / 86_400;
        assert!(!refused.allowed && (debt..=debt + 1).contains(&days), "{refused:?}");
    }
}

#[tokio::test]
async fn the_first_settlement_counts_and_is_answered_again() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let (committed, cancelled) = (held(&mut client, 100).await, held(&mut client, 100).await);
    for actual in [Some(30), Some(30), Some(99), None] {
        assert_eq!(commit(&mut client, &committed, actual).await.expect("settled"), settled(30, 70, 0));
    }
    let late = cancel(&mut client, &committed).await.expect("settled");
    assert_eq!((late.charged, late.refunded), (30, 70), "a commit stands");
    for _ in 0..2 {
        assert_eq!(cancel(&mut client, &cancelled).await.expect("settled").refunded, 100);
    }
    assert_eq!(commit(&mut client, &cancelled, Some(60)).await.expect("settled"), settled(0, 100, 0));
    assert_eq!(code(extend(&mut client, &committed, HOUR).await), Code::NotFound, "it is over");
    assert_eq!(both_left(&mut client).await, (9_970, 970));
}

#[tokio::test]
async fn a_reservation_that_is_never_settled_is_kept_or_released() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let kept = reserve(&mut client, wanted(&KEY, 100, 50)).await;
    let release = ReserveRequest { on_expiry: OnExpiry::Release.into(), ..wanted(&KEY, 300, 400) };
    let released = reserve(&mut client, release).await;
    assert_eq!(left(&mut client, &KEY).await, 600);
    eventually_async("it is released", async || (left(&mut client, &KEY).await == 900).then_some(())).await;
    assert_eq!(both_left(&mut client).await, (9_900, 900), "what was to be kept is over before, and spent");
    for hold in [&kept.hold, &released.hold] {
        assert_eq!(code(commit(&mut client, hold, Some(10)).await), Code::NotFound);
        assert_eq!(code(cancel(&mut client, hold).await), Code::NotFound);
        assert_eq!(code(extend(&mut client, hold, HOUR).await), Code::NotFound);
    }
    assert_eq!(both_left(&mut client).await, (9_900, 900));
}

#[tokio::test]
async fn a_reservation_is_extended_and_cut_short() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let release = |cost, ttl| ReserveRequest { on_expiry: OnExpiry::Release.into(), ..wanted(&KEY, cost, ttl) };
    let extended = reserve(&mut client, release(100, 1_000)).await.hold;
    let until = micros(extend(&mut client, &extended, HOUR).await.expect("extended").expires_after);
    assert!((HOUR * 1_000 * 15 / 16..=HOUR * 1_000).contains(&until), "{until}");
    let other = reserve(&mut client, release(50, 2_000)).await.hold;
    eventually_async("the other one is over", async || (left(&mut client, &KEY).await == 900).then_some(())).await;
    assert_eq!(code(cancel(&mut client, &other).await), Code::NotFound);
    extend(&mut client, &extended, 10).await.expect("it is there");
    eventually_async("it is over", async || (left(&mut client, &KEY).await == 1_000).then_some(())).await;
}

#[tokio::test]
async fn a_changed_hold_settles_nothing() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let hold = held(&mut client, 100).await;
    let mut other_key = BASE64URL_NOPAD.decode(hold.as_bytes()).expect("a hold");
    let at = other_key.windows(4).position(|part| part == b"alex").expect("the key is in it");
    other_key[at..at + 4].copy_from_slice(b"olga");
    for changed in [changed(&hold), BASE64URL_NOPAD.encode(&other_key)] {
        assert_eq!(code(commit(&mut client, &changed, Some(0)).await), Code::NotFound);
    }
    for malformed in ["", "A", "elsewhere", &hold[1..], &hold[..20], &format!("{hold}="), &"A".repeat(70_000)] {
        let status = commit(&mut client, malformed, Some(0)).await.expect_err("no hold");
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some("hold".to_owned())), "{malformed:.40}");
    }
    assert_eq!(both_left(&mut client).await, (9_900, 900));
}

#[tokio::test]
async fn invalid_requests_name_the_field() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let good = || wanted(&KEY, 1, HOUR);
    let with = |change: &dyn Fn(&mut ReserveRequest)| {
        let mut request = good();
        change(&mut request);
        request
    };
    let check_with =
        |change: &dyn Fn(&mut CheckRequest)| with(&|request| change(request.check.as_mut().expect("a check")));
    for (request, field) in [
        (with(&|it| it.ttl = None), "ttl"),
        (with(&|it| it.ttl = millis(9)), "ttl"),
        (with(&|it| it.ttl = millis(24 * HOUR + 1)), "ttl"),
        (with(&|it| it.on_expiry = 3), "on_expiry"),
        (with(&|it| it.check = None), "check.key"),
        (check_with(&|it| it.cost = Some(0)), "check.cost"),
        (check_with(&|it| it.cost = Some(-1)), "check.cost"),
        (check_with(&|it| it.cost = Some(1 << 33)), "check.cost"),
        (check_with(&|it| it.dry_run = true), "check.dry_run"),
        (check_with(&|it| it.key[1].clear()), "check.key[1]"),
    ] {
        let status = client.reserve(request).await.expect_err("invalid");
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some(field.to_owned())), "{status:?}");
    }
    let nowhere = check_with(&|it| it.domain = "nowhere".to_owned());
    assert_eq!(code(client.reserve(nowhere).await), Code::NotFound);
    let hold = held(&mut client, 1).await;
    for actual in [-1, (1 << 32) + 1] {
        let status = commit(&mut client, &hold, Some(actual)).await.expect_err("invalid");
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some("actual".to_owned())));
    }
    let status = extend(&mut client, &hold, 1).await.expect_err("invalid");
    assert_eq!(refusal(&status), (Code::InvalidArgument, Some("ttl".to_owned())));
    assert_eq!(commit(&mut client, &hold, None).await.expect("settled"), settled(1, 0, 0));
}

#[tokio::test]
async fn what_cannot_be_reserved_is_a_failed_precondition() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    for (key, limit) in [("queue", "queued"), ("denied", "counts-all")] {
        let status = client.reserve(wanted(&[key], 1, HOUR)).await.expect_err("not reservable");
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains(limit), "{status:?}");
    }
    let factor = CheckRequest { factor: Some(0.5), ..check(&KEY) };
    let status = client.reserve(ReserveRequest { check: Some(factor), ..wanted(&KEY, 1, HOUR) }).await;
    assert_eq!(code(status), Code::FailedPrecondition, "the limits are the policy's");
    let each = Server::with_policy(&format!("charge: independent\n{POLICY}"));
    let status = each.client().await.reserve(wanted(&KEY, 1, HOUR)).await.expect_err("not reservable");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("independent"), "{status:?}");
}

#[tokio::test]
async fn limits_of_the_request_and_keys_without_limits_are_reserved() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let own = || with_limits(CheckRequest { cost: Some(5), ..check(&["own"]) }, vec![gcra(9, 1, 86_400)]);
    let hold = reserve(&mut client, ReserveRequest { check: Some(own()), ..wanted(&KEY, 1, HOUR) }).await.hold;
    assert_eq!(commit(&mut client, &hold, Some(2)).await.expect("settled"), settled(2, 3, 0));
    let peek = CheckRequest { cost: Some(0), ..own() };
    assert_eq!(client.check(peek).await.expect("an answer").into_inner().remaining, 8);

    let answer = reserve(&mut client, wanted(&["elsewhere"], 5, HOUR)).await;
    assert!(answer.decision.is_some_and(|decision| decision.allowed && decision.levels.is_empty()));
    assert_eq!(commit(&mut client, &answer.hold, Some(2)).await.expect("settled"), CommitResponse::default());
    assert_eq!(micros(extend(&mut client, &answer.hold, HOUR).await.expect("extended").expires_after), HOUR * 1_000);
}

fn post(http: &mut Http, path: &str, body: &Value) -> Answer {
    http.post(&format!("/v1/{path}"), body)
}

#[tokio::test]
async fn http_and_grpc_settle_each_others_reservations() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let mut http = Http::connect(&server.http).expect("it accepts connections");
    let body = json!({ "check": { "key": KEY, "cost": 200, "summaryOnly": true }, "ttl": "3600s", "onExpiry": "ON_EXPIRY_RELEASE" });
    let answer = post(&mut http, "reserve", &body);
    assert_eq!((answer.status, answer.header("ratelimit")), (200, Some("\"user\";r=800")), "{answer:?}");
    assert_eq!(answer.json()["decision"]["remaining"], "800");
    let hold = answer.json()["hold"].as_str().expect("a hold").to_owned();
    assert!(!extend(&mut client, &hold, HOUR).await.expect("extended").degraded);
    let answer = post(&mut http, "extend", &json!({ "hold": hold, "ttl": "60s" }));
    assert!(answer.status == 200 && answer.json()["expiresAfter"].is_string(), "{answer:?}");
    let committed = json!({ "charged": "260", "refunded": "0", "overage": "60", "degraded": false });
    for _ in 0..2 {
        assert_eq!(post(&mut http, "commit", &json!({ "hold": hold, "actual": 260 })).json(), committed);
    }
    let hold = held(&mut client, 100).await;
    let cancelled = json!({ "charged": "0", "refunded": "100", "degraded": false });
    assert_eq!(post(&mut http, "cancel", &json!({ "hold": hold })).json(), cancelled);

    let refused = post(&mut http, "reserve", &json!({ "check": { "key": KEY, "cost": 900 }, "ttl": "1s" }));
    let problem = refused.json();
    assert_eq!((refused.status, refused.header("content-type")), (429, Some("application/problem+json")));
    assert_eq!((&problem["violated-policies"], &problem["decision"]["allowed"]), (&json!(["user"]), &json!(false)));
    assert_eq!((&problem["hold"], &problem["expiresAfter"]), (&json!(""), &Value::Null));
    for (path, body, status, code, field) in [
        ("reserve", json!({ "check": { "key": KEY } }), 400, 3, "ttl"),
        ("reserve", json!({ "check": { "key": ["queue"] }, "ttl": "1s" }), 400, 9, ""),
        ("reserve", json!({ "check": { "key": KEY, "cots": 1 }, "ttl": "1s" }), 400, 3, "check.cots"),
        ("commit", json!({ "hold": "elsewhere" }), 400, 3, "hold"),
        ("commit", json!({ "hold": hold, "actual": -1 }), 400, 3, "actual"),
        ("cancel", json!({ "hold": hold, "actual": 1 }), 400, 3, "actual"),
        ("extend", json!({ "hold": hold, "ttl": "60s" }), 404, 5, "hold"),
    ] {
        let answer = post(&mut http, path, &body);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["code"], &error["field"]),
            (status, &json!(code), &json!(field)),
            "{answer:?}"
        );
    }
    assert_eq!(both_left(&mut client).await, (9_740, 740));
}

#[tokio::test]
async fn the_commands_reserve_and_settle() {
    let server = Server::with_policy(POLICY);
    let reserve = |cost: &str, more: &[&str]| {
        server.run(&[&["reserve"], &KEY[..], &["--cost", cost, "--ttl", "5m"], more].concat())
    };
    let printed = reserve("200", &[]);
    assert_eq!((printed.code, printed.err.as_str()), (0, ""));
    assert!(printed.out.starts_with("allowed; 800 of 1000 left, "), "{}", printed.out);
    let hold = printed.out.lines().last().expect("a hold").to_owned();
    let extended = server.run(&["extend", &hold, "--ttl", "1h"]);
    assert!(extended.code == 0 && extended.out.starts_with("held for "), "{extended:?}");
    for _ in 0..2 {
        assert_eq!(server.run(&["commit", &hold, "--actual", "50"]).out, "charged 50, gave back 150\n");
    }
    assert_eq!(server.run(&["cancel", &hold]).out, "committed before: charged 50, gave back 150\n");

    let printed = reserve("100", &["--on-expiry", "release", "--json"]);
    let answer: Value = serde_json::from_str(&printed.out).expect("JSON");
    assert_eq!((&answer["allowed"], &answer["remaining"]), (&json!(true), &json!(850)));
    assert!(answer["expires_after_us"].as_i64().is_some_and(|us| us > 280_000_000), "{answer}");
    let hold = answer["hold"].as_str().expect("a hold");
    assert_eq!(server.run(&["commit", hold, "--actual", "130"]).out, "charged 130, 30 more than reserved\n");
    let json = json!({ "charged": 130, "refunded": 0, "overage": 30, "degraded": false });
    assert_eq!(serde_json::from_str::<Value>(&server.run(&["commit", hold, "--json"]).out).expect("JSON"), json);

    let refused = reserve("900", &[]);
    assert_eq!(refused.code, 1);
    assert!(refused.out.starts_with("refused by user: 820 of 1000 left, "), "{}", refused.out);
    for (args, expected) in [
        (&["commit", "elsewhere"][..], "this is not a hold as Reserve answers it (INVALID_ARGUMENT)"),
        (&["cancel", &changed(hold)], "no such reservation: "),
        (&["reserve", "queue", "--ttl", "1s"], "(FAILED_PRECONDITION)"),
        (&["reserve", "queue", "--ttl", "2d"], "a ttl is 10 ms to 24 hours"),
        (&["reserve", "tenant", "acme"], "a reservation needs a ttl"),
        (&["reserve", "a", "--ttl", "1s", "--domain", "nowhere"], "(NOT_FOUND); did you mean the default domain"),
    ] {
        let failed = server.run(args);
        assert_eq!((failed.code, failed.out.as_str()), (2, ""), "{args:?}");
        assert!(failed.err.contains(expected), "{args:?}: {}", failed.err);
    }
}

/// The same hold with another id.
fn changed(hold: &str) -> String {
    let mut bytes = BASE64URL_NOPAD.decode(hold.as_bytes()).expect("a hold");
    bytes[9] ^= 4;
    BASE64URL_NOPAD.encode(&bytes)
}

#[tokio::test]
async fn a_reservation_is_its_clients_alone() {
    let [one, other, reads] = [(); 3].map(|()| token());
    let callers = [
        caller("one", "check", &one, ""),
        caller("other", "check", &other, ""),
        caller("reads", "metrics", &reads, ""),
    ];
    let server = Setup::new().policy(POLICY).callers(&format!("callers:\n{}", callers.concat())).start();
    let mut client = server.client().await;
    let hold =
        client.reserve(by(Some(&one.token), wanted(&KEY, 100, HOUR))).await.expect("an answer").into_inner().hold;
    let commit = |token: Option<&str>| by(token, CommitRequest { hold: hold.clone(), actual: Some(0) });
    assert_eq!(code(client.commit(commit(None)).await), Code::Unauthenticated);
    assert_eq!(code(client.commit(commit(Some(&reads.token))).await), Code::PermissionDenied);
    assert_eq!(code(client.reserve(by(Some(&reads.token), wanted(&KEY, 1, HOUR))).await), Code::PermissionDenied);
    assert_eq!(code(client.commit(commit(Some(&other.token))).await), Code::NotFound);
    let cancel = by(Some(&other.token), CancelRequest { hold: hold.clone() });
    assert_eq!(code(client.cancel(cancel).await), Code::NotFound);
    let settle = |token: &str| {
        // A connection whose request was rejected unread may end.
        let mut http = Http::connect(&server.http).expect("it accepts connections");
        let authorization = format!("Bearer {token}");
        let body = json!({ "hold": hold, "actual": 40 }).to_string();
        http.ask("POST /v1/commit", &[("authorization", &authorization)], body.as_bytes()).expect("it answers")
    };
    assert_eq!((settle(&other.token).status, settle(&reads.token).status), (404, 403));
    assert_eq!(settle(&one.token).json()["refunded"], "60");
}

#[tokio::test]
async fn a_reset_keeps_what_is_reserved_charged() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    for (depth, subtree) in [(3, false), (2, true)] {
        let hold = held(&mut client, 200).await;
        client.check(CheckRequest { cost: Some(300), ..check(&KEY) }).await.expect("an answer");
        let key = KEY[..depth].iter().map(ToString::to_string).collect();
        client.reset(ResetRequest { key, subtree, ..ResetRequest::default() }).await.expect("a reset");
        assert_eq!(left(&mut client, &KEY).await, 800, "what is reserved");
        assert_eq!(commit(&mut client, &hold, Some(50)).await.expect("settled"), settled(50, 150, 0));
        assert_eq!(left(&mut client, &KEY).await, 950);
        client
            .reset(ResetRequest { key: KEY.map(str::to_owned).into(), ..ResetRequest::default() })
            .await
            .expect("a reset");
    }
}

#[tokio::test]
async fn a_changed_policy_settles_the_limits_that_are_left() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let (first, second) = (held(&mut client, 200).await, held(&mut client, 200).await);
    let without_user = POLICY.split("        children:").next().expect("the tenant's limit");
    let with_another = format!(
        "{without_user}        children: {{ '*': {{ limits: [{{ token_bucket: {{ capacity: 500, count: 1, period: 1d }}, name: new }}] }} }}\n"
    );
    server.replace_policy(&with_another);
    server.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 1.0);
    assert_eq!(commit(&mut client, &first, Some(50)).await.expect("settled"), settled(50, 150, 0));
    assert_eq!(both_left(&mut client).await, (9_750, 500), "the new limit is not charged");
    server.replace_policy(&format!("{without_user}  other: {{}}\n"));
    server.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 2.0);
    assert_eq!(cancel(&mut client, &second).await.expect("settled").refunded, 200);
    assert_eq!(left(&mut client, &KEY[..2]).await, 9_950);
    server.replace_policy("schema: { other: {} }");
    server.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 3.0);
    assert_eq!(code(commit(&mut client, &first, Some(50)).await), Code::NotFound, "no limit is left");
}

#[tokio::test]
async fn reservations_are_counted() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let holds = [held(&mut client, 100).await, held(&mut client, 100).await, held(&mut client, 100).await];
    reserve(&mut client, wanted(&KEY, 900, HOUR)).await;
    commit(&mut client, &holds[0], Some(30)).await.expect("settled");
    // A repeated call is another call, but moves no units.
    for _ in 0..2 {
        commit(&mut client, &holds[1], Some(150)).await.expect("settled");
    }
    extend(&mut client, &holds[2], HOUR).await.expect("extended");
    cancel(&mut client, &holds[2]).await.expect("settled");
    let unknown = changed(&holds[2]);
    commit(&mut client, &unknown, None).await.expect_err("unknown");
    for (outcome, count) in [
        ("reserved", 3.0),
        ("refused", 1.0),
        ("committed", 3.0),
        ("cancelled", 1.0),
        ("extended", 1.0),
        ("unknown", 1.0),
    ] {
        let series = format!("weir_reservations_total{{domain=\"default\",outcome=\"{outcome}\"}}");
        assert_eq!(server.metric(&series), count, "{outcome}");
    }
    for (kind, units) in [("reserved", 300.0), ("refunded", 170.0), ("overage", 50.0)] {
        let series = format!("weir_reservation_units_total{{domain=\"default\",kind=\"{kind}\"}}");
        assert_eq!(server.metric(&series), units, "{kind}");
    }
    // A reservation is a check too.
    let checks = |outcome| format!("weir_checks_total{{domain=\"default\",transport=\"grpc\",outcome=\"{outcome}\"}}");
    assert_eq!((server.metric(&checks("allowed")), server.metric(&checks("limited"))), (3.0, 1.0));
    assert_eq!(server.metric("weir_charged_units_total{domain=\"default\",limit=\"user\"}"), 300.0);
}

#[tokio::test]
async fn the_access_log_has_the_calls_of_reservations_and_no_holds() {
    let server = Setup::new().policy(POLICY).env("WEIR_LOG__LEVEL", "weir=debug,info").start();
    let mut client = server.client().await;
    let hold = held(&mut client, 100).await;
    extend(&mut client, &hold, HOUR).await.expect("extended");
    commit(&mut client, &hold, Some(10)).await.expect("settled");
    let calls = crate::support::eventually("three lines", || {
        let lines = server.log_lines("answered");
        (lines.len() == 3).then_some(lines)
    });
    for (line, method) in calls.iter().zip(["Reserve", "Extend", "Commit"]) {
        let expected = (json!(format!("weir.v1.RateLimiter/{method}")), json!("OK"), json!("default"));
        assert_eq!((&line["call"], &line["status"], &line["domain"]), (&expected.0, &expected.1, &expected.2));
    }
    let log = server.log().concat();
    assert!(!log.contains(&hold) && !log.contains("alex"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_settles_after_a_restart_and_an_outage_is_an_error() {
    let mut redis = Redis::start(Options::port());
    let start = || Setup::new().policy(POLICY).shared(&redis).start();
    let first = start();
    let hold = held(&mut first.client().await, 100).await;
    drop(first);
    let second = start();
    let mut client = second.client().await;
    assert_eq!(both_left(&mut client).await, (9_900, 900));
    assert_eq!(commit(&mut client, &hold, Some(30)).await.expect("settled"), settled(30, 70, 0));
    assert_eq!(both_left(&mut client).await, (9_970, 970));

    let hold = held(&mut client, 100).await;
    redis.kill();
    assert_eq!(code(commit(&mut client, &hold, Some(30)).await), Code::Unavailable);
    // Decided by this replica's memory, which holds nothing for others.
    let answer = reserve(&mut client, wanted(&KEY, 100, HOUR)).await;
    assert!(answer.decision.is_some_and(|decision| decision.allowed && decision.degraded));
    let nothing = CommitResponse { degraded: true, ..CommitResponse::default() };
    assert_eq!(commit(&mut client, &answer.hold, Some(30)).await.expect("an answer"), nothing);
    assert!(cancel(&mut client, &answer.hold).await.expect("an answer").degraded);
    assert!(extend(&mut client, &answer.hold, HOUR).await.expect("an answer").degraded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_spend_no_more_than_the_limit_and_their_overage() {
    const QUOTA: u64 = 400_000;
    // What comes back while the test runs is less than a unit.
    let limit =
        |units, daily| format!("limits: [{{ token_bucket: {{ capacity: {units}, count: {daily}, period: 1d }} }}]");
    let (all, each) = (limit(10 * QUOTA, 1_000), limit(QUOTA, 100));
    let policy = format!("schema: {{ a: {{ {all}, children: {{ b: {{ {each} }} }} }} }}");
    let server = [Server::with_policy(&policy)];
    let spent = crowd(&server, &["a", "b"]).await;
    assert!(spent.charged - spent.overage <= QUOTA, "what was reserved is within the quota: {spent:?}");
    assert!((QUOTA / 2..=QUOTA + most_overage()).contains(&spent.charged), "{spent:?}");
    let mut client = server[0].client().await;
    assert_eq!(left(&mut client, &["a"]).await, 10 * QUOTA - spent.charged, "each unit is charged once");
    assert_eq!(left(&mut client, &["a", "b"]).await, QUOTA.saturating_sub(spent.charged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_keeps_reservations() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("snapshot");
    let path = path.to_str().expect("a path");
    let start = || Setup::new().policy(POLICY).env("WEIR_STORE__SNAPSHOT__PATH", path).start();
    let mut first = start();
    let mut client = first.client().await;
    let (open, over) = (held(&mut client, 100).await, held(&mut client, 100).await);
    commit(&mut client, &over, Some(30)).await.expect("settled");
    first.signal(Signal::TERM);
    assert_eq!(first.wait_for_end(), 0);
    let second = start();
    let mut client = second.client().await;
    assert_eq!(both_left(&mut client).await, (9_870, 870));
    assert_eq!(commit(&mut client, &over, Some(99)).await.expect("settled"), settled(30, 70, 0), "it is over");
    assert_eq!(commit(&mut client, &open, Some(20)).await.expect("settled"), settled(20, 80, 0));
    assert_eq!(both_left(&mut client).await, (9_950, 950));
}
