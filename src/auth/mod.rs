//! Authentication and authorization: clients authenticate by bearer token or client certificate, and have roles.

pub mod callers;
pub mod file;
pub mod role;
pub mod token;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;
use weir_server::tls::{Bearer, Clients};

pub use callers::{Callers, Grant};
pub use role::{Access, Role, Roles};
pub use token::TokenHash;

/// How clients authenticate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthSettings {
    /// The credentials file; empty: none.
    pub file: PathBuf,
}

/// Why authentication or authorization rejects a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Denied {
    /// Neither a token nor a certificate of a caller.
    #[error("this needs a bearer token, or the certificate of a caller")]
    Missing,
    /// The authorization is of another kind, or there are several.
    #[error("the authorization is not one bearer token")]
    NotBearer,
    /// The token belongs to no client.
    #[error("the bearer token is not known")]
    Unknown,
    /// A token whose time is over.
    #[error("the bearer token has expired")]
    Expired,
    /// The connection's certificate is not good any more.
    #[error("the certificate of this connection is not accepted any more")]
    Revoked,
    /// A caller without the role.
    #[error("this needs the role `{}`", .0.name())]
    Role(Role),
    /// An operator's call from another machine, where authentication is disabled.
    #[error("without authentication this is answered to loopback addresses and unix sockets alone: set auth.file")]
    NotLocal,
}

impl Denied {
    /// Whether the client is unauthenticated; otherwise it may not make this call.
    pub fn is_unauthenticated(self) -> bool {
        !matches!(self, Self::Role(_) | Self::NotLocal)
    }
}

/// The credentials in force.
pub struct Auth {
    callers: ArcSwap<Callers>,
    /// Beside the channel, since it is looked at with every call.
    generation: AtomicU64,
    changes: watch::Sender<u64>,
}

impl Auth {
    /// With these callers.
    pub fn new(callers: Callers) -> Self {
        Self { callers: ArcSwap::from_pointee(callers), generation: AtomicU64::new(0), changes: watch::Sender::new(0) }
    }

    /// The callers in force.
    pub fn callers(&self) -> Arc<Callers> {
        self.callers.load_full()
    }

    /// Counts how often they were replaced. Read it before the callers that it is kept with.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Puts other callers in force. Only one may do so at a time.
    pub fn replace(&self, callers: Callers) {
        self.callers.store(Arc::new(callers));
        let generation = self.generation.fetch_add(1, Ordering::Release) + 1;
        self.changes.send_replace(generation);
    }
}

impl Clients for Auth {
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn knows(&self, bearer: &Bearer) -> bool {
        self.callers().certificate(bearer).is_some()
    }
}
