//! Usage by key: `ListKeys` and `weir keys`, in memory.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde_json::json;
use tonic::{Code, transport::Channel};
use weir::proto::{
    CheckBatchRequest, CheckRequest, KeyUsage, Limit, LimitSpec, ListKeysRequest, ListKeysResponse, ReserveRequest,
    admin_client::AdminClient, r#override::Change, rate_limiter_client::RateLimiterClient,
};

use crate::support::{
    Server,
    http::Client,
    overrides::{over, set},
    requests::{all_pages, check, reset},
    server::Setup,
};

const POLICY: &str = "
schema:
  user:
    children:
      '*':
        limits:
          - { name: per-user, fixed_window: { count: 10, period: 31d } }
          - { name: watched, shadow: true, fixed_window: { count: 20, period: 31d } }
          - { name: slots, concurrency: { max: 3, ttl: 1h, check: peek } }
        children: { trade: { limits: [{ name: trades, fixed_window: { count: 5, period: 31d } }] } }
  long: { children: { '*': { limits: [{ name: any, fixed_window: { count: 5, period: 31d } }] } } }
";

fn of(key: &[&str], cost: i64) -> CheckRequest {
    CheckRequest { cost: Some(cost), ..check(key) }
}

async fn spend(channel: &Channel, checks: Vec<CheckRequest>) {
    let answers = RateLimiterClient::new(channel.clone()).check_batch(CheckBatchRequest { checks }).await;
    answers.expect("answers").into_inner().results.iter().for_each(|answer| assert_eq!(answer.error, None));
}

async fn page(channel: &Channel, request: ListKeysRequest) -> ListKeysResponse {
    AdminClient::new(channel.clone()).list_keys(request).await.expect("a page").into_inner()
}

/// Returns all pages of a request.
async fn all(channel: &Channel, request: ListKeysRequest) -> Vec<KeyUsage> {
    all_pages(async |cursor| {
        let page = page(channel, ListKeysRequest { cursor, ..request.clone() }).await;
        (page.keys, page.next_cursor)
    })
    .await
}

fn prefix(segments: &[&str]) -> ListKeysRequest {
    ListKeysRequest { prefix: segments.iter().map(|segment| (*segment).to_owned()).collect(), ..Default::default() }
}

fn names(keys: &[KeyUsage]) -> BTreeSet<(String, &str)> {
    keys.iter().map(|row| (row.key.join("/"), row.limit_name.as_str())).collect()
}

#[tokio::test]
async fn entries_equal_a_check_of_cost_0_and_charge_nothing() {
    let server = Server::with_policy(POLICY);
    let channel = server.channel().await;
    let mut client = RateLimiterClient::new(channel.clone());
    spend(&channel, vec![of(&["user", "alex", "trade"], 3), of(&["user", "alex"], 7)]).await;
    let reserve = ReserveRequest { check: Some(of(&["user", "sam"], 4)), ..Default::default() };
    assert!(client.reserve(reserve).await.expect("an answer").into_inner().decision.expect("one").allowed);
    for _ in 0..2 {
        let keys = all(&channel, prefix(&["user"])).await;
        let expected = [
            ("user/alex", "per-user"),
            ("user/alex", "watched"),
            ("user/alex/trade", "trades"),
            ("user/sam", "per-user"),
            ("user/sam", "slots"),
            ("user/sam", "watched"),
        ];
        let expected: BTreeSet<_> = expected.map(|(key, limit)| (key.to_owned(), limit)).into();
        assert_eq!((names(&keys), keys.len()), (expected, 6), "{keys:?}");
        for row in &keys {
            let key: Vec<_> = row.key.iter().map(String::as_str).collect();
            let answer = client.check(of(&key, 0)).await.expect("an answer").into_inner();
            let level = answer.levels.iter().find(|level| level.name == row.limit_name).expect("its level");
            let row_values = (row.limit, row.remaining, row.used, row.shadow);
            assert_eq!(
                row_values,
                (level.limit, level.remaining, level.limit - level.remaining, level.shadow),
                "{row:?}"
            );
            let (listed, checked) = (row.reset_after.expect("one"), level.reset_after.expect("one"));
            assert!(listed.seconds - checked.seconds <= 60 && listed.seconds >= checked.seconds, "{row:?} {level:?}");
            assert_eq!((row.known, row.at_limit), (true, level.remaining == 0));
        }
        let row = |key: &str, limit: &str| {
            keys.iter().find(|row| row.key.join("/") == key && row.limit_name == limit).expect("an entry")
        };
        assert_eq!((row("user/alex", "per-user").used, row("user/alex", "per-user").at_limit), (10, true));
        assert_eq!((row("user/sam", "per-user").outstanding, row("user/sam", "slots").outstanding), (4, 1));
    }
}

