//! Reservations: units held until their real cost is known.

use data_encoding::BASE64URL_NOPAD;
use tonic::{Code, Status};
use weir::proto::{CheckRequest, CommitResponse, OnExpiry, ReserveRequest};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{
    Folder, Server, eventually_async,
    requests::{check, gcra, refusal, reset, with_limits},
    reservations::{Client, HOUR, cancel, commit, extend, left, millis, reserve, settled, wanted},
    server::Setup,
};

/// A tenant has 10,000 units and each of its users 1,000, which refill too slowly to affect a test.
pub const POLICY: &str = "
schema:
  tenant:
    children:
      '*':
        limits: [{ gcra: { burst: 9999, count: 1, period: 1d }, name: tenant }]
        children: { '*': { limits: [{ token_bucket: { capacity: 1000, count: 1, period: 1d }, name: user }] } }
  queue: { limits: [{ leaky_queue: { count: 1, period: 1d, burst: 5 }, name: queued }] }
  denied: { limits: [{ fixed_window: { count: 9, period: 31d, charge_denied: true }, name: counts-all }] }
";
pub const KEY: [&str; 3] = ["tenant", "acme", "alex"];

/// Reserves units of [`KEY`] for an hour and returns the hold.
pub async fn held(client: &mut Client, cost: i64) -> String {
    let answer = reserve(client, wanted(&KEY, cost, HOUR)).await;
    assert!(answer.decision.as_ref().is_some_and(|decision| decision.allowed), "{answer:?}");
    answer.hold
}

/// Returns the remaining units of the tenant and its user.
pub async fn both_left(client: &mut Client) -> (u64, u64) {
    (left(client, &KEY[..2]).await, left(client, &KEY).await)
}

/// Resets all tenants. None may have reserved units.
async fn start_over(client: &mut Client) {
    client.reset(reset(&["tenant"], true)).await.expect("a reset");
    assert_eq!(both_left(client).await, (10_000, 1_000));
}

pub fn code(outcome: Result<impl std::fmt::Debug, Status>) -> Code {
    outcome.expect_err("an error").code()
}

fn micros(duration: Option<prost_types::Duration>) -> i64 {
    duration.map_or(0, |it| it.seconds * 1_000_000 + i64::from(it.nanos) / 1_000)
}

#[tokio::test]
async fn reservations_are_settled_by_their_real_cost() {
    let server = Server::with_policy(POLICY);
    let client = &mut server.client().await;
    all_levels_are_charged_and_settled_by_the_real_cost(client).await;
    start_over(client).await;
    a_refused_reservation_holds_nothing_on_any_level(client).await;
    start_over(client).await;
    an_overage_beyond_the_limit_is_a_debt(client).await;
    start_over(client).await;
    the_first_settlement_counts_and_is_answered_again(client).await;
    start_over(client).await;
    limits_of_the_request_and_keys_without_limits_are_reserved(client).await;
}

async fn all_levels_are_charged_and_settled_by_the_real_cost(client: &mut Client) {
    let answer = reserve(client, wanted(&KEY, 200, HOUR)).await;
    let decision = answer.decision.clone().expect("a decision");
    assert_eq!((decision.allowed, decision.remaining, decision.levels.len()), (true, 800, 2));
    let held_for = micros(answer.expires_after);
    assert!((HOUR * 1_000 * 15 / 16..=HOUR * 1_000).contains(&held_for), "{held_for}");
    assert_eq!(both_left(client).await, (9_800, 800));
    assert_eq!(commit(client, &answer.hold, Some(50)).await.expect("settled"), settled(50, 150, 0));
    assert_eq!(both_left(client).await, (9_950, 950));

    let hold = held(client, 200).await;
    assert_eq!(commit(client, &hold, Some(250)).await.expect("settled"), settled(250, 0, 50));
    assert_eq!(both_left(client).await, (9_700, 700));

    let hold = held(client, 200).await;
    assert_eq!(commit(client, &hold, None).await.expect("settled"), settled(200, 0, 0));
    assert_eq!(both_left(client).await, (9_500, 500));

    let hold = held(client, 200).await;
    let cancelled = cancel(client, &hold).await.expect("settled");
    assert_eq!((cancelled.charged, cancelled.refunded), (0, 200));
    assert_eq!(both_left(client).await, (9_500, 500));
}

async fn a_refused_reservation_holds_nothing_on_any_level(client: &mut Client) {
    let first = held(client, 900).await;
    let refused = reserve(client, wanted(&KEY, 200, HOUR)).await;
    let decision = refused.decision.expect("a decision");
    assert_eq!((decision.allowed, decision.remaining, decision.binding), (false, 100, Some(1)));
    assert_eq!((refused.hold.as_str(), refused.expires_after), ("", None));
    assert_eq!(both_left(client).await, (9_100, 100));
    let summary =
        ReserveRequest { check: Some(CheckRequest { summary_only: true, ..check(&KEY) }), ..wanted(&KEY, 1, HOUR) };
    let summary = reserve(client, summary).await;
    assert_eq!(summary.decision.expect("a decision").levels, []);
    cancel(client, &first).await.expect("settled");
    assert_eq!(both_left(client).await, (9_999, 999));
    cancel(client, &summary.hold).await.expect("settled");
}

