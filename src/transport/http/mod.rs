//! Checks as JSON over HTTP: the messages of `weir.v1` as proto3 maps them, and refusals as HTTP tells them.

pub mod body;
pub mod fault;
pub mod problem;
mod settings;
pub mod site;
pub mod transcode;

use std::{
    future::IntoFuture,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
    routing::{any, post},
};
use futures_util::{StreamExt, stream::FuturesOrdered};
use serde::Serialize;
use weir_store::Store;

use super::{
    check_service::{CheckService, Checked},
    decode::{self, MAX_BATCH},
    encode,
    headers::{HeaderStyle, Quota},
    status::Refused,
};
use crate::{
    limiter::{Answer, Invalid, Snapshot},
    proto::{CheckBatchResponse, CheckRequest, CheckResponse, ResetResponse},
    telemetry::Transport,
};
use problem::{Kind, PROBLEM_JSON, Problem, QUOTA_EXCEEDED};
pub use settings::{HttpSettings, UiSettings};
pub use site::Sites;
pub use transcode::{Damaged, Transcoder};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The API over one limiter.
pub struct Api<S> {
    service: CheckService<S>,
    transcoder: Transcoder,
    style: HeaderStyle,
    max_body_bytes: usize,
    sites: Sites,
}

/// The paths of the API. A body is at most `max_body_bytes` long; of pages in browsers those of `sites` may ask.
///
/// # Errors
/// [`Damaged`] when the descriptors compiled into this binary cannot be read.
pub fn routes<S: Store>(
    service: CheckService<S>,
    style: HeaderStyle,
    max_body_bytes: usize,
    sites: Sites,
) -> Result<Router, Damaged> {
    let api = Api { service, transcoder: Transcoder::new()?, style, max_body_bytes, sites };
    Ok(Router::new()
        .route("/v1/check", post(check::<S>).fallback(not_posted))
        .route("/v1/check_batch", post(check_batch::<S>).fallback(not_posted))
        .route("/v1/reset", post(reset::<S>).fallback(not_posted))
        .route("/v1/{*path}", any(nowhere))
        .with_state(Arc::new(api)))
}

async fn not_posted() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path takes POST")
}

async fn nowhere() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there are /v1/check, /v1/check_batch and /v1/reset")
}

async fn check<S: Store>(State(api): State<Arc<Api<S>>>, request: Request) -> Result<Response, Problem> {
    let text = body::read(request, api.max_body_bytes, &api.sites).await?;
    let since = Instant::now();
    let snapshot = api.service.limiter().snapshot();
    let message = api.transcoder.check(&text);
    let encode = |answer: Result<&Answer<'_>, Refused>, summary_only| Ok(api.answer(answer?, summary_only));
    let answer = api.check(&snapshot, message, Transport::Http, encode).await;
    api.service.timed(Transport::Http, since);
    answer
}

async fn check_batch<S: Store>(State(api): State<Arc<Api<S>>>, request: Request) -> Result<Response, Problem> {
    let text = body::read(request, api.max_body_bytes, &api.sites).await?;
    let since = Instant::now();
    let checks = api.transcoder.batch(&text).map_err(Refused::from)?;
    if checks.len() > MAX_BATCH {
        return Err(Refused::from(decode::too_many_checks()).into());
    }
    let snapshot = api.service.limiter().snapshot();
    // What waits does so together, to share round trips. Each begins before the next.
    let results = checks.map(|message| api.check_in_place(&snapshot, message).into_future());
    let results = results.collect::<FuturesOrdered<_>>().collect().await;
    api.service.timed(Transport::HttpBatch, since);
    Ok(response(StatusCode::OK, JSON, &api.transcoder.answers(&CheckBatchResponse { results })))
}

