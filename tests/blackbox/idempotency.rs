//! Requests with a `request_id`: repeats get the same answer and are charged once.

use serde_json::json;
use tonic::Code;
use weir::proto::{CheckBatchRequest, CheckRequest, ReserveRequest};

use crate::support::{
    Folder, Server, eventually_async,
    http::Client as Http,
    requests::{check, refusal},
    reservations::{HOUR, commit, left, reserve, settled, wanted},
    run,
    server::Setup,
};

const POLICY: &str = "
schema:
  user: { children: { '*': { limits: [{ token_bucket: { capacity: 100, count: 1, period: 1d } }] } } }
";
const KEY: [&str; 2] = ["user", "alex"];

/// Makes a check with this ID and cost.
fn with_id(id: &str, cost: i64) -> CheckRequest {
    CheckRequest { request_id: id.to_owned(), cost: Some(cost), ..check(&KEY) }
}

#[tokio::test]
async fn a_repeated_check_gets_its_answer_again_on_every_surface() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let first = client.check(with_id("one", 10)).await.expect("an answer").into_inner();
    assert_eq!((first.allowed, first.remaining, first.repeated_request), (true, 90, false));
    let again = weir::proto::CheckResponse { repeated_request: true, ..first };
    assert_eq!(client.check(with_id("one", 10)).await.expect("an answer").into_inner(), again);

    let batch = CheckBatchRequest { checks: vec![with_id("one", 10), with_id("two", 10), with_id("two", 10)] };
    let answers = client.check_batch(batch).await.expect("answers").into_inner().results;
    let short: Vec<_> = answers.iter().map(|answer| (answer.remaining, answer.repeated_request)).collect();
    assert_eq!(short, [(90, true), (80, false), (80, true)]);

    let requests = futures_util::stream::iter([with_id("two", 10)]);
    let mut stream = client.check_stream(requests).await.expect("a stream").into_inner();
    let answer = stream.message().await.expect("an answer").expect("one");
    assert_eq!((answer.remaining, answer.repeated_request), (80, true));

    let mut http = Http::connect(&server.http).expect("a connection");
    let answer = http.post("/v1/check", &json!({ "key": KEY, "cost": 10, "requestId": "two" })).json();
    assert_eq!((&answer["remaining"], &answer["repeatedRequest"]), (&json!("80"), &json!(true)));

    let command = ["check", "user", "alex", "--cost", "10", "--request-id", "two", "--addr", &server.grpc];
    assert_eq!(run(&command).code, 0);
    assert_eq!(left(&mut client, &KEY).await, 80);
    let repeated = server.metric("weir_repeated_requests_total{domain=\"default\"}");
    assert_eq!(repeated.to_string(), "6");
}

#[tokio::test]
async fn a_request_id_cannot_be_reused_for_another_request_or_key() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    client.check(with_id("one", 10)).await.expect("an answer");
    let conflict = client.check(with_id("one", 11)).await.expect_err("another request");
    assert_eq!(refusal(&conflict), (Code::InvalidArgument, Some("request_id".to_owned())));
    assert_eq!(left(&mut client, &KEY).await, 90, "nothing is charged");
    let other = CheckRequest { key: vec!["user".into(), "sam".into()], ..with_id("one", 11) };
    assert_eq!(client.check(other).await.expect("an answer").into_inner().remaining, 89);

    let long = client.check(with_id(&"x".repeat(65), 1)).await.expect_err("too long");
    assert_eq!(refusal(&long), (Code::InvalidArgument, Some("request_id".to_owned())));
    client.check(with_id(&"x".repeat(64), 1)).await.expect("an answer");
    let dry_run = client.check(CheckRequest { dry_run: true, ..with_id("dry", 1) }).await.expect_err("no dry run");
    assert_eq!(refusal(&dry_run), (Code::InvalidArgument, Some("request_id".to_owned())));
}

