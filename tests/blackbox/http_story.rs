//! One trace over gRPC and as JSON: the same answers.

use weir_core::domain::time::DAY;

use serde_json::{Map, Value, json};
use tonic::{Code, Status};
use weir::proto::{
    CheckBatchRequest, CheckRequest, CheckResponse, Error, LevelResult, Limit, LimitSpec, ResetRequest,
    limit::Algorithm,
};

use crate::{
    bad_requests::{POLICY, invalid},
    support::{
        Server, TIMEOUT,
        http::{Answer, Client},
        requests::{check, gcra, refusal, with_limits},
    },
};

/// A length of time as JSON. What cannot be written as one is written as a wrong one.
fn duration(of: &prost_types::Duration) -> Value {
    if of.nanos >= 1_000_000_000 {
        return json!(of.nanos);
    }
    let sign = if of.seconds < 0 || of.nanos < 0 { "-" } else { "" };
    json!(format!("{sign}{}.{:09}s", of.seconds.unsigned_abs(), of.nanos.unsigned_abs()))
}

fn number(of: f64) -> Value {
    match of {
        _ if of.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        _ => json!(of),
    }
}

fn limit(of: &Limit) -> Value {
    let mut limit = json!({ "name": of.name, "depth": of.depth, "shadow": of.shadow });
    let period = |period: &Option<prost_types::Duration>| period.as_ref().map(duration);
    let (name, algorithm) = match &of.algorithm {
        None => return limit,
        Some(Algorithm::Gcra(it)) => {
            ("gcra", json!({ "burst": it.burst, "count": it.count, "period": period(&it.period) }))
        }
        Some(Algorithm::TokenBucket(it)) => {
            ("token_bucket", json!({ "capacity": it.capacity, "count": it.count, "period": period(&it.period) }))
        }
        Some(Algorithm::FixedWindow(it)) => (
            "fixedWindow",
            json!({ "count": it.count.to_string(), "period": period(&it.period), "chargeDenied": it.charge_denied }),
        ),
        Some(Algorithm::SlidingLog(it)) => ("slidingLog", json!({ "count": it.count, "period": period(&it.period) })),
        Some(other) => panic!("not written here: {other:?}"),
    };
    limit[name] = algorithm;
    limit
}

/// A check as JSON, by hand.
fn written(of: &CheckRequest) -> Value {
    let mut check = json!({ "domain": of.domain, "key": of.key, "summaryOnly": of.summary_only });
    if let Some(spec) = &of.limit_spec {
        let limits: Vec<_> = spec.limits.iter().map(limit).collect();
        check["limitSpec"] = json!({ "limits": limits, "charge": spec.charge });
    }
    if let Some(cost) = of.cost {
        check["cost"] = json!(cost.to_string());
    }
    if let Some(wait) = &of.max_wait {
        check["max_wait"] = duration(wait);
    }
    if let Some(factor) = of.factor {
        check["factor"] = number(factor);
    }
    check
}

/// The fields of an answer, each taken once.
struct Fields(Map<String, Value>);

impl Fields {
    fn of(value: &Value) -> Self {
        Self(value.as_object().expect("an object").clone())
    }

    fn take(&mut self, name: &str) -> Value {
        self.0.remove(name).unwrap_or_else(|| panic!("no {name} beside {:?}", self.0))
    }

    fn flag(&mut self, name: &str) -> bool {
        self.take(name).as_bool().expect("true or false")
    }

    fn units(&mut self, name: &str) -> u64 {
        self.take(name).as_str().expect("a text").parse().expect("of digits")
    }

    fn text(&mut self, name: &str) -> String {
        self.take(name).as_str().expect("a text").to_owned()
    }

    fn duration(&mut self, name: &str) -> Option<prost_types::Duration> {
        let text = self.0.remove(name)?;
        let text = text.as_str().and_then(|text| text.strip_suffix('s')).expect("a length of time");
        let (seconds, rest) = text.split_once('.').unwrap_or((text, ""));
        Some(prost_types::Duration {
            seconds: seconds.parse().expect("seconds"),
            nanos: format!("{rest:0<9}").parse().expect("a fraction"),
        })
    }
}

