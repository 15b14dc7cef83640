//! Clients in domains of every rule, and their answers.

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

/// What may answer instead of the store; each is the name of a domain too.
pub const RULES: [&str; 4] = ["local", "allow", "deny", "error"];
/// Callers of each domain.
pub const CALLERS: usize = 4;
/// Between two calls of one caller, so that what is measured is not the machine.
const PAUSE: Duration = Duration::from_millis(5);

/// How a check was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// By the shared store.
    Shared,
    /// By the domain's rule: whether it passes.
    Degraded(bool),
    /// An error, as the rule `error` wants it.
    Error,
}

#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub rule: usize,
    pub answered_by: AnsweredBy,
    pub took: Duration,
}

pub type Answers = Arc<Mutex<Vec<Answer>>>;

/// A check in the domain of a rule.
pub fn of_rule(rule: usize, request: CheckRequest) -> CheckRequest {
    CheckRequest { domain: RULES[rule].to_owned(), ..request }
}

/// Calls until it is over.
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

/// How long the machine, the service and a client take at most for a call that no store decides, until it is over.
pub async fn longest_stall(mut client: RateLimiterClient<Channel>, over: Arc<AtomicBool>) -> Duration {
    let (mut longest, mut since) = (Duration::ZERO, Instant::now());
    while !over.load(Ordering::Relaxed) {
        // The pause counts, so that no moment is left out.
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
