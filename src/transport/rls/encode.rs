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
    limiter::status::{DescriptorAnswer, DescriptorAnswers, DisplayedLimit},
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
    let allowed = settings.shadow_mode || statuses.allowed();
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
    let remaining = status.displayed.map_or(0, |displayed| displayed.remaining);
    DescriptorStatus {
        code: code(status.over),
        current_limit: status.displayed.map(current_limit),
        limit_remaining: if status.unlimited { UNLIMITED } else { remaining },
        // For a ban, the time until it ends.
        duration_until_reset: (status.displayed.map(|displayed| displayed.until_reset))
            .or(status.summary.decision.retry_after)
            .map(|reset| Duration { seconds: whole_seconds(reset) as i64, nanos: 0 }),
        ..DescriptorStatus::default()
    }
}

fn current_limit(displayed: DisplayedLimit<'_>) -> RateLimit {
    RateLimit {
        name: displayed.name.to_owned(),
        requests_per_unit: displayed.requests_per_unit,
        unit: displayed.unit.map_or(rate_limit::Unit::Unknown, unit).into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::rls::tests::{Scene, request_for};

    #[test]
    fn shadow_mode_lets_every_request_pass_and_shows_what_would_refuse() {
        let file = "domain: d\ndescriptors: [{ key: over, rate_limit: { unit: day, requests_per_unit: 0 } }]";
        let (scene, request) = (Scene::new(file), request_for(&["over"]));
        for (shadow_mode, overall) in [(false, Code::OverLimit), (true, Code::Ok)] {
            let settings = EnvoySettings { shadow_mode, ..EnvoySettings::default() };
            let response = scene.answered(&request, |statuses| response(&request, statuses, &settings));
            assert_eq!((response.overall_code(), response.statuses[0].code()), (overall, Code::OverLimit));
        }
    }
}