fn level(of: &Value) -> LevelResult {
    let mut fields = Fields::of(of);
    let level = LevelResult {
        name: fields.text("name"),
        depth: fields.take("depth").as_u64().expect("a number") as u32,
        shadow: fields.flag("shadow"),
        allowed: fields.flag("allowed"),
        limit: fields.units("limit"),
        remaining: fields.units("remaining"),
        retry_after: fields.duration("retryAfter"),
        reset_after: fields.duration("resetAfter"),
        wait: fields.duration("wait"),
        never: fields.flag("never"),
        next_after: fields.duration("nextAfter"),
    };
    assert!(fields.0.is_empty(), "{:?}", fields.0);
    level
}

fn error(of: &Value) -> Error {
    Error {
        code: of["code"].as_i64().expect("a code") as i32,
        message: of["message"].as_str().expect("a sentence").to_owned(),
        field: of["field"].as_str().expect("a field").to_owned(),
    }
}

/// An answer from JSON, by hand.
fn read(of: &Value) -> CheckResponse {
    let mut fields = Fields::of(of);
    for member in ["type", "title", "status", "detail", "violated-policies"] {
        fields.0.remove(member);
    }
    let answer = CheckResponse {
        allowed: fields.flag("allowed"),
        limit: fields.units("limit"),
        remaining: fields.units("remaining"),
        retry_after: fields.duration("retryAfter"),
        reset_after: fields.duration("resetAfter"),
        wait: fields.duration("wait"),
        never: fields.flag("never"),
        degraded: fields.flag("degraded"),
        leased: fields.flag("leased"),
        repeated_request: fields.flag("repeatedRequest"),
        binding: fields.0.remove("binding").map(|index| index.as_u64().expect("an index") as u32),
        levels: fields.take("levels").as_array().expect("a list").iter().map(level).collect(),
        error: fields.0.remove("error").as_ref().map(error),
        next_after: fields.duration("nextAfter"),
        r#override: fields.text("override"),
        ban_reason: fields.text("banReason"),
    };
    assert!(fields.0.is_empty(), "{:?}", fields.0);
    answer
}

type Time = Option<prost_types::Duration>;

/// Takes the lengths of time out of an answer, as they depend on when it was asked.
fn times(answer: &mut CheckResponse) -> Vec<Time> {
    let mut times =
        vec![answer.retry_after.take(), answer.reset_after.take(), answer.wait.take(), answer.next_after.take()];
    for level in &mut answer.levels {
        times.extend([level.retry_after.take(), level.reset_after.take(), level.wait.take(), level.next_after.take()]);
    }
    times
}

fn assert_same(grpc: CheckResponse, json: CheckResponse, what: &str) {
    let (mut grpc, mut json) = (grpc, json);
    for (ours, theirs) in times(&mut grpc).into_iter().zip(times(&mut json)) {
        assert_eq!(ours.is_some(), theirs.is_some(), "{what}");
        let seconds = |time: Time| time.map_or(0, |time| time.seconds);
        let apart = seconds(ours).abs_diff(seconds(theirs));
        assert!(apart <= TIMEOUT.as_secs(), "{what}: {ours:?} {theirs:?}");
    }
    assert_eq!(grpc, json, "{what}");
}

fn assert_same_error(status: &Status, answer: &Answer, what: &str) {
    let http = match status.code() {
        Code::InvalidArgument => 400,
        Code::NotFound => 404,
        Code::PermissionDenied => 403,
        other => panic!("{other:?} for {what}"),
    };
    assert_eq!((answer.status, answer.header("content-type")), (http, Some("application/problem+json")), "{what}");
    let problem = answer.json();
    assert_eq!((&problem["status"], &problem["type"]), (&json!(http), &json!("about:blank")), "{what}");
    let error = error(&problem["error"]);
    assert_eq!(error.code, status.code() as i32, "{what}");
    if let (Code::InvalidArgument, Some(field)) = refusal(status) {
        assert_eq!(error.field, field, "{what}");
        // A body that is not such a message has another error than a message with a wrong value.
        assert!(error.message == status.message() || error.message.ends_with("is wanted"), "{what}: {answer:?}");
    } else {
        assert_eq!(error.message, status.message());
    }
}