async fn an_overage_beyond_the_limit_is_a_debt(client: &mut Client) {
    for (user, actual, tenant, debt) in [("alex", 800, 8_700, 300), ("olga", 5_000, 3_200, 500)] {
        let key = [KEY[0], KEY[1], user];
        client.check(CheckRequest { cost: Some(500), ..check(&key) }).await.expect("an answer");
        let hold = reserve(client, wanted(&key, 100, HOUR)).await.hold;
        let overage = actual - 100;
        let expected = settled(actual, 0, overage.unsigned_abs());
        assert_eq!(commit(client, &hold, Some(actual)).await.expect("settled"), expected);
        assert_eq!((left(client, &key[..2]).await, left(client, &key).await), (tenant, 0));
        let refused = client.check(check(&key)).await.expect("an answer").into_inner();
        // A unit refills in a day. One Commit charges a bucket at most its limit.
        let days = refused.retry_after.expect("it can pass").seconds / 86_400;
        assert!(!refused.allowed && (debt..=debt + 1).contains(&days), "{refused:?}");
    }
}

async fn the_first_settlement_counts_and_is_answered_again(client: &mut Client) {
    let (committed, cancelled) = (held(client, 100).await, held(client, 100).await);
    for actual in [Some(30), Some(30), Some(99), None] {
        assert_eq!(commit(client, &committed, actual).await.expect("settled"), settled(30, 70, 0));
    }
    let late = cancel(client, &committed).await.expect("settled");
    assert_eq!((late.charged, late.refunded), (30, 70), "a commit stands");
    for _ in 0..2 {
        assert_eq!(cancel(client, &cancelled).await.expect("settled").refunded, 100);
    }
    assert_eq!(commit(client, &cancelled, Some(60)).await.expect("settled"), settled(0, 100, 0));
    assert_eq!(code(extend(client, &committed, HOUR).await), Code::NotFound, "it is over");
    assert_eq!(both_left(client).await, (9_970, 970));
}

async fn limits_of_the_request_and_keys_without_limits_are_reserved(client: &mut Client) {
    let own = || with_limits(CheckRequest { cost: Some(5), ..check(&["own"]) }, vec![gcra(9, 1, 86_400)]);
    let hold = reserve(client, ReserveRequest { check: Some(own()), ..wanted(&KEY, 1, HOUR) }).await.hold;
    assert_eq!(commit(client, &hold, Some(2)).await.expect("settled"), settled(2, 3, 0));
    let peek = CheckRequest { cost: Some(0), ..own() };
    assert_eq!(client.check(peek).await.expect("an answer").into_inner().remaining, 8);

    let answer = reserve(client, wanted(&["elsewhere"], 5, HOUR)).await;
    assert!(answer.decision.is_some_and(|decision| decision.allowed && decision.levels.is_empty()));
    assert_eq!(commit(client, &answer.hold, Some(2)).await.expect("settled"), CommitResponse::default());
    assert_eq!(micros(extend(client, &answer.hold, HOUR).await.expect("extended").expires_after), HOUR * 1_000);
}

#[tokio::test]
async fn reservations_end_at_their_time() {
    let server = Server::with_policy(POLICY);
    let client = &mut server.client().await;
    a_reservation_that_is_never_settled_is_kept_or_released(client).await;
    start_over(client).await;
    a_reservation_is_extended_and_cut_short(client).await;
}

async fn a_reservation_that_is_never_settled_is_kept_or_released(client: &mut Client) {
    let kept = reserve(client, wanted(&KEY, 100, 50)).await;
    let release = ReserveRequest { on_expiry: OnExpiry::Release.into(), ..wanted(&KEY, 300, 400) };
    let released = reserve(client, release).await;
    assert_eq!(released.decision.as_ref().map(|decision| decision.remaining), Some(600));
    eventually_async("it is released", async || (left(client, &KEY).await == 900).then_some(())).await;
    assert_eq!(both_left(client).await, (9_900, 900), "what was to be kept is over before, and spent");
    for hold in [&kept.hold, &released.hold] {
        assert_eq!(code(commit(client, hold, Some(10)).await), Code::NotFound);
        assert_eq!(code(cancel(client, hold).await), Code::NotFound);
        assert_eq!(code(extend(client, hold, HOUR).await), Code::NotFound);
    }
    assert_eq!(both_left(client).await, (9_900, 900));
}

