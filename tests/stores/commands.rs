//! What Redis is asked: few calls of one script, and nothing else.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use weir::proto::CheckRequest;
use weir_test_redis::{Options, Server};

use crate::{
    service::{patient, runtime},
    support::{Server as Service, requests::check},
};

/// Streams that ask at the same time, each for one thing after the other.
const STREAMS: usize = 128;
/// Checks of all streams together; `WEIR_CHECKS` says otherwise.
const CHECKS: usize = 8_000;
/// Of all that is asked, keys that are asked for more than once.
const USERS: usize = 1_000;

/// What the script may call by itself.
const OF_THE_SCRIPT: [&str; 7] = ["time", "hmget", "hset", "pttl", "pexpire", "hrandfield", "hdel"];
/// What a replica asks beside checks, now and then: for overrides, and to tell the others of itself.
const BESIDE_CHECKS: [&str; 3] = ["ping", "unwatch", "xrevrange"];
/// What the test asks.
const OF_THE_TEST: [&str; 3] = ["auth", "info", "config|resetstat"];

const POLICY: &str = "schema: { user: { children: { '*': { limits: [{ gcra: { burst: 99, count: 1, period: 1h } }], \
                      children: { trade: { limits: [{ token_bucket: { capacity: 50, count: 1, period: 1h } }] } } } } } }";

fn checks() -> usize {
    std::env::var("WEIR_CHECKS").map_or(CHECKS, |text| text.parse().expect("a number"))
}

/// Each stream asks its share of nested checks; all are decided by Redis.
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

/// How often Redis ran each command since it was told to forget that.
fn calls(redis: &Server) -> BTreeMap<String, usize> {
    let info = redis.cli(&["INFO", "commandstats"]);
    let lines = info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    let counted = lines.map(|(command, rest)| (command.to_owned(), rest.split_once(',').expect("more").0));
    counted.map(|(command, calls)| (command, calls.parse().expect("a number"))).collect()
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
        let calls = calls(&redis);
        let scripts = calls["evalsha"];
        println!("{keys}: {checks} checks, {:.4} calls of the script each; {calls:?}", scripts as f64 / checks as f64);
        assert!(2 * scripts < checks, "{keys}: {scripts} calls for {checks} checks");
        let known: Vec<_> = [&OF_THE_SCRIPT[..], &OF_THE_TEST, &BESIDE_CHECKS, &["evalsha"]].concat();
        let other: Vec<_> = calls.keys().filter(|command| !known.contains(&command.as_str())).collect();
        let beside: usize = BESIDE_CHECKS.iter().filter_map(|command| calls.get(*command)).sum();
        assert!(other.is_empty(), "{keys}: {other:?} on the way");
        assert!(20 * beside < checks, "{keys}: {beside} commands beside {checks} checks");
        // One of these may fall between the two.
        let polls = calls.get("xrevrange").copied().unwrap_or_default();
        assert!(
            calls["time"].abs_diff(scripts + polls) <= 1,
            "the clock is read once a call, and once a poll for overrides"
        );
        // Of many keys two checks in a row may, rarely, be of the same.
        let reads = if shared { scripts..=scripts } else { checks - checks / 100..=checks };
        assert!(reads.contains(&calls["hmget"]), "{keys}: what is read again for the same key was known");
    }
}
