//! Keys whose limits are used up before the load begins, so that their checks are refused.

use bytes::Bytes;
use envoy_types::pb::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response::Code as EnvoyCode,
};
use prost::Message;
use tokio::time::Instant;
use tonic::Code;
use weir_core::proto::{CheckRequest, CheckResponse};

use super::{
    checks::{Asked, framed, spent_keys},
    wire::{
        answers::{Fault, Kind},
        dial::{Head, Sender, Target},
        exchange::{Incoming, one_message},
        patience::Patience,
    },
};
use crate::Failure;

/// How often a key is asked at most: a limit that gives back faster than it is asked is never used up.
const MAX_ROUNDS: usize = 8;

/// Asks for what is left of so many keys, until they are refused or have been asked often enough. Tells how many checks that
/// took.
///
/// # Errors
/// When the service cannot be reached or answers with an error, or when nothing limits such a key.
pub async fn use_up(target: &Target, head: &Head, asked: &Asked, kind: Kind, keys: u64) -> Result<u64, Failure> {
    let (sender, connection) = target.dial().await.map_err(Failure)?;
    let connection = tokio::spawn(connection);
    let mut spender = Spender { sender, patience: Patience::new(target.timeout()), checks: 0 };
    let count = spent_keys(keys);
    let digits = (count - 1).to_string().len();
    for number in 0..count {
        let number = format!("{number:0digits$}");
        let spent = match kind {
            Kind::Envoy => spender.envoy(head, asked.envoy(&number, true)).await,
            Kind::Check | Kind::Batch => spender.native(head, asked.native(&number, true), asked.units()).await,
        };
        spent.map_err(|Fault { code, message }| Failure(format!("to use up a limit: {message} ({code:?})")))?;
    }
    connection.abort();
    Ok(spender.checks)
}

struct Spender {
    sender: Sender,
    patience: Patience,
    checks: u64,
}

impl Spender {
    async fn native(&mut self, head: &Head, check: CheckRequest, units: i64) -> Result<(), Fault> {
        let mut cost = units;
        for _ in 0..MAX_ROUNDS {
            let check = CheckRequest { cost: Some(cost), summary_only: false, ..check.clone() };
            let answer: CheckResponse = self.ask(head, &check).await?;
            if answer.levels.is_empty() && answer.limit == 0 {
                return Err(not_limited());
            }
            if !answer.allowed && cost <= units {
                return Ok(());
            }
            // What is left, and once that is gone, the question itself: it is to be refused.
            cost = i64::try_from(answer.remaining).unwrap_or(i64::MAX).max(units);
        }
        Ok(())
    }

    async fn envoy(&mut self, head: &Head, request: RateLimitRequest) -> Result<(), Fault> {
        let mut hits = request.hits_addend;
        for _ in 0..MAX_ROUNDS {
            let answer: RateLimitResponse =
                self.ask(head, &RateLimitRequest { hits_addend: hits, ..request.clone() }).await?;
            if answer.overall_code == EnvoyCode::OverLimit as i32 && hits == request.hits_addend {
                return Ok(());
            }
            let status = answer.statuses.first().filter(|status| status.current_limit.is_some());
            hits = match status.ok_or_else(not_limited)?.limit_remaining {
                0 => request.hits_addend,
                left => left,
            };
        }
        Ok(())
    }

    async fn ask<T: Message + Default>(&mut self, head: &Head, message: &impl Message) -> Result<T, Fault> {
        self.checks += 1;
        std::future::poll_fn(|context| self.sender.poll_ready(context)).await.map_err(Fault::unavailable)?;
        let sent = self.sender.send_request(head.request(), false);
        let (response, mut stream) = sent.map_err(Fault::unavailable)?;
        stream.send_data(Bytes::from(framed(message)), true).map_err(Fault::unavailable)?;
        let mut incoming = Incoming::Head(response);
        let answer = self.patience.wait(Instant::now(), one_message(&mut incoming)).await;
        let answer = answer.unwrap_or_else(|| Err(Fault::new(Code::DeadlineExceeded, "no answer in time")))?;
        T::decode(answer).map_err(|error| Fault::new(Code::Internal, error.to_string()))
    }
}

fn not_limited() -> Fault {
    Fault::new(Code::FailedPrecondition, "nothing limits the key; --limit brings a limit along")
}
