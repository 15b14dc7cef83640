//! Arbitrary descriptors, which clients may control, never make a request fail.

use std::sync::Arc;

use weir_core::domain::{ManualClock, Unit};
use weir_store::{MemoryStore, Store};
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

use futures_util::FutureExt;
use proptest::prelude::*;
use weir::{
    limiter::{
        Descriptor, DescriptorAnswers, DescriptorLimit, DescriptorsRequest, Limiter,
        descriptors::{MAX_DESCRIPTORS, MAX_LIMITS},
    },
    telemetry::Metrics,
};

use crate::{
    stores::{memory, redis},
    table::{START, policy},
};

const THEIRS: &str = "
domain: d
descriptors:
  - { key: k, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: k, value: 'a*b*', share_threshold: true, detailed_metric: true, rate_limit: { unit: day, requests_per_unit: 3 } }
  - key: ''''''
    descriptors: [{ key: k, value_to_metric: true, rate_limit: [{ unit: second, requests_per_unit: 1 }, { unit: year }] }]
";
const NATIVE: &str = "
domain: n
schema:
  k:
    limits: [5, 10, 15]
    children: { '*': { limits: [[5, 10, 15], [15, 30, 60]], children: { k: { children: { '*': { limits: [1, 1, 1] } } } } } }
";

fn limiter() -> Limiter<MemoryStore<Arc<ManualClock>>> {
    Limiter::new(memory(Arc::new(ManualClock::new(START))), policy(&[THEIRS, NATIVE]), Metrics::new())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("k".to_owned()),
        1 => Just(String::new()),
        1 => Just("''".to_owned()),
        2 => "a.{0,3}b.{0,3}",
        3 => any::<String>(),
        1 => (60..70_usize).prop_map(|length| "x".repeat(length)),
        1 => (1_000..100_000_usize).prop_map(|length| "é".repeat(length)),
        1 => Just("\0\u{ffff}*_/#\n\"".to_owned()),
    ]
}

fn hits() -> impl Strategy<Value = i64> {
    prop_oneof![Just(1), Just(0), Just(i64::MAX), Just(i64::MIN), Just(1 << 32), -5..5_i64, any::<i64>()]
}

fn over() -> impl Strategy<Value = Option<DescriptorLimit>> {
    let number = prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
    let over = (number, 0..Unit::ALL.len())
        .prop_map(|(requests_per_unit, unit)| DescriptorLimit { requests_per_unit, unit: Unit::ALL[unit] });
    prop::option::weighted(0.2, over)
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    let count = prop_oneof![5 => 0..4_usize, 1 => 15..40_usize];
    let entries = count.prop_flat_map(|count| prop::collection::vec((text(), text()), count));
    (entries, hits(), over()).prop_map(|(entries, hits, over)| Descriptor { entries, hits, over })
}

fn ask<'a, S: Store>(
    limiter: &Limiter<S>,
    handle: &'a weir::limiter::PolicyHandle,
    resolved: &'a weir::limiter::Resolved<'_>,
) -> DescriptorAnswers<'a> {
    let answer = limiter.check_descriptors(handle, resolved);
    answer.outcome(handle).now_or_never().expect("memory does not wait").expect("an answer")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_descriptors_are_answered(
        domain in prop_oneof![Just("d".to_owned()), Just("n".to_owned()), any::<String>()],
        descriptors in prop::collection::vec(descriptor(), 0..6),
    ) {
        let limiter = limiter();
        let request = DescriptorsRequest { domain, descriptors };
        let handle = limiter.policy();
        let resolved = request.resolve(&handle.policy).expect("not too many");
        let answer = ask(&limiter, &handle, &resolved);
        prop_assert_eq!(answer.statuses.len(), request.descriptors.len());
        for (status, asked) in answer.statuses.iter().zip(&request.descriptors) {
            // With all-or-nothing charging the descriptors of one state in one request are decided together.
            let refused_alone = asked.hits >= 0 || request.domain == "n";
            prop_assert!(!status.over || (refused_alone && status.displayed.is_some()), "{status:?}");
            if let Some(shown) = status.displayed {
                prop_assert!(shown.until_reset >= 0 && shown.remaining <= shown.requests_per_unit, "{shown:?}");
            }
        }
        prop_assert!(answer.allowed() || answer.statuses.iter().any(|status| status.over));
        prop_assert!(!limiter.metrics().render().is_empty());
    }
}

