//! The routes of both ports: paths, the access that each requires if authentication is enabled, and their names in logs
//! and spans.

use hyper::Method;
use weir_telemetry::request::Surface;

use super::admin::AdminCall;
use crate::auth::{Access, Role};

/// The full names of services, for health checks and reflection.
pub mod service {
    /// Weir's rate-limit service.
    pub const RATE_LIMITER: &str = "weir.v1.RateLimiter";
    /// The service for operators.
    pub const ADMIN: &str = "weir.v1.Admin";
    /// Envoy's rate-limit service (RLS).
    pub const ENVOY: &str = "envoy.service.ratelimit.v3.RateLimitService";
    /// Envoy's rate-limit quota service (RLQS).
    pub const ENVOY_QUOTA: &str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
    /// The name under which envoyproxy/ratelimit answers health checks.
    pub const ENVOY_HEALTH: &str = "ratelimit";
}

/// The paths of calls.
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
    /// Decides a check and holds its cost.
    pub const RESERVE: &str = "/weir.v1.RateLimiter/Reserve";
    /// Settles a reservation by its actual cost.
    pub const COMMIT: &str = "/weir.v1.RateLimiter/Commit";
    /// Cancels a reservation.
    pub const CANCEL: &str = "/weir.v1.RateLimiter/Cancel";
    /// Extends a reservation.
    pub const EXTEND: &str = "/weir.v1.RateLimiter/Extend";
    /// Resets a key.
    pub const RESET: &str = "/weir.v1.RateLimiter/Reset";
    /// Suggests domains and keys of the policy that are similar to an unknown one.
    pub const SUGGEST: &str = "/weir.v1.RateLimiter/Suggest";
    /// Envoy's rate limit call.
    pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    /// Envoy's stream of quota reports.
    pub const STREAM_QUOTAS: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    /// Prefix of the operators' calls.
    pub const ADMIN: &str = "/weir.v1.Admin/";
    /// Prefix of the operators' calls over HTTP.
    pub const ADMIN_HTTP: &str = "/v1/admin/";
    /// Health check.
    pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
    /// Health check as a stream of changes.
    pub const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
    /// Server reflection.
    pub const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    /// Server reflection, for older clients.
    pub const REFLECTION_V1ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
    /// Prefix of health checks.
    pub const HEALTH: &str = "/grpc.health.v1.Health/";
}

/// Returns the access that a gRPC call requires. Reflection and unknown paths require an authenticated client.
#[inline]
pub fn grpc_access(called: &str) -> Access {
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
        health if health.starts_with(path::HEALTH) => Access::Public,
        admin if admin.starts_with(path::ADMIN) => Access::Named(Role::Admin),
        _ => Access::Authenticated,
    }
}

/// Returns the access that a path of the HTTP port requires.
pub fn http_access(path: &str) -> Access {
    match path {
        "/v1/check" | "/v1/check_batch" | "/v1/check_all" | "/json" => Access::Role(Role::Check),
        "/v1/reserve" | "/v1/commit" | "/v1/cancel" | "/v1/extend" => Access::Named(Role::Check),
        "/v1/reset" => Access::Named(Role::Reset),
        "/metrics" | "/ui/api/policy" | "/ui/api/live" | "/ui/api/quotas" | "/ui/api/simulate" | "/ui/api/traffic" => {
            Access::Role(Role::Metrics)
        }
        "/ui/api/key" => Access::Role(Role::Check),
        probe if is_probe(probe) => Access::Public,
        admin if admin.starts_with(path::ADMIN_HTTP) => Access::Named(Role::Admin),
        // The explorer's page contains no data; it reads that from below `/ui/api/`.
        "/ui" => Access::Public,
        path if path.starts_with("/ui/") && !path.starts_with("/ui/api/") => Access::Public,
        _ => Access::Authenticated,
    }
}

/// Whether a path of the HTTP port is a probe of liveness or readiness.
pub fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/healthcheck")
}

/// Returns the surface of a gRPC call.
pub fn grpc_surface(called: &str) -> Surface {
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

/// Returns the surface of a request to the HTTP port.
pub fn http_surface(method: &Method, path: &str) -> Surface {
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
    let admin = AdminCall::ALL.map(AdminCall::http_path);
    let Some(route) = routes.into_iter().chain(admin).find(|route| *route == path) else { return Surface::Other };
    let methods = ["POST", "GET", "PUT", "PATCH", "DELETE"];
    let method = methods.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER");
    Surface::Http { method, route }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_names_contain_no_text_of_the_request() {
        assert_eq!(grpc_surface(path::RESET).to_string(), "weir.v1.RateLimiter/Reset");
        assert_eq!(grpc_surface("/weir.v1.RateLimiter/Secret"), Surface::Other);
        assert_eq!(grpc_surface("/weir.v1.Admin/ListReplicas").to_string(), "weir.v1.Admin/ListReplicas");
        assert_eq!(grpc_surface("/weir.v1.Admin/Secret"), Surface::Other);
        assert_eq!(http_surface(&Method::POST, "/v1/admin/list_replicas").to_string(), "POST /v1/admin/list_replicas");
        assert_eq!(http_surface(&Method::POST, "/v1/check").to_string(), "POST /v1/check");
        assert_eq!(http_surface(&Method::OPTIONS, "/json").to_string(), "_OTHER /json");
        assert_eq!(http_surface(&Method::GET, "/v1/check/secret"), Surface::Other);
    }
}
