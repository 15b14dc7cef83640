use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::proto;

/// The reason why the service did not decide.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The target, a file or a setting of this client is invalid.
    #[error("{0}")]
    Configuration(String),
    /// INVALID_ARGUMENT: the request is invalid.
    #[error("invalid request: {message}")]
    InvalidRequest {
        /// The service's message.
        message: String,
        /// The invalid field, such as `limit_spec.limits[0].gcra.count`.
        field: Option<String>,
    },
    /// UNAUTHENTICATED: no valid token or certificate.
    #[error("unauthenticated: {0}")]
    Unauthenticated(String),
    /// PERMISSION_DENIED: the client lacks the role, or the policy forbids limits of the request's own.
    #[error("permission denied: {0}")]
    PermissionDenied(String),
    /// NOT_FOUND: the domain is not defined; or the reservation never existed, has expired, or belongs to another
    /// client.
    #[error("not found: {0}")]
    NotFound(String),
    /// FAILED_PRECONDITION: a limit on the path cannot be checked or cannot be reserved.
    #[error("failed precondition: {0}")]
    FailedPrecondition(String),
    /// RESOURCE_EXHAUSTED: the service sheds load.
    #[error("overloaded: {message}")]
    Overloaded {
        /// The service's message.
        message: String,
        /// Time after which to retry.
        retry_after: Option<Duration>,
    },
    /// UNAVAILABLE: no connection, a broken connection, or a service that cannot decide.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// DEADLINE_EXCEEDED: no answer in time.
    #[error("deadline exceeded: {0}")]
    DeadlineExceeded(String),
    /// The circuit breaker is open: the call was not sent.
    #[error("circuit breaker open")]
    CircuitOpen,
    /// Any other status, such as INTERNAL; CANCELLED: the client is closed.
    #[error("{message} ({code:?})")]
    Other {
        /// The status.
        code: Code,
        /// The service's message.
        message: String,
    },
}

impl Error {
    /// Returns the gRPC status code; `Unavailable` if the circuit breaker is open.
    pub fn code(&self) -> Code {
        match self {
            Self::Configuration(_) | Self::InvalidRequest { .. } => Code::InvalidArgument,
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::PermissionDenied(_) => Code::PermissionDenied,
            Self::NotFound(_) => Code::NotFound,
            Self::FailedPrecondition(_) => Code::FailedPrecondition,
            Self::Overloaded { .. } => Code::ResourceExhausted,
            Self::Unavailable(_) | Self::CircuitOpen => Code::Unavailable,
            Self::DeadlineExceeded(_) => Code::DeadlineExceeded,
            Self::Other { code, .. } => *code,
        }
    }

    /// Returns the invalid field of the request, if the service names one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::InvalidRequest { field, .. } => field.as_deref(),
            _ => None,
        }
    }

    /// Whether the error is transient (UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, INTERNAL). Such errors open
    /// the circuit breaker, and [`OnFailure`](crate::OnFailure) applies. All others repeat until the request or the
    /// configuration is corrected.
    pub fn is_outage(&self) -> bool {
        matches!(self.code(), Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Internal)
    }

    /// Returns the error of calls after the client was closed.
    pub(crate) fn closed() -> Self {
        Self::Other { code: Code::Cancelled, message: "the client is closed".to_owned() }
    }

    fn new(code: Code, message: String, field: Option<String>, retry_after: Option<Duration>) -> Self {
        match code {
            Code::InvalidArgument => Self::InvalidRequest { message, field },
            Code::Unauthenticated => Self::Unauthenticated(message),
            Code::PermissionDenied => Self::PermissionDenied(message),
            Code::NotFound => Self::NotFound(message),
            Code::FailedPrecondition => Self::FailedPrecondition(message),
            Code::ResourceExhausted => Self::Overloaded { message, retry_after },
            Code::Unavailable => Self::Unavailable(message),
            Code::DeadlineExceeded => Self::DeadlineExceeded(message),
            code => Self::Other { code, message },
        }
    }
}

impl From<&Status> for Error {
    fn from(status: &Status) -> Self {
        let request = status.get_details_bad_request();
        let field = request.and_then(|request| Some(request.field_violations.into_iter().next()?.field));
        let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
        Self::new(status.code(), status.message().to_owned(), field, retry_after)
    }
}

impl From<proto::Error> for Error {
    fn from(error: proto::Error) -> Self {
        let field = Some(error.field).filter(|field| !field.is_empty());
        Self::new(Code::from(error.code), error.message, field, None)
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn statuses_become_errors() {
        for (code, is_outage) in [
            (Code::InvalidArgument, false),
            (Code::Unauthenticated, false),
            (Code::PermissionDenied, false),
            (Code::NotFound, false),
            (Code::FailedPrecondition, false),
            (Code::Unimplemented, false),
            (Code::ResourceExhausted, true),
            (Code::Unavailable, true),
            (Code::DeadlineExceeded, true),
            (Code::Internal, true),
        ] {
            let error = Error::from(&Status::new(code, "why"));
            assert_eq!((error.code(), error.is_outage()), (code, is_outage));
            assert!(error.to_string().contains("why"));
            let entry = proto::Error { code: code.into(), message: "why".to_owned(), field: String::new() };
            assert_eq!(Error::from(entry), error);
        }
        assert!(Error::CircuitOpen.is_outage());
    }

    #[test]
    fn details_say_the_field_and_when_to_retry() {
        let details = ErrorDetails::with_bad_request_violation("key[1]", "is empty");
        let status = Status::with_error_details(Code::InvalidArgument, "wrong", details);
        assert_eq!(Error::from(&status).field(), Some("key[1]"));
        let second = Duration::from_secs(1);
        let details = ErrorDetails::with_retry_info(Some(second));
        let status = Status::with_error_details(Code::ResourceExhausted, "busy", details);
        let expected = Error::Overloaded { message: "busy".to_owned(), retry_after: Some(second) };
        assert_eq!(Error::from(&status), expected);
    }
}
