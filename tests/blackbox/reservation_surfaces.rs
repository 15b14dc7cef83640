//! Reservations over HTTP and by the commands: ownership, log and metrics.

use serde_json::{Value, json};
use tonic::Code;
use weir::proto::{CancelRequest, CommitRequest};

use crate::{
    reservations::{KEY, POLICY, both_left, changed, code, held},
    support::{
        Server, eventually,
        http::{Answer, Client as Http},
        reservations::{HOUR, cancel, commit, extend, reserve, wanted},
        server::Setup,
    },
    tokens::{by, caller, token},
};

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
    let answer = printed.json();
    assert_eq!((&answer["allowed"], &answer["remaining"]), (&json!(true), &json!(850)));
    assert!(answer["expires_after_us"].as_i64().is_some_and(|us| us > 280_000_000), "{answer}");
    let hold = answer["hold"].as_str().expect("a hold");
    assert_eq!(server.run(&["commit", hold, "--actual", "130"]).out, "charged 130, 30 more than reserved\n");
    let json = json!({ "charged": 130, "refunded": 0, "overage": 30, "degraded": false });
    assert_eq!(server.run(&["commit", hold, "--json"]).json(), json);

    let refused = reserve("900", &[]);
    assert_eq!(refused.code, 1);
    assert!(refused.out.starts_with("refused by user: 820 of 1000 left, "), "{}", refused.out);
    for (args, expected) in [
        (&["commit", "elsewhere"][..], "not a hold that Reserve returned (INVALID_ARGUMENT)"),
        (&["cancel", &changed(hold)], "no such reservation: "),
        (&["reserve", "queue", "--ttl", "1s"], "(FAILED_PRECONDITION)"),
        (&["reserve", "queue", "--ttl", "2d"], "a ttl must be 10 ms to 24 hours"),
        (&["reserve", "tenant", "acme"], "a reservation needs a ttl"),
        (&["reserve", "a", "--ttl", "1s", "--domain", "nowhere"], "(NOT_FOUND); did you mean the default domain"),
    ] {
        let failed = server.run(args);
        assert_eq!((failed.code, failed.out.as_str()), (2, ""), "{args:?}");
        assert!(failed.err.contains(expected), "{args:?}: {}", failed.err);
    }
}

#[tokio::test]
async fn a_reservation_is_its_clients_alone() {
    let [one, other, reads] = [(); 3].map(|()| token());
    let callers = [
        caller("one", "check", &one, ""),
        caller("other", "check", &other, ""),
        caller("reads", "metrics", &reads, ""),
    ];
    let server = Setup::new().policy(POLICY).credentials(&format!("callers:\n{}", callers.concat())).start();
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
    let settle = |token: &str| server.ask("POST /v1/commit", Some(token), &json!({ "hold": hold, "actual": 40 }));
    assert_eq!((settle(&other.token).status, settle(&reads.token).status), (404, 403));
    assert_eq!(settle(&one.token).json()["refunded"], "60");
}

#[tokio::test]
async fn the_access_log_has_the_calls_of_reservations_and_no_holds() {
    let server = Setup::new().policy(POLICY).env("WEIR_LOG__LEVEL", "weir=debug,info").start();
    let mut client = server.client().await;
    let hold = held(&mut client, 100).await;
    extend(&mut client, &hold, HOUR).await.expect("extended");
    commit(&mut client, &hold, Some(10)).await.expect("settled");
    let calls = eventually("three lines", || {
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

#[tokio::test]
async fn reservations_are_counted() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let holds = [held(&mut client, 100).await, held(&mut client, 100).await, held(&mut client, 100).await];
    reserve(&mut client, wanted(&KEY, 900, HOUR)).await;
    commit(&mut client, &holds[0], Some(30)).await.expect("settled");
    // A repeated call counts as a call, but moves no units.
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
    // A reservation counts as a check too.
    let checks = |outcome| format!("weir_checks_total{{domain=\"default\",transport=\"grpc\",outcome=\"{outcome}\"}}");
    assert_eq!((server.metric(&checks("allowed")), server.metric(&checks("limited"))), (3.0, 1.0));
    assert_eq!(server.metric("weir_charged_units_total{domain=\"default\",limit=\"user\"}"), 300.0);
}
