//! Limits that are added, removed and reordered next to others of their kind: each keeps its own count, and no limit
//! refuses for longer than its own parameters permit.

use weir::proto::CheckRequest;

use crate::support::{
    Server, eventually_async,
    requests::{check, peek, short},
};

/// Two limits of each kind whose states have no time base: 10 a second, and 5,000 a day.
const KINDS: [[&str; 2]; 4] = [
    ["gcra: { burst: 9, count: 10, period: 1s }", "gcra: { burst: 4999, count: 5000, period: 1d }"],
    [
        "token_bucket: { capacity: 10, count: 10, period: 1s }",
        "token_bucket: { capacity: 5000, count: 5000, period: 1d }",
    ],
    [
        "smooth_bursty: { count: 10, period: 1s, max_burst: 1s }",
        "smooth_bursty: { count: 5000, period: 1d, max_burst: 1d }",
    ],
    [
        "leaky_queue: { count: 10, period: 1s, burst: 9, delay: 9 }",
        "leaky_queue: { count: 5000, period: 1d, burst: 4999, delay: 4999 }",
    ],
];

fn policy(limits: &[&str]) -> String {
    let limits: Vec<_> = limits.iter().map(|limit| format!("{{ {limit} }}")).collect();
    format!("schema: {{ user: {{ children: {{ '*': {{ limits: [{}] }} }} }} }}", limits.join(", "))
}

async fn spend(server: &Server, units: i64) {
    assert!(server.check(CheckRequest { cost: Some(units), ..check(&["user", "alex"]) }).await.allowed);
}

/// Replaces the policy. Returns the remaining units of each limit, in the policy's order.
async fn change(server: &Server, limits: &[&str], most: &[u64]) -> Vec<u64> {
    server.replace_policy(&policy(limits));
    eventually_async("the new policy is in force", async || {
        let levels = server.check(peek(&["user", "alex"])).await.levels;
        let in_force = levels.iter().map(|level| level.limit).eq(most.iter().copied());
        in_force.then(|| levels.iter().map(|level| level.remaining).collect())
    })
    .await
}

/// Whether 4,000 of the 5,000 yearly units are spent; one refills in 17 seconds.
fn is_daily_count(remaining: u64) -> bool {
    (1_000..=1_005).contains(&remaining)
}

#[tokio::test]
async fn inserted_limits_start_their_own_counts_and_reordered_ones_keep_theirs() {
    for [second, day] in KINDS {
        let server = Server::with_policy(&policy(&[day]));
        spend(&server, 4_000).await;
        for (limits, most) in [([second, day], [10, 5_000]), ([day, second], [5_000, 10])] {
            let left = change(&server, &limits, &most).await;
            let [of_second, of_day] = if most[0] == 10 { [left[0], left[1]] } else { [left[1], left[0]] };
            assert!(of_second == 10 && is_daily_count(of_day), "{limits:?}: {left:?}");
        }
        assert!(is_daily_count(change(&server, &[day], &[5_000]).await[0]), "{day}");
        let left = change(&server, &[second, day], &[10, 5_000]).await;
        assert!(left[0] == 10 && is_daily_count(left[1]), "{second}: {left:?}");
        let answer = server.check(check(&["user", "alex"])).await;
        assert!(answer.allowed && answer.wait == Some(Default::default()), "{second}: {answer:?}");
    }
}

#[tokio::test]
async fn an_exhausted_window_stays_exhausted_when_siblings_change() {
    let [hundred, thousand] =
        ["fixed_window: { count: 100, period: 31d }", "fixed_window: { count: 1000, period: 31d }"];
    let watched = "fixed_window: { count: 50, period: 31d }, shadow: true";
    let server = Server::with_policy(&policy(&[hundred]));
    spend(&server, 100).await;
    assert_eq!(change(&server, &[thousand, hundred], &[1_000, 100]).await, [1_000, 0]);
    assert_eq!(change(&server, &[hundred, thousand], &[100, 1_000]).await, [0, 1_000]);
    assert_eq!(change(&server, &[watched, hundred], &[50, 100]).await, [50, 0]);
    assert_eq!(change(&server, &[hundred], &[100]).await, [0]);
    assert_eq!(short(&server.check(check(&["user", "alex"])).await), (false, 100, 0));
}

#[tokio::test]
async fn a_shortened_limit_never_refuses_longer_than_its_own_wait() {
    for [second, day] in [KINDS[0], KINDS[1]] {
        let [second, day] = [second, day].map(|limit| format!("{limit}, name: one"));
        let server = Server::with_policy(&policy(&[&day]));
        spend(&server, 4_000).await;
        assert_eq!(change(&server, &[&second], &[10]).await, [0]);
        let refusal = server.check(CheckRequest { cost: Some(5), ..check(&["user", "alex"]) }).await;
        let retry = refusal.retry_after.expect("a refusal that can pass");
        assert!(!refusal.allowed && retry.seconds == 0 && retry.nanos <= 500_000_000, "{refusal:?}");
        eventually_async("five units are back", async || {
            server.check(CheckRequest { cost: Some(5), ..check(&["user", "alex"]) }).await.allowed.then_some(())
        })
        .await;
    }
}
