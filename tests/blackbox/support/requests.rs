//! Builders of requests.

use tonic::{Code, Status};
use tonic_types::StatusExt;
use weir::proto::{CheckRequest, CheckResponse, Gcra, Limit, LimitSpec, limit::Algorithm};

/// Makes a check of one unit in the default domain.
pub fn check<S: ToString>(key: &[S]) -> CheckRequest {
    CheckRequest { key: key.iter().map(ToString::to_string).collect(), ..Default::default() }
}

/// Makes a preview of a key.
pub fn peek<S: ToString>(key: &[S]) -> CheckRequest {
    CheckRequest { cost: Some(0), ..check(key) }
}

/// Adds limits to a check.
pub fn with_limits(request: CheckRequest, limits: Vec<Limit>) -> CheckRequest {
    CheckRequest { limit_spec: Some(LimitSpec { limits, charge: 0 }), ..request }
}

/// Makes a limit with this algorithm on the whole key.
pub fn limit(algorithm: Algorithm) -> Limit {
    Limit { algorithm: Some(algorithm), ..Default::default() }
}

/// Makes a limit of `burst` + 1 units at once, then `count` in `seconds`.
pub fn gcra(burst: u64, count: u64, seconds: i64) -> Limit {
    limit(Algorithm::Gcra(Gcra { burst, count, period: Some(seconds_long(seconds)) }))
}

/// Converts seconds to a message.
pub fn seconds_long(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

/// Summarizes an answer: allowed, limit, remaining.
pub fn short(answer: &CheckResponse) -> (bool, u64, u64) {
    (answer.allowed, answer.limit, answer.remaining)
}

/// Returns the status code and, for INVALID_ARGUMENT, the field in its details.
pub fn refusal(status: &Status) -> (Code, Option<String>) {
    let violation = status.get_details_bad_request().and_then(|bad| bad.field_violations.into_iter().next());
    (status.code(), violation.map(|violation| violation.field))
}
