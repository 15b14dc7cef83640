//! Checks as JSON over HTTP: the messages of `weir.v1` in the JSON mapping of proto3, and refusals as problems (RFC
//! 9457).

pub mod body;
pub mod problem;
mod settings;
pub mod site;

use std::{
    net::SocketAddr,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, post},
};
use bytes::BytesMut;
use serde::Serialize;
use tracing::error;
use weir_core::{domain::Micros, plan::Ban};
use weir_store::Store;
use weir_telemetry::LogLimit;

use super::{
    api::{Services, answer, batch, reservation},
    audit::Actor,
    authentication::ClientName,
    calls::{Call, service},
    decode::{self, MAX_BATCH},
    headers::{self, HeaderStyle, Quota},
    json::{Damaged, Json, Schema},
    message::{CheckMessage, read_with_check},
    status::Rejected,
};
use crate::{
    limiter::{AllAnswers, Answer, CheckAll, CheckError, Invalid, LevelAnswer, check_all::MAX_TOGETHER},
    proto,
    telemetry::CallKind,
};
use problem::{Kind, PROBLEM_JSON, Problem, QUOTA_EXCEEDED};
pub use settings::{HttpSettings, UiSettings};
pub use site::Sites;

/// The media type of answers.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Maximum number of values in the JSON of a check; twice as many as a valid one can have.
const MAX_VALUES: usize = 512;

/// Limits the log lines about answers that cannot be written to one a minute.
static UNWRITABLE: LazyLock<LogLimit> = LazyLock::new(|| LogLimit::every(Duration::from_secs(60)));

/// The client's address, as a request extension; `None` for a unix socket.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub Option<SocketAddr>);

/// The API over one limiter.
pub struct Api<S> {
    services: Services<S>,
    schema: Schema,
    style: HeaderStyle,
    max_body_bytes: usize,
    sites: Sites,
}

/// Returns the routes of the API and of the operators' API. A body has at most `max_body_bytes`; in browsers only pages
/// of `sites` may call.
///
/// # Errors
/// [`Damaged`] when the descriptors compiled into this binary cannot be read.
pub fn routes<S: Store>(
    services: Services<S>,
    style: HeaderStyle,
    max_body_bytes: usize,
    sites: Sites,
) -> Result<Router, Damaged> {
    let schema = Schema::new(proto::DESCRIPTORS, MAX_VALUES)?;
    let api = Api { services, schema, style, max_body_bytes, sites };
    let handler = |call| match call {
        Call::Check => post(check::<S>),
        Call::CheckBatch => post(check_batch::<S>),
        Call::CheckAll => post(check_all::<S>),
        Call::Reserve => post(reserve::<S>),
        _ => post(move |State(api): State<Arc<Api<S>>>, request| answer(api, call, request)),
    };
    let mut routes = Router::new();
    for (service, others) in
        [(service::RATE_LIMITER, &["/v1/", "/v1/{*path}"][..]), (service::ADMIN, &["/v1/admin/{*path}"])]
    {
        let calls: Vec<_> = Call::over_http(service).collect();
        let known: Arc<str> = calls.iter().map(|(_, path)| *path).collect::<Vec<_>>().join(", ").into();
        for (call, path) in calls {
            routes = routes.route(path, handler(call).fallback(not_posted));
        }
        for path in others {
            let known = Arc::clone(&known);
            routes = routes.route(path, any(async move || unknown_path(&known)));
        }
    }
    Ok(routes.with_state(Arc::new(api)))
}

async fn not_posted() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path requires POST")
}

fn unknown_path(known: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("unknown path; known are {known}"))
}

async fn check<S: Store>(State(api): State<Arc<Api<S>>>, request: Request) -> Result<Response, Problem> {
    let text = body::read(request, api.max_body_bytes, &api.sites).await?;
    let since = Instant::now();
    let handle = api.services.checks.limiter().policy();
    let read = api.schema.read(".weir.v1.CheckRequest", text.as_bytes());
    let bytes = match read {
        Ok(ref bytes) => Ok(&bytes[..]),
        Err(invalid) => Err(invalid),
    };
    let encode = |answer: Result<&Answer<'_>, Rejected>, summary_only| Ok(api.answer(answer?, summary_only));
    let pending = api.services.checks.check(&handle, bytes, CallKind::Http, encode);
    let answer = api.services.checks.answer(&handle, pending, CallKind::Http).await;
    api.services.checks.timed(CallKind::Http, since);
    answer.map_err(Rejected::from)?
}

