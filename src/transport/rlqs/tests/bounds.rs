//! Tests of the bounds on the state that streams create.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;
use tokio::{task::yield_now, time::sleep};
use weir_core::quota::{Divider, Load, QuotaTiming};
use weir_envoy::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
    rate_limit_quota_response::{BucketAction, bucket_action::BucketAction as Action},
    rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use weir_store::{
    MemoryStore, SystemClock,
    memory::{MemorySettings, WhenFull},
};

use crate::{
    limiter::Limiter,
    telemetry::Metrics,
    transport::rlqs::{QuotaMode, Quotas, RlqsSettings, Session, authority::HeldLevel, state::HOLDERS_OF_A_BUCKET},
};

type Store = MemoryStore<SystemClock>;

/// Starts quotas with capacity for `max_buckets`.
fn quotas(max_buckets: usize) -> (Arc<Quotas<Store>>, Arc<Limiter<Store>>) {
    quotas_of(&super::policy("local"), max_buckets, MemorySettings::default())
}

fn quotas_of(policy: &str, max_buckets: usize, memory: MemorySettings) -> (Arc<Quotas<Store>>, Arc<Limiter<Store>>) {
    let policy = weir_policy::parse(policy, &weir_policy::Rules::default()).expect("a policy");
    let mode = QuotaMode { passes_when_full: memory.when_full == WhenFull::Allow, ..QuotaMode::default() };
    let limiter = Arc::new(Limiter::new(MemoryStore::new(memory, SystemClock::default()), policy, Metrics::new()));
    let domains = vec!["api=user".to_owned().try_into().expect("a domain")];
    let settings = RlqsSettings { domains, max_buckets, ..RlqsSettings::default() };
    let quotas = Quotas::new(Arc::clone(&limiter), &settings, mode);
    tokio::spawn(Arc::clone(&quotas).run());
    (quotas, limiter)
}

/// Returns the number of reports that were rejected for this reason.
fn rejected(limiter: &Limiter<Store>, reason: &str) -> u64 {
    let (text, series) = (limiter.metrics().render(), format!("weir_rlqs_rejected_total{{reason=\"{reason}\"}} "));
    let line = text.lines().find_map(|line| line.strip_prefix(&series));
    line.and_then(|count| count.parse().ok()).expect("a count")
}

fn full(limiter: &Limiter<Store>) -> u64 {
    rejected(limiter, "full")
}

fn reports<'n>(users: impl IntoIterator<Item = &'n str>) -> Bytes {
    reports_of(users, 1)
}

fn reports_of<'n>(users: impl IntoIterator<Item = &'n str>, allowed: u64) -> Bytes {
    let usage = |user: &str| BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket: HashMap::from([("user".to_owned(), user.to_owned())]) }),
        num_requests_allowed: allowed,
        ..BucketQuotaUsage::default()
    };
    let bucket_quota_usages = users.into_iter().map(usage).collect();
    RateLimitQuotaUsageReports { domain: "api".to_owned(), bucket_quota_usages }.encode_to_vec().into()
}

fn stream(quotas: &Arc<Quotas<Store>>, message: Bytes) -> Session<Store> {
    let mut session = Session::new(Arc::clone(quotas), None);
    session.receive(message).expect("reports");
    while !session.is_answered() {
        session.answer().expect("the stream goes on");
    }
    session
}

#[tokio::test(start_paused = true)]
async fn a_bucket_with_a_long_id_takes_the_room_of_several() {
    let (quotas, limiter) = quotas(4);
    let long = "u".repeat(600);
    let first = stream(&quotas, reports([&*long, "alex", "full"]));
    assert_eq!((quotas.lock().bucket_count(), full(&limiter)), (2, 1));
    drop(first);
    // Without streams, buckets are removed.
    sleep(Duration::from_secs(40)).await;
    let _second = stream(&quotas, reports(["a", "b", "c", "d"]));
    assert_eq!((quotas.lock().bucket_count(), full(&limiter)), (4, 1));
}

#[tokio::test(start_paused = true)]
async fn holders_are_bounded_including_those_that_left() {
    let (quotas, limiter) = quotas(2);
    let most = 2 * HOLDERS_OF_A_BUCKET;
    let mut streams: Vec<_> = (0..most).map(|_| stream(&quotas, reports(["alex"]))).collect();
    assert_eq!(full(&limiter), 0);
    streams.push(stream(&quotas, reports(["alex"])));
    assert_eq!(full(&limiter), 1);
    // Each gets its share.
    sleep(Duration::from_secs(2)).await;
    drop(streams);
    let _early = stream(&quotas, reports(["alex"]));
    assert_eq!(full(&limiter), 2);
    sleep(Duration::from_secs(20)).await;
    let _late: Vec<_> = (0..most).map(|_| stream(&quotas, reports(["alex"]))).collect();
    assert_eq!(full(&limiter), 2);
}

