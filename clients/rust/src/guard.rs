//! The guard: turns a decision into a service's response to its own client.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::{Check, Client, Decision, Error, Level, OnFailure, Source};

const LOG_EVERY: Duration = Duration::from_secs(10);
const MAX_SEGMENTS: usize = 32;
const MAX_SEGMENT_BYTES: usize = 1024;
/// Longer names are cut in the header.
const MAX_NAME_CHARS: usize = 256;

/// Whether a request passes the guard.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The request passes. Add these headers to its response; empty if there is no limit.
    Pass(HeaderMap),
    /// The request is refused, with this response.
    Refuse(Refusal),
}

/// The response to a refused request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// 429, or 503 if the service did not decide.
    pub status: StatusCode,
    /// `Retry-After` (unless waiting does not help), `RateLimit`, `RateLimit-Policy` and the content type.
    pub headers: HeaderMap,
    /// A problem document (RFC 9457).
    pub body: &'static str,
    /// Time after which the same request may pass.
    pub retry_after: Option<Duration>,
}

/// The time at which each kind of failure was last logged, by gRPC status code.
#[derive(Default)]
pub(crate) struct Logged(Mutex<HashMap<i32, Instant>>);

impl Client {
    /// Decides a request of this service's own client and returns the response.
    ///
    /// Users cannot make the check invalid, which would let them pass without a limit: empty segments of the key become
    /// `-`, long ones are cut, and those after the 32nd are dropped. An empty key becomes `-`.
    /// Without a decision the request passes (fail open); with [`OnFailure::Deny`], of the check or the client, it is
    /// refused with 503 (fail closed). This includes configuration errors, which are logged as such. Each kind of
    /// failure is logged at most once in 10 s.
    ///
    /// With [`Check::max_wait`] an allowed request passes after the [`wait`](Decision::wait) of its decision. Drop the
    /// future to end the wait.
    pub async fn guard(&self, check: impl Into<Check>) -> Verdict {
        let mut check = check.into().levels();
        repair_key(&mut Arc::make_mut(&mut check.request).key);
        let fails_closed = self.on_failure(&check) == Some(OnFailure::Deny);
        let error = match self.check(check.on_failure(OnFailure::Error)).await {
            Ok(decision) => {
                if decision.allowed && !decision.wait.is_zero() {
                    sleep(decision.wait).await;
                }
                return Verdict::from(&decision);
            }
            Err(error) => error,
        };
        self.inner.logged.log(&error);
        if !fails_closed {
            return Verdict::Pass(HeaderMap::new());
        }
        let retry_after = Duration::from_secs(1);
        let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from(retry_after.as_secs()))]);
        const BODY: &str = r#"{"type":"about:blank","title":"Service Unavailable","status":503}"#;
        Verdict::Refuse(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, headers, BODY, Some(retry_after)))
    }
}

impl From<&Decision> for Verdict {
    fn from(decision: &Decision) -> Self {
        let mut headers = decision.binding().map(limit_headers).unwrap_or_default();
        if decision.allowed {
            return Self::Pass(headers);
        }
        if !matches!(decision.source, Source::Fallback(_))
            && let Some(retry_after) = decision.retry_after
        {
            headers.insert(header::RETRY_AFTER, whole_seconds(retry_after).into());
        }
        const BODY: &str = r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429}"#;
        Self::Refuse(Refusal::new(StatusCode::TOO_MANY_REQUESTS, headers, BODY, decision.retry_after))
    }
}

impl Refusal {
    fn new(status: StatusCode, mut headers: HeaderMap, body: &'static str, retry_after: Option<Duration>) -> Self {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        Self { status, headers, body, retry_after }
    }
}

/// Makes a key valid for any user input.
fn repair_key(key: &mut Vec<String>) {
    key.truncate(MAX_SEGMENTS);
    if key.is_empty() {
        key.push(String::new());
    }
    key.iter_mut().for_each(repair);
}

fn repair(segment: &mut String) {
    if segment.is_empty() {
        segment.push('-');
    }
    if segment.len() > MAX_SEGMENT_BYTES {
        let end = (0..=MAX_SEGMENT_BYTES).rev().find(|end| segment.is_char_boundary(*end));
        segment.truncate(end.unwrap_or_default());
    }
}

/// Builds the headers of draft-ietf-httpapi-ratelimit-headers-11 from the binding level.
fn limit_headers(level: &Level) -> HeaderMap {
    let name = structured_string(&level.name);
    let left = match level.next_after {
        Some(next) => format!("{name};r={};t={}", level.remaining, whole_seconds(next)),
        None => format!("{name};r={}", level.remaining),
    };
    let headers = [("ratelimit-policy", format!("{name};q={}", level.limit)), ("ratelimit", left)];
    // Both are ASCII.
    let value = |text| HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
    headers.into_iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
}

/// Rounds up, so that a client that retries after this time is not early.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

/// Encodes a string of RFC 9651, which is limited to printable ASCII; other bytes are percent-encoded.
fn structured_string(text: &str) -> String {
    let end = text.char_indices().nth(MAX_NAME_CHARS).map_or(text.len(), |(at, _)| at);
    let mut string = String::from('"');
    for byte in text[..end].bytes() {
        match byte {
            b'"' | b'\\' => string.extend(['\\', char::from(byte)]),
            b'%' | ..b' ' | b'\x7f'.. => drop(write!(string, "%{byte:02X}")),
            byte => string.push(char::from(byte)),
        }
    }
    string + "\""
}

impl Logged {
    fn log(&self, error: &Error) {
        let (code, now) = (error.code(), Instant::now());
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = last.get(&(code as i32)).is_some_and(|last| now.duration_since(*last) < LOG_EVERY);
        if quiet {
            return;
        }
        last.insert(code as i32, now);
        if error.is_outage() || code == Code::Cancelled {
            tracing::warn!(?code, %error, "no answer from weir");
        } else {
            tracing::error!(?code, %error, "WEIR IS SET UP WRONGLY, nothing is limited");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_repaired() {
        let long = "ü".repeat(513);
        for (segment, expected) in
            [("", "-"), ("a", "a"), (&long, &long[..1024]), (&format!("a{long}"), &format!("a{long}")[..1023])]
        {
            let mut repaired = segment.to_owned();
            repair(&mut repaired);
            assert_eq!(repaired, expected);
        }
    }

    #[test]
    fn keys_are_repaired() {
        for (segments, repaired) in [(0, 1), (1, 1), (32, 32), (40, 32)] {
            let mut key = vec![String::new(); segments];
            repair_key(&mut key);
            assert_eq!(key, vec!["-"; repaired]);
        }
    }

    #[test]
    fn headers_are_structured_fields() {
        let level = crate::proto::LevelResult { name: "a\"b\\ü%\n".to_owned(), limit: 3, ..Default::default() };
        let mut level = Level::from(level);
        let header = |level: &Level, name| limit_headers(level)[name].to_str().unwrap().to_owned();
        assert_eq!(header(&level, "ratelimit-policy"), r#""a\"b\\%C3%BC%25%0A";q=3"#);
        assert_eq!(header(&level, "ratelimit"), r#""a\"b\\%C3%BC%25%0A";r=0"#);
        level.next_after = Some(Duration::from_micros(1_000_001));
        assert!(header(&level, "ratelimit").ends_with(";r=0;t=2"));
        level.name = "n".repeat(300);
        assert_eq!(header(&level, "ratelimit-policy").len(), 256 + r#""";q=3"#.len());
    }
}
