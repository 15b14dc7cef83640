//! Leases of many keys: how many a limit above them allows, and that all are returned.

use rustix::process::Signal;
use weir::proto::{CheckBatchRequest, CheckRequest};
use weir_test_redis::{Options, Server as Redis, eventually};

use crate::{
    leases::{HELD, ask},
    service::{patient, runtime, window},
    support::{
        Server,
        requests::{check, peek},
    },
};

const NOT_GIVEN_BACK: &str = "leased units may count as spent: the store did not take them back in time";
/// Keys that a replica leases at once, and units of each.
const KEYS: usize = 1_000;
/// Keys of a batch.
const TOGETHER: usize = 10;
const UNITS: u64 = 1_000_000;

fn each_key() -> String {
    let window = window(UNITS);
    format!("lease: {{ ttl: 1m }}\nschema: {{ user: {{ children: {{ '*': {{ limits: [{{ {window} }}] }} }} }} }}")
}

/// Starts a service that leases [`KEYS`] keys, and whose queue for the store has room for a tenth of them. Returns it,
/// and how many keys it was asked for.
fn service_with_many_leases(url: &str) -> (Server, usize) {
    let setup = patient(url).policy(&each_key()).env("WEIR_STORE__REDIS__POOL_SIZE", "1");
    let service = setup.env("WEIR_STORE__REDIS__MAX_QUEUE", &(KEYS / 10).to_string()).start();
    let keys = runtime().block_on(async {
        let (mut client, mut keys) = (service.client().await, 0);
        // On a busy machine more keys are needed, since some do not get their three checks within a tenth of a second.
        while service.metric("weir_leases") < KEYS as f64 {
            let of_key = |number: usize| vec![check(&["user", &number.to_string()]); 4];
            let checks = (keys..keys + TOGETHER).flat_map(of_key).collect();
            client.check_batch(CheckBatchRequest { checks }).await.expect("answers");
            keys += TOGETHER;
        }
        keys
    });
    assert!(service.metric(HELD) > 0.0, "nothing is held");
    (service, keys)
}

/// Returns the units of these keys that were not admitted, and are missing.
async fn missing(service: &Server, keys: usize) -> u64 {
    let (mut client, mut missing) = (service.client().await, 0);
    for number in (0..keys).step_by(TOGETHER) {
        let checks = (number..number + TOGETHER).map(|number| peek(&["user", &number.to_string()])).collect();
        let answers = client.check_batch(CheckBatchRequest { checks }).await.expect("answers").into_inner();
        missing += answers.results.iter().map(|answer| UNITS - 4 - answer.remaining).sum::<u64>();
    }
    missing
}

#[test]
fn of_many_keys_below_one_limit_some_are_leased_and_the_others_ask_once() {
    const FULL: &str = "weir_leases_full_total";
    /// Keys, and how many of them are leased: `MAX_LEASES_ABOVE` of weir-core.
    const KEYS: [usize; 2] = [40, 16];
    let redis = Redis::start(Options::socket());
    let policy = each_key().replace("user: {", &format!("user: {{ limits: [{{ {} }}],", window(UNITS)));
    let service = patient(&redis.url()).policy(&policy).start();
    let check_all = || {
        let checks = (0..KEYS[0]).flat_map(|number| vec![check(&["user", &number.to_string()]); 4]).collect();
        let answers =
            runtime().block_on(async { service.client().await.check_batch(CheckBatchRequest { checks }).await });
        let answers = answers.expect("answers").into_inner().results;
        let leased = answers.chunks(4).filter(|answers| answers.iter().all(|answer| answer.leased)).count();
        (leased, service.metric(FULL))
    };
    let all = (KEYS[1], (KEYS[0] - KEYS[1]) as f64);
    eventually("each key is leased, or cannot be", || match check_all() {
        found if found == all => Ok(()),
        found => Err(format!("{found:?}")),
    });
    // Within the TTL of a lease none of the others asks again.
    for _ in 0..5 {
        assert_eq!(check_all(), all);
    }
}

#[test]
fn many_leases_are_all_given_back_when_an_override_is_set() {
    let redis = Redis::start(Options::socket());
    let (service, keys) = service_with_many_leases(&redis.url());
    assert_eq!(service.run(&["ban", "other/one", "--reason", "abuse", "--for", "1h"]).code, 0);
    eventually("all is given back", || {
        runtime().block_on(async {
            // A check that meets the store shows that the policy has changed.
            ask(&service, check(&["user", "new"])).await;
            match missing(&service, keys).await {
                0 => Ok(()),
                missing => Err(format!("{missing} missing")),
            }
        })
    });
    assert_eq!(service.metric("weir_leases_renewals_total{result=\"lost\"}"), 0.0);
}

#[test]
fn many_leases_are_all_given_back_by_a_replica_that_stops() {
    let redis = Redis::start(Options::socket());
    let (mut stops, keys) = service_with_many_leases(&redis.url());
    let stays = patient(&redis.url()).policy(&each_key()).start();
    stops.signal(Signal::TERM);
    assert_eq!(stops.wait_for_end(), 0);
    assert_eq!(runtime().block_on(missing(&stays, keys)), 0);
    stops.wait_for_log("stopped");
    assert!(stops.log_lines(NOT_GIVEN_BACK).is_empty());
}

#[test]
fn a_replica_that_stops_says_what_it_cannot_give_back() {
    let redis = Redis::start(Options::socket());
    let (mut stops, keys) = service_with_many_leases(&redis.url());
    let stays = patient(&redis.url()).policy(&each_key()).start();
    let held = runtime().block_on(missing(&stays, keys));
    redis.pause();
    stops.signal(Signal::TERM);
    assert_eq!(stops.wait_for_end(), 0);
    redis.resume();
    let line = stops.wait_for_log(NOT_GIVEN_BACK);
    let stays = patient(&redis.url()).policy(&each_key()).start();
    // Redis still runs what it had received when it was paused.
    let missing = runtime().block_on(missing(&stays, keys));
    assert!(missing > 0, "all is given back");
    assert!(
        line["units"].as_u64().is_some_and(|units| (missing..=held).contains(&units)),
        "{line}, {missing} of {held}"
    );
    assert!(line["leases"].as_u64().is_some_and(|leases| (1..=keys as u64).contains(&leases)), "{line}, {keys} keys");
}

#[test]
fn a_replica_that_stops_says_what_it_has_given_back_without_an_answer() {
    let redis = Redis::start(Options::socket());
    let mut service = patient(&redis.url()).policy(&each_key()).start();
    let key = ["user", "alex"];
    eventually("units are held", || match service.metric(HELD) {
        0.0 => Err(format!("{:?}", runtime().block_on(ask(&service, check(&key))))),
        _ => Ok(()),
    });
    redis.pause();
    let (runtime, beyond) = (runtime(), CheckRequest { cost: Some(UNITS as i64 / 2), ..check(&key) });
    let mut client = runtime.block_on(service.client());
    let call = runtime.spawn(async move { client.check(beyond).await });
    eventually("the units are returned with the check", || match service.metric(HELD) {
        0.0 => Ok(()),
        held => Err(held.to_string()),
    });
    call.abort();
    service.signal(Signal::TERM);
    assert_eq!(service.wait_for_end(), 0);
    redis.resume();
    let line = service.wait_for_log(NOT_GIVEN_BACK);
    assert!(line["leases"] == 1 && line["units"].as_u64() > Some(0), "{line}");
}