async fn check_batch<S: Store>(State(api): State<Arc<Api<S>>>, request: Request) -> Result<Response, Problem> {
    let text = body::read(request, api.max_body_bytes, &api.sites).await?;
    let since = Instant::now();
    let checks = api
        .schema
        .read_batch(".weir.v1.CheckBatchRequest", ".weir.v1.CheckRequest", text.as_bytes())
        .map_err(Rejected::from)?;
    if checks.len() > MAX_BATCH {
        return Err(Rejected::from(decode::too_many_checks()).into());
    }
    let started = batch::start_batch(&api.services.checks, checks.len(), checks.into_iter(), CallKind::HttpBatch).await;
    drop(text);
    let answers = started.map_err(Rejected::from)?.answers().await;
    api.services.checks.timed(CallKind::HttpBatch, since);
    Ok(response(StatusCode::OK, JSON, &api.json(".weir.v1.CheckBatchResponse", &answers)))
}

async fn check_all<S: Store>(State(api): State<Arc<Api<S>>>, request: Request) -> Result<Response, Problem> {
    let text = body::read(request, api.max_body_bytes, &api.sites).await?;
    let since = Instant::now();
    let checks = api
        .schema
        .read_batch(".weir.v1.CheckAllRequest", ".weir.v1.CheckRequest", text.as_bytes())
        .and_then(|checks| if checks.len() > MAX_TOGETHER { Err(CheckAll::wrong_number()) } else { Ok(checks) });
    let in_check = |(index, check): (usize, Result<Vec<u8>, Invalid>)| {
        check.map_err(|invalid| CheckError::from(invalid).in_check(index))
    };
    let read = match checks {
        Ok(checks) => checks.into_iter().enumerate().map(in_check).collect::<Result<Vec<_>, _>>(),
        Err(invalid) => Err(invalid.into()),
    };
    let messages = match read {
        Ok(ref read) => Ok(read.iter().map(|bytes| CheckMessage::read(bytes)).collect()),
        Err(invalid) => Err(invalid),
    };
    let encode = |all: &AllAnswers<'_>, summary_only: &[bool]| api.all_answers(all, summary_only);
    let answer = api.services.checks.check_all(messages, CallKind::HttpAll, encode).await;
    api.services.checks.timed(CallKind::HttpAll, since);
    Ok(answer?)
}

async fn reserve<S: Store>(State(api): State<Arc<Api<S>>>, mut request: Request) -> Result<Response, Problem> {
    let actor = actor(&mut request);
    let text = body::read(request, api.max_body_bytes, &api.sites).await?;
    let read = api.schema.read(".weir.v1.ReserveRequest", text.as_bytes());
    let message = match read {
        Ok(ref bytes) => read_with_check(bytes),
        Err(invalid) => Err(invalid),
    };
    let encode =
        |answer: &Answer<'_>, bytes: BytesMut| api.respond(answer, api.json(".weir.v1.ReserveResponse", &bytes));
    Ok(reservation::reserve(&api.services.checks, message, &actor, encode).await?)
}

/// Serves a call whose answer does not set its own status and headers.
async fn answer<S: Store>(api: Arc<Api<S>>, call: Call, mut request: Request) -> Result<Response, Problem> {
    let ([message, answer], actor) = (call.messages(), actor(&mut request));
    let text = body::read(request, api.max_body_bytes, &api.sites).await?;
    let bytes = api.schema.read(message, text.as_bytes()).map_err(Rejected::from)?;
    let answered = api.services.answer(call, bytes.into(), &actor).await?;
    Ok(response(StatusCode::OK, JSON, &api.json(answer, &answered)))
}

fn actor(request: &mut Request) -> Actor {
    // Browsers send the origin of the calling page, and the explorer's are the only pages that may call.
    let surface = if request.headers().contains_key(header::ORIGIN) { "explorer" } else { "http" };
    let peer = request.extensions_mut().remove().and_then(|Peer(peer)| peer);
    let client = request.extensions_mut().remove().map(|ClientName(name)| name);
    Actor { surface, transport: CallKind::Http, peer, client }
}

