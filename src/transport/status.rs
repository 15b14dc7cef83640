//! The one table from errors to codes.

use std::time::Duration;

use hyper::StatusCode;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tracing::debug;

use crate::{
    auth::Denied,
    limiter::{CheckError, Invalid},
    proto,
    store::StoreError,
};

/// When to come back after too many waited for the store: many times what a queue takes to pass where the store answers.
const RETRY_WHEN_OVERLOADED: Duration = Duration::from_secs(1);

/// An error as a caller sees it.
pub struct Refused {
    /// The code.
    pub code: Code,
    /// One sentence; a fixed one where the cause is inside the service.
    pub message: String,
    /// The request's field at fault; empty where there is none.
    pub field: String,
}

impl From<Invalid> for Refused {
    fn from(cause: Invalid) -> Self {
        Self { code: Code::InvalidArgument, message: cause.to_string(), field: cause.field("limit_spec.") }
    }
}

impl From<CheckError> for Refused {
    fn from(cause: CheckError) -> Self {
        let message = cause.to_string();
        match cause {
            CheckError::Invalid(invalid) => invalid.into(),
            CheckError::UnknownDomain(_) => Self { code: Code::NotFound, message, field: "domain".to_owned() },
            CheckError::SpecDenied(_) => Self { code: Code::PermissionDenied, message, field: "limit_spec".to_owned() },
            CheckError::Store(cause) => {
                // The store warns and counts by itself, without a line for every request.
                debug!(error = &cause as &dyn std::error::Error, "the store failed");
                let (code, message) = match cause {
                    StoreError::Unavailable(_) => (Code::Unavailable, "the store does not answer"),
                    StoreError::Overloaded => (Code::ResourceExhausted, "too many requests wait for the store"),
                };
                Self { code, message: message.to_owned(), field: String::new() }
            }
        }
    }
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Self {
        let code = if denied.is_unauthenticated() { Code::Unauthenticated } else { Code::PermissionDenied };
        Self { code, message: denied.to_string(), field: String::new() }
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let Refused { code, message, field } = refused;
        let details = match code {
            Code::InvalidArgument => ErrorDetails::with_bad_request_violation(field, &message),
            Code::ResourceExhausted => ErrorDetails::with_retry_info(Some(RETRY_WHEN_OVERLOADED)),
            _ => return Self::new(code, message),
        };
        Self::with_error_details(code, message, details)
    }
}

impl From<Refused> for proto::Error {
    fn from(refused: Refused) -> Self {
        let Refused { code, message, field } = refused;
        Self { code: code as i32, message, field }
    }
}

impl Refused {
    /// The code over HTTP.
    pub fn http_status(&self) -> StatusCode {
        match self.code {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// When to come back, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        (self.code == Code::ResourceExhausted).then_some(RETRY_WHEN_OVERLOADED)
    }
}

/// What open streams get while the service ends.
pub fn shutting_down() -> Status {
    Status::unavailable("the service is shutting down")
}
