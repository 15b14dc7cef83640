//! The mapping from errors to gRPC and HTTP codes.

use std::{error::Error, time::Duration};

use hyper::StatusCode;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tracing::debug;
use weir_server::{CloseReason, Overload};
use weir_telemetry::{Causes, request};

use crate::{
    auth::AuthError,
    limiter::{CheckError, Invalid},
    proto,
};

/// Time after which to retry when too many requests waited for the store or were in flight: many times the time in
/// which the queue drains while the store answers.
const RETRY_WHEN_OVERLOADED: Duration = Duration::from_secs(1);

/// An error as the client sees it.
pub struct Rejected {
    /// The gRPC code.
    pub code: Code,
    /// One sentence, which is constant if the cause is internal.
    pub message: String,
    /// The path of the request field in error; empty if there is none.
    pub field: String,
    /// Time after which to retry, if known.
    pub retry_after: Option<Duration>,
}

impl From<Invalid> for Rejected {
    fn from(cause: Invalid) -> Self {
        log(&cause);
        let field = cause.field("limit_spec.");
        Self { field, ..Self::new(Code::InvalidArgument, cause.to_string()) }
    }
}

impl From<CheckError> for Rejected {
    fn from(cause: CheckError) -> Self {
        if !matches!(cause, CheckError::Invalid(_) | CheckError::Check(..)) {
            log(&cause);
        }
        let message = cause.to_string();
        match cause {
            CheckError::Invalid(invalid) => invalid.into(),
            CheckError::Check(index, cause) => {
                let rejected = Self::from(*cause);
                let dot = if rejected.field.is_empty() { "" } else { "." };
                Self { field: format!("checks[{index}]{dot}{}", rejected.field), ..rejected }
            }
            CheckError::UnknownDomain(_) => Self { field: "domain".to_owned(), ..Self::new(Code::NotFound, message) },
            CheckError::SpecDenied(_) => {
                Self { field: "limit_spec".to_owned(), ..Self::new(Code::PermissionDenied, message) }
            }
            CheckError::NotReservable(..) | CheckError::NotCheckable(_) => Self::new(Code::FailedPrecondition, message),
            CheckError::UnknownReservation => Self { field: "hold".to_owned(), ..Self::new(Code::NotFound, message) },
            CheckError::NoPolicy | CheckError::NotSettled => Self::new(Code::Unavailable, message),
            CheckError::Store(cause) if cause.is_overload() => Self::exhausted(&message, RETRY_WHEN_OVERLOADED),
            CheckError::Store(_) => Self::new(Code::Unavailable, message),
        }
    }
}

impl From<AuthError> for Rejected {
    fn from(denied: AuthError) -> Self {
        let code = if denied.is_unauthenticated() { Code::Unauthenticated } else { Code::PermissionDenied };
        Self::new(code, denied.to_string())
    }
}

impl From<Overload> for Rejected {
    fn from(overload: Overload) -> Self {
        match overload {
            Overload::Rate(wait) => Self::exhausted("this connection makes too many requests a second", wait),
            Overload::Concurrency => Self::exhausted("too many requests wait for the store", RETRY_WHEN_OVERLOADED),
            Overload::Open => Self::exhausted("too many calls are open", RETRY_WHEN_OVERLOADED),
            Overload::Unread => Self::exhausted("too many answers are not read", RETRY_WHEN_OVERLOADED),
        }
    }
}

impl From<Rejected> for Status {
    fn from(rejected: Rejected) -> Self {
        let Rejected { code, message, field, retry_after } = rejected;
        let details = match code {
            Code::InvalidArgument => ErrorDetails::with_bad_request_violation(field, &message),
            Code::ResourceExhausted => ErrorDetails::with_retry_info(retry_after),
            _ => return Self::new(code, message),
        };
        Self::with_error_details(code, message, details)
    }
}

impl From<Rejected> for proto::Error {
    fn from(rejected: Rejected) -> Self {
        let Rejected { code, message, field, .. } = rejected;
        Self { code: code as i32, message, field }
    }
}

impl Rejected {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: String::new(), retry_after: None }
    }

    fn exhausted(message: &str, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(Code::ResourceExhausted, message) }
    }

    /// Prefixes the field with `parent`, the field of the request that contains the message.
    #[must_use]
    pub fn in_field(self, parent: &str) -> Self {
        let field = if self.field.is_empty() { self.field } else { format!("{parent}.{}", self.field) };
        Self { field, ..self }
    }

    /// Returns the HTTP status code.
    pub fn http_status(&self) -> StatusCode {
        match self.code {
            Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Logs the cause of one request's error. Stores log and count their failures without a line for each request.
fn log(cause: &(dyn Error + 'static)) {
    debug!(
        request_id = request::request_id(),
        trace_id = request::trace_id(),
        error = %Causes(cause),
        "the request has no decision"
    );
}

/// Returns the gRPC status of a stream whose connection closes for this reason.
pub fn closed(reason: CloseReason) -> Status {
    Status::unavailable(match reason {
        CloseReason::Drain => "the service is shutting down",
        CloseReason::Evicted => "too many connections are open: open the stream again on another",
        _ => "the connection has lasted as long as it may: open the stream again on another",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_documented_names() {
        for number in -1..=17 {
            // `NotFound` is NOT_FOUND.
            let mut name = String::new();
            for letter in format!("{:?}", Code::from_i32(number)).chars() {
                if letter.is_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            assert_eq!(proto::code_name(number), name);
        }
    }
}
