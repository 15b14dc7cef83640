//! The calls of both ports in one table: the access that each requires, and its path over HTTP.

use weir_telemetry::request::Route;

use crate::auth::{Access, Role};

/// One row of the table.
struct Row {
    service: &'static str,
    method: &'static str,
    path: &'static str,
    http_path: Option<&'static str>,
    access: Access,
    messages: [&'static str; 2],
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $service:literal {
        $($call:ident: $access:ident($role:ident) $(, $http_path:literal)?;)+
    })+) => {
        /// The full names of services.
        pub mod service {
            $($(#[$doc])* pub const $name: &str = $service;)+
        }

        /// A call of a client.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $($(#[doc = concat!("`", $service, "/", stringify!($call), "`.")] $call,)+)+
        }

        const ROWS: &[Row] = &[$($(Row {
            service: $service,
            method: stringify!($call),
            path: concat!("/", $service, "/", stringify!($call)),
            http_path: [$(Some($http_path),)? None][0],
            access: Access::$access(Role::$role),
            messages: [
                concat!(".weir.v1.", stringify!($call), "Request"),
                concat!(".weir.v1.", stringify!($call), "Response"),
            ],
        },)+)+];

        impl Call {
            /// All calls.
            pub const ALL: [Self; ROWS.len()] = [$($(Self::$call,)+)+];
        }
    };
}

// Paths are compared in this order, so the most frequent ones come first.
calls! {
    /// Weir's rate-limit service.
    RATE_LIMITER = "weir.v1.RateLimiter" {
        Check: Role(Check), "/v1/check";
        CheckBatch: Role(Check), "/v1/check_batch";
        CheckAll: Role(Check), "/v1/check_all";
        CheckStream: Role(Check);
        Lease: Named(Check);
        Reserve: Named(Check), "/v1/reserve";
        Commit: Named(Check), "/v1/commit";
        Cancel: Named(Check), "/v1/cancel";
        Extend: Named(Check), "/v1/extend";
        Reset: Named(Reset), "/v1/reset";
        Suggest: Role(Metrics);
    }
    /// Envoy's rate-limit service (RLS).
    ENVOY = "envoy.service.ratelimit.v3.RateLimitService" {
        ShouldRateLimit: Role(Check), "/json";
    }
    /// Envoy's rate-limit quota service (RLQS).
    ENVOY_QUOTA = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService" {
        StreamRateLimitQuotas: Role(Check);
    }
    /// The service for operators.
    ADMIN = "weir.v1.Admin" {
        ListKeys: Named(Admin), "/v1/admin/list_keys";
        ListHolds: Named(Admin), "/v1/admin/list_holds";
        ListHotKeys: Named(Admin), "/v1/admin/list_hot_keys";
        ListReplicas: Named(Admin), "/v1/admin/list_replicas";
        SetOverride: Named(Admin), "/v1/admin/set_override";
        EndOverride: Named(Admin), "/v1/admin/end_override";
        ListOverrides: Named(Admin), "/v1/admin/list_overrides";
        ListAudit: Named(Admin), "/v1/admin/list_audit";
    }
}

impl Call {
    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Returns the call with this path over gRPC.
    #[inline]
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.path() == path)
    }

    /// Returns the call with this path over HTTP.
    pub fn of_http_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.http_path() == Some(path))
    }

    /// Returns the calls of a service that are served over HTTP, with their paths there.
    pub fn over_http(service: &str) -> impl Iterator<Item = (Self, &'static str)> {
        let calls = Self::ALL.into_iter().filter(move |call| call.row().service == service);
        calls.filter_map(|call| Some((call, call.http_path()?)))
    }

    /// Returns its path over gRPC.
    pub fn path(self) -> &'static str {
        self.row().path
    }

    /// Returns its path over HTTP, if it is served there.
    pub fn http_path(self) -> Option<&'static str> {
        self.row().http_path
    }

    /// Returns the access that it requires if authentication is enabled.
    pub fn access(self) -> Access {
        self.row().access
    }

    /// Returns its route over gRPC.
    pub fn route(self) -> Route {
        let Row { service, method, .. } = *self.row();
        Route::Grpc { service, method }
    }

    /// Returns the full names of the request and the response of a unary call of `weir.v1`.
    pub fn messages(self) -> [&'static str; 2] {
        self.row().messages
    }

    /// Whether it is long-lived, so that it must end when the client's credentials become invalid.
    pub fn lasts(self) -> bool {
        matches!(self, Self::CheckStream | Self::Lease | Self::StreamRateLimitQuotas)
    }
}
