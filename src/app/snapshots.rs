//! The snapshot: loaded before serving, written periodically and at shutdown. The overrides file is next to it.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};
use weir_core::domain::{
    Micros,
    key::{MAX_SEGMENTS, domain_name},
    time::SECOND,
};
use weir_policy::{Policy, tree::DEFAULT_ANCHOR};
use weir_settings::file::is_set;
use weir_store::{
    AnyStore, MemoryStore, StoreSettings, SystemClock,
    documents::{Documents, FileError},
    memory::snapshot::{self, Snapshot, SnapshotLock, SnapshotSettings},
};

use super::error::AppError;
use crate::{limiter::Limiter, overrides};

/// Largest lag of the wall clock behind a snapshot that is not logged: usual clock adjustments.
const MAX_UNLOGGED_CLOCK_LAG: Micros = SECOND;
/// Maximum number of overrides files that were set aside. Then one must be removed by hand.
const MAX_REJECTED: u32 = 100;

/// Opens the memory store with the states of the snapshot, if one is configured, and takes the lock of the snapshot.
/// With `start_empty` the snapshot is set aside instead of loaded.
pub(super) fn open_store(
    settings: &StoreSettings,
    policy: &Policy,
    start_empty: bool,
) -> Result<(MemoryStore<SystemClock>, Option<SnapshotLock>), AppError> {
    let empty = || MemoryStore::new(settings.memory(), SystemClock::new());
    let path = &settings.snapshot.path;
    if !is_set(path) {
        return Ok((empty(), None));
    }
    let place = || path.display().to_string();
    snapshot::check_writable(path).map_err(|cause| AppError::SnapshotNotWritable { path: place(), cause })?;
    let lock = match SnapshotLock::take(path) {
        Ok(None) => return Err(AppError::SnapshotInUse { path: place() }),
        Ok(lock) => lock,
        Err(error) => {
            // Not every file system supports locks.
            warn!(path = %path.display(), %error, "the snapshot cannot be locked against other processes");
            None
        }
    };
    if start_empty {
        match snapshot::set_aside(path).map_err(|cause| AppError::SetAside { path: place(), cause })? {
            Some(aside) => warn!(path = place(), aside = %aside.display(), "starting empty: the snapshot was renamed"),
            None => info!(path = place(), "starting empty: there is no snapshot"),
        }
        return Ok((empty(), lock));
    }
    let loaded = load(settings, policy, path).map_err(|cause| AppError::Snapshot { path: place(), cause })?;
    let store = loaded.unwrap_or_else(|| {
        info!(path = place(), "there is no snapshot yet: starting empty");
        empty()
    });
    Ok((store, lock))
}

fn load(
    settings: &StoreSettings,
    policy: &Policy,
    path: &Path,
) -> Result<Option<MemoryStore<SystemClock>>, snapshot::SnapshotError> {
    let since = Instant::now();
    let Some(snapshot) = Snapshot::open(path)? else { return Ok(None) };
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as Micros;
    let behind = snapshot.clock() - wall;
    if behind > MAX_UNLOGGED_CLOCK_LAG {
        warn!(seconds = behind / SECOND, "the wall clock is behind the snapshot: time continues from the snapshot's");
    }
    let store = MemoryStore::new(settings.memory(), SystemClock::resuming_at(snapshot.clock()));
    let anchors: HashMap<_, _> = policy.domains().map(|domain| (domain_name(&domain.name), domain.anchor)).collect();
    // A control plane will define descriptors, which are counted by whole keys.
    let unknown = if policy.is_awaited() { MAX_SEGMENTS as u8 } else { DEFAULT_ANCHOR };
    let loaded = snapshot.load_into(&store, |domain| anchors.get(domain).copied().unwrap_or(unknown))?;
    info!(
        path = %path.display(),
        states = loaded.states,
        expired = loaded.expired,
        ms = since.elapsed().as_millis() as u64,
        "snapshot loaded"
    );
    if loaded.left_out > 0 {
        let max_keys = settings.max_keys;
        warn!(left_out = loaded.left_out, max_keys, "the snapshot holds more than store.max_keys: the rest is dropped");
    }
    Ok(Some(store))
}

/// Opens the overrides. They are in the shared store; without one, in a file next to the snapshot, if there is one.
/// With `start_empty` a damaged file is set aside. A valid one stays in use, so that no ban is lifted.
pub(super) fn open_overrides(
    settings: &StoreSettings,
    store: &AnyStore,
    start_empty: bool,
) -> Result<Documents, AppError> {
    let snapshot = Some(&settings.snapshot.path).filter(|path| is_set(path));
    let file = snapshot.map(|path| with_suffix(path, ".overrides"));
    let open = || store.documents(overrides::DOCUMENTS, file.as_deref());
    let opened = match (open(), &file) {
        (Err(error @ FileError::Line { .. }), Some(path)) if start_empty => {
            let place = path.display().to_string();
            let aside = set_overrides_aside(path).map_err(|cause| AppError::SetAside { path: place, cause })?;
            warn!(%error, aside = %aside.display(), "starting without overrides and bans: their file was renamed");
            open()
        }
        (opened, _) => opened,
    };
    opened.map_err(AppError::Overrides)
}

/// Renames the overrides file to the first free name. One that was set aside before may be the only copy of its bans, so
/// it is not replaced.
fn set_overrides_aside(path: &Path) -> io::Result<PathBuf> {
    let numbered = (1..MAX_REJECTED).map(|number| with_suffix(path, &format!(".rejected.{number}")));
    for aside in std::iter::once(with_suffix(path, ".rejected")).chain(numbered) {
        match fs::symlink_metadata(&aside) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return fs::rename(path, &aside).map(|()| aside),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {MAX_REJECTED} earlier ones, {}.rejected…", path.display())))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Writes the snapshots of a service.
pub(super) struct Snapshots {
    pub limiter: Arc<Limiter<AnyStore>>,
    pub settings: SnapshotSettings,
    /// Held while a snapshot is written. The lock inside keeps other processes from writing at all.
    pub writing: Mutex<Option<SnapshotLock>>,
}

impl Snapshots {
    /// Writes a snapshot at each interval, forever.
    pub(super) async fn run(self: Arc<Self>) {
        if !is_set(&self.settings.path) {
            return;
        }
        let every = self.settings.every.duration();
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            Arc::clone(&self).write().await;
        }
    }

    /// Writes a snapshot, after the one in progress, and returns whether it is written; `true` also if none is
    /// configured. A failure is logged and counted.
    pub(super) async fn write(self: Arc<Self>) -> bool {
        if !is_set(&self.settings.path) {
            return true;
        }
        let written = tokio::task::spawn_blocking(move || self.write_now()).await;
        written.unwrap_or_else(|cause| {
            error!(%cause, "the snapshot is not written");
            false
        })
    }

    fn write_now(&self) -> bool {
        let _writing = self.writing.lock();
        let (since, path) = (Instant::now(), &self.settings.path);
        match snapshot::save(self.limiter.store().memory(), path) {
            Ok(saved) => {
                let took = since.elapsed();
                info!(path = %path.display(), states = saved.states, bytes = saved.bytes, ms = took.as_millis() as u64, "snapshot written");
                self.limiter.metrics().snapshot_written(saved.bytes, took);
                true
            }
            Err(cause) => {
                error!(path = %path.display(), %cause, "the snapshot cannot be written; the previous one remains");
                self.limiter.metrics().snapshot_failed();
                false
            }
        }
    }
}