#[tokio::test]
async fn a_request_that_leaves_defaults_out_is_the_one_that_writes_them() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let with = |id: &str, cost, factor| CheckRequest { cost, factor, ..with_id(id, 1) };
    let written = [(None, None), (Some(1), None), (None, Some(1.0)), (Some(1), Some(1.0))];
    for (cost, factor) in written {
        let answer = client.check(with("check", cost, factor)).await.expect("an answer").into_inner();
        assert_eq!(answer.remaining, 99, "{cost:?} {factor:?}");
    }
    let conflict = client.check(with("check", None, Some(0.5))).await.expect_err("another request");
    assert_eq!(refusal(&conflict), (Code::InvalidArgument, Some("request_id".to_owned())));
    let mut holds = Vec::new();
    for (cost, factor) in written {
        let request = ReserveRequest { check: Some(with("reserve", cost, factor)), ..wanted(&KEY, 1, HOUR) };
        holds.push(reserve(&mut client, request).await.hold);
    }
    assert!(holds.iter().all(|hold| !hold.is_empty() && *hold == holds[0]), "{holds:?}");
    assert_eq!(commit(&mut client, &holds[3], Some(0)).await.expect("settled"), settled(0, 1, 0));
}

#[tokio::test]
async fn a_refused_request_id_is_decided_again() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    client.check(CheckRequest { cost: Some(95), ..check(&KEY) }).await.expect("an answer");
    for repeated in [false, false] {
        let answer = client.check(with_id("much", 10)).await.expect("an answer").into_inner();
        assert_eq!((answer.allowed, answer.repeated_request), (false, repeated));
    }
    client.check(CheckRequest { cost: Some(-95), ..check(&KEY) }).await.expect("an answer");
    for repeated in [false, true] {
        let answer = client.check(with_id("much", 10)).await.expect("an answer").into_inner();
        assert_eq!((answer.allowed, answer.remaining, answer.repeated_request), (true, 90, repeated));
    }
}

#[tokio::test]
async fn a_repeated_reservation_is_the_same_one() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let mut request = wanted(&KEY, 10, HOUR);
    request.check.as_mut().expect("a check").request_id = "one".to_owned();
    let first = reserve(&mut client, request.clone()).await;
    let again = reserve(&mut client, request).await;
    assert!(!first.hold.is_empty() && first.hold == again.hold);
    assert!(again.expires_after.expect("a time").seconds <= first.expires_after.expect("a time").seconds);
    assert_eq!(left(&mut client, &KEY).await, 90);
    assert_eq!(commit(&mut client, &again.hold, Some(4)).await.expect("settled"), settled(4, 6, 0));
    assert_eq!(left(&mut client, &KEY).await, 96);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_is_repeated_while_it_is_open_though_its_answer_is_forgotten() {
    let server = Setup::new().policy(POLICY).env("WEIR_IDEMPOTENCY__WINDOW", "1s").start();
    let mut client = server.client().await;
    let mut request = wanted(&KEY, 10, HOUR);
    request.check.as_mut().expect("a check").request_id = "one".to_owned();
    let first = reserve(&mut client, request.clone()).await;
    // The window of a later request is over, so the first request's is, too.
    client.check(with_id("later", 1)).await.expect("an answer");
    eventually_async("the window is over", async || {
        let answer = client.clone().check(with_id("later", 0)).await;
        answer.is_ok().then_some(())
    })
    .await;
    for is_settled in [false, true] {
        let again = reserve(&mut client, request.clone()).await;
        assert_eq!(again.hold, first.hold);
        assert!(again.decision.expect("a decision").repeated_request);
        assert_eq!(again.expires_after == Some(Default::default()), is_settled);
        commit(&mut client, &again.hold, Some(10)).await.expect("settled");
    }
    let reserved = "weir_reservation_units_total{domain=\"default\",kind=\"reserved\"}";
    assert_eq!(server.metric(reserved).to_string(), "10");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_remembered_for_the_window_and_over_a_restart() {
    let dir = Folder::new();
    let setup = || Setup::new().policy(POLICY).snapshot(dir.path("snapshot"));
    let mut server = setup().start();
    server.client().await.check(with_id("one", 10)).await.expect("an answer");
    server.stop();
    let server = setup().env("WEIR_IDEMPOTENCY__WINDOW", "1s").start();
    let mut client = server.client().await;
    let answer = client.check(with_id("one", 10)).await.expect("an answer").into_inner();
    assert_eq!((answer.remaining, answer.repeated_request), (90, true), "by the window of then");

    client.check(with_id("two", 10)).await.expect("an answer");
    eventually_async("the window is over", async || {
        let answer = client.check(with_id("two", 10)).await.expect("an answer").into_inner();
        (!answer.repeated_request).then_some(())
    })
    .await;
    assert_eq!(left(&mut client, &KEY).await, 70);
}