/// Returns the actions that are sent for a message: the user of each bucket, and whether Envoy drops it.
fn answers(session: &mut Session<Store>, message: Bytes) -> Vec<(String, bool)> {
    session.receive(message).expect("reports");
    let mut answers = Vec::new();
    while !session.is_answered() {
        let answer = session.answer().expect("the stream goes on").unwrap_or_default();
        answers.extend(RateLimitQuotaResponse::decode(answer).expect("an answer").bucket_action);
    }
    let read = |BucketAction { bucket_id, bucket_action }| {
        let user = bucket_id.and_then(|mut id: BucketId| id.bucket.remove("user")).expect("a user");
        (user, matches!(bucket_action, Some(Action::AbandonAction(_))))
    };
    answers.into_iter().map(read).collect()
}

#[tokio::test(start_paused = true)]
async fn buckets_that_are_too_large_are_abandoned_once_they_are_idle_and_others_are_not() {
    let (quotas, limiter) = quotas(1);
    let mut session = stream(&quotas, reports(["first"]));
    let long = "u".repeat(5_000);
    let users = ["second", &long];
    // A bucket without a limit is not denied, however large it is.
    assert_eq!(answers(&mut session, reports(users)), [(long.clone(), false)]);
    // Envoy may have an assignment of another replica for the second one.
    assert_eq!(answers(&mut session, reports_of(users, 0)), [(long.clone(), true)]);
    assert_eq!((quotas.lock().bucket_count(), full(&limiter), rejected(&limiter, "large")), (1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_no_answer_can_name_takes_no_share() {
    let (quotas, limiter) = quotas(10);
    let named = reports(["a?b"]);
    let message = named.iter().map(|byte| if *byte == b'?' { 0xff } else { *byte }).collect();
    let mut session = stream(&quotas, reports([]));
    assert_eq!(answers(&mut session, message), []);
    assert_eq!((quotas.lock().bucket_count(), rejected(&limiter, "unreadable")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn renewing_many_levels_yields_to_other_tasks() {
    const COUNT: usize = 2_000;
    let policy = super::policy("local").replace("alex", "'*'");
    let (quotas, _) = quotas_of(&policy, COUNT, MemorySettings::default());
    let users: Vec<_> = (0..COUNT).map(|number| number.to_string()).collect();
    let _session = stream(&quotas, reports(users.iter().map(String::as_str)));
    let renewed = || quotas.lock().levels.values().filter(|held| held.held() > 0).count();
    let mut turns = 0;
    while renewed() < COUNT {
        turns += usize::from(renewed() > 0);
        yield_now().await;
    }
    assert!(turns >= 5, "{turns}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_without_room_in_a_full_store_follows_when_full_and_is_counted() {
    for (when_full, assigned) in [(WhenFull::Deny, 0.0), (WhenFull::Allow, 1_000.0)] {
        let policy = super::policy("local").replace("alex", "'*'");
        let (quotas, limiter) = quotas_of(&policy, 10, MemorySettings { max_keys: 1, when_full });
        let mut first = stream(&quotas, reports(["first"]));
        sleep(Duration::from_secs(2)).await;
        assert_eq!(limiter.store().stats().capacity_misses, 0, "{when_full:?}");
        for _ in 0..5 {
            answers(&mut first, reports(["first", "second"]));
            sleep(Duration::from_secs(4)).await;
        }
        let rates: Vec<_> = quotas.lock().statuses(0, 2).iter().filter_map(|it| it.envoys[0].assigned).collect();
        assert_eq!((rates.len(), rates.iter().sum()), (2, 1_000.0 + assigned), "{when_full:?}: {rates:?}");
        // Once for each renewal: each second, or each half while the limit lacks units.
        let misses = limiter.store().stats().capacity_misses;
        assert!((15..=45).contains(&misses), "{when_full:?}: {misses}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_a_removed_level_does_not_apply_to_a_later_one_of_its_name() {
    let (_, limiter) = quotas(10);
    let entries = vec![("user".to_owned(), "alex".to_owned())];
    let path = limiter.quota_path(&limiter.policy(), "api", entries).expect("a policy");
    let level = Arc::new(path.levels.into_iter().next().expect("a limit"));
    let (id, timing) = (Divider::default().add_level(None, level.rate), QuotaTiming::default());
    let [mut removed, mut later] =
        [1, 2].map(|number| HeldLevel::new(id, Arc::clone(&level), path.on_store_failure, (1, number)));
    let renewed = removed.renew(Load::default()).run(&limiter, QuotaMode::default(), &timing, || 0).await;
    assert_eq!((later.renewed(&renewed, 1, &timing, 0), later.held()), (None, 0));
    assert_eq!(removed.renewed(&renewed, 1, &timing, 0), Some(level.rate));
}
