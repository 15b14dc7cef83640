//! Checks as JSON over HTTP: bodies and headers of the answers.

use serde_json::{Value, json};

use crate::support::{Server, http::Client, server::Setup};

/// Ten units a day for each user; six for trades, one of which refills in 100 s, with a name that headers must escape.
const POLICY: &str = "schema: { user: { children: { '*': { limits: [{ gcra: { burst: 9, count: 10, period: 1d }, name: \
                      per-user }, { fixed_window: { count: 1, period: 31d }, shadow: true, name: watched }], children: { \
                      trade: { limits: [{ gcra: { burst: 5, count: 36, period: 1h }, name: 'tr\"de für' }] } } } } } }";

fn client(server: &Server) -> Client {
    Client::connect(&server.http).expect("it accepts connections")
}

fn trade(cost: i64) -> Value {
    trade_of("alex", cost)
}

fn trade_of(user: &str, cost: i64) -> Value {
    json!({ "key": ["user", user, "trade"], "cost": cost })
}

/// Parses a duration as seconds.
fn seconds(of: &Value) -> f64 {
    of.as_str().and_then(|text| text.strip_suffix('s')).expect("a length of time").parse().expect("seconds")
}

#[test]
fn an_allowed_check_is_answered_with_every_field() {
    let server = Server::with_policy(POLICY);
    let answer = client(&server).post("/v1/check", &trade(2));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let mut answer = answer.json();
    for level in answer["levels"].as_array_mut().expect("levels") {
        let level = level.as_object_mut().expect("a level");
        assert!(seconds(&level.remove("resetAfter").expect("present")) >= 0.0);
        level.remove("retryAfter");
    }
    assert!((8640.0 * 2.0..8641.0 * 2.0).contains(&seconds(&answer["resetAfter"])));
    answer.as_object_mut().expect("an object").remove("resetAfter");
    let level = |name: &str, depth: u64, limit: &str, remaining: &str, allowed: bool, shadow: bool| {
        json!({ "name": name, "depth": depth, "shadow": shadow, "allowed": allowed, "limit": limit,
                "remaining": remaining, "wait": "0s", "never": !allowed })
    };
    let expected = json!({
        "allowed": true, "limit": "6", "remaining": "4", "wait": "0s", "never": false, "degraded": false, "leased": false, "override": "", "repeatedRequest": false, "banReason": "",
        "binding": 2,
        "levels": [level("per-user", 2, "10", "8", true, false), level("watched", 2, "1", "1", false, true),
                   level("tr\"de für", 3, "6", "4", true, false)],
    });
    assert_eq!(answer, expected);

    // Without a limit there are no rate-limit headers.
    let answer = client(&server).post("/v1/check", &json!({ "key": ["elsewhere"] }));
    assert_eq!((answer.status, answer.header("ratelimit"), answer.header("ratelimit-policy")), (200, None, None));
    let expected = json!({ "allowed": true, "limit": "0", "remaining": "0", "resetAfter": "0s", "wait": "0s", "never":
        false, "degraded": false, "leased": false, "override": "", "repeatedRequest": false, "banReason": "", "levels": [] });
    assert_eq!(answer.json(), expected);
}

#[test]
fn a_refusal_is_a_problem_document_with_all_fields() {
    let server = Server::with_policy(POLICY);
    let mut client = client(&server);
    assert_eq!(client.post("/v1/check", &trade(6)).status, 200);
    let answer = client.post("/v1/check", &trade(1));
    assert_eq!((answer.status, answer.header("content-type")), (429, Some("application/problem+json")));
    let problem = answer.json();
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&problem["title"], &problem["status"]), (&json!("Quota Exceeded"), &json!(429)));
    let detail = problem["detail"].as_str().expect("a sentence");
    assert!(detail.starts_with("the limit `tr\"de für` refuses; the same request passes after "), "{detail}");
    assert_eq!(problem["violated-policies"], json!(["tr\"de für"]));
    assert_eq!(
        (&problem["allowed"], &problem["never"], &problem["binding"]),
        (&json!(false), &json!(false), &json!(2))
    );
    assert_eq!((&problem["limit"], &problem["remaining"]), (&json!("6"), &json!("0")));
    assert_eq!(problem["levels"].as_array().map(Vec::len), Some(3));
    let retry = seconds(&problem["retryAfter"]);
    assert!((40.0..=100.0).contains(&retry), "{retry}");
    assert_eq!(answer.header("retry-after"), Some(&*format!("{}", retry.ceil())));

    // A check with a cost that can never pass has no retry time.
    let answer = client.post("/v1/check", &trade_of("berta", 7));
    assert_eq!((answer.status, answer.header("retry-after")), (429, None));
    let problem = answer.json();
    assert_eq!((&problem["never"], &problem["retryAfter"]), (&json!(true), &Value::Null));
    assert!(problem["detail"].as_str().expect("a sentence").ends_with(" refuses, and no wait will help"));
    assert_eq!(answer.header("ratelimit"), Some("\"tr\\\"de f%C3%BCr\";r=6"));

    // A summary has no levels, but names the limit that refuses.
    let answer =
        client.post("/v1/check", &json!({ "key": ["user", "carl", "trade"], "cost": "7", "summaryOnly": true }));
    let problem = answer.json();
    assert_eq!((answer.status, &problem["levels"], &problem["binding"]), (429, &json!([]), &json!(2)));
    assert_eq!(problem["violated-policies"], json!(["tr\"de für"]));
    assert!(answer.header("ratelimit").is_some());
}

