//! Errors that prevent a service from starting.

use std::io;

use thiserror::Error;
use weir_settings::Problems;
use weir_store::{documents::FileError, memory::snapshot::SnapshotError};

use crate::transport::json::Damaged;

/// An error that prevents a service from starting.
#[derive(Debug, Error)]
pub enum AppError {
    /// Neither a policy nor `allow_all` is configured.
    #[error(
        "no policy: name its file or directory by --limits PATH, WEIR_LIMITS or the setting `limits`. To serve without one, which \
         allows every check that brings no limits of its own, use --allow-all, WEIR_ALLOW_ALL=true or the setting `allow_all`"
    )]
    NoPolicy,
    /// Both a policy and `allow_all` are configured.
    #[error("allow_all is set, and so is limits ({0}): unset one of them")]
    PolicyAndNone(String),
    /// The policy is not valid.
    #[error("{0}")]
    Policy(Problems),
    /// A setting of the control plane, the metrics or tracing is not valid.
    #[error("{0}")]
    Setting(String),
    /// The certificates of a listener cannot be used.
    #[error("{setting}: {cause}")]
    Tls {
        /// The section of the settings.
        setting: String,
        /// The file and the problem.
        cause: String,
    },
    /// The credentials file is not valid.
    #[error("auth.file: {0}")]
    Auth(Problems),
    /// The overrides file cannot be used.
    #[error("the overrides in {0}{hint}", hint = overrides_hint(.0))]
    Overrides(FileError),
    /// The snapshot cannot be loaded.
    #[error("the snapshot {path} {cause}; `weir serve --start-empty` sets it aside and starts without it")]
    Snapshot {
        /// Its path.
        path: String,
        /// The problem.
        cause: SnapshotError,
    },
    /// The snapshot cannot be written.
    #[error("the snapshot {path} cannot be written: {cause} (store.snapshot.path)")]
    SnapshotNotWritable {
        /// Its path.
        path: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// Another process has locked the snapshot.
    #[error(
        "the snapshot {path} is in use by another process; each service needs a file of its own (store.snapshot.path)"
    )]
    SnapshotInUse {
        /// Its path.
        path: String,
    },
    /// The snapshot or the overrides file cannot be set aside.
    #[error("the file {path} cannot be set aside: {cause}")]
    SetAside {
        /// Its path.
        path: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The setting's key and value.
        address: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The threads of the service or of its store cannot be started.
    #[error("cannot start the serving threads: {0}")]
    Threads(io::Error),
    /// The protobuf descriptors in this binary are damaged.
    #[error(transparent)]
    Descriptors(#[from] Damaged),
}

/// Returns advice if the overrides file is damaged.
fn overrides_hint(error: &FileError) -> &'static str {
    match error {
        FileError::Io { .. } => "",
        FileError::Line { .. } => {
            "; correct or remove the line, or start without overrides, bans and counts: `weir serve --start-empty` renames this file \
             and the snapshot"
        }
    }
}