#[tokio::test]
async fn prefixes_are_whole_segments_of_one_domain_or_all() {
    let other = "domain: other\nschema: { user: { limits: [{ name: one, fixed_window: { count: 5, period: 31d } }] } }";
    let setup = Setup::new();
    std::fs::create_dir(setup.path("limits")).expect("a directory");
    for (file, text) in [("a.yaml", POLICY), ("b.yaml", other)] {
        std::fs::write(setup.path("limits").join(file), text).expect("a policy");
    }
    let limits = setup.path("limits");
    let server = setup.limits(limits).start();
    let channel = server.channel().await;
    let in_other = CheckRequest { domain: "other".to_owned(), ..of(&["user"], 1) };
    let own_limits = {
        let mut one = of(&["user", "alex"], 1);
        let gcra =
            weir::proto::Gcra { burst: 1, count: 1, period: Some(prost_types::Duration { seconds: 99, nanos: 0 }) };
        let limit = Limit { algorithm: Some(weir::proto::limit::Algorithm::Gcra(gcra)), ..Default::default() };
        one.limit_spec = Some(LimitSpec { limits: vec![limit], charge: 0 });
        one
    };
    let long = "l".repeat(100);
    let checks =
        vec![of(&["user", "alex"], 1), of(&["user", "alexa"], 1), in_other, own_limits, of(&["long", &long], 1)];
    spend(&channel, checks).await;
    let count = async |request| all(&channel, request).await.len();
    assert_eq!(count(prefix(&["user", "alex"])).await, 3, "two limits of the policy, and one of the request");
    assert_eq!(count(prefix(&["user", "a"])).await, 0);
    assert_eq!(count(prefix(&["user"])).await, 5);
    assert_eq!(count(ListKeysRequest { domain: "other".to_owned(), ..Default::default() }).await, 1);
    assert_eq!(count(ListKeysRequest { domain: "none".to_owned(), ..Default::default() }).await, 0);
    let everything = all(&channel, ListKeysRequest { all_domains: true, ..Default::default() }).await;
    assert_eq!(everything.len(), 7, "{everything:?}");
    for command in ["keys", "usage"] {
        let rows = server.run(&[command, "--all-domains", "--json"]).json_lines();
        let domains: BTreeSet<_> = rows.iter().map(|row| row["domain"].as_str()).collect();
        assert_eq!(domains, [Some(""), Some("other")].into(), "{command}: {rows:?}");
    }
    let unknown: Vec<_> = everything.iter().filter(|row| !row.known).collect();
    assert_eq!((unknown.len(), unknown[0].limit_name.starts_with("rgcra")), (1, true), "{unknown:?}");
    // A long segment is stored as its hash, and is found by it.
    let found = all(&channel, prefix(&["long", &long])).await;
    assert_eq!((found.len(), &found[0].hashed[..], found[0].used), (1, &[1][..], 1), "{found:?}");
    assert!(found[0].key[1].starts_with("hash:"), "{found:?}");
    let listed = Client::connect(&server.http)
        .expect("a connection")
        .post("/v1/admin/list_keys", &json!({ "prefix": ["long"] }));
    assert_eq!((listed.status, &listed.json()["keys"][0]["hashed"]), (200, &json!([1])));
}

