//! The documentation has one table row for each exported metric, and no other rows.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use weir::proto::LeaseRequest;

use crate::{
    support::{
        Server, eventually,
        pki::{Authority, Leaf, put},
        requests::check,
        reservations::{HOUR, reserve, wanted},
        server::Setup,
    },
    tokens::{caller, token},
};

const POLICY: &str = "schema: { user: { limits: [[9, 1, 86400]] } }";
const PAGES: [&str; 2] = ["docs/running.md", "docs/redis.md"];

/// Returns the metrics in the first column of a page's tables.
fn in_tables_of(page: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect("a page");
    let first = text.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let quoted = first.flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
    let name = |quoted: String| quoted.split('{').next().unwrap_or_default().to_owned();
    quoted.map(name).filter(|name| name.starts_with("weir_") || name.starts_with("process_")).collect()
}

/// Returns the metrics in a scrape of `/metrics`.
fn shown(text: &str) -> impl Iterator<Item = String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    types.map(str::to_owned)
}

/// Returns the metrics of a service with counts in memory: with TLS, reloaded credentials, a snapshot, an unreachable
/// collector, and quotas.
fn of_one_that_is_alone() -> Vec<String> {
    let (pair, metrics) = (Authority::new("ours").sign(Leaf::host("localhost")), token());
    let callers = |name| format!("callers:\n{}", caller(name, "metrics", &metrics, ""));
    let setup = Setup::new().policy(POLICY).grpc_tls(&pair).credentials(&callers("prometheus"));
    let snapshot = setup.path("snapshot");
    let setup = setup.snapshot(snapshot);
    let setup = setup.env("WEIR_TRACING__OTLP_ENDPOINT", "http://127.0.0.1:1").env("WEIR_RLQS__DOMAINS", "api=user");
    let server = setup.env("WEIR_STORE__SNAPSHOT__EVERY", "1s").start();
    put(&server.dir.path().join("auth.yaml"), &callers("scraper"));
    server.wait_for_metric_by(&metrics.token, "weir_auth_reloads_total{result=\"success\"}", 1.0);
    server.wait_for_metric_by(&metrics.token, "weir_snapshot_bytes", 1.0);
    shown(&server.ask("GET /metrics", Some(&metrics.token), &Value::Null).body).collect()
}

/// Returns the metrics of a service with an unreachable store.
fn of_one_that_shares() -> Vec<String> {
    let setup = Setup::new().policy(POLICY).env("WEIR_STORE__NEAR_CACHE__ENABLED", "true");
    let nowhere = format!("redis+unix://{}", setup.path("redis.sock").display());
    let server = setup.env("WEIR_STORE__URL", &nowhere).start();
    assert_eq!(server.run(&["check", "user"]).code, 0);
    eventually("a failure is counted", || {
        let text = server.get("/metrics").1;
        text.contains("weir_store_errors_total{").then(|| shown(&text).collect())
    })
}

/// Returns the metrics of a service with an unreachable control plane.
fn of_one_that_is_told() -> Vec<String> {
    let server = Setup::new().limits("xds://127.0.0.1:1".into()).env("WEIR_XDS__START", "ready").start();
    shown(&server.get("/metrics").1).collect()
}

/// Returns the metrics of a service whose client holds units.
async fn of_one_that_holds() -> Vec<String> {
    let server = Server::with_policy(&format!("lease: true\n{POLICY}"));
    let mut client = server.client().await;
    reserve(&mut client, wanted(&["user"], 1, HOUR)).await;
    let check = Some(check(&["user"]));
    let lease = LeaseRequest { check, holder: vec![7; 16], lease: 1, sequence: 1, ..LeaseRequest::default() };
    let mut answers = client.lease(futures_util::stream::iter([lease])).await.expect("a stream").into_inner();
    answers.message().await.expect("an answer").expect("one");
    shown(&server.get("/metrics").1).collect()
}

#[tokio::test]
async fn the_documented_metrics_match_the_exported_ones() {
    let of_any = [of_one_that_is_alone(), of_one_that_shares(), of_one_that_is_told(), of_one_that_holds().await];
    let live: BTreeSet<_> = of_any.into_iter().flatten().collect();
    let tables: Vec<_> = PAGES.iter().flat_map(|page| in_tables_of(page)).collect();
    let mut documented = BTreeSet::new();
    let twice: Vec<_> = tables.iter().filter(|name| !documented.insert((*name).clone())).collect();
    assert!(twice.is_empty(), "these stand twice in {PAGES:?}: {twice:?}");
    let missing: Vec<_> = live.difference(&documented).collect();
    assert!(missing.is_empty(), "these are in no table of {PAGES:?}: {missing:?}");
    let gone: Vec<_> = documented.difference(&live).collect();
    assert!(gone.is_empty(), "these are documented in {PAGES:?}, but no service shows them: {gone:?}");
}
