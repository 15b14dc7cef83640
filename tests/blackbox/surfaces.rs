//! One trace, sent through every surface on separate keys: the same outcomes.

use std::time::Instant;

use serde_json::{Value, json};
use tonic::{Code, transport::Channel};
use weir::proto::{CheckRequest, ResetRequest};
use weir_envoy::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse, rate_limit_response};

use crate::support::{
    Folder, Server,
    envoy::{descriptor, should_rate_limit},
    http::Client,
    requests::{check, reset},
    server::Setup,
};

/// Every limit on a key's path is charged. No unit refills within hours.
const NATIVE: &str = "
domain: ours
schema:
  user:
    children:
      '*':
        limits: [{ token_bucket: { capacity: 6, count: 1, period: 1d }, name: per-user }]
        children:
          action:
            children:
              trade: { limits: [{ gcra: { burst: 1, count: 1, period: 6h }, name: trades }] }
";

/// Only the limit of the last entry is charged, even by refused requests.
const DESCRIPTORS: &str = "
domain: theirs
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 5 }
    descriptors:
      - { key: action, value: trade, rate_limit: { unit: month, requests_per_unit: 2, name: trades } }
  - { key: user, value: root, rate_limit: { unlimited: true } }
";

/// A line of the trace: the domain, the key with the surface's name for `@`, the cost, and the outcome: whether it
/// passes, units left and limit, and whole seconds: the retry time of the binding limit if it refuses and can pass
/// later, else its reset time. `…` stands for the same seconds on all surfaces.
struct Line(&'static str, &'static str, i64, &'static str);

const STORY: &[Line] = &[
    Line("ours", "user/@alex", 0, "pass 6/6 0s"),
    Line("ours", "user/@alex", 2, "pass 4/6 172800s"),
    Line("ours", "user/@alex/action/trade", 1, "pass 1/2 21600s"),
    Line("ours", "user/@alex/action/trade", 1, "pass 0/2 43200s"),
    Line("ours", "user/@alex/action/trade", 1, "refuse 0/2 21600s"),
    Line("ours", "user/@alex/action/trade", 2, "refuse 0/2 43200s"),
    Line("ours", "user/@alex/action/trade", 3, "refuse 0/2 43200s"),
    Line("ours", "user/@alex/action/trade/more/x", 0, "pass 0/2 43200s"),
    // The refusals charged nothing above either.
    Line("ours", "user/@alex", 0, "pass 2/6 345600s"),
    Line("ours", "user/@alex/action/look", 1, "pass 1/6 432000s"),
    Line("ours", "user/@alex", 3, "refuse 1/6 172800s"),
    Line("ours", "user/@berta/action/trade", 1, "pass 1/2 21600s"),
    Line("ours", "user/@berta", 0, "pass 5/6 86400s"),
    Line("ours", "user/@alex/action/trade", -1, "pass 1/2 21600s"),
    Line("ours", "user/@alex", 0, "pass 2/6 345600s"),
    Line("ours", "team/@alex", 1, "pass"),
    Line("ours", "user/@\u{1f980} \"é\" and what makes this text longer than sixty-four bytes", 1, "pass 5/6 86400s"),
    Line("nowhere", "user/@alex", 1, "unknown"),
    Line("theirs", "user/@alex", 3, "pass 2/5 …"),
    Line("theirs", "user/@alex/action/trade", 1, "pass 1/2 …"),
    Line("theirs", "user/@alex/action/trade", 1, "pass 0/2 …"),
    Line("theirs", "user/@alex/action/trade", 0, "pass 0/2 …"),
    Line("theirs", "user/@alex/action/trade", 1, "refuse 0/2 …"),
    Line("theirs", "user/@alex/action/trade", 0, "refuse 0/2 …"),
    Line("theirs", "user/@alex/action/trade", -2, "pass 1/2 …"),
    Line("theirs", "user/@alex", 3, "refuse 0/5 …"),
    Line("theirs", "user/@alex", 1, "refuse 0/5 …"),
    Line("theirs", "user/@berta", 5, "pass 0/5 …"),
    Line("theirs", "user/@alex/action/look", 9, "pass"),
    Line("theirs", "user/root", 9, "pass"),
    Line("theirs", "team/@alex", 9, "pass"),
];

/// The outcome of a line in its notation, without the seconds, and the seconds.
type Outcome = (String, Option<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Surface {
    Check,
    Http,
    Cli,
    ShouldRateLimit,
    Json,
}

const SURFACES: [Surface; 5] = [Surface::Check, Surface::Http, Surface::Cli, Surface::ShouldRateLimit, Surface::Json];

/// Clients of one service, for every surface.
struct Clients<'s> {
    server: &'s Server,
    channel: Channel,
    http: Client,
}

/// Parses a text such as `1.5s` as seconds, rounded up.
fn seconds(text: &str) -> u64 {
    let (seconds, fraction) = text.trim_end_matches('s').split_once('.').unwrap_or((text.trim_end_matches('s'), "0"));
    let fraction: u64 = fraction.parse().expect("a fraction");
    seconds.parse::<u64>().expect("seconds") + u64::from(fraction > 0)
}

fn outcome(allowed: bool, limited: Option<(u64, u64)>, seconds: u64) -> Outcome {
    let verdict = if allowed { "pass" } else { "refuse" };
    match limited {
        Some((remaining, limit)) => (format!("{verdict} {remaining}/{limit}"), Some(seconds)),
        None => (verdict.to_owned(), None),
    }
}

fn unknown() -> Outcome {
    ("unknown".to_owned(), None)
}

impl<'s> Clients<'s> {
    async fn new(server: &'s Server) -> Self {
        let http = Client::connect(&server.http).expect("a connection");
        Self { server, channel: server.channel().await, http }
    }

    async fn ask(&mut self, surface: Surface, domain: &str, key: &[&str], cost: i64) -> Outcome {
        match surface {
            Surface::Check => self.check(domain, key, cost).await,
            Surface::Http => self.post(domain, key, cost),
            Surface::Cli => self.run(domain, key, cost),
            Surface::ShouldRateLimit => self.should_rate_limit(domain, key, cost).await,
            Surface::Json => self.json(domain, key, cost),
        }
    }

    async fn check(&mut self, domain: &str, key: &[&str], cost: i64) -> Outcome {
        let request = CheckRequest { domain: domain.to_owned(), cost: Some(cost), ..check(key) };
        let answer = match self.server.client().await.check(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if status.code() == Code::NotFound => return unknown(),
            Err(status) => panic!("{status:?}"),
        };
        let binding = answer.binding.map(|index| &answer.levels[index as usize]);
        let time = binding.and_then(|level| level.retry_after.or(level.reset_after)).unwrap_or_default();
        let seconds = time.seconds as u64 + u64::from(time.nanos > 0);
        outcome(answer.allowed, binding.map(|_| (answer.remaining, answer.limit)), seconds)
    }

    fn post(&mut self, domain: &str, key: &[&str], cost: i64) -> Outcome {
        let answer = self.http.post("/v1/check", &json!({ "domain": domain, "key": key, "cost": cost }));
        if answer.status == 404 {
            return unknown();
        }
        let answered = answer.json();
        let allowed = answered["allowed"] == true;
        assert_eq!(answer.status, if allowed { 200 } else { 429 }, "{answer:?}");
        let units = |name: &str| answered[name].as_str().and_then(|units| units.parse().ok()).expect("units");
        let binding = answered["binding"].as_u64().map(|index| &answered["levels"][index as usize]);
        let time = binding.and_then(|level| level["retryAfter"].as_str().or(level["resetAfter"].as_str()));
        outcome(allowed, binding.map(|_| (units("remaining"), units("limit"))), seconds(time.unwrap_or("0s")))
    }

    fn run(&self, domain: &str, key: &[&str], cost: i64) -> Outcome {
        let cost = cost.to_string();
        let run = self.server.run(&[&["check", "--json", "--domain", domain, "--cost", &cost], key].concat());
        if run.code == 2 {
            assert!(run.err.contains("no policy defines the domain"), "{run:?}");
            return unknown();
        }
        let answered = run.json();
        let allowed = answered["allowed"] == true;
        assert_eq!(run.code, i32::from(!allowed), "{run:?}");
        let binding = answered["binding"].as_u64().map(|index| &answered["levels"][index as usize]);
        let micros = binding.and_then(|level| level["retry_after_us"].as_u64().or(level["reset_after_us"].as_u64()));
        let limited = answered["remaining"].as_u64().zip(answered["limit"].as_u64());
        outcome(allowed, limited, micros.unwrap_or(0).div_ceil(1_000_000))
    }

    async fn should_rate_limit(&self, domain: &str, key: &[&str], cost: i64) -> Outcome {
        let descriptors = vec![descriptor(key, cost)];
        let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 7 };
        let answer = should_rate_limit(self.channel.clone(), request).await.expect("an answer");
        let RateLimitResponse { overall_code, statuses, .. } = answer;
        let [status] = &statuses[..] else { panic!("one is asked about: {statuses:?}") };
        assert_eq!(overall_code, status.code);
        let seconds = status.duration_until_reset.as_ref().map_or(0, |time| time.seconds as u64);
        let limit = status.current_limit.as_ref().map(|limit| u64::from(limit.requests_per_unit));
        let allowed = overall_code == i32::from(rate_limit_response::Code::Ok);
        outcome(allowed, limit.map(|limit| (status.limit_remaining.into(), limit)), seconds)
    }

    fn json(&mut self, domain: &str, key: &[&str], cost: i64) -> Outcome {
        let entries: Vec<_> = key.chunks_exact(2).map(|pair| json!({ "key": pair[0], "value": pair[1] })).collect();
        let hits = cost.unsigned_abs().to_string();
        let descriptor = json!({ "entries": entries, "hitsAddend": hits, "isNegativeHits": cost < 0 });
        let answer = self.http.post("/json", &json!({ "domain": domain, "descriptors": [descriptor] }));
        let (answered, allowed) = (answer.json(), answer.status == 200);
        let status = &answered["statuses"][0];
        assert_eq!(answered["overallCode"], if allowed { "OK" } else { "OVER_LIMIT" }, "{answer:?}");
        // Zero values are omitted.
        let units = |value: &Value| value.as_u64().unwrap_or(0);
        let limit = status.get("currentLimit").map(|limit| units(&limit["requestsPerUnit"]));
        let time = status["durationUntilReset"].as_str().unwrap_or("0s");
        outcome(allowed, limit.map(|limit| (units(&status["limitRemaining"]), limit)), seconds(time))
    }
}

