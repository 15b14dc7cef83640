//! Tokens that are changed, revoked or expire while in use.

use std::time::{Duration, SystemTime};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tonic::{Code, Streaming};
use weir::proto::{CheckRequest, CheckResponse, rate_limiter_client::RateLimiterClient};

use crate::{
    support::{
        Server, eventually, eventually_async, in_time,
        pki::put,
        requests::{check, peek, sent_checks},
        server::Setup,
    },
    tokens::{Token, by, caller, token},
};

const POLICY: &str = "schema: { '*': { limits: [[9999, 1, 86400]] } }";
const BAD: &str = "weir_auth_reloads_total{result=\"error\"}";

fn start(callers: &[String]) -> Server {
    Setup::new().policy(POLICY).credentials(&format!("callers:\n{}", callers.concat())).start()
}

fn change(server: &Server, callers: &[String]) {
    put(&server.dir.path().join("auth.yaml"), &format!("callers:\n{}", callers.concat()));
}

type Sender = tokio::sync::mpsc::Sender<CheckRequest>;

/// Opens a stream that has been answered once and stays open.
async fn open_stream(server: &Server, token: &Token) -> (Sender, Streaming<CheckResponse>) {
    let (send, requests) = sent_checks();
    send.send(check(&["a"])).await.expect("taken");
    let request = by(Some(&token.token), requests);
    let mut answers = server.client().await.check_stream(request).await.expect("a stream").into_inner();
    assert!(answers.message().await.expect("open").expect("an answer").allowed);
    (send, answers)
}

#[tokio::test]
async fn revoked_tokens_are_rejected_at_once_and_others_are_kept() {
    let (revoked, kept, metrics) = (token(), token(), token());
    let others = [caller("kept", "check", &kept, ""), caller("m", "metrics", &metrics, "")].concat();
    let server = start(&[caller("revoked", "check", &revoked, ""), others.clone()]);
    let mut client = RateLimiterClient::new(server.channel().await);
    let mut code =
        async |token: &Token| client.check(by(Some(&token.token), check(&["a"]))).await.err().map(|it| it.code());
    assert_eq!((code(&revoked).await, code(&kept).await), (None, None));
    let (_silent, mut ended) = open_stream(&server, &revoked).await;
    let (send, mut open) = open_stream(&server, &kept).await;
    // A client that sends without pauses.
    let busy = futures_util::stream::repeat_with(|| peek(&["a"]));
    let mut busy =
        server.client().await.check_stream(by(Some(&revoked.token), busy)).await.expect("a stream").into_inner();

    change(&server, &[others]);
    assert_eq!(in_time("the stream ends", ended.message()).await.expect_err("ended").code(), Code::Unauthenticated);
    let end = in_time("the stream ends", async {
        loop {
            if let Err(status) = busy.message().await {
                break status;
            }
        }
    });
    let end = end.await;
    assert_eq!(end.code(), Code::Unauthenticated);
    assert_eq!(
        (code(&revoked).await, code(&kept).await),
        (Some(Code::Unauthenticated), None),
        "on the same connection"
    );
    send.send(check(&["a"])).await.expect("taken");
    assert!(open.message().await.expect("open").expect("an answer").allowed);
    assert_eq!(server.metric_by(&metrics.token, "weir_auth_reloads_total{result=\"success\"}"), 1.0);
}

#[tokio::test]
async fn a_stream_ends_when_its_client_loses_the_role() {
    let (app, metrics) = (token(), token());
    let others = caller("m", "metrics", &metrics, "");
    let server = start(&[caller("app", "check", &app, ""), others.clone()]);
    let (_silent, mut ended) = open_stream(&server, &app).await;
    change(&server, &[caller("app", "reset", &app, ""), others]);
    assert_eq!(in_time("the stream ends", ended.message()).await.expect_err("ended").code(), Code::PermissionDenied);
    for (reason, count) in [("permission_denied", 1.0), ("unauthenticated", 0.0)] {
        let series = format!("weir_auth_rejected_total{{listener=\"grpc\",reason=\"{reason}\"}}");
        assert_eq!(server.metric_by(&metrics.token, &series), count, "{series}");
    }
}

