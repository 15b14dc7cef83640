//! Dry runs: answered like a check, without a charge.

use serde_json::json;
use weir::proto::{CheckBatchRequest, CheckRequest, CheckResponse};

use crate::support::{Server, http::Client, requests::check, server::Setup};

/// Three in one burst, and one a day; a queue that admits one request without a wait.
const POLICY: &str = "
schema:
  user: { children: { '*': { limits: [[2, 1, 86400]] } } }
  queue: { limits: [{ leaky_queue: { count: 1, period: 1d, burst: 5 } }] }
";

fn dry_run(key: &[&str], cost: i64) -> CheckRequest {
    CheckRequest { cost: Some(cost), dry_run: true, ..check(key) }
}

fn left(answer: &CheckResponse) -> (bool, u64) {
    (answer.allowed, answer.remaining)
}

#[tokio::test]
async fn a_dry_run_charges_nothing_over_every_surface() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    let of_two = || dry_run(&["user", "alex"], 2);
    for _ in 0..2 {
        assert_eq!(left(&client.check(of_two()).await.expect("an answer").into_inner()), (true, 1));
        let batch = CheckBatchRequest { checks: vec![of_two(); 3] };
        let answers = client.check_batch(batch).await.expect("answers").into_inner().results;
        assert!(answers.len() == 3 && answers.iter().all(|answer| left(answer) == (true, 1)), "{answers:?}");
        let mut answers =
            client.check_stream(futures_util::stream::iter(vec![of_two(); 2])).await.expect("a stream").into_inner();
        while let Some(answer) = answers.message().await.expect("an answer") {
            assert_eq!(left(&answer), (true, 1));
        }
        let body = json!({ "key": ["user", "alex"], "cost": 2, "dryRun": true });
        let answer = http.post("/v1/check", &body);
        assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!("1")));
        let answers = http.post("/v1/check_batch", &json!({ "checks": [body, body] })).json();
        assert_eq!(answers["results"][1]["remaining"], json!("1"));
        let printed = server.run(&["check", "user", "alex", "--cost", "2", "--dry-run"]);
        assert_eq!(printed.code, 0);
        assert!(printed.out.starts_with("dry run: allowed; 1 of 3 left, full again in "), "{}", printed.out);
    }
    assert_eq!(left(&client.check(check(&["user", "alex"])).await.expect("an answer").into_inner()), (true, 2));

    // A dry run reports the retry time and the wait of its own cost.
    let mut ask = async |request| client.check(request).await.expect("an answer").into_inner();
    for _ in 0..3 {
        ask(check(&["user", "berta"])).await;
    }
    assert!(ask(CheckRequest { cost: Some(0), ..check(&["user", "berta"]) }).await.allowed, "a preview passes");
    for (cost, days) in [(1, 0..=1), (2, 1..=2)] {
        let refused = ask(dry_run(&["user", "berta"], cost)).await;
        let days = days.start() * 86_400..=days.end() * 86_400;
        assert!(!refused.allowed && days.contains(&refused.retry_after.expect("it can pass").seconds), "{refused:?}");
    }
    let printed = server.run(&["check", "user", "berta", "--dry-run"]);
    assert_eq!(printed.code, 1);
    assert!(printed.out.starts_with("dry run: refused by user/*#gcra0: 0 of 3 left, retry after "), "{}", printed.out);

    let seconds = |answer: CheckResponse| answer.wait.expect("a time").seconds;
    for _ in 0..2 {
        assert_eq!(seconds(ask(dry_run(&["queue"], 1)).await), 0);
        assert_eq!(seconds(ask(dry_run(&["queue"], 3)).await), 2 * 86_400);
    }
}

#[tokio::test]
async fn dry_runs_are_counted_apart_from_checks() {
    let server = Setup::new().policy(POLICY).start();
    let mut client = server.client().await;
    for cost in [1, 4] {
        client.check(dry_run(&["user", "alex"], cost)).await.expect("an answer");
    }
    client.check(dry_run(&["elsewhere"], 1)).await.expect("an answer");
    let nowhere = CheckRequest { domain: "nowhere".to_owned(), ..dry_run(&["user", "alex"], 1) };
    client.check(nowhere).await.expect_err("no such domain");
    assert_eq!(server.metric("weir_dry_runs_total{domain=\"default\"}"), 3.0);
    assert_eq!(server.metric("weir_dry_runs_total{domain=\"other\"}"), 1.0);
    let metrics = server.get("/metrics").1;
    for other in ["checks", "decisions", "charged_units", "near_limit", "unmatched_checks"] {
        let of = format!("weir_{other}_total{{");
        let counted: Vec<_> = metrics.lines().filter(|it| it.starts_with(&of) && !it.ends_with(" 0")).collect();
        assert!(counted.is_empty(), "{counted:?}");
    }
}
