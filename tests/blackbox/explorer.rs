//! The explorer's page and its API, over HTTP. `./drill browser` tests the page in a browser.

use std::fs;

use serde_json::{Value, json};
use weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest;
use weir_test_redis::{Cluster, ClusterOptions, Options, Server as Redis};

use crate::support::{Server, envoy, eventually, requests::check, server::Setup};

pub const POLICY: &str = "
    schema:
      user:
        limits: [{ fixed_window: { count: 1000, period: 31d }, name: everybody }]
        children:
          '*':
            limits: [{ gcra: { burst: 3, count: 1, period: 1d }, name: per-user }, { token_bucket: { capacity: 2, count: 1, period: 1d }, shadow: true }]
            children: { trade: { limits: [{ sliding_log: { count: 9, period: 1d, charge_denied: true } }] } }";

pub const PAGES: [&str; 19] = [
    "/ui",
    "/ui/explorer.css",
    "/ui/explorer.js",
    "/ui/page.js",
    "/ui/theme.js",
    "/ui/route.js",
    "/ui/draw.js",
    "/ui/health.js",
    "/ui/history.js",
    "/ui/chart.js",
    "/ui/tree.js",
    "/ui/keys.js",
    "/ui/overrides.js",
    "/ui/state.js",
    "/ui/reset.js",
    "/ui/quotas.js",
    "/ui/usage.js",
    "/ui/simulation.js",
    "/ui/traffic.js",
];
pub const API: [&str; 7] = [
    "GET /ui/api/session",
    "POST /ui/api/policy",
    "POST /ui/api/live",
    "POST /ui/api/key",
    "POST /ui/api/quotas",
    "POST /ui/api/simulate",
    "POST /ui/api/traffic",
];

pub fn setup() -> Setup {
    Setup::new().env("WEIR_HTTP__UI__ENABLED", "true")
}

/// Returns the answer of an API path of the explorer.
pub fn query(server: &Server, path: &str, body: Value) -> Value {
    let answer = server.ask(&format!("POST /ui/api/{path}"), None, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Returns status and error text of a rejected request.
pub fn refused(server: &Server, path: &str, body: Value) -> (u16, String) {
    let answer = server.ask(&format!("POST /ui/api/{path}"), None, &body);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    (answer.status, answer.json()["detail"].as_str().expect("a sentence").to_owned())
}

pub fn simulation() -> Value {
    json!({ "domain": "", "key": ["user", "alex"], "cost": 1, "rate": 1, "burst": 9, "seconds": 10, "random": false })
}

pub fn check_by_http(server: &Server, key: &[&str]) -> u16 {
    server.ask("POST /v1/check", None, &json!({ "key": key })).status
}

#[test]
fn the_explorer_is_off_by_default() {
    let server = Server::with_policy(POLICY);
    for path in PAGES.iter().map(|path| format!("GET {path}")).chain(API.map(str::to_owned)) {
        assert_eq!(server.ask(&path, None, &json!({ "domain": "" })).status, 404, "{path}");
    }
}

#[test]
fn pages_have_security_headers_and_no_external_resources() {
    let server = setup().policy(POLICY).start();
    for request in PAGES.iter().map(|path| format!("GET {path}")).chain(API.map(str::to_owned)) {
        let answer = server.ask(&request, None, &json!({ "domain": "", "key": ["user"] }));
        let policy = answer.header("content-security-policy").expect("a policy of contents");
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'"] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{policy}");
        }
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{request}");
        }
    }
    for path in PAGES {
        let text = server.get(path).1.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http://", "https://", "url(", "@import", "innerHTML", "onclick=\"", "eval("] {
            assert!(!text.contains(outside), "{path} holds {outside}");
        }
        assert!(path == "/ui/theme.js" || !text.contains("localStorage"), "{path} stores something");
    }
    let moved = server.ask("GET /ui/", None, &Value::Null);
    assert_eq!((moved.status, moved.header("location")), (308, Some("../ui")));
    assert_eq!(server.ask("GET /ui/api/live", None, &Value::Null).status, 405);
    assert_eq!(server.ask("POST /ui/api/elsewhere", None, &Value::Null).status, 404);
}