fn many(count: usize, value: impl Fn(usize) -> String) -> DescriptorsRequest {
    let entries = |number| vec![("k".to_owned(), value(number))];
    let descriptors = (0..count).map(|number| Descriptor { entries: entries(number), hits: 1, over: None });
    DescriptorsRequest { domain: "d".to_owned(), descriptors: descriptors.collect() }
}

#[test]
fn requests_with_over_1000_descriptors_are_rejected() {
    let limiter = limiter();
    let handle = limiter.policy();
    for domain in ["d", "n", "nowhere"] {
        let too_many = many(MAX_DESCRIPTORS + 1, |number| number.to_string());
        let too_many = DescriptorsRequest { domain: domain.to_owned(), ..too_many };
        let error = too_many.resolve(&handle.policy).expect_err("too many");
        assert_eq!(
            (error.field(""), error.to_string()),
            ("descriptors".to_owned(), "at most 1000 descriptors".to_owned())
        );
    }
    let request = many(MAX_DESCRIPTORS, |number| (number / 4).to_string());
    let resolved = request.resolve(&handle.policy).expect("not too many");
    let answer = ask(&limiter, &handle, &resolved);
    for (number, status) in answer.statuses.iter().enumerate() {
        // Three of four fit.
        assert_eq!((status.over, status.displayed.is_some()), (number % 4 == 3, true), "{number}");
    }
}

#[test]
fn a_request_is_decided_up_to_the_maximum_number_of_limits() {
    let limiter = limiter();
    let request = DescriptorsRequest { domain: "n".to_owned(), ..many(MAX_DESCRIPTORS, |number| number.to_string()) };
    let handle = limiter.policy();
    let resolved = request.resolve(&handle.policy).expect("not too many");
    let answer = DescriptorAnswers { quota_mode: true, ..ask(&limiter, &handle, &resolved) };
    let limits: usize = answer.statuses.iter().map(|status| status.levels.len()).sum();
    // Three limits each: one of `k`, two of its value.
    assert_eq!(limits, MAX_LIMITS / 3 * 3);
    assert!(answer.statuses[999].displayed.is_none() && answer.allowed());
}

/// Decides the maximum number of descriptors at once: on separate keys, and all on one.
async fn ask_for_many<S: Store>(store: S) {
    let limiter = Limiter::new(store, policy(&[THEIRS, NATIVE]), Metrics::new());
    let handle = limiter.policy();
    for (value, admitted) in [(usize::MAX, MAX_DESCRIPTORS), (1, 3)] {
        let request = many(MAX_DESCRIPTORS, |number| format!("{value}-{}{}", number % value, "é".repeat(500)));
        let resolved = request.resolve(&handle.policy).expect("not too many");
        let answer = limiter.check_descriptors(&handle, &resolved).outcome(&handle).await.expect("an answer");
        assert!(!answer.degraded);
        assert_eq!(answer.statuses.iter().filter(|status| !status.over).count(), admitted);
    }
    let all_at_once = DescriptorsRequest { domain: "n".to_owned(), ..many(MAX_DESCRIPTORS, |_| "one".to_owned()) };
    let resolved = all_at_once.resolve(&handle.policy).expect("not too many");
    let answer = limiter.check_descriptors(&handle, &resolved).outcome(&handle).await.expect("an answer");
    assert!(!answer.degraded && !answer.allowed());
}

#[tokio::test]
async fn redis_decides_the_maximum_number_of_descriptors() {
    let server = Server::start(Options::socket());
    ask_for_many(redis(&server.url(), 0, Arc::new(ManualClock::new(START)))).await;
}

#[tokio::test]
async fn a_cluster_decides_the_maximum_number_of_descriptors() {
    let cluster = Cluster::start(&ClusterOptions::default());
    ask_for_many(redis(&cluster.url(), 0, Arc::new(ManualClock::new(START)))).await;
}
