//! `weir.v1.Admin`, the operators' API, from the encoded message to the encoded answer. gRPC and HTTP (`http::admin`)
//! both call [`AdminService::answer`]. The roles are in `routes`, the rule for disabled authentication in `guard`.

mod cursor;
mod fleet;
mod holds;
mod keys;
mod overrides;
mod replicas;
mod scan_schedule;

use std::{sync::Arc, time::Duration};

use bytes::BytesMut;
use weir_core::domain::Key;
use weir_store::AnyStore;
use weir_telemetry::LogLimit;

use super::{audit::Actor, grpc::call::encoded, message, status::Rejected};
use crate::{
    limiter::{Invalid, Limiter},
    overrides::OverrideService,
};
pub use fleet::ReplicaRegistry;
use scan_schedule::ScanSchedule;

/// Defines each call once: its method, and the last part of its path over HTTP.
macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident = $page:literal,)+) => {
        /// A call of `weir.v1.Admin`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum AdminCall {
            $($(#[$doc])* $call,)+
        }

        impl AdminCall {
            /// All calls.
            pub const ALL: [Self; [$($page),+].len()] = [$(Self::$call),+];

            /// Returns its method.
            pub fn method(self) -> &'static str {
                match self { $(Self::$call => stringify!($call),)+ }
            }

            /// Returns its path over gRPC.
            pub fn path(self) -> &'static str {
                match self { $(Self::$call => concat!("/weir.v1.Admin/", stringify!($call)),)+ }
            }

            /// Returns its path over HTTP.
            pub fn http_path(self) -> &'static str {
                match self { $(Self::$call => concat!("/v1/admin/", $page),)+ }
            }

            /// Returns the full names of its messages: request and response.
            pub fn messages(self) -> [&'static str; 2] {
                match self {
                    $(Self::$call => [
                        concat!(".weir.v1.", stringify!($call), "Request"),
                        concat!(".weir.v1.", stringify!($call), "Response"),
                    ],)+
                }
            }
        }
    };
}

calls! {
    /// The stored keys.
    ListKeys = "list_keys",
    /// The holds on keys.
    ListHolds = "list_holds",
    /// The keys that are checked or refused most often.
    ListHotKeys = "list_hot_keys",
    /// The replicas.
    ListReplicas = "list_replicas",
    /// Sets an override.
    SetOverride = "set_override",
    /// Ends an override.
    EndOverride = "end_override",
    /// The overrides.
    ListOverrides = "list_overrides",
    /// The changes of overrides.
    ListAudit = "list_audit",
}

impl AdminCall {
    /// Returns the call with this path over gRPC.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.path() == path)
    }
}

/// Serves the operators' API.
pub struct AdminService {
    limiter: Arc<Limiter<AnyStore>>,
    replicas: Arc<ReplicaRegistry>,
    scan_schedule: ScanSchedule,
    overrides: Arc<OverrideService>,
    override_warnings: LogLimit,
}

impl AdminService {
    /// Returns the service of this replica, over its limiter.
    pub fn new(
        limiter: Arc<Limiter<AnyStore>>,
        replicas: Arc<ReplicaRegistry>,
        overrides: Arc<OverrideService>,
    ) -> Self {
        let override_warnings = LogLimit::every(Duration::from_secs(60));
        Self { limiter, replicas, scan_schedule: ScanSchedule::default(), overrides, override_warnings }
    }

    /// Answers a call of `actor`. `bytes` is the encoded request.
    ///
    /// # Errors
    /// [`Rejected`] if the request is invalid or the store fails.
    pub async fn answer(&self, call: AdminCall, bytes: &[u8], actor: &Actor) -> Result<BytesMut, Rejected> {
        Ok(match call {
            AdminCall::ListKeys => encoded(&self.list_keys(&message::read(bytes)?).await?),
            AdminCall::ListHolds => encoded(&self.list_holds(message::read(bytes)?).await?),
            AdminCall::ListHotKeys => encoded(&self.list_hot_keys(&message::read(bytes)?).await?),
            AdminCall::ListReplicas => encoded(&self.list_replicas(&message::read(bytes)?).await),
            AdminCall::SetOverride => encoded(&self.set_override(message::read(bytes)?, actor).await?),
            AdminCall::EndOverride => encoded(&self.end_override(&message::read(bytes)?, actor).await?),
            AdminCall::ListOverrides => encoded(&self.list_overrides(message::read(bytes)?).await?),
            AdminCall::ListAudit => encoded(&self.list_audit(&message::read(bytes)?).await?),
        })
    }
}

/// Returns the key that a request lists from, in one domain or in all; `None`: all keys.
fn domain_and_prefix(domain: &str, prefix: &[String], all_domains: bool) -> Result<Option<Key>, Invalid> {
    if all_domains && !(domain.is_empty() && prefix.is_empty()) {
        return Err(Invalid::field_error("all_domains", "the keys of all domains have no domain or prefix in common"));
    }
    if prefix.is_empty() {
        // The name of the domain must be valid too.
        return Ok(Key::new(domain, &["-"]).map(|_| None)?);
    }
    let invalid = |error: weir_core::domain::KeyError| {
        Invalid::field_error(error.field().replace("key", "prefix"), error.to_string())
    };
    Key::new(domain, prefix).map(Some).map_err(invalid)
}
