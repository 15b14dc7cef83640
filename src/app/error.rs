//! Why a service cannot start.

use std::io;

use thiserror::Error;
use weir_settings::Problems;
use weir_store::{documents::FileError, memory::snapshot::SnapshotError};

use crate::transport::json::Damaged;

/// Why a service cannot start.
#[derive(Debug, Error)]
pub enum AppError {
    /// No policy is configured, nor that none is wanted.
    #[error(
        "no policy: name its file or directory by --limits PATH, WEIR_LIMITS or the setting `limits`. To serve without one, which \
         allows every check that brings no limits of its own, use --allow-all, WEIR_ALLOW_ALL=true or the setting `allow_all`"
    )]
    NoPolicy,
    /// There is a policy, and also the setting for having none.
    #[error("allow_all is set, and so is limits ({0}): unset one of them")]
    PolicyAndNone(String),
    /// The policy is not valid.
    #[error("{0}")]
    Policy(Problems),
    /// A setting of the control plane, the metrics or tracing is not valid.
    #[error("{0}")]
    Setting(String),
    /// The certificates of a port cannot be used.
    #[error("{setting}: {cause}")]
    Tls {
        /// The section of the settings.
        setting: String,
        /// The file, and what is wrong with it.
        cause: String,
    },
    /// The credentials file is not valid.
    #[error("auth.file: {0}")]
    Auth(Problems),
    /// The file of the overrides cannot be used.
    #[error("the overrides in {0}")]
    Overrides(FileError),
    /// The snapshot cannot be loaded.
    #[error("the snapshot {path} {cause}; `weir serve --start-empty` sets it aside and starts without it")]
    Snapshot {
        /// Its path.
        path: String,
        /// What is wrong with it.
        cause: SnapshotError,
    },
    /// The snapshot could not be written later either.
    #[error("the snapshot {path} cannot be written: {cause} (store.snapshot.path)")]
    SnapshotNotWritable {
        /// Its path.
        path: String,
        /// What the system says.
        cause: io::Error,
    },
    /// The snapshot is another process's.
    #[error(
        "the snapshot {path} is in use by another process; each service needs a file of its own (store.snapshot.path)"
    )]
    SnapshotInUse {
        /// Its path.
        path: String,
    },
    /// The snapshot cannot be set aside.
    #[error("the snapshot {path} cannot be set aside: {cause}")]
    SetAside {
        /// Its path.
        path: String,
        /// What the system says.
        cause: io::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The setting's key and value.
        address: String,
        /// What the system says.
        cause: io::Error,
    },
    /// The system has no threads to give.
    #[error("cannot start the serving threads: {0}")]
    Threads(io::Error),
    /// The descriptors in this binary are damaged.
    #[error(transparent)]
    Descriptors(#[from] Damaged),
}
