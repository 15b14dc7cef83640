//! Envoy's quotas: the assignments of each stream, with streams that behave like Envoy's client.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, transport::Channel};
use weir::proto::{Override, r#override::Change};
use weir_envoy::envoy::service::rate_limit_quota::v3::BucketId;

use crate::{
    explorer,
    support::{
        Server, TIMEOUT, eventually_async,
        overrides::{over, set},
        pki::put,
        quotas::{Assignment, QuotaStream, bucket},
        server::Setup,
    },
    tokens::{by, caller, token},
};

pub const POLICY: &str = "
domain: api
schema:
  user:
    limits: [{ token_bucket: { capacity: 5000, count: 5000, period: 1s } }]
    children:
      alex: { limits: [{ token_bucket: { capacity: 1000, count: 1000, period: 1s } }] }
      slow: { limits: [{ fixed_window: { count: 90, period: 60s } }] }
      root: { limits: [] }
      one: { limits: [{ fixed_window: { count: 3000, period: 1s } }] }
      other: { limits: [{ fixed_window: { count: 4000, period: 1s } }] }
";

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub fn setup() -> Setup {
    Setup::new().policy(POLICY).env("WEIR_RLQS__DOMAINS", "api=user")
}

pub async fn open(server: &Server) -> QuotaStream {
    QuotaStream::open(server.channel().await, "api").await.expect("a stream")
}

/// Reads both streams until growing shares have arrived, half a second after shrinking ones.
async fn listen(first: &mut QuotaStream, second: &mut QuotaStream) {
    let time = Duration::from_millis(600);
    tokio::join!(first.listen(time), second.listen(time));
}

#[test]
fn the_explorer_shows_what_each_envoy_is_assigned_uses_and_denies() {
    runtime().block_on(async {
        let server = setup().env("WEIR_HTTP__UI__ENABLED", "true").start();
        let quotas = |domain: &str| explorer::query(&server, "quotas", json!({ "domain": domain }));
        assert_eq!(quotas("shop"), json!({ "divided": false }));
        let (mut first, mut second) = (open(&server).await, open(&server).await);
        first.report(bucket("root"), 1, 0, 0).await;
        for stream in [&mut first, &mut second] {
            stream.report(bucket("alex"), 1, 0, 0).await;
            stream.until("alex", |assignment| assignment.rate() > 0.0).await;
        }
        first.report(bucket("alex"), 50, 25, 5).await;
        let found = eventually_async("what is denied", async || {
            let found = quotas("api");
            let envoys = found["buckets"].as_array()?.iter().filter_map(|bucket| bucket["envoys"].as_array()).flatten();
            envoys.filter_map(|envoy| envoy["denied"].as_f64()).any(|denied| denied > 0.0).then_some(found)
        })
        .await;
        assert_eq!((&found["streams"], &found["count"]), (&json!(2), &json!(2)), "{found}");
        let bucket_of = |user: &str| {
            let mut buckets = found["buckets"].as_array().expect("buckets").iter();
            buckets.find(|bucket| bucket["entries"] == json!([["user", user]])).expect("it is there")
        };
        let (alex, root) = (bucket_of("alex"), bucket_of("root"));
        assert_eq!(
            root,
            &json!({ "entries": [["user", "root"]], "limit": 5000.0, "streams": 1, "envoys": root["envoys"] })
        );
        assert_eq!(alex["limit"], json!(1000.0));
        let [busy, idle] = &alex["envoys"].as_array().expect("Envoys")[..] else { panic!("{found}") };
        let number = |envoy: &Value, name: &str| envoy[name].as_f64().expect("a number");
        assert!((number(busy, "used") - 2.0 * number(busy, "denied")).abs() < 0.01, "{busy}");
        assert!(number(busy, "denied") > 0.0 && number(idle, "denied") == 0.0, "{found}");
        assert!(number(busy, "assigned") + number(idle, "assigned") <= 1000.0 && number(busy, "assigned") > 0.0);
        let peer = busy["peer"].as_str().expect("an address");
        assert!(peer.starts_with("127.0.0.1:") && busy["has_left"] == json!(false), "{busy}");
        drop(first);
        eventually_async("it is gone", async || {
            let found = quotas("api");
            let gone = |envoy: &Value| envoy["has_left"] == json!(true) && envoy["peer"].is_null();
            let envoys = found["buckets"].as_array()?.iter().filter_map(|bucket| bucket["envoys"].as_array());
            (envoys.flatten().filter(|envoy| gone(envoy)).count() == 2).then_some(())
        })
        .await;
    });
}

#[test]
fn a_limit_is_divided_among_streams_by_demand() {
    runtime().block_on(async {
        let server = setup().start();
        let mut first = open(&server).await;
        first.report(bucket("alex"), 1, 0, 0).await;
        // The whole rate, but at first only a full bucket of a tenth of a second.
        let (assignment, seconds) = first.until("alex", |assignment| assignment.rate() >= 1_000.0).await;
        assert_eq!((assignment, seconds), (Assignment::Tokens { per_fill: 1_000, fill_seconds: 1, max: 100 }, 15));

        let mut second = open(&server).await;
        second.report(bucket("alex"), 1, 0, 0).await;
        first.report(bucket("alex"), 5_000, 5_000, 5).await;
        let (assignment, _) = second.until("alex", |assignment| assignment.rate() > 0.0).await;
        assert!(matches!(assignment, Assignment::Tokens { max: 50, .. }), "{assignment:?}");
        assert!(
            first.until("alex", |assignment| assignment.rate() < 1_000.0).await.0.rate() + assignment.rate() <= 1_000.0
        );
        // The number of reports depends on when the shares are sent. The service measures demand over the time between
        // reports, so the second stream reports a constant rate, however long a round takes.
        let mut reported = Instant::now();
        let mut reports = async |rate_of_second: f64, is_so: fn(f64, f64) -> bool| {
            eventually_async("the shares", async || {
                let hits = rate_of_second * reported.elapsed().as_secs_f64();
                reported = Instant::now();
                second.report(bucket("alex"), hits.ceil() as u64, 0, 1).await;
                first.report(bucket("alex"), 1_000, 4_000, 1).await;
                listen(&mut first, &mut second).await;
                is_so(first.rate("alex"), second.rate("alex")).then_some(())
            })
            .await;
        };
        reports(5_000.0, |first, second| (first, second) == (500.0, 500.0)).await;
        // The second stream has little demand.
        reports(60.0, |first, second| first >= 900.0 && second >= 50.0).await;
        assert!(first.rate("alex") + second.rate("alex") <= 1_000.0);
        drop(second);
        tokio::task::spawn_blocking(move || {
            server.wait_for_metric("weir_rlqs_streams", 1.0);
            assert_eq!(server.metric("weir_rlqs_buckets"), 1.0);
            assert!(server.metric("weir_rlqs_requests_total{domain=\"api\",outcome=\"denied\"}") >= 5_000.0);
        })
        .await
        .expect("metrics");
    });
}

#[test]
fn each_bucket_is_assigned_its_limits() {
    const RULES: &str = "
domain: api
schema:
  user:
    children:
      shadow: { limits: [{ fixed_window: { count: 10, period: 1s }, shadow: true }] }
      slow: { limits: [{ fixed_window: { count: 90, period: 60s } }] }
";
    runtime().block_on(async {
        let server = Setup::new().policy(RULES).env("WEIR_RLQS__DOMAINS", "api=user").start();
        let mut stream = open(&server).await;
        for user in ["nobody", "shadow", "slow"] {
            stream.report(bucket(user), 1, 0, 0).await;
        }
        for user in ["nobody", "shadow"] {
            assert_eq!(stream.until(user, |_| true).await, (Assignment::AllowAll, 15), "{user}");
        }
        // 1.5 a second, in steps of a hundredth.
        let (assignment, _) = stream.until("slow", |assignment| assignment.rate() > 1.4).await;
        assert!(matches!(assignment, Assignment::Tokens { fill_seconds: 100, max: 1, .. }), "{assignment:?}");
        let shadow = Setup::new().policy(RULES).env("WEIR_ENVOY__SHADOW_MODE", "true");
        let server = shadow.env("WEIR_RLQS__DOMAINS", "api=user").start();
        let mut stream = open(&server).await;
        stream.report(bucket("slow"), 1, 0, 0).await;
        assert_eq!(stream.until("slow", |_| true).await, (Assignment::AllowAll, 15), "nothing is refused");
    });
}

#[test]
fn buckets_below_one_limit_share_it() {
    runtime().block_on(async {
        let server = setup().start();
        let mut stream = open(&server).await;
        for user in ["one", "other"] {
            stream.report(bucket(user), 1, 0, 0).await;
        }
        for _ in 0..6 {
            for user in ["one", "other"] {
                stream.report(bucket(user), 10_000, 0, 1).await;
            }
            stream.listen(Duration::from_millis(600)).await;
            // 3,000 and 4,000 each, 5,000 together.
            assert!(stream.rate("one") + stream.rate("other") <= 5_000.0, "{:?}", stream.assignments);
        }
        assert!(stream.rate("one") >= 2_400.0 && stream.rate("other") >= 2_400.0, "{:?}", stream.assignments);
    });
}

#[test]
fn a_changed_policy_is_pushed_at_once() {
    runtime().block_on(async {
        let server = setup().start();
        let mut stream = open(&server).await;
        stream.report(bucket("alex"), 1, 0, 0).await;
        stream.until("alex", |assignment| assignment.rate() >= 1_000.0).await;
        server.replace_policy(&POLICY.replace("count: 1000", "count: 100"));
        let (assignment, _) =
            stream.until("alex", |assignment| assignment.rate() > 0.0 && assignment.rate() <= 100.0).await;
        assert!(
            matches!(assignment, Assignment::Tokens { max: 10, .. }),
            "it stores what a newcomer stores: {assignment:?}"
        );
        // The same limit with another fill interval.
        server.replace_policy(
            &POLICY.replace("capacity: 1000, count: 1000, period: 1s", "capacity: 30, count: 30, period: 60s"),
        );
        stream.until("alex", |assignment| assignment.rate() > 0.0 && assignment.rate() <= 0.5).await;
        server.replace_policy("domain: api\nschema: { user: { limits: [] } }");
        stream.until("alex", |assignment| assignment == Assignment::AllowAll).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_needs_the_role_check_and_ends_when_it_is_revoked() {
    let (envoy, metrics) = (token(), token());
    let other = caller("m", "metrics", &metrics, "");
    let server = setup().credentials(&format!("callers:\n{}{other}", caller("envoy", "check", &envoy, ""))).start();
    let open = async |token| {
        let metadata = by(token, ()).metadata().clone();
        QuotaStream::open_with(server.channel().await, "api", metadata).await
    };
    let refused = [(None, Code::Unauthenticated), (Some(&*metrics.token), Code::PermissionDenied)];
    for (token, code) in refused {
        assert_eq!(open(token).await.err().expect("refused").code(), code, "{token:?}");
    }
    let mut stream = open(Some(&envoy.token)).await.expect("a stream");
    stream.report(bucket("alex"), 1, 0, 0).await;
    stream.until("alex", |assignment| assignment.rate() > 0.0).await;
    put(&server.dir.path().join("auth.yaml"), &format!("callers:\n{other}"));
    let end = loop {
        match stream.hear(TIMEOUT).await {
            Ok(came) => assert!(came, "the stream goes on"),
            Err(end) => break end,
        }
    };
    assert_eq!(end.code(), Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_throttled_and_others_are_served() {
    const RULES: &str = "
domain: api
schema: { user: { children: { alex: { limits: [{ fixed_window: { count: 1000, period: 1s } }] } } } }
";
    let server = Setup::new().policy(RULES).env("WEIR_RLQS__DOMAINS", "api=user").start();
    let endpoint = Channel::from_shared(format!("http://{}", server.grpc)).expect("an address");
    // The window fits one answer, which contains the bucket's name.
    let channel = endpoint.initial_stream_window_size(1_500).connect().await.expect("it accepts connections");
    let mut slow = QuotaStream::open(channel, "api").await.expect("a stream");
    let mut sent = 0;
    while timeout(Duration::from_secs(2), slow.report(bucket(&format!("{sent:01000}")), 1, 0, 0)).await.is_ok() {
        sent += 1;
        assert!(sent < 20_000, "reports are taken without an end");
    }
    let mut other = open(&server).await;
    other.report(bucket("alex"), 1, 0, 0).await;
    other.until("alex", |assignment| assignment.rate() >= 1_000.0).await;
    assert_eq!(slow.assignments.len(), 0);
    while slow.assignments.len() < sent {
        assert!(slow.hear(TIMEOUT).await.expect("the stream goes on"), "{} of {sent}", slow.assignments.len());
    }
}

#[test]
fn a_limit_above_others_that_a_reload_adds_is_shared_by_them_until_one_removes_it() {
    let policy = |above: &str| {
        let user = "{ limits: [{ token_bucket: { capacity: 1000, count: 1000, period: 1s } }] }";
        format!("domain: api\nschema: {{ user: {{ {above}children: {{ '*': {user} }} }} }}")
    };
    runtime().block_on(async {
        let server = Setup::new().policy(&policy("")).env("WEIR_RLQS__DOMAINS", "api=user").start();
        let users = ["a", "b", "c"];
        let mut stream = open(&server).await;
        // Each bucket demands more than its limit.
        let report = async |stream: &mut QuotaStream, seconds| {
            for user in users {
                stream.report(bucket(user), 5_000, 0, seconds).await;
            }
        };
        report(&mut stream, 0).await;
        for user in users {
            stream.until(user, |assignment| assignment.rate() >= 1_000.0).await;
        }
        server.replace_policy(&policy("limits: [{ token_bucket: { capacity: 500, count: 500, period: 1s } }], "));
        let sum = |stream: &QuotaStream| users.iter().map(|user| stream.rate(user)).sum::<f64>();
        for (is_so, what) in [(0.0..=500.0, "together"), (2_900.0..=3_000.0, "each by itself")] {
            let end = Instant::now() + TIMEOUT;
            while !is_so.contains(&sum(&stream)) || users.iter().any(|user| stream.rate(user) < 100.0) {
                assert!(Instant::now() < end, "{what}: {:?}", stream.assignments);
                report(&mut stream, 1).await;
                stream.listen(Duration::from_millis(300)).await;
            }
            if what == "together" {
                server.replace_policy(&policy(""));
            }
        }
    });
}

#[test]
fn values_that_share_a_limit_divide_it_whatever_overrides_one_of_them() {
    const RULES: &str = "
domain: api
descriptors: [{ key: user, value: 'f*', share_threshold: true, rate_limit: { unit: second, requests_per_unit: 100 } }]
";
    for (factor, most) in [(0.1, 100.0), (10.0, 10.0)] {
        runtime().block_on(async {
            let server = Setup::new().policy(RULES).env("WEIR_RLQS__DOMAINS", "api=user").start();
            let change = over(&["user", "f1"], Change::Factor(factor));
            set(&server, Override { domain: "api".to_owned(), ..change }).await;
            let mut stream = open(&server).await;
            let end = Instant::now() + TIMEOUT;
            loop {
                for user in ["f1", "f2"] {
                    stream.report(bucket(user), 5_000, 0, 1).await;
                }
                stream.listen(Duration::from_millis(300)).await;
                let [first, second] = ["f1", "f2"].map(|user| stream.rate(user));
                assert!(first <= most && first + second <= 100.0, "{:?}", stream.assignments);
                if first + second >= 90.0 && first >= 9.0 && second >= 45.0 {
                    break;
                }
                assert!(Instant::now() < end, "{factor}: {:?}", stream.assignments);
            }
        });
    }
}

#[test]
fn descriptors_that_only_watch_are_not_divided_and_those_with_a_quota_are() {
    let policy = "
domain: api
charge: all_or_nothing
descriptors:
- { key: watched, shadow_mode: true, rate_limit: { unit: second, requests_per_unit: 10 } }
- { key: quota, quota_mode: true, rate_limit: { unit: second, requests_per_unit: 10 } }
- { key: user, rate_limit: { unit: second, requests_per_unit: 10 } }
";
    for policy in [policy.to_owned(), policy.replace("all_or_nothing", "independent")] {
        runtime().block_on(async {
            let server = Setup::new().policy(&policy).env("WEIR_RLQS__DOMAINS", "api=watched/quota/user").start();
            let mut stream = open(&server).await;
            for key in ["watched", "quota", "user"] {
                let bucket = BucketId { bucket: [(key.to_owned(), key.to_owned())].into() };
                stream.report(bucket, 1, 0, 0).await;
                stream.until(key, |assignment| (key == "watched") == (assignment == Assignment::AllowAll)).await;
            }
            assert_eq!(stream.assignments["watched"].0, Assignment::AllowAll);
        });
    }
}
