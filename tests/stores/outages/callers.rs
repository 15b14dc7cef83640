//! Clients in one domain for each `on_store_failure` rule, and their answers.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::RwLock;
use tonic::{Code, transport::Channel};
use weir::proto::{CheckRequest, rate_limiter_client::RateLimiterClient};

use crate::support::requests::check;

/// The rules of `on_store_failure`. Each is also the name of a domain.
pub const RULES: [&str; 4] = ["local", "allow", "deny", "error"];
/// Number of callers in each domain.
pub const CALLERS: usize = 4;
/// Pause between two calls of one caller, so that the machine's own limits do not affect the measurement.
const PAUSE: Duration = Duration::from_millis(5);

/// The source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The shared store.
    Shared,
    /// The domain's rule, and whether it allows the check.
    Degraded(bool),
    /// An error, by the rule `error`.
    Error,
}

#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub rule: usize,
    pub answered_by: AnsweredBy,
    pub took: Duration,
}

pub type Answers = Arc<Mutex<Vec<Answer>>>;

/// Returns a check in the domain of a rule.
pub fn of_rule(rule: usize, request: CheckRequest) -> CheckRequest {
    CheckRequest { domain: RULES[rule].to_owned(), ..request }
}

/// Sends checks until `over` is set.
pub async fn call(
    mut client: RateLimiterClient<Channel>,
    number: usize,
    answers: Answers,
    over: Arc<AtomicBool>,
    turn: Arc<RwLock<()>>,
) {
    let rule = number / CALLERS;
    let request = of_rule(rule, check(&["story", &number.to_string(), "trade"]));
    while !over.load(Ordering::Relaxed) {
        let turn = turn.read().await;
        let since = Instant::now();
        let answered_by = answered_by(&mut client, request.clone()).await;
        let answer = Answer { rule, answered_by, took: since.elapsed() };
        answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        drop(turn);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Measures the longest time that the machine, the service and a client take for a call without a store decision, until
/// `over` is set.
pub async fn longest_stall(mut client: RateLimiterClient<Channel>, over: Arc<AtomicBool>) -> Duration {
    let (mut longest, mut since) = (Duration::ZERO, Instant::now());
    while !over.load(Ordering::Relaxed) {
        // The pause is included, so that the measurement has no gaps.
        tokio::time::sleep(PAUSE).await;
        client.check(of_rule(0, check(&["without limits"]))).await.expect("an answer");
        let now = Instant::now();
        longest = longest.max(now - since);
        since = now;
    }
    longest
}

pub async fn answered_by(client: &mut RateLimiterClient<Channel>, request: CheckRequest) -> AnsweredBy {
    match client.check(request).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            if answer.degraded { AnsweredBy::Degraded(answer.allowed) } else { AnsweredBy::Shared }
        }
        Err(status) => {
            assert_eq!((status.code(), status.message()), (Code::Unavailable, "the store does not answer"));
            AnsweredBy::Error
        }
    }
}
