//! One trace over gRPC and as JSON: the same answers.

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::{Value, json};
use tonic::{Code, Status};
use weir::proto::{CheckBatchRequest, CheckRequest, CheckResponse, Error, Limit, LimitSpec};
use weir_core::domain::time::DAY;

use crate::{
    bad_requests::{POLICY, invalid},
    support::{
        Server, TIMEOUT,
        http::{Answer, Client},
        requests::{check, gcra, refusal, with_limits},
    },
};

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(weir::proto::DESCRIPTORS).expect("descriptors"));

fn message(name: &str) -> MessageDescriptor {
    POOL.get_message_by_name(name).expect("a message")
}

/// Writes a check as JSON; `None` if it has a duration that JSON cannot represent.
pub fn written(of: &CheckRequest) -> Option<Value> {
    let mut check = DynamicMessage::new(message("weir.v1.CheckRequest"));
    check.transcode_from(of).expect("a check");
    serde_json::to_value(check).ok()
}

/// Parses an answer from JSON, without the members that a problem document adds.
fn read(of: &Value) -> CheckResponse {
    let mut fields = of.clone();
    for member in ["type", "title", "status", "detail", "violated-policies"] {
        fields.as_object_mut().expect("an object").remove(member);
    }
    let answer = DynamicMessage::deserialize(message("weir.v1.CheckResponse"), fields).expect("an answer");
    answer.transcode_to().expect("an answer")
}

fn error(of: &Value) -> Error {
    let error = DynamicMessage::deserialize(message("weir.v1.Error"), of.clone()).expect("an error");
    error.transcode_to().expect("an error")
}

type Time = Option<prost_types::Duration>;

/// Removes and returns the durations of an answer, since they depend on the time of the request.
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

pub fn assert_same_error(status: &Status, answer: &Answer, what: &str) {
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
        // A body of the wrong structure has another error text than a valid message with an invalid value.
        assert!(error.message == status.message() || error.message.starts_with("must be "), "{what}: {answer:?}");
    } else {
        assert_eq!(error.message, status.message());
    }
}

/// Returns a trace with checks of every kind; `teller` is part of the key.
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
async fn single_checks_have_equal_answers_over_grpc_and_json() {
    let server = Server::with_policy(POLICY);
    let (mut grpc, mut http) = (server.client().await, Client::connect(&server.http).expect("a connection"));
    for (ours, theirs) in story("grpc").into_iter().zip(story("json")) {
        let Some(body) = written(&theirs) else { continue };
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
async fn batches_have_equal_answers_over_grpc_and_json() {
    let server = Server::with_policy(POLICY);
    let (mut grpc, mut http) = (server.client().await, Client::connect(&server.http).expect("a connection"));
    let sent = story("grpc");
    let (all, checks) = (sent.len(), sent.into_iter().filter(|check| written(check).is_some()).collect::<Vec<_>>());
    assert_eq!(checks.len() + 2, all, "two have durations that JSON cannot write");
    let ours = grpc.check_batch(CheckBatchRequest { checks }).await.expect("answers").into_inner();
    let (story, checks): (Vec<_>, Vec<_>) =
        story("json").into_iter().filter_map(|check| written(&check).map(|json| (check, json))).unzip();
    let theirs = http.post("/v1/check_batch", &json!({ "checks": checks }));
    let theirs = theirs.json();
    let theirs = theirs["results"].as_array().expect("results");
    assert_eq!((ours.results.len(), theirs.len()), (story.len(), story.len()));
    for ((mut ours, theirs), request) in ours.results.into_iter().zip(theirs).zip(&story) {
        let what = format!("{request:?}");
        let mut theirs = read(theirs);
        if theirs.error.is_some() {
            // Absent over gRPC, but 0 in JSON.
            times(&mut theirs);
        }
        if let (Some(ours), Some(theirs)) = (&mut ours.error, &mut theirs.error)
            && theirs.message.starts_with("must be ")
        {
            theirs.message.clone_from(&ours.message);
        }
        assert_same(ours, theirs, &what);
    }
}