#[tokio::test]
async fn invalid_pages_and_cursors_are_rejected() {
    let server = Server::with_policy(POLICY);
    let channel = server.channel().await;
    spend(&channel, vec![of(&["user", "alex"], 1), of(&["user", "sam"], 1)]).await;
    let first = page(&channel, ListKeysRequest { page_size: 1, ..prefix(&["user"]) }).await;
    assert!(!first.next_cursor.is_empty());
    let cursor = |cursor: &str| ListKeysRequest { cursor: cursor.to_owned(), ..prefix(&["user"]) };
    let other = ListKeysRequest { cursor: first.next_cursor.clone(), ..prefix(&["user", "sam"]) };
    let changed = format!("{}A", first.next_cursor);
    for (request, field) in [
        (ListKeysRequest { page_size: 1_001, ..Default::default() }, "page_size"),
        (ListKeysRequest { all_domains: true, ..prefix(&["user"]) }, "all_domains"),
        (prefix(&[""]), "prefix[0]"),
        (prefix(&["a"; 33]), "prefix"),
        (ListKeysRequest { domain: "d".repeat(1_025), ..Default::default() }, "domain"),
        (cursor("AAAA"), "cursor"),
        (cursor("not a cursor"), "cursor"),
        (cursor(&changed), "cursor"),
        (other, "cursor"),
    ] {
        let status = AdminClient::new(channel.clone()).list_keys(request.clone()).await.expect_err("it is invalid");
        assert_eq!(status.code(), Code::InvalidArgument, "{request:?}");
        let details = String::from_utf8_lossy(status.details()).into_owned();
        assert!(details.contains(field), "{field}: {details}");
    }
    // In memory a cursor is valid in its process only.
    let elsewhere = Server::with_policy(POLICY);
    let status = AdminClient::new(elsewhere.channel().await).list_keys(cursor(&first.next_cursor)).await;
    assert_eq!(status.expect_err("it is another process").code(), Code::InvalidArgument);
    the_program_prints_tables_csv_and_json(&elsewhere).await;
}