async fn a_reservation_is_extended_and_cut_short(client: &mut Client) {
    let release = |cost, ttl| ReserveRequest { on_expiry: OnExpiry::Release.into(), ..wanted(&KEY, cost, ttl) };
    let extended = reserve(client, release(100, HOUR / 2)).await.hold;
    let until = micros(extend(client, &extended, HOUR).await.expect("extended").expires_after);
    assert!((HOUR * 1_000 * 15 / 16..=HOUR * 1_000).contains(&until), "{until}");
    let other = reserve(client, release(50, 50)).await.hold;
    eventually_async("the other one is over", async || (left(client, &KEY).await == 900).then_some(())).await;
    assert_eq!(code(cancel(client, &other).await), Code::NotFound);
    extend(client, &extended, 10).await.expect("it is there");
    eventually_async("it is over", async || (left(client, &KEY).await == 1_000).then_some(())).await;
}

#[tokio::test]
async fn invalid_requests_reserve_and_settle_nothing() {
    let server = Server::with_policy(POLICY);
    let client = &mut server.client().await;
    what_cannot_be_reserved_is_a_failed_precondition(client).await;
    start_over(client).await;
    invalid_requests_name_the_field(client).await;
    start_over(client).await;
    a_changed_hold_settles_nothing(client).await;
}

async fn what_cannot_be_reserved_is_a_failed_precondition(client: &mut Client) {
    for (key, limit) in [("queue", "queued"), ("denied", "counts-all")] {
        let status = client.reserve(wanted(&[key], 1, HOUR)).await.expect_err("not reservable");
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains(limit), "{status:?}");
    }
    let factor = CheckRequest { factor: Some(0.5), ..check(&KEY) };
    let status = client.reserve(ReserveRequest { check: Some(factor), ..wanted(&KEY, 1, HOUR) }).await;
    assert_eq!(code(status), Code::FailedPrecondition, "the limits are the policy's");
    let each = Server::with_policy(&format!("charge: independent\n{POLICY}"));
    let status = each.client().await.reserve(wanted(&KEY, 1, HOUR)).await.expect_err("not reservable");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("independent"), "{status:?}");
}

async fn invalid_requests_name_the_field(client: &mut Client) {
    let good = || wanted(&KEY, 1, HOUR);
    let with = |change: &dyn Fn(&mut ReserveRequest)| {
        let mut request = good();
        change(&mut request);
        request
    };
    let check_with =
        |change: &dyn Fn(&mut CheckRequest)| with(&|request| change(request.check.as_mut().expect("a check")));
    for (request, field) in [
        (with(&|it| it.ttl = None), "ttl"),
        (with(&|it| it.ttl = millis(9)), "ttl"),
        (with(&|it| it.ttl = millis(24 * HOUR + 1)), "ttl"),
        (with(&|it| it.on_expiry = 3), "on_expiry"),
        (with(&|it| it.check = None), "check.key"),
        (check_with(&|it| it.cost = Some(0)), "check.cost"),
        (check_with(&|it| it.cost = Some(-1)), "check.cost"),
        (check_with(&|it| it.cost = Some(1 << 33)), "check.cost"),
        (check_with(&|it| it.dry_run = true), "check.dry_run"),
        (check_with(&|it| it.key[1].clear()), "check.key[1]"),
    ] {
        let status = client.reserve(request).await.expect_err("invalid");
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some(field.to_owned())), "{status:?}");
    }
    let nowhere = check_with(&|it| it.domain = "nowhere".to_owned());
    assert_eq!(code(client.reserve(nowhere).await), Code::NotFound);
    let hold = held(client, 1).await;
    for actual in [-1, (1 << 32) + 1] {
        let status = commit(client, &hold, Some(actual)).await.expect_err("invalid");
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some("actual".to_owned())));
    }
    let status = extend(client, &hold, 1).await.expect_err("invalid");
    assert_eq!(refusal(&status), (Code::InvalidArgument, Some("ttl".to_owned())));
    assert_eq!(commit(client, &hold, None).await.expect("settled"), settled(1, 0, 0));
}

async fn a_changed_hold_settles_nothing(client: &mut Client) {
    let hold = held(client, 100).await;
    let mut other_key = BASE64URL_NOPAD.decode(hold.as_bytes()).expect("a hold");
    let at = other_key.windows(4).position(|part| part == b"alex").expect("the key is in it");
    other_key[at..at + 4].copy_from_slice(b"olga");
    for changed in [changed(&hold), BASE64URL_NOPAD.encode(&other_key)] {
        assert_eq!(code(commit(client, &changed, Some(0)).await), Code::NotFound);
    }
    for malformed in ["", "A", "elsewhere", &hold[1..], &hold[..20], &format!("{hold}="), &"A".repeat(70_000)] {
        let status = commit(client, malformed, Some(0)).await.expect_err("no hold");
        assert_eq!(refusal(&status), (Code::InvalidArgument, Some("hold".to_owned())), "{malformed:.40}");
    }
    assert_eq!(both_left(client).await, (9_900, 900));
}

