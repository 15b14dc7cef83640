//! Checks that are decided together: all are charged, or none.

use prost::Message as _;
use serde_json::json;
use tonic::Code;
use weir::{
    proto::{CheckAllRequest, CheckAllResponse, CheckRequest, Override, r#override::Change},
    transport::calls::Call,
};

use crate::support::{
    Server,
    http::Client,
    overrides::{over, try_set},
    plain::{Plain, framed},
    requests::{check, gcra, peek, refusal, seconds_long, short, with_limits},
};

/// Five trades a day for each user, six for all users of a desk.
const POLICY: &str = "charge: independent\nschema: { slots: { limits: [{ concurrency: { max: 1, ttl: 1m } }] }, desk: { children: { '*': { limits: [{ gcra: { burst: 5, count: 1, \
                      period: 1d }, name: desk }], children: { '*': { limits: [{ gcra: { burst: 4, count: 1, period: 1d \
                      }, name: trader }] } } } } } }";

fn trade(desk: &str, trader: &str, cost: i64) -> CheckRequest {
    CheckRequest { cost: Some(cost), ..check(&["desk", desk, trader]) }
}

async fn ask(server: &Server, checks: Vec<CheckRequest>) -> CheckAllResponse {
    server.client().await.check_all(CheckAllRequest { checks }).await.expect("an answer").into_inner()
}

async fn left(server: &Server, desk: &str, trader: &str) -> Vec<u64> {
    let answer = server.check(peek(&["desk", desk, trader])).await;
    answer.levels.iter().map(|level| level.remaining).collect()
}

#[tokio::test]
async fn all_are_charged_or_none() {
    let server = Server::with_policy(POLICY);
    let answer = ask(&server, vec![trade("a", "alex", 2), trade("b", "berta", 3)]).await;
    assert!(answer.allowed);
    assert_eq!(answer.results.iter().map(short).collect::<Vec<_>>(), [(true, 5, 3), (true, 5, 2)]);
    // With `charge: independent` a single check would charge the desks.
    let answer = ask(&server, vec![trade("a", "alex", 2), trade("b", "berta", 3)]).await;
    assert!(!answer.allowed);
    assert_eq!(answer.results.iter().map(short).collect::<Vec<_>>(), [(true, 5, 3), (false, 5, 2)]);
    assert!(answer.results[0].retry_after.is_none() && answer.results[1].retry_after.is_some());
    assert_eq!((left(&server, "a", "alex").await, left(&server, "b", "berta").await), (vec![4, 3], vec![3, 2]));

    // The costs of checks on the same limit add up.
    assert!(!ask(&server, vec![trade("c", "alex", 4), trade("c", "berta", 3)]).await.allowed, "7 of 6 for the desk");
    assert!(!ask(&server, vec![trade("c", "alex", 3), trade("c", "alex", 3)]).await.allowed, "6 of 5 for alex");
    assert_eq!(left(&server, "c", "alex").await, [6, 5]);
    let answer = ask(&server, vec![trade("c", "alex", 4), trade("c", "berta", 1), trade("c", "alex", 1)]).await;
    assert!(answer.allowed, "{answer:?}");
    assert_eq!((left(&server, "c", "alex").await, left(&server, "c", "berta").await), (vec![0, 0], vec![0, 4]));
}

#[tokio::test]
async fn every_surface_decides_together() {
    let server = Server::with_policy(POLICY);
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    let body = |cost| {
        json!({ "checks": [{ "key": ["desk", "a", "alex"], "cost": cost, "summaryOnly": true },
                           { "key": ["desk", "b", "berta"] }] })
    };
    let answer = http.post("/v1/check_all", &body(4));
    assert_eq!((answer.status, answer.header("ratelimit")), (200, Some("\"trader\";r=1")));
    let answer = answer.json();
    assert_eq!((&answer["allowed"], &answer["results"][0]["remaining"]), (&json!(true), &json!("1")));
    assert_eq!((&answer["results"][0]["levels"], &answer["results"][1]["remaining"]), (&json!([]), &json!("4")));
    let refused = http.post("/v1/check_all", &body(2));
    assert_eq!((refused.status, refused.header("content-type")), (429, Some("application/problem+json")));
    assert!(refused.header("retry-after").is_some());
    let refused = refused.json();
    assert_eq!((&refused["allowed"], &refused["violated-policies"]), (&json!(false), &json!(["trader"])));
    assert_eq!(refused["results"][1]["allowed"], json!(true));
    let printed = server.run(&["check", "--all", "desk/a/alex", "desk/b/berta"]);
    assert_eq!((printed.code, printed.out.lines().next()), (0, Some("all are allowed")), "{}", printed.err);
    assert!(printed.out.contains("\ndesk/b/berta: allowed; 3 of 5 left"), "{}", printed.out);
    let printed = server.run(&["check", "--all", "desk/a/alex", "desk/b/berta", "--json"]);
    let value = printed.json();
    assert_eq!((printed.code, &value["allowed"], &value["results"][1]["remaining"]), (1, &json!(false), &json!(3)));
    let metric = |transport: &str, outcome: &str| {
        let labels = format!("domain=\"default\",transport=\"{transport}\",outcome=\"{outcome}\"");
        server.metric(&format!("weir_checks_total{{{labels}}}"))
    };
    assert_eq!((metric("http_all", "allowed"), metric("http_all", "limited")), (2.0, 2.0));
    assert_eq!((metric("grpc_all", "allowed"), metric("grpc_all", "limited")), (2.0, 2.0));
    assert_eq!(server.metric("weir_check_duration_seconds_count{transport=\"grpc_all\"}"), 2.0);
    let charged =
        |limit: &str| server.metric(&format!("weir_charged_units_total{{domain=\"default\",limit=\"{limit}\"}}"));
    assert_eq!((charged("desk"), charged("trader")), (7.0, 7.0));
}

#[test]
fn the_command_says_why_checks_never_pass_together() {
    let server = Server::with_policy(POLICY);
    let never = |keys: &[&str]| {
        let printed = server.run(&[&["check", "--all", "--cost", "4"], keys].concat());
        assert_eq!(printed.code, i32::from(keys.len() > 1), "{}", printed.out);
        printed.out.matches("6 of 6 left, never: the checks together cost more than the limit\n").count()
    };
    // For each check of the desk the summary and the limit; for alex's other desk nothing.
    assert_eq!(never(&["desk/c/alex", "desk/c/berta", "desk/d/alex"]), 4);
    assert_eq!(never(&["desk/c/alex"]), 0);
}

#[test]
fn the_command_suggests_a_domain() {
    let server = Server::with_policy(POLICY);
    let failed = server.run(&["check", "--all", "desk/a/alex", "desk/b/berta", "--domain", "nowhere"]);
    let hint = "did you mean the default domain (without --domain)?";
    assert!(failed.code == 2 && failed.err.contains("`nowhere`") && failed.err.contains(hint), "{}", failed.err);
}

#[test]
fn a_key_of_the_command_may_have_escaped_slashes() {
    let server = Server::with_policy(POLICY);
    for (key, expected) in [
        ("desk/", "weir: desk/: segment 1 is empty (INVALID_ARGUMENT)\n"),
        (r"desk\", r"the key `desk\` ends with a `\` that escapes nothing"),
    ] {
        let wrong = server.run(&["check", "--all", "desk/a/alex", key]);
        assert!(wrong.code == 2 && wrong.err.contains(expected), "{wrong:?}");
    }
    let unlimited = server.run(&["check", "--all", "desk/a/alex", r"desk\/a\/alex", "--dry-run"]);
    let hint = r"`'desk\/a\/alex'`: segments end at `/`, not at `\/`; did you mean `desk/a/alex`?";
    assert_eq!(unlimited.err, format!("weir: warning: no limit applies to {hint}\n"));
    let escaped = server.run(&["check", "--all", r"net/10.0.0.0\/8", "--dry-run"]);
    assert!(escaped.err.contains(r"no limit applies to `'net/10.0.0.0\/8'`"), "{escaped:?}");
}

#[tokio::test]
async fn a_dry_run_and_the_limits_of_requests() {
    let server = Server::with_policy(POLICY);
    let dry_run = |check: CheckRequest| CheckRequest { dry_run: true, ..check };
    for _ in 0..2 {
        let answer = ask(&server, vec![dry_run(trade("a", "alex", 5)), dry_run(trade("b", "berta", 1))]).await;
        assert!(answer.allowed && answer.results[0].remaining == 0, "{answer:?}");
    }
    assert_eq!(server.metric("weir_dry_runs_total{domain=\"default\"}"), 4.0);
    let own = |name: &str| with_limits(check(&[name]), vec![gcra(0, 1, 86_400)]);
    assert!(ask(&server, vec![own("x"), own("y")]).await.allowed);
    let answer = ask(&server, vec![own("z"), own("y")]).await;
    assert!(!answer.allowed && answer.results[0].allowed);
    assert!(ask(&server, vec![own("z")]).await.allowed, "it was not charged");
}

#[tokio::test]
async fn the_shortest_wait_applies_to_all() {
    let server =
        Server::with_policy("schema: { '*': { limits: [{ leaky_queue: { count: 1, period: 1m, burst: 5 } }] } }");
    let waiting =
        |key: &str, seconds: Option<i64>| CheckRequest { max_wait: seconds.map(seconds_long), ..check(&[key]) };
    for seconds in [None, Some(90)] {
        let answer = ask(&server, vec![waiting("a", seconds), waiting("b", None)]).await;
        assert!(answer.allowed, "{answer:?}");
    }
    let answer = ask(&server, vec![waiting("a", Some(600)), waiting("b", Some(60))]).await;
    assert!(!answer.allowed, "both would wait for nearly two minutes: {answer:?}");
}

#[tokio::test]
async fn errors_name_the_check_and_charge_nothing() {
    let server = Server::with_policy(POLICY);
    let good = || trade("a", "alex", 1);
    let elsewhere = CheckRequest { domain: "other".to_owned(), ..good() };
    let dry_run = CheckRequest { dry_run: true, ..good() };
    let mut independent = with_limits(check(&["x"]), vec![gcra(0, 1, 60)]);
    let own = independent.clone();
    independent.limit_spec.as_mut().expect("limits").charge = 2;
    for (checks, field) in [
        (vec![], "checks"),
        (vec![good(); 33], "checks"),
        (vec![good(), check::<&str>(&[])], "checks[1].key"),
        (vec![good(), CheckRequest { cost: Some(1 << 33), ..good() }], "checks[1].cost"),
        (vec![good(), elsewhere], "checks[1].domain"),
        (vec![good(), dry_run], "checks[1].dry_run"),
        (vec![good(), own.clone()], "checks[1].limit_spec"),
        (vec![good(), CheckRequest { request_id: "again".to_owned(), ..good() }], "checks[1].request_id"),
        (vec![own, independent], "checks[1].limit_spec.charge"),
        (vec![good(), with_limits(good(), vec![gcra(0, 0, 60)])], "checks[1].limit_spec.limits[0].gcra.count"),
        (vec![good(), CheckRequest { factor: Some(1e-12), ..good() }], "checks[1].factor"),
        (vec![good(), trade("b", "berta", 1), CheckRequest { factor: Some(2.0), ..good() }], "checks[2].factor"),
        (
            vec![with_limits(good(), vec![gcra(5, 1, 60)]), with_limits(good(), vec![gcra(9, 1, 60)])],
            "checks[1].limit_spec",
        ),
    ] {
        let status = server.client().await.check_all(CheckAllRequest { checks }).await.expect_err(field);
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some(field.to_owned())));
    }
    let failed = || server.metric("weir_checks_total{domain=\"other\",transport=\"http_all\",outcome=\"error\"}");
    let (before, good) = (failed(), json!({ "key": ["desk", "a", "alex"] }));
    let nowhere = json!({ "key": ["desk"], "domain": "nowhere" });
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    for (checks, status, field) in [
        ([&nowhere, &nowhere], 404, "checks[0].domain"),
        ([&good, &json!({ "key": ["slots"] })], 400, "checks[1]"),
        ([&good, &json!({ "kye": [] })], 400, "checks[1].kye"),
        ([&good, &json!(null)], 400, "checks[1]"),
    ] {
        let answer = http.post("/v1/check_all", &json!({ "checks": checks }));
        assert_eq!((answer.status, &answer.json()["error"]["field"]), (status, &json!(field)));
    }
    assert_eq!(failed() - before, 4.0, "both checks of an unknown domain count, and a call that cannot be read");
    assert_eq!(left(&server, "a", "alex").await, [6, 5]);
}

#[tokio::test]
async fn a_call_that_cannot_be_read_counts_once() {
    let server = Server::with_policy(POLICY);
    let failed = |transport| {
        server.metric(&format!("weir_checks_total{{domain=\"other\",transport=\"{transport}\",outcome=\"error\"}}"))
    };
    let checks = vec![trade("a", "alex", 1); 33];
    let too_many = json!({ "checks": vec![json!({ "key": ["desk", "a", "alex"] }); checks.len()] }).to_string();
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    for (count, body) in (1..).zip(["{bad", r#"{"checks":1}"#, r#"{"checks":[],"x":1}"#, "{}", &too_many]) {
        let answer = http.ask("POST /v1/check_all", &[], body.as_bytes()).expect("an answer");
        assert_eq!((answer.status, failed("http_all")), (400, f64::from(count)), "{body}");
    }
    let too_many = CheckAllRequest { checks }.encode_to_vec();
    let plain = Plain::connect(&server.grpc).await;
    for (count, message) in (1..).zip([&b"\xff\xff"[..], b"", &too_many]) {
        let answer = plain.call(Call::CheckAll.path(), &[], framed(message, false)).await;
        assert_eq!((answer.code(), failed("grpc_all")), (Code::InvalidArgument, f64::from(count)), "{message:?}");
    }
}

#[tokio::test]
async fn of_several_bans_the_last_to_end_counts() {
    let server = Server::with_policy(POLICY);
    for (trader, ttl) in [("short", Some(10)), ("long", Some(3_600)), ("open", None)] {
        let ban = Override { reason: trader.to_owned(), ..over(&["desk", "a", trader], Change::Ban(true)) };
        try_set(&server, ban, ttl).await.expect("it is set");
    }
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    for (traders, reason, retry) in [
        (["short", "long"], "long", true),
        (["long", "short"], "long", true),
        (["open", "long"], "open", false),
        (["long", "open"], "open", false),
    ] {
        let checks = traders.map(|trader| json!({ "key": ["desk", "a", trader] }));
        let answer = http.post("/v1/check_all", &json!({ "checks": checks }));
        assert_eq!(
            (answer.status, &answer.json()["detail"]),
            (429, &json!(format!("banned: {reason}"))),
            "{traders:?}"
        );
        assert_eq!(answer.header("retry-after").is_some_and(|after| after.len() == 4), retry, "{traders:?}");
    }
}
