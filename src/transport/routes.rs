//! The routes of both ports: the call of each path, the access that it requires if authentication is enabled, and its
//! name in logs and spans.

use hyper::Method;
use weir_telemetry::request::Route;

use super::calls::Call;
use crate::auth::{Access, Role};

/// The paths of gRPC that are not in the table of calls.
pub mod path {
    /// Health check.
    pub const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
    /// Health check as a stream of changes.
    pub const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
    /// Server reflection.
    pub const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    /// Server reflection, for older clients.
    pub const REFLECTION_V1ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
}

/// Prefixes of the paths of health checks and of operators' calls.
const HEALTH: &str = "/grpc.health.v1.Health/";
const ADMIN: &str = "/weir.v1.Admin/";
const ADMIN_HTTP: &str = "/v1/admin/";

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The call; `None` for health checks, reflection, pages and unknown paths.
    pub call: Option<Call>,
    /// The access that it requires if authentication is enabled.
    pub access: Access,
    /// Its route, for logs and spans.
    pub route: Route,
    /// Whether it counts against the rate of its connection.
    pub is_paced: bool,
}

/// Returns the target of a gRPC call. Reflection and unknown paths require an authenticated client.
#[inline]
pub fn grpc(path: &str) -> Target {
    let call = Call::of_path(path);
    let access = match call {
        Some(call) => call.access(),
        None if path.starts_with(HEALTH) => Access::Public,
        None if path.starts_with(ADMIN) => Access::Named(Role::Admin),
        None => Access::Authenticated,
    };
    Target { call, access, route: call.map_or(Route::Other, Call::route), is_paced: true }
}

/// Returns the target of a request to the HTTP port. Probes without a body are not paced.
pub fn http(method: &Method, path: &str, has_body: bool) -> Target {
    let call = Call::of_http_path(path);
    let access = call.map_or_else(|| page_access(path), Call::access);
    let route = call.and_then(Call::http_path).map_or(Route::Other, |path| {
        let methods = ["POST", "GET", "PUT", "PATCH", "DELETE"];
        let method = methods.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER");
        Route::Http { method, route: path }
    });
    Target { call, access, route, is_paced: has_body || !is_probe(path) }
}

fn page_access(path: &str) -> Access {
    match path {
        "/metrics" | "/ui/api/policy" | "/ui/api/live" | "/ui/api/quotas" | "/ui/api/simulate" | "/ui/api/traffic" => {
            Access::Role(Role::Metrics)
        }
        "/ui/api/key" => Access::Role(Role::Check),
        probe if is_probe(probe) => Access::Public,
        admin if admin.starts_with(ADMIN_HTTP) => Access::Named(Role::Admin),
        // The explorer's page contains no data; it reads that from below `/ui/api/`.
        "/ui" => Access::Public,
        path if path.starts_with("/ui/") && !path.starts_with("/ui/api/") => Access::Public,
        _ => Access::Authenticated,
    }
}

/// Whether a path of the HTTP port is a probe of liveness or readiness.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/healthcheck")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_names_contain_no_text_of_the_request() {
        let grpc = |path| grpc(path).route;
        let http = |method, path| http(&method, path, true).route;
        assert_eq!(grpc(Call::Reset.path()).to_string(), "weir.v1.RateLimiter/Reset");
        assert_eq!(grpc("/weir.v1.RateLimiter/Suggest").to_string(), "weir.v1.RateLimiter/Suggest");
        assert_eq!(grpc("/weir.v1.RateLimiter/Secret"), Route::Other);
        assert_eq!(grpc("/weir.v1.Admin/ListReplicas").to_string(), "weir.v1.Admin/ListReplicas");
        assert_eq!(grpc("/weir.v1.Admin/Secret"), Route::Other);
        assert_eq!(http(Method::POST, "/v1/admin/list_replicas").to_string(), "POST /v1/admin/list_replicas");
        assert_eq!(http(Method::POST, "/v1/check").to_string(), "POST /v1/check");
        assert_eq!(http(Method::OPTIONS, "/json").to_string(), "_OTHER /json");
        assert_eq!(http(Method::GET, "/v1/check/secret"), Route::Other);
    }
}
