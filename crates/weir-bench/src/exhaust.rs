//! Exhausts the limits of some keys before the load, so that their checks are refused.

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;
use tonic::Code;
use weir_core::proto::{CheckRequest, CheckResponse, code_name};
use weir_envoy::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response::Code as EnvoyCode,
};

use super::{
    checks::{CheckSpec, exhausted_keys, framed},
    wire::{
        answers::{Fault, Kind},
        dial::{Head, Sender, Target},
        exchange::{Incoming, one_message},
        timeout::Timeout,
    },
};
use crate::Failure;

/// Maximum number of checks per key: a limit that refills faster than it is checked is never exhausted.
const MAX_ROUNDS: usize = 8;

/// Checks each key with its remaining units, until it is refused. Returns the number of checks.
///
/// # Errors
/// The service cannot be reached or answers with an error, or a key has no limit.
pub(crate) async fn exhaust(
    target: &Target,
    head: &Head,
    spec: &CheckSpec,
    kind: Kind,
    keys: u64,
) -> Result<u64, Failure> {
    let (sender, connection) = target.dial().await.map_err(Failure)?;
    let connection = tokio::spawn(connection);
    let mut client = Exhauster { sender, timeout: Timeout::new(target.timeout()), checks: 0 };
    let count = exhausted_keys(keys);
    let digits = (count - 1).to_string().len();
    for number in 0..count {
        let number = format!("{number:0digits$}");
        let spent = match kind {
            Kind::Envoy => client.envoy(head, spec.envoy(&number, true)).await,
            Kind::Check | Kind::Batch => client.native(head, spec.native(&number, true), spec.units()).await,
        };
        spent.map_err(|Fault { code, message }| {
            Failure(format!("cannot exhaust a limit: {message} ({})", code_name(code as i32)))
        })?;
    }
    connection.abort();
    Ok(client.checks)
}

struct Exhauster {
    sender: Sender,
    timeout: Timeout,
    checks: u64,
}

impl Exhauster {
    async fn native(&mut self, head: &Head, check: CheckRequest, units: i64) -> Result<(), Fault> {
        let mut cost = units;
        for _ in 0..MAX_ROUNDS {
            let check = CheckRequest { cost: Some(cost), summary_only: false, ..check.clone() };
            let answer: CheckResponse = self.call(head, &check).await?;
            if answer.levels.is_empty() && answer.limit == 0 {
                return Err(not_limited());
            }
            if !answer.allowed && cost <= units {
                return Ok(());
            }
            // The remaining units, and after that the cost of the load, which must be refused.
            cost = i64::try_from(answer.remaining).unwrap_or(i64::MAX).max(units);
        }
        Ok(())
    }

    async fn envoy(&mut self, head: &Head, request: RateLimitRequest) -> Result<(), Fault> {
        let mut hits = request.hits_addend;
        for _ in 0..MAX_ROUNDS {
            let answer: RateLimitResponse =
                self.call(head, &RateLimitRequest { hits_addend: hits, ..request.clone() }).await?;
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

    async fn call<T: Message + Default>(&mut self, head: &Head, message: &impl Message) -> Result<T, Fault> {
        self.checks += 1;
        std::future::poll_fn(|context| self.sender.poll_ready(context)).await.map_err(Fault::unavailable)?;
        let sent = self.sender.send_request(head.request(), false);
        let (response, mut stream) = sent.map_err(Fault::unavailable)?;
        stream.send_data(Bytes::from(framed(message)), true).map_err(Fault::unavailable)?;
        let mut incoming = Incoming::Head(response);
        let answer = self.timeout.wait(Instant::now(), one_message(&mut incoming)).await;
        let answer = answer.unwrap_or_else(|| Err(Fault::new(Code::DeadlineExceeded, "no answer in time")))?;
        T::decode(answer).map_err(|error| Fault::new(Code::Internal, error.to_string()))
    }
}

fn not_limited() -> Fault {
    Fault::new(Code::FailedPrecondition, "the key has no limit; --limit adds one to the requests")
}