#[test]
fn the_policy_tree_is_served_and_updated_after_a_reload() {
    let server = setup().policy(POLICY).start();
    let first = query(&server, "policy", json!({}));
    assert_eq!((&first["domains"], &first["limits"]), (&json!([""]), &json!(4)));
    let settings = first["domain"]["settings"].as_array().expect("settings");
    for setting in [["charge", "all_or_nothing"], ["on_store_failure", "local"]] {
        assert!(settings.contains(&json!(setting)), "{settings:?}");
    }
    let nodes = first["nodes"].as_array().expect("nodes");
    let shown: Vec<_> = nodes
        .iter()
        .map(|node| (node["segment"].as_str().expect("a text"), node["limits"].as_array().expect("limits").len()))
        .collect();
    assert_eq!(shown, [("user", 1), ("*", 2), ("trade", 1)]);
    assert_eq!((&nodes[1]["parent"], &nodes[2]["parent"]), (&nodes[0]["id"], &nodes[1]["id"]));
    let limit = &nodes[1]["limits"][0];
    assert_eq!((&limit["name"], &limit["algorithm"]), (&json!("per-user"), &json!("gcra")));
    assert_eq!(limit["parameters"], "{ burst: 3, count: 1, period: 1d }");

    let below = query(&server, "policy", json!({ "domain": "", "below": [nodes[0]["id"], first["version"]] }));
    assert_eq!(below["nodes"][0]["segment"], "*");
    fs::write(server.dir.path().join("limits.yaml"), "domain: d\nschema: { a: { limits: [[1, 1, 1]] } }")
        .expect("written");
    let next = eventually("the policy has changed", || {
        let next = query(&server, "policy", json!({}));
        (next["version"] != first["version"]).then_some(next)
    });
    assert_eq!((&next["domains"], &next["nodes"][0]["segment"]), (&json!(["d"]), &json!("a")));
    let old = json!({ "domain": "d", "below": [0, first["version"]] });
    assert_eq!(refused(&server, "policy", old).0, 409);
    assert_eq!(refused(&server, "policy", json!({ "domain": "d", "below": [9999, next["version"]] })).0, 409);
    for path in ["policy", "live"] {
        assert_eq!(refused(&server, path, json!({ "domain": "" })).0, 404);
    }
}

#[test]
fn at_most_as_many_hot_keys_are_known_as_are_set() {
    let server = setup().policy(POLICY).env("WEIR_HTTP__UI__MAX_HOT_KEYS", "10").start();
    for user in 0..12 {
        assert_eq!(check_by_http(&server, &["user", &format!("{user}")]), 200);
    }
    let wanted = json!({ "order": "HOT_KEY_ORDER_CHECKED", "count": 100 });
    let found = server.ask("POST /v1/admin/list_hot_keys", None, &wanted).json();
    assert_eq!(found["keys"].as_array().map(Vec::len), Some(10), "{found}");
}

