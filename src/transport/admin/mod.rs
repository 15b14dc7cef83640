//! `weir.v1.Admin`: what operators ask and change, from the bytes of a message to those of its answer. gRPC and HTTP
//! (`http::admin`) both go through [`AdminService::answer`]. The roles are in `routes`, the rule without authentication in `guard`.

mod overrides;
mod replicas;

use std::sync::Arc;

use bytes::BytesMut;
use weir_store::AnyStore;

use super::{audit::Actor, grpc::call::encoded, message, status::Rejected};
use crate::{limiter::Limiter, overrides::OverrideService};
pub use replicas::ThisReplica;

/// Names each call once: its method, and the last part of its page.
macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident = $page:literal,)+) => {
        /// A call of `weir.v1.Admin`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum AdminCall {
            $($(#[$doc])* $call,)+
        }

        impl AdminCall {
            /// All of them.
            pub const ALL: [Self; [$($page),+].len()] = [$(Self::$call),+];

            /// Its method.
            pub fn method(self) -> &'static str {
                match self { $(Self::$call => stringify!($call),)+ }
            }

            /// Its path over gRPC.
            pub fn path(self) -> &'static str {
                match self { $(Self::$call => concat!("/weir.v1.Admin/", stringify!($call)),)+ }
            }

            /// Its path over HTTP.
            pub fn page(self) -> &'static str {
                match self { $(Self::$call => concat!("/v1/admin/", $page),)+ }
            }

            /// The full names of its messages: what is asked, and the answer.
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
    /// The replicas.
    ListReplicas = "list_replicas",
    /// Sets an override.
    SetOverride = "set_override",
    /// Ends one.
    EndOverride = "end_override",
    /// The overrides.
    ListOverrides = "list_overrides",
    /// Their changes.
    ListAudit = "list_audit",
}

impl AdminCall {
    /// The call of this path over gRPC.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.path() == path)
    }
}

/// What answers operators.
pub struct AdminService {
    limiter: Arc<Limiter<AnyStore>>,
    replica: ThisReplica,
    overrides: Arc<OverrideService>,
}

impl AdminService {
    /// The service of this replica, over its limiter.
    pub fn new(limiter: Arc<Limiter<AnyStore>>, replica: ThisReplica, overrides: Arc<OverrideService>) -> Self {
        Self { limiter, replica, overrides }
    }

    /// Answers a call of `actor`, of which nothing is read but these bytes.
    ///
    /// # Errors
    /// [`Rejected`] for what is no request, and where there is no answer.
    pub async fn answer(&self, call: AdminCall, bytes: &[u8], actor: &Actor) -> Result<BytesMut, Rejected> {
        Ok(match call {
            AdminCall::ListReplicas => encoded(&self.list_replicas(&message::read(bytes)?)),
            AdminCall::SetOverride => encoded(&self.set_override(message::read(bytes)?, actor).await?),
            AdminCall::EndOverride => encoded(&self.end_override(&message::read(bytes)?, actor).await?),
            AdminCall::ListOverrides => encoded(&self.list_overrides(message::read(bytes)?).await?),
            AdminCall::ListAudit => encoded(&self.list_audit(&message::read(bytes)?).await?),
        })
    }
}