#[tokio::test]
async fn tokens_are_rotated_without_a_restart() {
    let (old, new) = (token(), token());
    let entry = |tokens: &[&Token]| {
        let tokens: Vec<_> = tokens.iter().map(|token| format!("{{ sha256: {} }}", token.sha256)).collect();
        format!("  pay: {{ roles: [check], tokens: [{}] }}\n", tokens.join(", "))
    };
    let server = start(&[entry(&[&old])]);
    let mut client = server.client().await;
    let mut passes = async |token: &Token| client.check(by(Some(&token.token), check(&["a"]))).await.is_ok();
    assert!(passes(&old).await && !passes(&new).await);
    change(&server, &[entry(&[&old, &new])]);
    eventually_async("the new one is good", async || passes(&new).await.then_some(())).await;
    assert!(passes(&old).await);
    change(&server, &[entry(&[&new])]);
    eventually_async("the old one is gone", async || (!passes(&old).await).then_some(())).await;
    assert!(passes(&new).await);
}

#[tokio::test]
async fn the_metrics_have_the_first_expiry_of_each_client() {
    let tokens: [Token; 5] = std::array::from_fn(|_| token());
    let metrics = caller("m", "metrics", &tokens[0], "");
    let expires = |token: &Token, day: &str| format!("{{ sha256: {}, expires: {day} }}", token.sha256);
    let two = [expires(&tokens[1], "2100-01-02"), expires(&tokens[2], "2100-01-01")].join(", ");
    let two = format!("  'two \"q\"': {{ roles: [check], tokens: [{two}] }}\n");
    let old = caller("old", "check", &tokens[3], ", expires: 2000-01-01");
    let server = start(&[metrics.clone(), two, old]);
    let series = || {
        let text = server.metrics_by(&tokens[0].token);
        let found = text.lines().filter_map(|line| line.strip_prefix("weir_auth_token_expiry_timestamp_seconds"));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(series(), [r#"{client="old"} 946684800"#, r#"{client="two \"q\""} 4102444800"#]);
    change(&server, &[metrics, caller("new", "check", &tokens[4], ", expires: 2100-01-01")]);
    eventually("the new client alone", || (series() == [r#"{client="new"} 4102444800"#]).then_some(()));
}

#[tokio::test]
async fn a_token_expires_without_a_reload() {
    let token = token();
    let server = start(&[caller("a", "check", &token, "")]);
    let (_silent, mut answers) = open_stream(&server, &token).await;
    let end = OffsetDateTime::from(SystemTime::now() + Duration::from_secs(1)).format(&Rfc3339).expect("a moment");
    change(&server, &[caller("a", "check", &token, &format!(", expires: '{end}'"))]);
    let status = in_time("the stream ends", answers.message()).await.expect_err("ended");
    assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "the bearer token has expired"));
    let refused = server.client().await.check(by(Some(&token.token), check(&["a"]))).await.expect_err("refused");
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn an_invalid_credentials_file_keeps_the_old_one_and_leaks_no_token() {
    let (good, metrics, stray) = (token(), token(), token());
    let entries = [caller("a", "check", &good, ""), caller("m", "metrics", &metrics, "")];
    let server = start(&entries);
    let path = server.dir.path().join("auth.yaml");
    for (number, text) in ["", "callers: [", "callers: { a: { roles: [chek] } }"].into_iter().enumerate() {
        put(&path, text);
        eventually_async(text, async || (server.metric_by(&metrics.token, BAD) == number as f64 + 1.0).then_some(()))
            .await;
    }
    put(&path, &format!("callers: {{ a: {{ roles: [check], tokens: [{{ sha256: {} }}] }} }}", stray.token));
    eventually_async("the last", async || (server.metric_by(&metrics.token, BAD) == 4.0).then_some(())).await;
    let mut client = server.client().await;
    client.check(by(Some(&good.token), check(&["a"]))).await.expect("the callers before are in force");
    let lines = eventually_async("all of them are logged", async || {
        let lines = server.log_lines("auth.file on disk is not valid; the previous credentials stay in force");
        (lines.len() == 4).then_some(lines)
    })
    .await;
    assert!(lines[2]["problem"].as_str().expect("a text").contains("auth.yaml:1:"), "{lines:#?}");
    assert!(!server.log().join("\n").contains(&stray.token), "{:#?}", server.log());
    change(&server, &[]);
    change(&server, &entries[1..]);
    eventually_async("a good one is taken", async || {
        client.check(by(Some(&good.token), check(&["a"]))).await.is_err().then_some(())
    })
    .await;
}
