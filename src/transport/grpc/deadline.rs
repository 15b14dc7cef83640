//! The deadline of a call: the header `grpc-timeout` of gRPC over HTTP/2.

use std::time::Duration;

use hyper::{HeaderMap, Response, header::HeaderName};
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::{Status, body::Body};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Maximum number of digits of a timeout.
const MAX_DIGITS: usize = 8;

/// The time at which the client stops waiting for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline of a call that starts now. A timeout that gRPC does not define is ignored.
    #[inline]
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let timeout = timeout(headers.get(GRPC_TIMEOUT)?.as_bytes())?;
        Instant::now().checked_add(timeout).map(Self)
    }

    /// Returns the deadline of a call that may last `time` from now.
    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    /// Checks that it has not passed; after it, a call must not start.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED.
    pub(super) fn check(self) -> Result<(), Status> {
        if Instant::now() < self.0 { Ok(()) } else { Err(exceeded()) }
    }

    /// Waits until it has passed, and returns the status to end with.
    pub(super) async fn passed(self) -> Status {
        // A sleep that is over is pending for up to a millisecond.
        if self.check().is_ok() {
            sleep_until(self.0).await;
        }
        exceeded()
    }

    /// Aborts a call when the deadline passes.
    pub(super) async fn bound(self, call: impl Future<Output = Response<Body>>) -> Response<Body> {
        timeout_at(self.0, call).await.unwrap_or_else(|_| exceeded().into_http())
    }
}

fn exceeded() -> Status {
    Status::deadline_exceeded("the deadline of the call has passed")
}

/// Parses a `TimeoutValue` of up to eight digits, and its `TimeoutUnit`.
fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    let number = digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tonic::Code;

    use super::*;

    fn headers(timeout: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(GRPC_TIMEOUT, hyper::header::HeaderValue::from_static(timeout))])
    }

    #[test]
    fn a_timeout_has_up_to_eight_digits_and_a_unit() {
        for (value, expected) in [
            ("3H", Some(Duration::from_secs(3 * 3_600))),
            ("1M", Some(Duration::from_secs(60))),
            ("42S", Some(Duration::from_secs(42))),
            ("13m", Some(Duration::from_millis(13))),
            ("2u", Some(Duration::from_micros(2))),
            ("0n", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("000000001S", None),
            ("+1S", None),
            ("-1S", None),
            ("1.5S", None),
            ("1s", None),
            ("1", None),
            ("S", None),
            ("", None),
        ] {
            assert_eq!(timeout(value.as_bytes()), expected, "{value}");
        }
    }

    #[tokio::test]
    async fn a_call_ends_at_its_deadline_unless_complete() {
        let (far, passed) = (Deadline::of(&headers("99999999H")).unwrap(), Deadline::of(&headers("0n")).unwrap());
        assert!(far.check().is_ok());
        assert_eq!(passed.check().unwrap_err().code(), Code::DeadlineExceeded);
        let done = async || Response::new(Body::empty());
        assert!(far.bound(done()).await.headers().is_empty());
        assert!(passed.bound(done()).await.headers().is_empty(), "done is done");
        assert_eq!(passed.bound(std::future::pending()).await.headers()["grpc-status"], "4");
        assert_eq!(passed.passed().now_or_never().map(|status| status.code()), Some(Code::DeadlineExceeded));
        assert!(Deadline::of(&headers("5 years")).is_none());
    }
}