/// Sends checks whose summary mixes levels: the reset time of the user's limit, the limit of trades.
fn headers_of(style: Option<&str>) -> [Vec<(String, String)>; 2] {
    let mut setup = Setup::new().policy(POLICY);
    if let Some(style) = style {
        setup = setup.env("WEIR_HTTP__HEADERS", style);
    }
    let server = setup.start();
    let mut client = client(&server);
    [6, 1].map(|cost| {
        let answer = client.post("/v1/check", &trade(cost));
        let ours = |name: &str| name.contains("ratelimit") || name == "retry-after";
        answer.headers.into_iter().filter(|(name, _)| ours(name)).collect()
    })
}

/// Formats headers as lines; numbers that depend on the duration of the test become `N`.
fn lines(headers: &[(String, String)]) -> Vec<String> {
    let moving = |text: &str| {
        let number: f64 = text.parse().unwrap_or(0.0);
        (40.0..=100.0).contains(&number) || (540.0..=600.0).contains(&number)
    };
    let masked = |value: &str| match value.rsplit_once(";t=") {
        Some((before, seconds)) if moving(seconds) => format!("{before};t=N"),
        _ if moving(value) && value.contains('.') => "N.NNN".to_owned(),
        _ if moving(value) => "N".to_owned(),
        _ => value.to_owned(),
    };
    headers.iter().map(|(name, value)| format!("{name}: {}", masked(value))).collect()
}

#[test]
fn rate_limit_headers_have_the_configured_style() {
    let policy = "ratelimit-policy: \"tr\\\"de f%C3%BCr\";q=6;w=600";
    let draft = [
        vec![policy, "ratelimit: \"tr\\\"de f%C3%BCr\";r=0;t=N"],
        vec![policy, "ratelimit: \"tr\\\"de f%C3%BCr\";r=0;t=N", "retry-after: N"],
    ];
    let three = ["ratelimit-limit: 6", "ratelimit-remaining: 0", "ratelimit-reset: N"];
    let own = ["x-ratelimit-remaining: 0", "x-ratelimit-clear: N.NNN"];
    for (style, expected) in [
        (None, draft.clone()),
        (Some("draft11"), draft),
        (Some("ratelimit"), [three.to_vec(), [&three[..], &["retry-after: N"]].concat()]),
        (Some("x-ratelimit"), [own.to_vec(), [&own[..], &["x-ratelimit-reset: N.NNN", "retry-after: N"]].concat()]),
        (Some("off"), [vec![], vec!["retry-after: N"]]),
    ] {
        let [allowed, refused] = headers_of(style);
        assert_eq!(
            [lines(&allowed), lines(&refused)],
            expected.map(|it| it.into_iter().map(str::to_owned).collect::<Vec<_>>())
        );
        let number = |name: &str| {
            let found = refused.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
            found.map(|value| value.rsplit("t=").next().expect("a value").to_owned())
        };
        // The retry time of the refusing level, never the reset time of the user's, and the same in each header.
        for name in ["ratelimit", "ratelimit-reset"].iter().filter_map(|name| number(name)) {
            assert_eq!(Some(name), number("retry-after"));
        }
    }
}

