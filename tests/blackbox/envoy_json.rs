//! `/json`: Envoy's rate-limit service as JSON over HTTP, and invalid requests.

use serde_json::{Value, json};
use tonic::Code;
use weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_test_redis::{Options, Server as Redis};

use crate::support::{
    Server,
    envoy::{descriptor, should_rate_limit},
    eventually,
    http::{Answer, Client},
    requests::refusal,
    server::Setup,
};

const YEAR: u64 = 365 * 24 * 60 * 60;

const FILE: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 3, name: per-user } }
  - { key: path, rate_limit: { algorithm: { token_bucket: { capacity: 2, count: 1, period: 31d } } } }
  - { key: user, value: root, rate_limit: { unlimited: true } }
";

fn client(server: &Server) -> Client {
    Client::connect(&server.http).expect("it accepts connections")
}

fn ask(client: &mut Client, body: impl AsRef<[u8]>) -> Answer {
    client.ask("POST /json", &[], body.as_ref()).expect("an answer")
}

/// Sends one descriptor with one entry.
fn ask_user(client: &mut Client, value: &str) -> Answer {
    ask(
        client,
        json!({ "domain": "shop", "descriptors": [{ "entries": [{ "key": "user", "value": value }] }] }).to_string(),
    )
}

/// Returns the status, and the remaining units of the first descriptor.
fn short(answer: &Answer) -> (u16, u64) {
    (answer.status, answer.json()["statuses"][0]["limitRemaining"].as_u64().unwrap_or(0))
}

/// Removes the time until reset from a status, after checking that it is in whole seconds of the year.
fn take_reset(status: &mut Value) {
    let reset = status.as_object_mut().and_then(|status| status.remove("durationUntilReset"));
    let seconds = reset.as_ref().and_then(|reset| reset.as_str()?.strip_suffix('s')?.parse().ok());
    assert!(seconds.is_some_and(|seconds: u64| (1..=YEAR).contains(&seconds)), "{reset:?}");
}

fn assert_plain(answer: &Answer, status: u16, text: &str, what: &str) {
    let answered = (answer.status, answer.header("content-type"), answer.body.as_str());
    assert_eq!(answered, (status, Some("text/plain; charset=utf-8"), text), "{what}");
}

fn assert_bad(answer: &Answer, what: &str) {
    assert_plain(answer, 400, "Bad Request\n", what);
}

#[test]
fn the_response_is_proto3_json_without_default_values() {
    let server = Server::with_policy(FILE);
    let mut client = client(&server);
    let limit = json!({ "name": "per-user", "requestsPerUnit": 3, "unit": "YEAR" });
    for (status, code, left) in [(200, "OK", 2), (200, "OK", 1), (200, "OK", 0), (429, "OVER_LIMIT", 0)] {
        let answer = ask_user(&mut client, "alex");
        assert_eq!((answer.status, answer.header("content-type")), (status, Some("application/json")));
        let mut answered = answer.json();
        take_reset(&mut answered["statuses"][0]);
        let mut expected = json!({ "code": code, "currentLimit": limit });
        if left > 0 {
            expected["limitRemaining"] = json!(left);
        }
        assert_eq!(answered, json!({ "overallCode": code, "statuses": [expected] }));
    }
    let body = json!({ "domain": "shop", "descriptors": [
        { "entries": [{ "key": "user", "value": "root" }] },
        { "entries": [{ "key": "nobody", "value": "" }] },
        {},
        { "entries": [{ "key": "path", "value": "/" }], "limit": { "unit": "DAY" } },
        { "entries": [{ "key": "path", "value": "/" }], "hitsAddend": 2 },
    ] });
    let answer = ask(&mut client, body.to_string());
    let mut answered = answer.json();
    take_reset(&mut answered["statuses"][3]);
    let of_a_bucket =
        json!({ "code": "OK", "currentLimit": { "requestsPerUnit": 2 }, "durationUntilReset": "5356800s" });
    let statuses = json!([
        { "code": "OK", "limitRemaining": u32::MAX },
        { "code": "OK" },
        { "code": "OK" },
        { "code": "OVER_LIMIT", "currentLimit": { "unit": "DAY" } },
        of_a_bucket,
    ]);
    assert_eq!((answer.status, answered), (429, json!({ "overallCode": "OVER_LIMIT", "statuses": statuses })));
    let nowhere = ask(&mut client, json!({ "domain": "nowhere", "descriptors": [{}] }).to_string());
    assert_eq!((nowhere.status, nowhere.json()), (200, json!({ "overallCode": "OK", "statuses": [{ "code": "OK" }] })));
}

