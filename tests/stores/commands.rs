//! Commands that Redis receives: a few calls of one script, and nothing else.

use futures_util::{StreamExt, stream};
use weir::proto::CheckRequest;
use weir_test_redis::{Options, Server};

use crate::{
    service::{patient, runtime},
    support::{Server as Service, requests::check},
};

/// Concurrent streams, each with one check at a time.
const STREAMS: usize = 128;
/// Default number of checks of all streams together; `WEIR_CHECKS` overrides it.
const CHECKS: usize = 8_000;
/// Number of keys in the run with many keys, each checked several times.
const USERS: usize = 1_000;

/// Commands that the script calls.
const OF_THE_SCRIPT: [&str; 7] = ["time", "hmget", "hset", "pttl", "pexpire", "hrandfield", "hdel"];
/// Occasional commands of a replica besides checks: for overrides and for its heartbeat.
const BESIDE_CHECKS: [&str; 3] = ["ping", "unwatch", "xrevrange"];
/// Commands that the test sends.
const OF_THE_TEST: [&str; 3] = ["auth", "info", "config|resetstat"];

const POLICY: &str = "schema: { user: { children: { '*': { limits: [{ gcra: { burst: 99, count: 1, period: 1h } }], \
                      children: { trade: { limits: [{ token_bucket: { capacity: 50, count: 1, period: 1h } }] } } } } } }";

fn checks() -> usize {
    std::env::var("WEIR_CHECKS").map_or(CHECKS, |text| text.parse().expect("a number"))
}

/// Sends each stream's share of nested checks. Redis must decide them all.
async fn ask(service: &Service, checks: usize, key: impl Fn(usize) -> String) {
    let streams = (0..STREAMS).map(|number| {
        let numbers = (number..checks).step_by(STREAMS);
        let requests: Vec<_> = numbers
            .map(|number| CheckRequest { summary_only: true, ..check(&["user", &key(number), "trade"]) })
            .collect();
        async move {
            let expected = requests.len();
            let mut client = service.client().await;
            let answers = client.check_stream(stream::iter(requests)).await.expect("a stream").into_inner();
            let decided = answers.filter(|answer| {
                let answer = answer.as_ref().expect("an answer");
                std::future::ready(answer.error.is_none() && !answer.degraded)
            });
            assert_eq!(decided.count().await, expected);
        }
    });
    futures_util::future::join_all(streams).await;
}

#[test]
fn checks_share_script_calls_and_send_no_other_commands() {
    let redis = Server::start(Options::socket());
    let service = patient(&redis.url()).policy(POLICY).start();
    let (runtime, checks) = (runtime(), checks());
    runtime.block_on(ask(&service, STREAMS, |_| "first".to_owned()));
    type Naming = fn(usize) -> String;
    let one: Naming = |_| "alex".to_owned();
    let many: Naming = |number| (number % USERS).to_string();
    for (keys, key, shared) in [("one key", one, true), ("many keys", many, false)] {
        redis.cli(&["CONFIG", "RESETSTAT"]);
        runtime.block_on(ask(&service, checks, key));
        let calls = redis.calls();
        let scripts = calls["evalsha"];
        println!("{keys}: {checks} checks, {:.4} calls of the script each; {calls:?}", scripts as f64 / checks as f64);
        assert!(2 * scripts < checks, "{keys}: {scripts} calls for {checks} checks");
        let known: Vec<_> = [&OF_THE_SCRIPT[..], &OF_THE_TEST, &BESIDE_CHECKS, &["evalsha"]].concat();
        let other: Vec<_> = calls.keys().filter(|command| !known.contains(&command.as_str())).collect();
        let beside: usize = BESIDE_CHECKS.iter().filter_map(|command| calls.get(*command)).sum();
        assert!(other.is_empty(), "{keys}: {other:?} on the way");
        assert!(20 * beside < checks, "{keys}: {beside} commands beside {checks} checks");
        // One call may be counted in only one of the two statistics.
        let polls = calls.get("xrevrange").copied().unwrap_or_default();
        assert!(
            calls["time"].abs_diff(scripts + polls) <= 1,
            "the clock is read once a call, and once a poll for overrides"
        );
        // With many keys, two consecutive checks rarely have the same key.
        let reads = if shared { scripts..=scripts } else { checks - checks / 100..=checks };
        assert!(reads.contains(&calls["hmget"]), "{keys}: what is read again for the same key was known");
    }
}