#[test]
fn the_policy_header_window_includes_the_request_factor() {
    let server = Server::with_policy("schema: { '*': { limits: [{ gcra: { burst: 9, count: 1, period: 1m } }] } }");
    let mut client = client(&server);
    let answer = client.post("/v1/check", &json!({ "key": ["a"], "factor": 2 }));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"*#gcra0\";q=6;w=360"));
}

#[test]
fn batch_results_keep_their_order_and_have_their_own_errors() {
    let server = Server::with_policy(POLICY);
    let checks =
        json!([trade(4), { "kee": [] }, { "key": [] }, trade(2), null, trade(1), { "key": ["a"], "cost": "x" }]);
    let answer = client(&server).post("/v1/check_batch", &json!({ "checks": checks }));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_eq!((answer.header("ratelimit"), answer.header("retry-after")), (None, None));
    let answer = answer.json();
    let results: Vec<_> = answer["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|result| match result.get("error") {
            Some(error) => format!("{} {}", error["code"], error["field"].as_str().expect("a field")),
            None => format!("{} {}", result["allowed"], result["remaining"].as_str().expect("units")),
        })
        .collect();
    assert_eq!(results, ["true 2", "3 kee", "3 key", "true 0", "3 ", "false 0", "3 cost"]);
    assert_eq!(answer["results"][1]["error"]["message"], "unknown field `kee`; did you mean `key`?");
}

#[test]
fn resets_both_field_name_styles_and_numeric_strings_are_accepted() {
    let server = Server::with_policy(POLICY);
    let mut client = client(&server);
    assert_eq!(client.post("/v1/check", &trade_of("berta", 6)).status, 200);
    let reset = client.post("/v1/reset", &json!({ "key": ["user", "berta"], "subtree": true }));
    assert_eq!((reset.status, reset.json()), (200, json!({ "existed": true, "scanned": false, "removed": true })));
    assert_eq!(client.post("/v1/check", &trade_of("berta", 6)).status, 200);
    let reset = client.post("/v1/reset", &json!({ "key": ["user", "joan"] }));
    assert_eq!(reset.json(), json!({ "existed": false, "scanned": false, "removed": false }));

    let gcra = |count: Value| json!([{ "gcra": { "burst": 3, "count": count, "period": "1.5s" } }]);
    for (number, body) in [
        json!({ "key": ["a"], "limitSpec": { "limits": gcra(json!(1)) }, "maxWait": "0.5s", "summaryOnly": false }),
        json!({ "key": ["a"], "limit_spec": { "limits": gcra(json!("1")) }, "max_wait": "0s", "summary_only": false }),
        json!({ "key": ["a"], "limitSpec": { "limits": gcra(json!(1.0)), "charge": "CHARGE_INDEPENDENT" }, "cost": "1",
                "factor": null }),
        json!({ "key": ["a"], "limitSpec": { "limits": gcra(json!("1")), "charge": 2 }, "cost": 1e0, "factor": "1" }),
    ]
    .iter()
    .enumerate()
    {
        let answer = client.post("/v1/check", body);
        assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!((3 - number).to_string())), "{body}");
    }
}

#[test]
fn checks_are_counted_by_their_transport() {
    let server = Server::with_policy(POLICY);
    let mut client = client(&server);
    for body in [trade(6), trade(1), json!({ "key": ["a"], "cost": true })] {
        client.post("/v1/check", &body);
    }
    client.post("/v1/check_batch", &json!({ "checks": [trade(0), trade(1), { "key": [] }, { "x": 1 }] }));
    let text = server.get("/metrics").1;
    for (domain, transport, outcome, count) in [
        ("default", "http", "allowed", 1.0),
        ("default", "http", "limited", 1.0),
        ("other", "http", "error", 1.0),
        ("default", "http_batch", "allowed", 1.0),
        ("default", "http_batch", "limited", 1.0),
        ("other", "http_batch", "error", 2.0),
    ] {
        let series =
            format!("weir_checks_total{{domain=\"{domain}\",transport=\"{transport}\",outcome=\"{outcome}\"}}");
        assert_eq!(crate::support::http::metric(&text, &series), count, "{series}");
    }
    for (transport, count) in [("http", 3.0), ("http_batch", 1.0)] {
        let series = format!("weir_check_duration_seconds_count{{transport=\"{transport}\"}}");
        assert_eq!(crate::support::http::metric(&text, &series), count);
    }
}
