//! The one table from paths to what a call of them needs, where callers are known. What is not in it needs a caller.

use super::grpc::path;
use crate::auth::{Access, Role};

/// What begins the paths of health checks by gRPC.
const HEALTH: &str = "/grpc.health.v1.Health/";

/// On the gRPC port. Reflection needs a caller.
#[inline]
pub fn of_call(called: &str) -> Access {
    match called {
        path::CHECK | path::CHECK_BATCH | path::CHECK_STREAM | path::SHOULD_RATE_LIMIT => Access::Role(Role::Check),
        path::RESET => Access::Role(Role::Reset),
        health if health.starts_with(HEALTH) => Access::Open,
        _ => Access::Known,
    }
}

/// On the HTTP port.
pub fn of_page(page: &str) -> Access {
    match page {
        "/v1/check" | "/v1/check_batch" | "/json" => Access::Role(Role::Check),
        "/v1/reset" => Access::Role(Role::Reset),
        "/metrics" | "/ui/api/policy" | "/ui/api/live" | "/ui/api/simulate" => Access::Role(Role::Metrics),
        "/ui/api/key" => Access::Role(Role::Check),
        "/healthz" | "/readyz" | "/healthcheck" => Access::Open,
        // The explorer's page holds no data; what it reads is below the other.
        "/ui" => Access::Open,
        page if page.starts_with("/ui/") && !page.starts_with("/ui/api/") => Access::Open,
        _ => Access::Known,
    }
}