#[tokio::test]
async fn live_counters_and_keys_include_checks_of_every_api() {
    let server = setup().policy(POLICY).start();
    let live = |server: &Server| query(server, "live", json!({ "domain": "" }));
    let quiet = live(&server);
    assert_eq!((&quiet["limits"], &quiet["busy"], &quiet["near"]), (&json!([]), &json!([]), &json!([])));
    assert_eq!((&quiet["store"], &quiet["degraded"]["local"]), (&Value::Null, &json!(0)));
    let mut client = server.client().await;
    for _ in 0..6 {
        client.check(check(&["user", "alex"])).await.expect("an answer");
    }
    assert_eq!(check_by_http(&server, &["user", "<b>bob</b>", "trade"]), 200);
    let mut peek = check(&["user", "carol"]);
    peek.cost = Some(0);
    client.check(peek).await.expect("an answer");
    let live = live(&server);
    // The numbers of checks: passed, refused, failed; and of a limit: its index, passed, refused, refused in shadow,
    // near the limit.
    assert_eq!(live["checks"], json!([6, 2, 0]));
    let timed: Vec<u64> = serde_json::from_value(live["latency"]["counts"].clone()).expect("numbers");
    assert_eq!(timed.iter().sum::<u64>(), 8, "every check is timed: {live}");
    assert_eq!(timed.len(), live["latency"]["bounds"].as_array().expect("bounds").len() + 1);
    let counted = |name: &str| {
        let policy = query(&server, "policy", json!({}));
        let mut limits = policy["nodes"]
            .as_array()
            .expect("nodes")
            .iter()
            .flat_map(|node| node["limits"].as_array().expect("limits").clone());
        let index = limits.find(|limit| limit["name"] == name).expect("the limit")["index"].clone();
        let mut rows = live["limits"].as_array().expect("rows").iter();
        rows.find(|row| row[0] == index).expect("it has decided").clone()
    };
    assert_eq!(counted("per-user").as_array().expect("a row")[1..3], [json!(6), json!(2)]);
    assert_eq!(counted("everybody").as_array().expect("a row")[1..3], [json!(8), json!(0)]);
    assert_eq!(counted("user/*#token_bucket0").as_array().expect("a row")[1..4], [json!(4), json!(0), json!(4)]);
    let keys =
        |list: &str| live[list].as_array().expect("keys").iter().map(|key| key["key"].to_string()).collect::<Vec<_>>();
    assert_eq!(keys("busy")[0], r#"["user"]"#);
    assert!(keys("busy").contains(&r#"["user","<b>bob</b>","trade"]"#.to_owned()), "{live}");
    assert!(!keys("busy").iter().any(|key| key.contains("carol")), "a peek makes no key hot: {live}");
    let near = &live["near"][0];
    assert_eq!(near["key"], json!(["user", "alex"]));
    // A key has one entry with all its limits.
    let limits = near["limits"].as_array().expect("limits");
    let mut named: Vec<_> = limits.iter().map(|limit| (limit["name"].as_str(), &limit["remaining"])).collect();
    named.sort_by_key(|(name, _)| *name);
    assert_eq!(named, [(Some("per-user"), &json!(0)), (Some("user/*#token_bucket0"), &json!(0))]);
    assert_eq!(keys("busy").iter().filter(|key| **key == r#"["user","alex"]"#).count(), 1);
    let found = query(&server, "live", json!({ "domain": "", "search": "B>BOB" }));
    let found = found["busy"].as_array().expect("keys").iter().map(|key| key["key"].to_string()).collect::<Vec<_>>();
    assert!(found.len() == 2 && found.iter().all(|key| key.contains("bob")), "{found:?}");
    assert!(!server.get("/metrics").1.contains("alex"), "no request value in a metric");
}

#[tokio::test]
async fn live_keys_include_envoy_descriptors() {
    let file =
        "domain: d\ndescriptors: [{ key: path, value: '/a*', rate_limit: { unit: year, requests_per_unit: 2 } }]";
    let server = setup().policy(file).start();
    let channel = server.channel().await;
    for _ in 0..3 {
        let descriptors = vec![envoy::descriptor(&["path", "/abc"], 1)];
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, ..Default::default() };
        envoy::should_rate_limit(channel.clone(), request).await.expect("an answer");
    }
    let live = query(&server, "live", json!({ "domain": "d" }));
    assert_eq!(
        (&live["busy"][0]["key"], &live["near"][0]["limits"][0]["allowed"]),
        (&json!(["path", "/abc"]), &json!(false))
    );
    assert_eq!(query(&server, "policy", json!({}))["domain"]["format"], "descriptors");
    let state = query(&server, "key", json!({ "domain": "d", "key": ["path", "/abc"] }));
    assert_eq!((&state["allowed"], &state["levels"][0]["remaining"]), (&json!(false), &json!(0)));
}

#[test]
fn the_filter_keeps_matches_and_marks_lifted_limits() {
    let policy = "
        schema:
          user:
            children:
              '*': { limits: [{ gcra: { burst: 3, count: 1, period: 1d }, name: per-user }] }
              internal: { factor: 0, limits: [{ gcra: { burst: 3, count: 1, period: 1d }, name: per-user }] }
          site: { limits: [[1, 1, 1]] }";
    let server = setup().policy(policy).start();
    let found = |filter: &str| {
        let answer = query(&server, "policy", json!({ "filter": filter }));
        let nodes = answer["nodes"].as_array().expect("nodes").iter();
        (answer["matches"].clone(), nodes.map(|node| node["segment"].to_string()).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(found(""), (Value::Null, r#""site" "user" "internal" "*""#.to_owned()));
    assert_eq!(found("user/INT"), (json!(1), r#""user" "internal""#.to_owned()));
    assert_eq!(found("per-u"), (json!(1), r#""user" "*""#.to_owned()));
    assert_eq!(
        query(&server, "policy", json!({ "filter": "intern" }))["nodes"][1]["marks"],
        json!(["unlimited: factor 0"])
    );
    let unlimited = |key: Value| {
        let state = query(&server, "key", key);
        (state["unlimited"].clone(), state["levels"].as_array().expect("levels").len())
    };
    assert_eq!(unlimited(json!({ "domain": "", "key": ["user", "internal", "any"] })), (json!(true), 0));
    assert_eq!(unlimited(json!({ "domain": "", "key": ["user", "alex"] })), (json!(false), 1));
    assert_eq!(unlimited(json!({ "domain": "", "key": ["user", "alex"], "factor": 0 })), (json!(true), 0));
    assert_eq!(unlimited(json!({ "domain": "", "key": ["usr"] })), (json!(false), 0));
}

#[test]
fn a_store_outage_shows_server_cause_and_start() {
    let mut redis = Redis::start(Options::port());
    let server = setup().shared(&redis).policy(POLICY).start();
    assert_eq!(check_by_http(&server, &["user", "alex"]), 200);
    let store = || query(&server, "live", json!({ "domain": "" }))["store"].clone();
    let up = store();
    assert_eq!((&up["servers"][0]["up"], &up["servers"][0]["down_for_ms"]), (&json!(true), &Value::Null), "{up}");
    let trips: Vec<u64> = serde_json::from_value(up["round_trips"]["counts"].clone()).expect("numbers");
    assert_eq!(trips.iter().sum::<u64>(), 1, "{up}");
    redis.kill();
    let down = eventually("the circuit breaker is open", || {
        check_by_http(&server, &["user", "alex"]);
        Some(store()).filter(|store| store["servers"][0]["up"] == false)
    });
    let named = format!("127.0.0.1:{}", redis.port());
    assert_eq!(down["servers"][0]["server"], json!(named));
    assert!(down["servers"][0]["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{down}");
    assert!(down["servers"][0]["down_for_ms"].as_u64().is_some_and(|millis| millis < 600_000), "{down}");
    let live = query(&server, "live", json!({ "domain": "" }));
    assert!(live["degraded"]["local"].as_u64().is_some_and(|count| count > 0), "{live}");
    redis.restart();
    eventually("it is up again", || Some(store()).filter(|store| store["servers"][0]["up"] == true));
}

/// Previews and then checks a key until it is refused: each preview predicts its check.
fn look_and_check(server: &Server) {
    let wanted = json!({ "domain": "", "key": ["user", "alex", "trade"] });
    for turn in 0..5 {
        let state = query(server, "key", wanted.clone());
        let again = query(server, "key", wanted.clone());
        let remaining = |state: &Value| -> Vec<_> {
            state["levels"].as_array().expect("levels").iter().map(|level| level["remaining"].clone()).collect()
        };
        assert_eq!(remaining(&state), remaining(&again), "a look charges nothing");
        assert_eq!(
            remaining(&state),
            [json!(1000 - turn), json!(4 - turn), json!(2_i32.saturating_sub(turn).max(0)), json!(9 - turn)]
        );
        assert_eq!(state["allowed"], turn < 4, "{state}");
        assert_eq!(check_by_http(server, &["user", "alex", "trade"]), if turn < 4 { 200 } else { 429 });
    }
    let state = query(server, "key", wanted);
    let level = &state["levels"][1];
    assert_eq!((&state["binding"], &level["name"], &level["allowed"]), (&json!(1), &json!("per-user"), &json!(false)));
    let wait = level["retry_after_us"].as_i64().expect("a time");
    assert!((86_300_000_000..=86_400_000_000).contains(&wait), "{wait}");
    assert_eq!(state["retry_after_us"], level["retry_after_us"]);
    let whole = query(server, "key", json!({ "domain": "", "key": ["user", "alex"], "cost": 5 }));
    assert_eq!((&whole["never"], &whole["allowed"]), (&json!(true), &json!(false)));
}

#[test]
fn previewing_a_key_matches_a_check_and_changes_nothing() {
    look_and_check(&setup().policy(POLICY).start());
}

#[test]
fn previewing_a_key_in_redis_matches_a_check() {
    let redis = Redis::start(Options::socket());
    look_and_check(&setup().shared(&redis).policy(POLICY).start());
}

#[test]
fn previewing_a_key_in_a_cluster_matches_a_check() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let server =
        setup().env("WEIR_STORE__URL", &cluster.url()).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "60s").policy(POLICY);
    look_and_check(&server.start());
}
