//! `weir.v1.Admin`: what operators ask and change, from the bytes of a message to those of its answer. gRPC and HTTP
//! (`http::admin`) both go through [`AdminService::answer`]. The roles are in `routes`, the rule without authentication in `guard`.

mod replicas;

use std::sync::Arc;

use bytes::BytesMut;
use weir_store::AnyStore;

use super::{audit::Actor, grpc::call::encoded, message, status::Rejected};
use crate::limiter::Limiter;
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
}

impl AdminService {
    /// The service of this replica, over its limiter.
    pub fn new(limiter: Arc<Limiter<AnyStore>>, replica: ThisReplica) -> Self {
        Self { limiter, replica }
    }

    /// Answers a call of `actor`, of which nothing is read but these bytes.
    ///
    /// # Errors
    /// [`Rejected`] for what is no request, and where there is no answer.
    pub async fn answer(&self, call: AdminCall, bytes: &[u8], _actor: &Actor) -> Result<BytesMut, Rejected> {
        Ok(match call {
            AdminCall::ListReplicas => encoded(&self.list_replicas(&message::read(bytes)?)),
        })
    }
}
