//! Repeated requests after a change of the policy: the answer passes or is refused as the first one, regardless of the
//! current limits.

use std::sync::Arc;

use weir_core::{
    domain::{Charge, Key, ManualClock, Micros, time::SECOND},
    hold::{Idempotency, RequestId},
    plan::{Level, Limit, Origin, Plan},
    testing::parse,
};
use weir_store::Verdict;
use weir_test_redis::{Cluster, ClusterOptions, Options, Server};

use super::holds::{Authority, START, in_memory, on_redis};

const WINDOW: Micros = 60 * SECOND;

fn limit(name: &'static str, count: &str, shadow: bool, charge_denied: bool) -> Limit {
    let fields = [("count", count), ("period", "1h"), ("charge_denied", if charge_denied { "true" } else { "false" })];
    Limit::new(Origin::Policy, Some(name), "*", 0, shadow, parse("fixed_window", &fields))
}

/// The policies before and after the change, with a limit on each level of the key.
struct Change {
    before: [Limit; 2],
    after: [Limit; 2],
    cost: i64,
    passes: bool,
}

fn changes() -> [Change; 4] {
    let roomy = || limit("roomy", "100", false, false);
    [
        // A shadow limit that refuses is enforced.
        Change {
            before: [limit("tight", "2", true, false), roomy()],
            after: [limit("tight", "2", false, false), roomy()],
            cost: 5,
            passes: true,
        },
        // Other limits on the path, of the same number.
        Change {
            before: [roomy(), roomy()],
            after: [limit("tight", "5", false, true), limit("other", "5", false, false)],
            cost: 5,
            passes: true,
        },
        // A refusal that charges is recorded, too.
        Change {
            before: [limit("tight", "2", false, true), roomy()],
            after: [limit("other", "100", false, false), roomy()],
            cost: 5,
            passes: false,
        },
        // Only the number of units has changed: the decisions of the first answer are repeated.
        Change {
            before: [roomy(), roomy()],
            after: [limit("roomy", "1", false, false), roomy()],
            cost: 5,
            passes: true,
        },
    ]
}

async fn ask(store: &Authority, anchor: u8, limits: &[Limit; 2], cost: i64, id: Option<&RequestId>) -> Verdict {
    let key = Key::new("repeats", &["a", "b"]).expect("a key");
    let levels = limits.iter().zip(1..).map(|(limit, depth)| Level::new(&key, depth, anchor, limit, cost));
    let mut plan = Plan::new(levels.collect(), Charge::AllOrNothing, None);
    plan.request = id;
    store.verdict(&plan).await
}

fn passes(limits: &[Limit; 2], verdict: &Verdict) -> bool {
    limits.iter().zip(&verdict.decisions).all(|(limit, decision)| limit.shadow || decision.allowed)
}

/// Returns the answers to the repeats.
async fn repeats(store: &mut Authority, clock: &Arc<ManualClock>, anchor: u8) -> Vec<Verdict> {
    let mut answers = Vec::new();
    let id = RequestId { name: b"id".as_slice().into(), fingerprint: [1; 8], window: WINDOW };
    // An anchor that charges nothing, or whose charges are undone, records nothing.
    let changes = changes().into_iter().filter(|change| anchor == 1 || change.passes && !change.before[0].shadow);
    for (number, Change { before, after, cost, passes: expected }) in changes.enumerate() {
        store.forget(clock).await;
        clock.set(START);
        let first = ask(store, anchor, &before, cost, Some(&id)).await;
        assert_eq!((first.idempotency, passes(&before, &first)), (Idempotency::First, expected), "change {number}");
        clock.set(START + SECOND);
        // The new limits' own decision is not the answer.
        ask(store, anchor, &after, cost, None).await;
        let repeat = ask(store, anchor, &after, cost, Some(&id)).await;
        assert_eq!((repeat.idempotency, passes(&after, &repeat)), (Idempotency::Repeated, expected), "{number}");
        let refusals = repeat.decisions.iter().filter(|decision| !decision.allowed);
        assert!(refusals.clone().all(|decision| decision.retry_after == Some(WINDOW - SECOND)), "{number}");
        answers.push(repeat);
    }
    answers
}

#[tokio::test]
async fn a_repeat_after_a_change_of_the_policy_is_answered_as_the_first_time() {
    let clock = Arc::new(ManualClock::default());
    let (server, cluster) = (Server::start(Options::socket()), Cluster::start(&ClusterOptions::default()));
    let in_memory = repeats(&mut Authority::Memory(in_memory(&clock)), &clock, 1).await;
    let redis = repeats(&mut on_redis(&server.url(), &clock), &clock, 1).await;
    let decisions = |answers: &[Verdict]| answers.iter().map(|answer| answer.decisions.clone()).collect::<Vec<_>>();
    assert_eq!(decisions(&in_memory), decisions(&redis));
    repeats(&mut on_redis(&cluster.url(), &clock), &clock, 2).await;
}

/// Checks with the id of another request, which one anchor of the key has. Returns the remaining units before and
/// after.
async fn conflict(store: &Authority, charge: Charge, charge_denied: bool, cost: i64) -> [Vec<u64>; 2] {
    let limits = [limit("a", "100", false, charge_denied), limit("b", "100", false, charge_denied)];
    let id = RequestId { name: b"id".as_slice().into(), fingerprint: [1; 8], window: WINDOW };
    let other = RequestId { fingerprint: [2; 8], ..id.clone() };
    let key = Key::new("repeats", &["a", "b"]).expect("a key");
    let plan = |cost| {
        let levels = limits.iter().zip(1..).map(|(limit, depth)| Level::new(&key, depth, 2, limit, cost));
        Plan::new(levels.collect(), charge, None)
    };
    store.verdict(&plan(5)).await;
    // The other anchor does not know the id.
    let mut known = plan(1).only(|index| index == 1);
    known.request = Some(&id);
    store.verdict(&known).await;
    let left = async || {
        let stands = store.verdict(&plan(0)).await.decisions;
        stands.iter().map(|decision| decision.remaining).collect::<Vec<_>>()
    };
    let before = left().await;
    let mut asked = plan(cost);
    asked.request = Some(&other);
    assert_eq!(store.verdict(&asked).await.idempotency, Idempotency::Conflict);
    [before, left().await]
}

#[tokio::test]
async fn the_id_of_another_request_leaves_no_change_at_any_anchor() {
    let (cluster, clock) = (Cluster::start(&ClusterOptions::default()), Arc::new(ManualClock::default()));
    let mut store = on_redis(&cluster.url(), &clock);
    clock.set(START);
    for charge in [Charge::AllOrNothing, Charge::Independent, Charge::OverLimitOnly] {
        for (charge_denied, cost) in [(false, 2), (true, 2), (false, 200), (true, 200), (false, -3)] {
            store.forget(&clock).await;
            let [before, after] = conflict(&store, charge, charge_denied, cost).await;
            assert_eq!(after, before, "{charge:?}, charge_denied: {charge_denied}, cost {cost}");
        }
    }
}
