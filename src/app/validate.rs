//! Validation for `weir config check`.

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use weir_policy::Policy;
use weir_server::tls::TlsFiles;
use weir_settings::{
    file::{follow_links, is_set},
    tls::pem,
};
use weir_store::memory::snapshot;

use super::{AppError, export, memory_bound::MemoryBound, policy};
use crate::{
    auth::file as credentials,
    config::{PATHS, PathSetting, Settings},
};

/// A valid configuration.
pub struct Validated {
    /// The policy; `None`: a control plane sends it.
    pub policy: Option<Policy>,
    /// Whether clients are authenticated.
    pub is_authenticated: bool,
    /// The certificates of all settings.
    pub certificates: Vec<Certificates>,
    /// The clients with tokens that expire, each with the earliest expiry, the earliest first.
    pub tokens: Vec<(Arc<str>, SystemTime)>,
    /// Upper bound of the memory of the process.
    pub memory_bound: MemoryBound,
}

/// A file of certificates.
pub struct Certificates {
    /// The setting that names it.
    pub setting: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Number of certificates in the file.
    pub count: usize,
    /// Earliest expiry among them.
    pub expires: SystemTime,
}

/// Loads the files that these settings name, as startup would, without opening a port.
///
/// # Errors
/// Every [`AppError`] for which `serve` would not start.
pub fn validate(settings: &Settings) -> Result<Validated, Vec<AppError>> {
    let mut errors = Vec::new();
    for (setting, tls) in [("grpc.tls", &settings.grpc.tls), ("http.tls", &settings.http.tls)] {
        let wrong = |cause| AppError::Tls { setting: setting.to_owned(), cause };
        errors.extend(tls.is_on().then(|| TlsFiles::read(tls, &[], None).err().map(wrong)).flatten());
    }
    let has_credentials = is_set(&settings.auth.file);
    let mut tokens = Vec::new();
    if has_credentials {
        match credentials::load(&settings.auth.file) {
            Ok(credentials) => tokens.extend(credentials.expiries()),
            Err(problems) => errors.push(AppError::Auth(problems)),
        }
        tokens.sort_by_key(|(_, expires)| *expires);
    }
    errors.extend(settings.unusable_store_files().into_iter().map(AppError::Setting));
    errors.extend(export::check(&settings.tracing).err().map(AppError::Setting));
    let snapshot = &settings.store.snapshot.path;
    if is_set(snapshot) {
        let wrong = |cause| AppError::SnapshotNotWritable { path: snapshot.display().to_string(), cause };
        errors.extend(snapshot::check_writable(&follow_links(snapshot)).err().map(wrong));
    }
    let policy = match policy::is_named(settings) {
        Ok(true) => match settings.control_plane() {
            Some(address) => settings.xds.destination(address).map(|_| None).map_err(AppError::Setting),
            None => policy::load(settings).map(|loaded| Some(loaded.policy)).map_err(AppError::Policy),
        },
        Ok(false) => Ok(Some(Policy::empty())),
        Err(error) => Err(error),
    };
    match policy {
        Ok(policy) if errors.is_empty() => Ok(Validated {
            memory_bound: MemoryBound::of(settings, policy.as_ref()),
            policy,
            is_authenticated: has_credentials || settings.grpc.tls.asks_clients() || settings.http.tls.asks_clients(),
            certificates: certificates(settings),
            tokens,
        }),
        policy => {
            errors.extend(policy.err());
            Err(errors)
        }
    }
}

/// Lists the certificate files that can be read. Whether they are usable is checked elsewhere.
fn certificates(settings: &Settings) -> Vec<Certificates> {
    let read = |PathSetting { key, certificates }: &PathSetting| {
        let path = certificates.as_ref()?(settings);
        let expiries = pem::expiries(path, &pem::read(path).ok()??).ok()?;
        let expires = expiries.iter().min().copied()?;
        Some(Certificates { setting: key, path: path.clone(), count: expiries.len(), expires })
    };
    PATHS.iter().filter_map(read).collect()
}