#[test]
fn headers_and_dynamic_metadata_are_in_the_body() {
    let setup = Setup::new().env("WEIR_ENVOY__HEADERS", "ratelimit").env("WEIR_ENVOY__DYNAMIC_METADATA", "true");
    let server = setup.policy(FILE).start();
    let body = json!({ "domain": "shop", "hitsAddend": 2, "descriptors": [
        { "entries": [{ "key": "path", "value": "/" }] },
        { "entries": [{ "key": "user", "value": "alex" }], "hitsAddend": "1" },
    ] });
    let answered = ask(&mut client(&server), body.to_string()).json();
    let headers = [("RateLimit-Limit", "2"), ("RateLimit-Remaining", "0"), ("RateLimit-Reset", "5356800")];
    let headers = headers.map(|(key, value)| json!({ "key": key, "value": value }));
    assert_eq!(answered["responseHeadersToAdd"], json!(headers));
    let metadata = json!({ "domain": "shop", "hitsAddend": 2, "descriptors": [
        { "entries": ["path=/"] }, { "entries": ["user=alex"], "hitsAddend": 1 } ] });
    assert_eq!(answered["dynamicMetadata"], metadata);
}

#[test]
fn any_method_and_all_proto3_json_forms_are_accepted() {
    let server = Server::with_policy(FILE);
    let mut client = client(&server);
    // Each request has a separate user, with a limit of three.
    for (number, (fields, of_all, left)) in [
        (r#""hitsAddend": 2"#, "", 1),
        (r#""hits_addend": 2"#, "", 1),
        (r#""hitsAddend": "2""#, "", 1),
        (r#""hitsAddend": 2.0"#, "", 1),
        (r#""hitsAddend": 0"#, "", 3),
        (r#""hitsAddend": null"#, "", 2),
        (r#""hitsAddend": 2, "isNegativeHits": true"#, "", 3),
        (r#""hits_addend": "2", "is_negative_hits": true"#, "", 3),
        (r#""limit": null"#, r#", "hitsAddend": 3"#, 0),
        (r#""limit": null"#, r#", "hits_addend": "3""#, 0),
        (r#""limit": {"requestsPerUnit": 9, "unit": "MONTH"}"#, "", 8),
        (r#""limit": {"requests_per_unit": "9", "unit": 5}"#, "", 8),
        (r#""limit": {"requestsPerUnit": 9, "unit": "UNKNOWN"}"#, "", 2),
        (r#""limit": {"requestsPerUnit": 9, "unit": 99}"#, "", 2),
    ]
    .into_iter()
    .enumerate()
    {
        let entries = format!(r#""entries": [{{"key": "user", "value": "{number}"}}]"#);
        let body = format!(r#" {{"domain": "shop", "descriptors": [{{{entries}, {fields}}}]{of_all}}} "#);
        assert_eq!(short(&ask(&mut client, &body)), (200, left), "{body}");
    }

    // Any method is accepted.
    let body = br#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": "berta"}]}]}"#;
    let json = ("content-type", "application/json");
    for (request, header, expected) in [
        ("GET /json", ("accept", "*/*"), (200, 2)),
        ("PUT /json?pretty", json, (200, 1)),
        ("DELETE /json", ("content-type", "text/plain"), (200, 0)),
        ("BREW /json", ("content-type", "application/x-www-form-urlencoded"), (429, 0)),
        ("OPTIONS /json", json, (429, 0)),
    ] {
        let answer = client.ask(request, &[header], body).expect("an answer");
        assert_eq!(short(&answer), expected, "{request}");
    }
    // On separate connections: the service closes a connection of which it did not read a body.
    let ask_apart = |request, headers: &[_]| {
        let mut other = Client::connect(&server.http).expect("it accepts connections");
        other.ask(request, headers, body).expect("an answer").status
    };
    for header in [("sec-fetch-site", "cross-site"), ("origin", "https://elsewhere.example")] {
        let status = ask_apart("POST /json", &[("content-type", "text/plain"), header]);
        assert_eq!(status, 403, "of another site's page: {header:?}");
    }
    assert_eq!(ask_apart("POST /json/", &[]), 404);
    assert_bad(&client.ask("GET /json", &[], b"").expect("an answer"), "no body");

    // Strings may contain all escapes, but no invalid Unicode.
    let mut ask_bytes = |value: &[u8]| {
        let start = br#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "value": ""#;
        ask(&mut client, [&start[..], value, br#""}]}]}"#].concat())
    };
    // The same text in three forms.
    for (value, expected) in [(r"\ud83e\udd80\u00e9", (200, 2)), ("\u{1f980}é", (200, 1)), (r"\uD83E\uDD80é", (200, 0))]
    {
        assert_eq!(short(&ask_bytes(value.as_bytes())), expected, "{value}");
    }
    for value in [r#"\u0000\n\"\\\/\u007f"#, "", r"\ufffd", "{user}*", &"é".repeat(100_000)] {
        assert_eq!(short(&ask_bytes(value.as_bytes())), (200, 2), "{:.20}", value);
    }
    for bytes in [
        &br"\ud83e"[..],
        br"\udd80",
        br"\udd80\ud83e",
        br"\ud83e\u0061",
        br"\ud83e\ud83e",
        b"\xff",
        b"\xed\xa0\xbe",
        b"\xc3",
        b"\xc0\x80",
        b"\0",
        b"\n",
        br"\x41",
        br"\u12",
    ] {
        assert_bad(&ask_bytes(bytes), &bytes.escape_ascii().to_string());
    }
    assert_eq!(short(&ask_bytes(b"alex")), (200, 2), "the service goes on");
}

#[tokio::test]
async fn invalid_bodies_get_400_and_invalid_argument_over_grpc() {
    let server = Server::with_policy(FILE);
    let mut client = client(&server);
    let bodies = [
        "",
        " ",
        "domain=shop",
        "{",
        "{]",
        r#"{"domain": "shop", "descriptors": [{}]"#,
        r#"{"domain": "shop", "descriptors": [{}]} {}"#,
        r#"{"domain": "shop", "descriptors": [{}]}x"#,
        r#"{"domain": "shop", "descriptors": [{}],}"#,
        "{'domain': 'shop', 'descriptors': [{}]}",
        "null",
        "7",
        "[]",
        r#""shop""#,
        "{}",
        r#"{"descriptors": [{}]}"#,
        r#"{"domain": "", "descriptors": [{}]}"#,
        r#"{"domain": null, "descriptors": [{}]}"#,
        r#"{"domain": "shop"}"#,
        r#"{"domain": "shop", "descriptors": []}"#,
        r#"{"domain": "shop", "descriptors": null}"#,
        r#"{"domain": 7, "descriptors": [{}]}"#,
        r#"{"domain": ["shop"], "descriptors": [{}]}"#,
        r#"{"domain": "shop", "descriptors": {}}"#,
        r#"{"domain": "shop", "descriptors": [null]}"#,
        r#"{"domain": "shop", "descriptors": ["user"]}"#,
        r#"{"domain": "shop", "descriptors": [{}], "descriptor": [{}]}"#,
        r#"{"domain": "shop", "descriptors": [{}], "Domain": "shop"}"#,
        r#"{"domain": "shop", "descriptors": [{"key": "user"}]}"#,
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": 1}]}]}"#,
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "user", "valeu": "a"}]}]}"#,
        r#"{"domain": "shop", "descriptors": [{"entries": {"key": "user"}}]}"#,
        r#"{"domain": "shop", "descriptors": [{"hitsAddend": -1}]}"#,
        r#"{"domain": "shop", "descriptors": [{"hitsAddend": 1.5}]}"#,
        r#"{"domain": "shop", "descriptors": [{"hitsAddend": "one"}]}"#,
        r#"{"domain": "shop", "descriptors": [{"hitsAddend": {"value": 1}}]}"#,
        r#"{"domain": "shop", "descriptors": [{"isNegativeHits": 1}]}"#,
        r#"{"domain": "shop", "descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}"#,
        r#"{"domain": "shop", "descriptors": [{"limit": {"requestsPerUnit": 4294967296}}]}"#,
        r#"{"domain": "shop", "descriptors": [{"limit": "3/minute"}]}"#,
        r#"{"domain": "shop", "descriptors": [{}], "hitsAddend": 4294967296}"#,
        r#"{"domain": "shop", "descriptors": [{}], "hitsAddend": -1}"#,
    ];
    for body in bodies {
        assert_bad(&ask(&mut client, body), body);
    }
    assert_bad(&ask(&mut client, "[".repeat(100_000)), "nested");
    let errors = eventually("each is counted", || {
        let text = server.get("/metrics").1;
        let is_error = |line: &&str| line.starts_with("weir_checks_total{") && line.contains("outcome=\"error\"");
        let counts = text.lines().filter(is_error).filter(|line| line.contains("transport=\"envoy\""));
        let errors: usize = counts.filter_map(|line| line.split(' ').next_back()?.parse::<usize>().ok()).sum();
        (errors > bodies.len()).then_some(errors)
    });
    assert_eq!(errors, bodies.len() + 1);
    assert_eq!(short(&ask_user(&mut client, "alex")), (200, 2), "the service goes on");

    // Over gRPC the same error names the field.
    for (domain, descriptors, expected) in [
        ("", 1, Some("domain")),
        ("shop", 0, Some("descriptors")),
        ("shop", 1_001, Some("descriptors")),
        ("nowhere", 1_001, Some("descriptors")),
        ("shop", 1_000, None),
    ] {
        let descriptors = vec![descriptor(&["user", "alex"], 0); descriptors];
        let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 };
        let answer = should_rate_limit(server.channel().await, request).await;
        let answered = answer.as_ref().err().map(refusal);
        assert_eq!(answered, expected.map(|field| (Code::InvalidArgument, Some(field.to_owned()))), "{answer:?}");
    }
}

#[test]
fn oversized_requests_get_400() {
    let server = Setup::new().env("WEIR_GRPC__MAX_MESSAGE_BYTES", "200000").policy(FILE).start();
    let mut client = client(&server);
    let of = |descriptors: usize, entries: usize| {
        let entries = vec![json!({ "key": "user", "value": "a" }); entries];
        json!({ "domain": "shop", "descriptors": vec![json!({ "entries": entries }); descriptors] }).to_string()
    };
    let many = ask(&mut client, of(1_000, 1));
    let statuses = many.json()["statuses"].as_array().map(Vec::len);
    assert_eq!((many.status, statuses), (429, Some(1_000)), "of one user's, three fit");
    assert_eq!(short(&ask(&mut client, of(1, 5_000))), (200, 0), "a descriptor is as long as it likes");
    assert_bad(&ask(&mut client, of(1_001, 1)), "descriptors");
    let values = format!(r#"{{"domain": "shop", "descriptors": [{{"entries": [{}{{}}]}}]}}"#, "{},".repeat(40_000));
    assert!(values.len() < 200_000);
    assert_bad(&ask(&mut client, values), "values");
    let spaces = |length: usize| format!("{}{}", of(1, 1), " ".repeat(length - of(1, 1).len()));
    assert_eq!(ask(&mut client, spaces(200_000)).status, 429);
    // Detected by the content length, or by the received bytes without one.
    let answered = |headers: &[(&str, &str)], length, body: &[u8]| {
        let mut client = self::client(&server);
        client.send("POST /json", headers, length, body).expect("sent");
        client.receive().expect("an answer")
    };
    assert_bad(&answered(&[], Some(200_001), b""), "too long");
    let chunk = format!("{:x}\r\n{}\r\n", 200_001, spaces(200_001));
    assert_bad(&answered(&[("transfer-encoding", "chunked")], None, chunk.as_bytes()), "too long, in chunks");
    assert_eq!(server.metric("weir_requests_rejected_total{listener=\"http\",reason=\"size\"}"), 2.0);
}

#[tokio::test]
async fn a_failed_store_gets_500_and_unavailable_over_grpc() {
    let mut redis = Redis::start(Options::socket());
    let policy = format!("on_store_failure: error\n{}", FILE.trim_start());
    let server = Setup::new().shared(&redis).policy(&policy).start();
    let shadow = "domain: shop\nshadow: true\non_store_failure: error\nschema: { user: { limits: [[0, 1, 60]] } }\n";
    let shadow = Setup::new().shared(&redis).policy(shadow).start();
    let mut client = client(&server);
    assert_eq!(short(&ask_user(&mut client, "alex")), (200, 2));
    redis.kill();
    assert_eq!(ask_user(&mut self::client(&shadow), "alex").status, 200, "a shadow domain lets every request pass");
    assert_plain(&ask_user(&mut client, "alex"), 500, "Internal Server Error\n", "without the store");
    let request = RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![descriptor(&["user", "alex"], 1)],
        hits_addend: 0,
    };
    let status = should_rate_limit(server.channel().await, request).await.expect_err("as over gRPC");
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let errors = "weir_checks_total{domain=\"shop\",transport=\"envoy\",outcome=\"error\"}";
    server.wait_for_metric(errors, 2.0);
    assert_bad(&ask(&mut client, "{}"), "whatever the store does");
    assert_eq!(ask_user(&mut client, "root").status, 200, "what has no limit needs no store");
    redis.restart();
    let passes = || (ask_user(&mut client, "alex").status == 200).then_some(());
    eventually("there are decisions again", passes);
}