/// A refusal: a problem that also has the members of the answer, so that they are in the same place for any status.
#[derive(Serialize)]
struct Refusal<'a> {
    #[serde(flatten)]
    kind: Kind,
    status: u16,
    detail: String,
    /// The limits that refuse, root first, each once.
    #[serde(rename = "violated-policies")]
    violated: Vec<&'a str>,
    #[serde(flatten)]
    answer: Json<'a>,
}

impl<S: Store> Api<S> {
    fn json<'a>(&'a self, message: &'a str, bytes: &'a [u8]) -> Json<'a> {
        self.schema.json(message, bytes, true)
    }

    fn answer(&self, answer: &Answer<'_>, summary_only: bool) -> Response {
        let mut bytes = BytesMut::new();
        answer::write(answer, summary_only, &mut bytes);
        self.respond(answer, self.json(".weir.v1.CheckResponse", &bytes))
    }

    /// Returns the response to a decision, with status and headers; a refusal is a problem. `message` is the answer.
    fn respond(&self, answer: &Answer<'_>, message: Json<'_>) -> Response {
        let Answer { summary, levels, .. } = answer;
        let binding = summary.binding.map(|index| &levels[index]);
        self.decided(summary.decision.allowed, binding, levels.iter(), answer.ban(), message)
    }

    /// Returns the response to checks that are decided together.
    fn all_answers(&self, all: &AllAnswers<'_>, summary_only: &[bool]) -> Response {
        let (bytes, levels) =
            (batch::write_all(all, summary_only), all.answers.iter().flat_map(|answer| &answer.levels));
        // The checks are refused together until the last of their bans has ended, and longer if a limit refuses then.
        let bans = all.answers.iter().filter_map(Answer::ban);
        let ban = bans.max_by_key(|ban| ban.ends_after.unwrap_or(Micros::MAX));
        self.decided(all.allowed, all.binding(), levels, ban, self.json(".weir.v1.CheckAllResponse", &bytes))
    }

    fn decided<'l, 'p: 'l>(
        &self,
        allowed: bool,
        binding: Option<&LevelAnswer<'_>>,
        levels: impl Iterator<Item = &'l LevelAnswer<'p>>,
        ban: Option<Ban<'_>>,
        message: Json<'_>,
    ) -> Response {
        let quota =
            binding.map(|level| Quota { name: &level.limit.name, window: level.window, decision: &level.decision });
        let mut response = if allowed {
            response(StatusCode::OK, JSON, &message)
        } else {
            let refusing = levels.filter(|level| !level.shadow && !level.decision.allowed);
            let mut violated = Vec::new();
            for name in refusing.map(|level| &*level.limit.name) {
                // Several checks may be refused by one limit.
                if !violated.contains(&name) {
                    violated.push(name);
                }
            }
            let status = StatusCode::TOO_MANY_REQUESTS;
            let refusal = Refusal {
                kind: QUOTA_EXCEEDED,
                status: status.as_u16(),
                detail: ban.map_or_else(|| detail(quota.as_ref()), |ban| format!("banned: {}", ban.reason)),
                violated,
                answer: message,
            };
            self::response(status, PROBLEM_JSON, &refusal)
        };
        let quota = quota.as_ref().filter(|_| ban.is_none());
        let headers =
            quota.into_iter().flat_map(|quota| quota.headers(self.style).into_iter().chain(quota.retry_after()));
        let until_end = ban.and_then(|ban| ban.ends_after).map(|after| headers::retry_after(after));
        for (name, value) in headers.chain(until_end) {
            // Names are ASCII, and values contain only characters that headers may hold.
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Describes a refusal in one sentence.
fn detail(binding: Option<&Quota<'_>>) -> String {
    let Some(Quota { name, decision, .. }) = binding else { return String::new() };
    match decision.retry_after {
        Some(after) => {
            let after = Duration::from_micros(after.unsigned_abs());
            format!("the limit `{name}` refuses; the same request passes after {after:?}")
        }
        None => format!("the limit `{name}` refuses, and no wait will help"),
    }
}

/// Returns a response with a JSON body of this media type.
pub fn response(status: StatusCode, kind: HeaderValue, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(body) => (status, [(header::CONTENT_TYPE, kind)], Body::from(body)).into_response(),
        Err(error) => {
            // Unreachable: all values of a message are texts or numbers.
            if UNWRITABLE.allows(Instant::now()) {
                error!(%error, "500 answered: the answer cannot be written as JSON");
            }
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "").into_response()
        }
    }
}