/// Checks of every kind; the same for every teller but for the last segment of the key.
fn story(teller: &str) -> Vec<CheckRequest> {
    let key = ["user", teller, "trade"];
    let one = || check(&key);
    let lasting = |burst, depth| Limit { depth, ..gcra(burst, 1, DAY / 1_000_000) };
    let independent = LimitSpec { limits: vec![lasting(5, 2), lasting(2, 3)], charge: 2 };
    let mut story = vec![one(), CheckRequest { cost: Some(0), ..one() }, CheckRequest { cost: Some(7), ..one() }];
    story.extend([3, 2, 2, -1, 1, 11].map(|cost| CheckRequest { cost: Some(cost), ..one() }));
    story.extend([Some(0.0), Some(0.5), Some(2.0)].map(|factor| CheckRequest { factor, ..one() }));
    story.extend(vec![with_limits(one(), vec![lasting(1, 0), lasting(0, 2)]); 3]);
    story.extend(vec![CheckRequest { limit_spec: Some(independent), summary_only: true, ..one() }; 4]);
    story.push(with_limits(one(), Vec::new()));
    story.push(CheckRequest { domain: "nowhere".to_owned(), ..one() });
    story.push(check(&["elsewhere", "ü\"\\\n\u{1f980}\0", teller]));
    story.push(CheckRequest { max_wait: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }), ..one() });
    story.extend(invalid().into_iter().map(|(request, _)| request));
    story
}

#[tokio::test]
async fn single_checks_are_answered_alike_over_grpc_and_json() {
    let server = Server::with_policy(POLICY);
    let (mut grpc, mut http) = (server.client().await, Client::connect(&server.http).expect("a connection"));
    for (ours, theirs) in story("grpc").into_iter().zip(story("json")) {
        let body = written(&theirs);
        let what = body.to_string();
        let (ours, theirs) = (grpc.check(ours).await, http.post("/v1/check", &body));
        match ours {
            Ok(ours) => {
                let ours = ours.into_inner();
                assert_eq!(theirs.status, if ours.allowed { 200 } else { 429 }, "{what}");
                assert_same(ours, read(&theirs.json()), &what);
            }
            Err(status) => assert_same_error(&status, &theirs, &what),
        }
    }
}

#[tokio::test]
async fn batches_are_answered_alike_over_grpc_and_json() {
    let server = Server::with_policy(POLICY);
    let (mut grpc, mut http) = (server.client().await, Client::connect(&server.http).expect("a connection"));
    let ours = grpc.check_batch(CheckBatchRequest { checks: story("grpc") }).await.expect("answers").into_inner();
    let story = story("json");
    let theirs = http.post("/v1/check_batch", &json!({ "checks": story.iter().map(written).collect::<Vec<_>>() }));
    let theirs = theirs.json();
    let theirs = theirs["results"].as_array().expect("results");
    assert_eq!((ours.results.len(), theirs.len()), (story.len(), story.len()));
    for ((mut ours, theirs), request) in ours.results.into_iter().zip(theirs).zip(&story) {
        let what = format!("{request:?}");
        let mut theirs = read(theirs);
        if theirs.error.is_some() {
            // Absent over gRPC, where JSON says 0.
            times(&mut theirs);
        }
        if let (Some(ours), Some(theirs)) = (&mut ours.error, &mut theirs.error)
            && theirs.message.ends_with("is wanted")
        {
            theirs.message.clone_from(&ours.message);
        }
        assert_same(ours, theirs, &what);
    }
}

#[tokio::test]
async fn grpc_and_http_share_their_state() {
    let server = Server::with_policy(POLICY);
    let (mut grpc, mut http) = (server.client().await, Client::connect(&server.http).expect("a connection"));
    let body = json!({ "key": ["user", "alex"], "cost": 4 });
    assert_eq!(http.post("/v1/check", &body).json()["remaining"], "6");
    assert_eq!(grpc.check(check(&["user", "alex"])).await.expect("an answer").into_inner().remaining, 5);
    assert_eq!(http.post("/v1/reset", &json!({ "key": ["user", "alex"] })).json()["existed"], true);
    let request = ResetRequest { key: vec!["user".into(), "alex".into()], ..Default::default() };
    assert!(!grpc.reset(request).await.expect("an answer").into_inner().existed);
}

#[tokio::test]
async fn denied_limits_in_requests_fail_alike_over_grpc_and_json() {
    let server = Server::with_policy(&format!("limit_spec: deny\n{POLICY}"));
    let request = with_limits(check(&["a"]), vec![gcra(1, 1, 1)]);
    let status = server.client().await.check(request.clone()).await.expect_err("forbidden");
    let answer = Client::connect(&server.http).expect("a connection").post("/v1/check", &written(&request));
    assert_same_error(&status, &answer, "a limit of the request");
}
