//! Authentication and authorization: clients authenticate by bearer token or client certificate, and have roles.

pub mod credentials;
pub mod file;
pub mod role;
pub mod token;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::UNIX_EPOCH,
};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;
use weir_server::tls::{CertificateClients, CertificateIdentity};
use weir_telemetry::{
    Metric, Render,
    text::{escaped, heading},
};

pub use credentials::{Credentials, Principal};
pub use role::{Access, Role, Roles};
pub use token::TokenHash;

const EXPIRY: Metric = (
    "weir_auth_token_expiry_timestamp_seconds",
    "Unix time at which the first of a client's tokens expires or has expired, in seconds, by client.",
);

/// The settings of authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthSettings {
    /// The credentials file; empty: none.
    pub file: PathBuf,
}

/// Reasons for which authentication or authorization rejects a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthError {
    /// Neither a bearer token nor a certificate of a client.
    #[error("a bearer token or the certificate of a client is required")]
    Missing,
    /// The authorization has another scheme, or there are several.
    #[error("the authorization header must be one bearer token")]
    NotBearer,
    /// The token belongs to no client.
    #[error("the bearer token is unknown")]
    Unknown,
    /// The token has expired.
    #[error("the bearer token has expired")]
    Expired,
    /// The connection's certificate is no longer accepted.
    #[error("the certificate of this connection is not accepted any more")]
    Revoked,
    /// The client lacks the role.
    #[error("the role `{}` is required", .0.name())]
    Role(Role),
    /// An operator's call from another machine while authentication is disabled.
    #[error(
        "without authentication only loopback addresses and unix sockets, without a proxy, may call this: set auth.file"
    )]
    NotLocal,
    /// An operator's call while authentication is disabled and the setting `admin` requires it.
    #[error("only authenticated clients may call this (setting `admin`): set auth.file")]
    NoOperators,
    /// A reset while authentication is disabled and the setting `reset` requires it.
    #[error("only authenticated clients may reset keys (setting `reset`)")]
    NoResets,
}

impl AuthError {
    /// Whether the client is unauthenticated; otherwise it is not permitted to make this call.
    pub fn is_unauthenticated(self) -> bool {
        !matches!(self, Self::Role(_) | Self::NotLocal | Self::NoOperators | Self::NoResets)
    }
}

/// The current credentials.
pub struct Auth {
    credentials: ArcSwap<Credentials>,
    /// A copy of the channel's value, since every call reads it.
    generation: AtomicU64,
    changes: watch::Sender<u64>,
}

impl Auth {
    /// Creates the credentials with these clients.
    pub fn new(credentials: Credentials) -> Self {
        Self {
            credentials: ArcSwap::from_pointee(credentials),
            generation: AtomicU64::new(0),
            changes: watch::Sender::new(0),
        }
    }

    /// Returns the current clients.
    pub fn credentials(&self) -> Arc<Credentials> {
        self.credentials.load_full()
    }

    /// Returns the number of replacements so far. Read it before the clients that it is cached with.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Replaces the clients. Must not be called concurrently.
    pub fn replace(&self, credentials: Credentials) {
        self.credentials.store(Arc::new(credentials));
        let generation = self.generation.fetch_add(1, Ordering::Release) + 1;
        self.changes.send_replace(generation);
    }
}

impl CertificateClients for Auth {
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn knows(&self, certificate: &CertificateIdentity) -> bool {
        self.credentials().certificate(certificate).is_some()
    }
}

/// The exporter would keep the series of removed clients.
impl Render for Auth {
    fn render(&self, out: &mut String) {
        let (name, help) = EXPIRY;
        heading(out, name, "gauge", help);
        for (client, end) in self.credentials().expiries() {
            let seconds = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            out.push_str(&format!("{name}{{client=\"{}\"}} {seconds}\n", escaped(&client)));
        }
    }
}