async fn reset<S: Store>(State(api): State<Arc<Api<S>>>, request: Request) -> Result<Response, Problem> {
    let text = body::read(request, api.max_body_bytes, &api.sites).await?;
    let message = api.transcoder.reset(&text).map_err(Refused::from)?;
    let reset = decode::reset(&message).map_err(Refused::from)?;
    let done = api.service.reset(&reset, message.subtree).await?;
    let done = ResetResponse { existed: done.existed, scanned: done.scanned };
    Ok(response(StatusCode::OK, JSON, &api.transcoder.done(&done)))
}

/// A refusal: a problem with the members of the answer beside its own, so that they are found in the same place whatever
/// the status.
#[derive(Serialize)]
struct Refusal<'a> {
    #[serde(flatten)]
    kind: Kind,
    status: u16,
    detail: String,
    /// The limits that refuse, root first.
    #[serde(rename = "violated-policies")]
    violated: Vec<&'a str>,
    #[serde(flatten)]
    answer: transcode::Json,
}

impl<S: Store> Api<S> {
    fn check<'a, T: 'a>(
        &self,
        snapshot: &Arc<Snapshot>,
        message: Result<CheckRequest, Invalid>,
        transport: Transport,
        encode: impl FnOnce(Result<&Answer<'_>, Refused>, bool) -> T + Send + 'a,
    ) -> Checked<'a, T> {
        match message {
            Ok(message) => self.service.check(snapshot, Ok((&message).into()), transport, encode),
            Err(invalid) => self.service.check(snapshot, Err(invalid), transport, encode),
        }
    }

    /// A check of a batch: an error is within the answer.
    fn check_in_place(
        &self,
        snapshot: &Arc<Snapshot>,
        message: Result<CheckRequest, Invalid>,
    ) -> Checked<'static, CheckResponse> {
        self.check(snapshot, message, Transport::HttpBatch, |answer, summary_only| match answer {
            Ok(answer) => encode::check(answer, summary_only),
            Err(refused) => CheckResponse { error: Some(refused.into()), ..Default::default() },
        })
    }

    fn answer(&self, answer: &Answer<'_>, summary_only: bool) -> Response {
        let message = self.transcoder.answer(&encode::check(answer, summary_only));
        let binding = answer.summary.binding.map(|index| &answer.levels[index]);
        let quota =
            binding.map(|level| Quota { name: &level.limit.name, window: level.window, decision: &level.decision });
        let mut response = if answer.summary.allowed {
            response(StatusCode::OK, JSON, &message)
        } else {
            let refusing = answer.levels.iter().filter(|level| !level.limit.shadow && !level.decision.allowed);
            let status = StatusCode::TOO_MANY_REQUESTS;
            let refusal = Refusal {
                kind: QUOTA_EXCEEDED,
                status: status.as_u16(),
                detail: detail(quota.as_ref()),
                violated: refusing.map(|level| &*level.limit.name).collect(),
                answer: message,
            };
            self::response(status, PROBLEM_JSON, &refusal)
        };
        for (name, value) in
            quota.iter().flat_map(|quota| quota.headers(self.style).into_iter().chain(quota.retry_after()))
        {
            // Names are of ASCII and values are made of what headers may hold.
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// A refusal in one sentence.
fn detail(binding: Option<&Quota<'_>>) -> String {
    let Some(Quota { name, decision, .. }) = binding else { return String::new() };
    match decision.retry_after {
        Some(after) => {
            let after = Duration::from_micros(after.unsigned_abs());
            format!("the limit `{name}` refuses; the same request passes after {after:?}")
        }
        None => format!("the limit `{name}` refuses, and no wait will help: the cost is above what it can ever pass"),
    }
}

fn response(status: StatusCode, kind: HeaderValue, body: &impl Serialize) -> Response {
    let mut response = match serde_json::to_vec(body) {
        Ok(body) => Response::new(Body::from(body)),
        // Not for messages whose every value is a text or a number.
        Err(_) => {
            return axum::response::IntoResponse::into_response(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, ""));
        }
    };
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
