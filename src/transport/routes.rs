//! The routes of both ports: paths, the access that each requires where authentication is enabled, and the names in logs and
//! spans.

use hyper::Method;
use weir_telemetry::request::Surface;

use super::admin::AdminCall;
use crate::auth::{Access, Role};

/// The full names of services, as health checks and reflection ask for them.
pub mod service {
    /// Weir's own.
    pub const RATE_LIMITER: &str = "weir.v1.RateLimiter";
    /// That of operators.
    pub const ADMIN: &str = "weir.v1.Admin";
    /// Envoy's.
    pub const ENVOY: &str = "envoy.service.ratelimit.v3.RateLimitService";
    /// Envoy's quotas.
    pub const ENVOY_QUOTA: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
    /// The name under which envoyproxy/ratelimit answers health checks.
    pub const ENVOY_HEALTH: &str = "ratelimit";
}

/// The paths of the calls that decide, reserve or reset.
pub mod path {
    /// One check.
    pub const CHECK: &str = "/weir.v1.RateLimiter/Check";
    /// Many checks in one call.
    pub const CHECK_BATCH: &str = "/weir.v1.RateLimiter/CheckBatch";
    /// Checks that are decided together.
    pub const CHECK_ALL: &str = "/weir.v1.RateLimiter/CheckAll";
    /// A stream of checks.
    pub const CHECK_STREAM: &str = "/weir.v1.RateLimiter/CheckStream";
    /// A stream of leases.
    pub const LEASE: &str = "/weir.v1.RateLimiter/Lease";
    /// Decide and hold units.
    pub const RESERVE: &str = "/weir.v1.RateLimiter/Reserve";
    /// Settle them by what they really cost.
    pub const COMMIT: &str = "/weir.v1.RateLimiter/Commit";
    /// Give them back.
    pub const CANCEL: &str = "/weir.v1.RateLimiter/Cancel";
    /// Hold them for longer.
    pub const EXTEND: &str = "/weir.v1.RateLimiter/Extend";
    /// Forget a key.
    pub const RESET: &str = "/weir.v1.RateLimiter/Reset";
    /// What is near to a key.
    pub const SUGGEST: &str = "/weir.v1.RateLimiter/Suggest";
    /// Envoy's rate limit call.
    pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    /// Envoy's stream of quota reports.
    pub const STREAM_QUOTAS: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    /// Where the paths of operators' calls begin.
    pub const ADMIN: &str = "/weir.v1.Admin/";
    /// The same over HTTP.
    pub const ADMIN_PAGES: &str = "/v1/admin/";
    /// Health check.
    pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
    /// The same as a stream of changes.
    pub const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
    /// Server reflection.
    pub const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    /// Server reflection, for older clients.
    pub const REFLECTION_V1ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
    /// Where the paths of health checks begin.
    pub const HEALTH: &str = "/grpc.health.v1.Health/";
}

/// The access that a call of the gRPC port needs. Reflection, and what is not named here, needs an authenticated client.
#[inline]
pub fn access_of_call(called: &str) -> Access {
    match called {
        path::CHECK
        | path::CHECK_BATCH
        | path::CHECK_ALL
        | path::CHECK_STREAM
        | path::SHOULD_RATE_LIMIT
        | path::STREAM_QUOTAS => Access::Role(Role::Check),
        path::LEASE | path::RESERVE | path::COMMIT | path::CANCEL | path::EXTEND => Access::Named(Role::Check),
        path::RESET => Access::Named(Role::Reset),
        path::SUGGEST => Access::Role(Role::Metrics),
        health if health.starts_with(path::HEALTH) => Access::Open,
        admin if admin.starts_with(path::ADMIN) => Access::Named(Role::Admin),
        _ => Access::Known,
    }
}

/// The same for a page of the HTTP port.
pub fn access_of_page(page: &str) -> Access {
    match page {
        "/v1/check" | "/v1/check_batch" | "/v1/check_all" | "/json" => Access::Role(Role::Check),
        "/v1/reserve" | "/v1/commit" | "/v1/cancel" | "/v1/extend" => Access::Named(Role::Check),
        "/v1/reset" => Access::Named(Role::Reset),
        "/metrics" | "/ui/api/policy" | "/ui/api/live" | "/ui/api/quotas" | "/ui/api/simulate" | "/ui/api/traffic" => {
            Access::Role(Role::Metrics)
        }
        "/ui/api/key" => Access::Role(Role::Check),
        "/healthz" | "/readyz" | "/healthcheck" => Access::Open,
        admin if admin.starts_with(path::ADMIN_PAGES) => Access::Named(Role::Admin),
        // The explorer's page holds no data; what it reads is below the other.
        "/ui" => Access::Open,
        page if page.starts_with("/ui/") && !page.starts_with("/ui/api/") => Access::Open,
        _ => Access::Known,
    }
}

/// The name of a call of the gRPC port.
pub fn surface_of_call(called: &str) -> Surface {
    let weir = |method| Surface::Grpc { service: service::RATE_LIMITER, method };
    match called {
        path::CHECK => weir("Check"),
        path::CHECK_BATCH => weir("CheckBatch"),
        path::CHECK_ALL => weir("CheckAll"),
        path::CHECK_STREAM => weir("CheckStream"),
        path::LEASE => weir("Lease"),
        path::RESERVE => weir("Reserve"),
        path::COMMIT => weir("Commit"),
        path::CANCEL => weir("Cancel"),
        path::EXTEND => weir("Extend"),
        path::RESET => weir("Reset"),
        path::SHOULD_RATE_LIMIT => Surface::Grpc { service: service::ENVOY, method: "ShouldRateLimit" },
        path::STREAM_QUOTAS => Surface::Grpc { service: service::ENVOY_QUOTA, method: "StreamRateLimitQuotas" },
        admin => match AdminCall::of_path(admin) {
            Some(call) => Surface::Grpc { service: service::ADMIN, method: call.method() },
            None => Surface::Other,
        },
    }
}

/// The name of a page of the HTTP port.
pub fn surface_of_page(method: &Method, page: &str) -> Surface {
    let routes = [
        "/v1/check",
        "/v1/check_batch",
        "/v1/check_all",
        "/v1/reserve",
        "/v1/commit",
        "/v1/cancel",
        "/v1/extend",
        "/v1/reset",
        "/json",
    ];
    let admin = AdminCall::ALL.map(AdminCall::page);
    let Some(route) = routes.into_iter().chain(admin).find(|route| *route == page) else { return Surface::Other };
    let methods = ["POST", "GET", "PUT", "PATCH", "DELETE"];
    let method = methods.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER");
    Surface::Http { method, route }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_names_contain_no_text_of_the_request() {
        assert_eq!(surface_of_call(path::RESET).to_string(), "weir.v1.RateLimiter/Reset");
        assert_eq!(surface_of_call("/weir.v1.RateLimiter/Secret"), Surface::Other);
        assert_eq!(surface_of_call("/weir.v1.Admin/ListReplicas").to_string(), "weir.v1.Admin/ListReplicas");
        assert_eq!(surface_of_call("/weir.v1.Admin/Secret"), Surface::Other);
        assert_eq!(
            surface_of_page(&Method::POST, "/v1/admin/list_replicas").to_string(),
            "POST /v1/admin/list_replicas"
        );
        assert_eq!(surface_of_page(&Method::POST, "/v1/check").to_string(), "POST /v1/check");
        assert_eq!(surface_of_page(&Method::OPTIONS, "/json").to_string(), "_OTHER /json");
        assert_eq!(surface_of_page(&Method::GET, "/v1/check/secret"), Surface::Other);
    }
}