fn key_of(key: &str, surface: Surface) -> Vec<String> {
    key.split('/').map(|segment| segment.replace('@', &format!("{surface:?}-"))).collect()
}

#[tokio::test]
async fn all_apis_return_the_same_outcomes_and_charge_the_same_counts() {
    let dir = Folder::of(&[("ours.yaml", NATIVE), ("theirs.yaml", DESCRIPTORS)]);
    let server = Setup::new().limits(dir.path("").into()).start();
    let mut clients = Clients::new(&server).await;
    let since = Instant::now();
    for Line(domain, key, cost, expected) in STORY {
        let (verdict, expected_seconds) = match expected.rsplit_once(' ') {
            Some((verdict, seconds)) => (verdict, Some(seconds.trim_end_matches('s').parse::<u64>().ok())),
            None => (*expected, None),
        };
        let mut first = None;
        for surface in SURFACES {
            let key = key_of(key, surface);
            let key: Vec<_> = key.iter().map(String::as_str).collect();
            let (answered, answered_seconds) = clients.ask(surface, domain, &key, *cost).await;
            let what = format!(
                "{surface:?} of {domain} {key:?} *{cost}: {answered} {answered_seconds:?}s, expected {expected}"
            );
            // For Envoy an undefined domain has no limit.
            let passes_unknown = matches!(surface, Surface::ShouldRateLimit | Surface::Json) && verdict == "unknown";
            assert_eq!(answered, if passes_unknown { "pass" } else { verdict }, "{what}");
            assert_eq!(answered_seconds.is_some(), expected_seconds.is_some(), "{what}");
            if let (Some(answered), Some(expected)) = (answered_seconds, expected_seconds) {
                // Time passes while the trace is sent.
                let gone = since.elapsed().as_secs();
                let (least, most) = match expected {
                    Some(exactly) => (exactly.saturating_sub(gone), exactly),
                    None => {
                        (u64::saturating_sub(*first.get_or_insert(answered), gone + 1), *first.get_or_insert(answered))
                    }
                };
                assert!((least..=most).contains(&answered), "{what}, {gone} s after the beginning");
            }
        }
    }

    for (left, surface) in [5, 4, 3, 2, 1].into_iter().zip(SURFACES) {
        let (answered, _) = clients.ask(surface, "ours", &["user", "alex"], 1).await;
        assert_eq!(answered, format!("pass {left}/6"), "{surface:?}");
    }
    clients.ask(Surface::Check, "ours", &["user", "alex"], 1).await;
    for surface in SURFACES {
        assert_eq!(clients.ask(surface, "ours", &["user", "alex"], 1).await.0, "refuse 0/6", "{surface:?}");
    }
    let key = json!({ "domain": "ours", "key": ["user", "alex"] });
    assert_eq!(clients.http.post("/v1/reset", &key).json()["existed"], true);
    let request = ResetRequest { domain: "ours".to_owned(), ..reset(&["user", "alex"], false) };
    assert!(!server.client().await.reset(request).await.expect("an answer").into_inner().existed);
}
