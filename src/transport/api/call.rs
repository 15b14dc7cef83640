//! The unary calls of `weir.v1.RateLimiter` with one key, from the encoded message to the encoded answer.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_policy::Suggestion;
use weir_store::{ResetDone, Store};

use super::answer;
use crate::{
    limiter::{Answer, Request},
    proto::{KeyPattern, ResetRequest, ResetResponse, SuggestRequest, SuggestResponse},
    telemetry::CallKind,
    transport::{
        audit::Actor,
        check_service::CheckService,
        decode,
        message::{self, USUAL_ANSWER, encoded},
        status::Rejected,
    },
};

/// Serves `Check`.
///
/// # Errors
/// [`Rejected`] if the request is invalid or the store fails.
pub async fn check<S: Store>(service: &CheckService<S>, message: Bytes) -> Result<BytesMut, Rejected> {
    let since = Instant::now();
    let handle = service.limiter().policy_guard();
    let encode = |answer: Result<&Answer<'_>, Rejected>, summary_only| {
        let mut out = BytesMut::with_capacity(USUAL_ANSWER);
        answer::write(answer?, summary_only, &mut out);
        Ok(out)
    };
    let pending = service.check(&handle, Ok(&message), CallKind::Grpc, encode);
    // Not needed any more, however long the store takes.
    drop(message);
    let answer = service.answer(&handle, pending, CallKind::Grpc).await;
    service.timed(CallKind::Grpc, since);
    answer?
}

/// Serves `Reset`.
///
/// # Errors
/// [`Rejected`] if the request is invalid or the store fails.
pub async fn reset<S: Store>(service: &CheckService<S>, message: &[u8], actor: &Actor) -> Result<BytesMut, Rejected> {
    let message: ResetRequest = message::read(message)?;
    let done = service.reset(&decode::reset(&message)?, message.subtree, actor).await?;
    let ResetDone { existed, removed, scanned } = done;
    Ok(encoded(&ResetResponse { existed, scanned, removed: Some(removed) }))
}

/// Serves `Suggest`.
///
/// # Errors
/// [`Rejected`] if the request is invalid.
pub fn suggest<S: Store>(service: &CheckService<S>, message: &[u8]) -> Result<BytesMut, Rejected> {
    let message: SuggestRequest = message::read(message)?;
    let (handle, request) = (service.limiter().policy(), Request::new(&message.domain, &message.key)?);
    let answer = match handle.policy.domain(&request.domain) {
        None => {
            let domains = handle.policy.suggest_domains(&request.domain).into_iter().map(str::to_owned);
            SuggestResponse { domains: domains.collect(), ..Default::default() }
        }
        Some(domain) if domain.is_matched(&request.key) => SuggestResponse { limited: true, ..Default::default() },
        Some(domain) => {
            let Suggestion { key, patterns } = domain.suggest(&message.key);
            let patterns = patterns.into_iter().map(|segments| KeyPattern { segments });
            SuggestResponse { key, patterns: patterns.collect(), ..Default::default() }
        }
    };
    Ok(encoded(&answer))
}