async fn the_program_prints_tables_csv_and_json(server: &Server) {
    spend(&server.channel().await, vec![of(&["user", "a/b", "trade"], 2), of(&["long", "x"], 5)]).await;
    let keys = |args: &[&str]| {
        let run = server.run(&[&["keys"], args].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        run
    };
    let table = keys(&["long"]);
    assert!(table.out.contains("100%") && table.out.contains("long/x  any"), "{}", table.out);
    let csv = keys(&["user", "--csv"]).out;
    assert!(csv.starts_with("domain,key,limit_name,"), "{csv}");
    assert!(csv.contains("\n,user/a\\/b/trade,trades,true,2,5,3,"), "{csv}");
    let lines = keys(&["--json"]).json_lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let long = lines.iter().find(|line| line["key"] == json!(["long", "x"])).expect("its line");
    assert_eq!((&long["used"], &long["at_limit"], &long["limit_name"]), (&json!(5), &json!(true), &json!("any")));
    let first = keys(&["--limit", "1"]);
    assert!(first.out.lines().count() == 2 && first.err.contains("there are more"), "{first:?}");
}

#[tokio::test]
async fn the_first_page_of_many_keys_is_fast() {
    // Fewer than ten pages, so that a page that read all keys would fail the comparison.
    const KEYS: usize = 8_000;
    let server = Setup::new().policy(POLICY).start();
    let channel = server.channel().await;
    for first in (0..KEYS).step_by(1_000) {
        spend(&channel, (first..first + 1_000).map(|number| of(&["long", &number.to_string()], 1)).collect()).await;
    }
    let mut first = Duration::MAX;
    // The fastest of three, for busy machines.
    for _ in 0..3 {
        let since = Instant::now();
        assert_eq!(page(&channel, prefix(&["long"])).await.keys.len(), 100);
        first = first.min(since.elapsed());
    }
    let since = Instant::now();
    assert_eq!(all(&channel, ListKeysRequest { page_size: 1_000, ..prefix(&["long"]) }).await.len(), KEYS);
    assert!(first < since.elapsed() / 10, "{first:?}, and {:?} for all pages", since.elapsed());
}

#[tokio::test]
async fn a_limit_under_an_override_of_another_period_is_listed_once() {
    let server = Server::with_policy(POLICY);
    let channel = server.channel().await;
    let alex = ["user", "alex"];
    let limits = "{ name: per-user, fixed_window: { count: 50, period: 2d } }".to_owned();
    spend(&channel, vec![of(&alex, 10)]).await;
    for (change, cost, expected) in [
        (Change::Limits(limits), 3, [("per-user", 3, false, false), ("watched", 13, false, true)]),
        // Lifted limits are listed, as shadow limits: they refuse nothing.
        (Change::Unlimited(true), 1, [("per-user", 10, true, true), ("watched", 13, false, true)]),
    ] {
        set(&server, over(&alex, change)).await;
        spend(&channel, vec![of(&alex, cost)]).await;
        let keys = all(&channel, prefix(&alex)).await;
        let known = keys.iter().filter(|row| row.known);
        let known: BTreeSet<_> =
            known.map(|row| (row.limit_name.as_str(), row.used, row.at_limit, row.shadow)).collect();
        assert_eq!((known, keys.len()), (expected.into(), 3), "{keys:?}");
    }
}

#[tokio::test]
async fn the_top_is_by_units_by_share_or_by_refusals() {
    let server = Setup::new().policy(POLICY).env("WEIR_HTTP__UI__ENABLED", "true").start();
    let channel = server.channel().await;
    let used = [(&["user", "much"], 8), (&["user", "little"], 1), (&["long", "full"], 5)];
    spend(&channel, used.iter().map(|(key, cost)| of(*key, *cost)).collect()).await;
    spend(&channel, (0..500).map(|_| of(&["long", "full"], 1)).collect()).await;
    let top = |args: &[&str]| {
        let run = server.run(&[&["usage", "--json"], args].concat());
        assert_eq!(run.code, 0, "{}", run.err);
        run.json_lines().iter().map(|line| (line["key"][1].clone(), line["limit_name"].clone())).collect::<Vec<_>>()
    };
    let row = |key: &str, limit: &str| (json!(key), json!(limit));
    assert_eq!(top(&["--top", "3"]).last(), Some(&row("full", "any")), "behind two with 8 units");
    assert_eq!(top(&["--top", "2"]).len(), 2);
    assert_eq!(top(&["--by", "near", "--top", "2"]), [row("full", "any"), row("much", "per-user")]);
    assert_eq!(top(&["user", "--by", "near", "--top", "1"]), [row("much", "per-user")]);
    assert_eq!(top(&["--by", "refused"]), [row("full", "any")]);
    assert!(top(&["user", "--by", "refused"]).is_empty());
    let table = server.run(&["usage", "--by", "refused"]);
    assert!(table.out.contains("refused/s") && table.out.contains("long/full  any"), "{table:?}");

    let blind = Server::with_policy(POLICY);
    let refused = blind.run(&["usage", "--by", "refused"]);
    assert!(refused.code == 2 && refused.err.contains("http.ui.enabled"), "{refused:?}");
}

#[tokio::test]
async fn control_characters_of_keys_are_escaped() {
    let server = Server::with_policy(POLICY);
    let key = ["user", "\u{9b}2J\u{202e}"];
    server.check(check(&key)).await;
    let keys = server.run(&["keys", "--json"]);
    assert!(keys.out.contains(r"\u009b2J\u202e") && keys.out.is_ascii(), "{}", keys.out);
    assert_eq!(keys.json_lines()[0]["key"], json!(key));
    for format in [&["keys"][..], &["keys", "--csv"]] {
        let keys = server.run(format).out;
        assert!(keys.contains(r"user/\u009b2J\u202e") && keys.is_ascii(), "{keys}");
    }
    server.client().await.reset(reset(&key, false)).await.expect("a reset");
    let line = server.wait_for_log("reset");
    assert!(line["key"].as_str().is_some_and(|text| text.contains(key[1])), "{line}");
    assert!(server.log().iter().all(|line| line.is_ascii()));
}