/// Returns the hold with another ID.
pub fn changed(hold: &str) -> String {
    let mut bytes = BASE64URL_NOPAD.decode(hold.as_bytes()).expect("a hold");
    bytes[9] ^= 4;
    BASE64URL_NOPAD.encode(&bytes)
}

#[tokio::test]
async fn a_reset_keeps_what_is_reserved_charged() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    for (depth, subtree) in [(3, false), (2, true)] {
        let hold = held(&mut client, 200).await;
        client.check(CheckRequest { cost: Some(300), ..check(&KEY) }).await.expect("an answer");
        client.reset(reset(&KEY[..depth], subtree)).await.expect("a reset");
        assert_eq!(left(&mut client, &KEY).await, 800, "what is reserved");
        assert_eq!(commit(&mut client, &hold, Some(50)).await.expect("settled"), settled(50, 150, 0));
        assert_eq!(left(&mut client, &KEY).await, 950);
        client.reset(reset(&KEY, false)).await.expect("a reset");
    }
}

#[tokio::test]
async fn a_changed_policy_settles_the_limits_that_are_left() {
    let server = Server::with_policy(POLICY);
    let mut client = server.client().await;
    let (first, second) = (held(&mut client, 200).await, held(&mut client, 200).await);
    let without_user = POLICY.split("        children:").next().expect("the tenant's limit");
    let with_another = format!(
        "{without_user}        children: {{ '*': {{ limits: [{{ token_bucket: {{ capacity: 500, count: 1, period: 1d }}, name: new }}] }} }}\n"
    );
    server.replace_policy(&with_another);
    server.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 1.0);
    assert_eq!(commit(&mut client, &first, Some(50)).await.expect("settled"), settled(50, 150, 0));
    assert_eq!(both_left(&mut client).await, (9_750, 500), "the new limit is not charged");
    server.replace_policy(&format!("{without_user}  other: {{}}\n"));
    server.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 2.0);
    assert_eq!(cancel(&mut client, &second).await.expect("settled").refunded, 200);
    assert_eq!(left(&mut client, &KEY[..2]).await, 9_950);
    server.replace_policy("schema: { other: {} }");
    server.wait_for_metric("weir_policy_reloads_total{result=\"success\"}", 3.0);
    assert_eq!(code(commit(&mut client, &first, Some(50)).await), Code::NotFound, "no limit is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_settles_after_a_restart_and_an_outage_is_an_error() {
    let mut redis = Redis::start(Options::port());
    let start = || Setup::new().policy(POLICY).shared(&redis).start();
    let first = start();
    let hold = held(&mut first.client().await, 100).await;
    drop(first);
    let second = start();
    let mut client = second.client().await;
    assert_eq!(both_left(&mut client).await, (9_900, 900));
    assert_eq!(commit(&mut client, &hold, Some(30)).await.expect("settled"), settled(30, 70, 0));
    assert_eq!(both_left(&mut client).await, (9_970, 970));

    let hold = held(&mut client, 100).await;
    redis.kill();
    assert_eq!(code(commit(&mut client, &hold, Some(30)).await), Code::Unavailable);
    // This replica's memory decides; such a reservation does not hold units for other replicas.
    let answer = reserve(&mut client, wanted(&KEY, 100, HOUR)).await;
    assert!(answer.decision.is_some_and(|decision| decision.allowed && decision.degraded));
    let nothing = CommitResponse { degraded: true, ..CommitResponse::default() };
    assert_eq!(commit(&mut client, &answer.hold, Some(30)).await.expect("an answer"), nothing);
    assert!(cancel(&mut client, &answer.hold).await.expect("an answer").degraded);
    assert!(extend(&mut client, &answer.hold, HOUR).await.expect("an answer").degraded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_keeps_reservations() {
    let dir = Folder::new();
    let start = || Setup::new().policy(POLICY).snapshot(dir.path("snapshot")).start();
    let mut first = start();
    let mut client = first.client().await;
    let (open, over) = (held(&mut client, 100).await, held(&mut client, 100).await);
    commit(&mut client, &over, Some(30)).await.expect("settled");
    first.stop();
    let second = start();
    let mut client = second.client().await;
    assert_eq!(both_left(&mut client).await, (9_870, 870));
    assert_eq!(commit(&mut client, &over, Some(99)).await.expect("settled"), settled(30, 70, 0), "it is over");
    assert_eq!(commit(&mut client, &open, Some(20)).await.expect("settled"), settled(20, 80, 0));
    assert_eq!(both_left(&mut client).await, (9_950, 950));
}
