//! Access control of the explorer: roles and cross-origin requests.

use serde_json::{Value, json};

use crate::{
    explorer::{API, PAGES, POLICY, query, refused, setup, simulation},
    support::http::Client,
    tokens::{caller, token},
};

#[test]
fn invalid_and_cross_origin_requests_are_rejected() {
    let server = setup().policy(POLICY).start();
    for (body, status) in [
        (json!({ "domain": "", "key": [] }), 400),
        (json!({ "domain": "", "key": vec!["a"; 33] }), 400),
        (json!({ "domain": "", "key": ["a"], "cost": -(1_i64 << 40) }), 400),
        (json!({ "domain": "", "key": ["a"], "cost": -1 }), 400),
        (json!({ "domain": "", "key": ["a"], "factor": -1 }), 400),
        (json!({ "domain": "nowhere", "key": ["a"] }), 400),
        (json!({ "key": "a" }), 400),
        (json!([1]), 400),
    ] {
        let (found, why) = refused(&server, "key", body.clone());
        assert!(found == status || found == 404, "{body}: {found} {why}");
    }
    let mut client = Client::connect(&server.http).expect("it accepts connections");
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let answer = client.ask("POST /ui/api/key", &[("content-type", kind)], b"{}").expect("an answer");
        assert_eq!(answer.status, 415, "another site's page cannot send what is not JSON");
        client = Client::connect(&server.http).expect("it accepts connections");
    }
    let foreign = [("content-type", "application/json"), ("origin", "http://elsewhere.example")];
    for path in ["POST /ui/api/key", "POST /v1/reset"] {
        assert_eq!(
            client.ask(path, &foreign, b"{}").expect("an answer").status,
            403,
            "another site's page asks nothing"
        );
        client = Client::connect(&server.http).expect("it accepts connections");
    }
    assert_eq!(query(&server, "key", json!({ "domain": "", "key": ["elsewhere"] }))["levels"], json!([]));
    // Without authentication a client on loopback has every role, but those that settings take from it.
    assert_eq!(server.ask(API[0], None, &Value::Null).json()["roles"], json!(["check", "reset", "metrics", "admin"]));
    let server = setup().policy(POLICY).env("WEIR_RESET", "authenticated").env("WEIR_ADMIN", "authenticated").start();
    assert_eq!(server.ask(API[0], None, &Value::Null).json()["roles"], json!(["check", "metrics"]));
    assert_eq!(server.ask("POST /v1/reset", None, &json!({ "domain": "", "key": ["a"] })).status, 403);
}

/// DNS rebinding: a name resolves to an attacker's page first, and to this service later.
#[test]
fn unknown_host_names_are_rejected_against_dns_rebinding() {
    let server = setup().policy(POLICY).env("WEIR_HTTP__UI__HOSTS", "weir.example").start();
    let status = |request: &str, host: &str| {
        let origin = format!("http://{host}");
        let headers = [("content-type", "application/json"), ("sec-fetch-site", "same-origin"), ("origin", &origin)];
        let body = json!({ "domain": "", "key": ["user", "alex"] }).to_string();
        let mut client = Client::connect(&server.http).expect("it accepts connections");
        let answer = client.ask(request, &headers, body.as_bytes()).expect("an answer");
        (answer.status, answer.body)
    };
    for request in ["POST /ui/api/key", "POST /v1/check"] {
        assert_eq!(status(request, "weir.example:8080").0, 200, "{request}");
        assert_eq!(status(request, "localhost:8080").0, 200, "{request}");
        let (status, why) = status(request, "rebound.example:8080");
        assert!(status == 403 && why.contains("name it in http.ui.hosts"), "{request}: {status} {why}");
    }
    assert_eq!(status("POST /v1/reset", "rebound.example").0, 403);
}

#[test]
fn any_host_name_is_accepted_with_authentication() {
    let all = token();
    let callers = format!("callers:\n{}", caller("all", "check, reset, metrics", &all, ""));
    let server = setup().policy(POLICY).credentials(&callers).start();
    let authorization = format!("Bearer {}", all.token);
    let headers = [
        ("content-type", "application/json"),
        ("sec-fetch-site", "same-origin"),
        ("origin", "http://weir.example:8080"),
        ("authorization", &authorization),
    ];
    for request in ["POST /ui/api/key", "POST /v1/reset"] {
        let mut client = Client::connect(&server.http).expect("it accepts connections");
        let answer = client.ask(request, &headers, br#"{ "domain": "", "key": ["user", "alex"] }"#);
        assert_eq!(answer.expect("an answer").status, 200, "{request}");
    }
}

#[test]
fn roles_decide_which_endpoints_a_client_can_read() {
    let tokens: Vec<_> = (0..4).map(|_| token()).collect();
    let [checks, resets, metrics, all] = &tokens[..] else { unreachable!() };
    let callers = [
        caller("checks", "check", checks, ""),
        caller("resets", "reset", resets, ""),
        caller("metrics", "metrics", metrics, ""),
        caller("all", "check, reset, metrics", all, ""),
    ];
    let server = setup().policy(POLICY).credentials(&format!("callers:\n{}", callers.concat())).start();
    for path in PAGES {
        assert_eq!(server.get(path).0, 200, "{path} holds no data");
    }
    let bodies = [
        Value::Null,
        json!({}),
        json!({ "domain": "" }),
        json!({ "domain": "", "key": ["a"] }),
        json!({ "domain": "" }),
        simulation(),
    ];
    for (token, expected, roles) in [
        (Some(checks), [200, 403, 403, 200, 403, 403], json!(["check"])),
        (Some(resets), [200, 403, 403, 403, 403, 403], json!(["reset"])),
        (Some(metrics), [200, 200, 200, 403, 200, 200], json!(["metrics"])),
        (Some(all), [200; 6], json!(["check", "reset", "metrics"])),
        (None, [401; 6], Value::Null),
    ] {
        let token = token.map(|token| token.token.as_str());
        let answers: Vec<_> = API.iter().zip(&bodies).map(|(request, body)| server.ask(request, token, body)).collect();
        let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, expected, "{roles}");
        assert_eq!(answers[0].json()["roles"], roles);
    }
}
