//! Encodes the response to `ShouldRateLimit`.

use prost_types::Duration;
use weir_core::domain::Unit;

use super::{
    added_headers, metadata,
    pb::{
        RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit},
    },
    settings::EnvoySettings,
    wire::RateLimitRequest,
};
use crate::{
    limiter::status::{DescriptorAnswer, DescriptorAnswers, Shown},
    transport::headers::whole_seconds,
};

/// `limit_remaining` of a descriptor without a limit.
const UNLIMITED: u32 = u32::MAX;

/// Returns the response to a request.
pub fn response(
    request: &RateLimitRequest,
    statuses: &DescriptorAnswers<'_>,
    settings: &EnvoySettings,
) -> RateLimitResponse {
    let allowed = settings.shadow_mode || statuses.allowed(settings.quota_mode);
    RateLimitResponse {
        overall_code: code(!allowed),
        statuses: statuses.statuses.iter().map(status).collect(),
        response_headers_to_add: added_headers::of(statuses, settings),
        dynamic_metadata: settings.dynamic_metadata.then(|| metadata::of(request, statuses)),
        ..RateLimitResponse::default()
    }
}

fn code(over: bool) -> i32 {
    if over { Code::OverLimit.into() } else { Code::Ok.into() }
}

fn status(status: &DescriptorAnswer<'_>) -> DescriptorStatus {
    let remaining = status.shown.map_or(0, |shown| shown.remaining);
    DescriptorStatus {
        code: code(status.over),
        current_limit: status.shown.map(current_limit),
        limit_remaining: if status.unlimited { UNLIMITED } else { remaining },
        // For a ban, the time until it ends.
        duration_until_reset: (status.shown.map(|shown| shown.until_reset))
            .or(status.summary.decision.retry_after)
            .map(|reset| Duration { seconds: whole_seconds(reset) as i64, nanos: 0 }),
        ..DescriptorStatus::default()
    }
}

fn current_limit(shown: Shown<'_>) -> RateLimit {
    RateLimit {
        name: shown.name.to_owned(),
        requests_per_unit: shown.requests_per_unit,
        unit: shown.unit.map_or(rate_limit::Unit::Unknown, unit).into(),
    }
}

fn unit(unit: Unit) -> rate_limit::Unit {
    match unit {
        Unit::Second => rate_limit::Unit::Second,
        Unit::Minute => rate_limit::Unit::Minute,
        Unit::Hour => rate_limit::Unit::Hour,
        Unit::Day => rate_limit::Unit::Day,
        Unit::Week => rate_limit::Unit::Week,
        Unit::Month => rate_limit::Unit::Month,
        Unit::Year => rate_limit::Unit::Year,
    }
}
