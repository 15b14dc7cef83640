//! Settings of a domain for its answers: shadow mode for all limits, or jitter for retries.

use serde_json::json;
use weir::proto::CheckRequest;
use weir_envoy::envoy::service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code};

use crate::support::{
    Folder, Server,
    envoy::{descriptor, should_rate_limit},
    http::Client,
    requests::{check, gcra, with_limits},
    run,
    server::Setup,
};

/// Ten units a day for all users, two for each user.
const LIMITS: &str = "schema: { user: { limits: [{ gcra: { burst: 9, count: 1, period: 1d }, name: all }], children: { '*': \
                      { limits: [{ gcra: { burst: 1, count: 1, period: 1d }, name: each }] } } } }";

#[tokio::test]
async fn a_domain_in_shadow_decides_as_always_and_lets_everything_pass() {
    let server = Server::with_policy(&format!("domain: api\nshadow: true\n{LIMITS}"));
    let of = |key: &[&str]| CheckRequest { domain: "api".to_owned(), ..check(key) };
    for turn in 0..4 {
        let answer = server.check(of(&["user", "alex"])).await;
        assert!(answer.allowed && answer.binding.is_none() && answer.retry_after.is_none(), "{answer:?}");
        let [all, each] = &answer.levels[..] else { panic!("two levels: {answer:?}") };
        assert!(all.shadow && each.shadow && all.allowed);
        // The levels are decided as if enforced: a check that `each` refuses is not charged.
        assert_eq!((each.allowed, all.remaining), (turn < 2, 9_u64.saturating_sub(turn).max(8)), "turn {turn}");
    }
    let mut http = Client::connect(&server.http).expect("it accepts connections");
    let answer = http.post("/v1/check", &json!({ "domain": "api", "key": ["user", "alex"] }));
    assert_eq!((answer.status, answer.header("retry-after"), answer.header("ratelimit")), (200, None, None));
    let descriptors = vec![descriptor(&["user", "alex"], 1)];
    let request = RateLimitRequest { domain: "api".to_owned(), descriptors, ..Default::default() };
    let envoy = should_rate_limit(server.channel().await, request).await.expect("an answer");
    assert_eq!(Code::try_from(envoy.overall_code), Ok(Code::Ok));
    let printed = server.run(&["check", "user", "alex", "--domain", "api"]);
    assert!(printed.code == 0 && printed.out.starts_with("allowed: every limit is in shadow mode"), "{}", printed.out);
    let metric = |limit: &str, outcome: &str| {
        server.metric(&format!("weir_decisions_total{{domain=\"api\",limit=\"{limit}\",outcome=\"{outcome}\"}}"))
    };
    assert_eq!(
        (metric("each", "allowed"), metric("each", "shadow_limited"), metric("each", "limited")),
        (2.0, 5.0, 0.0)
    );
    assert_eq!(server.metric("weir_charged_units_total{domain=\"api\",limit=\"all\"}"), 2.0);
    let own = with_limits(of(&["user", "alex"]), vec![gcra(0, 1, 86_400)]);
    assert!(server.check(own.clone()).await.allowed);
    assert!(!server.check(own).await.allowed, "limits of a request still refuse");
}

#[tokio::test]
async fn retries_are_spread_by_key_and_never_earlier() {
    let limits = "schema: { user: { limits: [{ fixed_window: { count: 1, period: 31d }, name: all }] } }";
    let dir = Folder::new();
    dir.write("spread.yaml", format!("domain: spread\nretry_jitter: 0.5\n{limits}"));
    dir.write("exact.yaml", format!("domain: exact\n{limits}"));
    let server = Setup::new().limits(dir.path("").into()).start();
    let of = |domain: &str, key: &[&str]| CheckRequest { domain: domain.to_owned(), ..check(key) };
    for domain in ["spread", "exact"] {
        assert!(server.check(of(domain, &["user"])).await.allowed);
    }
    let retry = async |domain: &str, name: &str| {
        let answer = server.check(of(domain, &["user", name])).await;
        let seconds = answer.retry_after.expect("it is refused").seconds;
        assert_eq!(answer.levels[0].retry_after.expect("refused").seconds, seconds);
        assert_eq!(answer.next_after.map(|next| next.seconds / 60), answer.reset_after.map(|reset| reset.seconds / 60));
        seconds
    };
    let mut parts = Vec::new();
    for name in ["alex", "berta", "carl", "dora", "emil", "frida", "gustav", "hanna"] {
        let needed = retry("exact", name).await;
        let retry_s = retry("spread", name).await;
        assert!(retry_s + 60 >= needed && retry_s <= needed * 3 / 2, "{name}: {retry_s} of {needed}");
        let again = retry("spread", name).await;
        assert!(retry_s.abs_diff(again) < 60, "{name}: {retry_s}, then {again}");
        parts.push((retry_s - needed) as f64 / needed as f64);
    }
    parts.sort_by(f64::total_cmp);
    assert!(parts[7] - parts[0] > 0.2, "spread: {parts:?}");
}

#[test]
fn invalid_values_are_errors() {
    for (text, message) in [
        ("shadow: maybe", "shadow must be true or false, not `maybe`"),
        ("retry_jitter: 1.1", "retry_jitter must be a number from 0 to 1, not `1.1`"),
        ("retry_jitter: NaN", "retry_jitter must be a number from 0 to 1, not `NaN`"),
    ] {
        let dir = Folder::new();
        let output = run(&["limits", "lint", &dir.write("limits.yaml", format!("{text}\n{LIMITS}"))]);
        assert!(output.code == 2 && output.err.contains(message), "{}", output.err);
    }
}
