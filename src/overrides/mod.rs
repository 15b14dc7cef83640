//! Overrides at run time: kept in the store with an audit log, read by every replica several times a second, and
//! applied over the policy in force.

mod cache;
mod document;
mod ended;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use scopeguard::ScopeGuard;
use thiserror::Error;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};
use weir_core::{
    algorithm::Bounds,
    domain::{Clock, Micros, time::SECOND},
};
use weir_policy::{
    Overrides,
    overrides::{Effect, Override, OverrideError, effects},
};
use weir_store::{
    AnyStore, Failure,
    documents::{Change as DocumentChange, ChangeError, ChangeId, Changed, Documents},
    platform::{OsPlatform, Platform},
};
use weir_telemetry::{Causes, LogLimit, request};

use crate::{limiter::Limiter, telemetry::OverrideMetrics};
use cache::{Edit, OverrideCache};
pub use document::{StoredOverride, StoredOverrideError, read};

/// The name of the documents in the store.
pub const DOCUMENTS: &str = "overrides";
/// The last moment of the year 9999, and of the timestamps of protobuf.
pub const LAST_MOMENT: Micros = 253_402_300_800 * SECOND - 1;
/// Interval between polls of the store: a change is in force on every replica within a second.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// Minimum interval between two warnings.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The overrides of a service.
pub struct OverrideService {
    documents: Documents,
    limiter: Arc<Limiter<AnyStore>>,
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    cache: Mutex<OverrideCache>,
    /// Allows one read at a time, so that older changes never replace newer ones.
    reading: tokio::sync::Mutex<()>,
    metrics: OverrideMetrics,
    warnings: LogLimit,
    removal_warnings: LogLimit,
}

/// The result of setting an override, or of a dry run.
pub struct SetOutcome {
    /// The override.
    pub value: Arc<Override>,
    /// The previous override of the same keys.
    pub replaced: Option<StoredOverride>,
    /// The effects on the policy's limits.
    pub effects: Vec<Effect>,
}

/// Reasons why an override is not changed.
#[derive(Debug, Error)]
pub enum SetError {
    /// The override is not valid.
    #[error(transparent)]
    Invalid(#[from] OverrideError),
    /// The override cannot be stored.
    #[error(transparent)]
    Store(#[from] ChangeError),
    /// The overrides cannot be read.
    #[error(transparent)]
    Read(#[from] Failure),
}

impl OverrideService {
    /// Creates the service of the overrides in these documents, which it applies over this limiter's policy.
    pub fn new(documents: Documents, limiter: Arc<Limiter<AnyStore>>, bounds: Bounds) -> Self {
        let (clock, metrics) = (limiter.store().clock(), OverrideMetrics::new(limiter.metrics()));
        let (cache, reading) = Default::default();
        let [warnings, removal_warnings] = [(); 2].map(|()| LogLimit::every(LOG_EVERY));
        limiter.change_overrides(|overrides| *overrides = Overrides::new(Arc::clone(&clock)));
        Self { documents, limiter, clock, bounds, cache, reading, metrics, warnings, removal_warnings }
    }

    /// Reads changes, and removes ended overrides from the store, several times a second, for as long as this is
    /// polled. Neither waits for the other.
    pub async fn run(self: Arc<Self>) {
        tokio::join!(at_each_poll(|| self.refresh()), at_each_poll(|| self.remove_ended()));
    }

    /// Reads changes. If that fails, known overrides stay in force until their end.
    pub async fn refresh(&self) {
        if let Err(error) = self.read().await {
            self.metrics.failures.increment(1);
            if self.warnings.allows(Instant::now()) {
                let error = Causes(&error);
                warn!(%error, "overrides cannot be read: those known stay in force until their end");
            }
        }
    }

    async fn read(&self) -> Result<(), Failure> {
        let _reading = self.reading.lock().await;
        let since = self.cache.lock().since;
        let changes = self.documents.changes(since).await;
        // Now the clock is the store's, if the store has answered.
        self.apply_transitions(changes.is_ok());
        let changes = changes?;
        let mut cache = self.cache.lock();
        let edits = cache.apply(changes, &self.bounds, self.clock.now());
        if !edits.is_empty() {
            self.put_in_force(&cache, edits);
        }
        self.metrics.read();
        Ok(())
    }

    /// Takes ended overrides out of force, by a clock that is either the store's or has continued locally.
    fn apply_transitions(&self, is_of_store: bool) {
        let mut cache = self.cache.lock();
        if let Some(edits) = cache.apply_transitions(self.clock.now(), is_of_store) {
            // Also if one has started, so that leases are requested again.
            self.put_in_force(&cache, edits);
        }
    }

    fn put_in_force(&self, cache: &OverrideCache, edits: Vec<Edit>) {
        self.metrics.overrides.set(cache.all().len() as f64);
        self.limiter.change_overrides(|overrides| {
            for edit in edits {
                match edit {
                    Edit::Put(one) => overrides.put(one),
                    Edit::Removed(one) => overrides.remove(&one.domain, &one.pattern),
                }
            }
        });
    }

    /// Sets the override that `make` makes of the current time, in place of the one for the same keys; with `dry_run`
    /// only returns its effects. The id, the author and the time at which it was set are those of this call.
    ///
    /// # Errors
    /// [`SetError`].
    pub async fn set(
        &self,
        actor: &str,
        dry_run: bool,
        make: impl FnOnce(Micros) -> Override,
    ) -> Result<SetOutcome, SetError> {
        self.read().await?;
        let now = self.clock.now();
        let id = format!("{:012x}", OsPlatform.random() & 0xffff_ffff_ffff).into();
        let value = Override { id, author: actor.into(), set_at: now, ..make(now) };
        if value.end.is_some_and(|end| end > LAST_MOMENT) {
            return Err(OverrideError::LateEnd.into());
        }
        value.check_bounds()?;
        if value.end.is_some_and(|end| end <= now) {
            return Err(OverrideError::End.into());
        }
        let effects = effects(&self.limiter.policy_guard().policy, &value);
        let name = document::name(&value.domain, &value.pattern);
        if dry_run {
            let replaced = self.cache.lock().get(&name);
            return Ok(SetOutcome { value: Arc::new(value), replaced, effects });
        }
        let document = Some(document::write(&value));
        let change =
            DocumentChange { name: name.clone(), document: document.clone(), expected: None, actor: actor.to_owned() };
        let ended = audit_end(actor, &name);
        let changed = self.documents.change(change).await;
        ScopeGuard::into_inner(ended);
        let before = changed?.and_then(|changed| changed.before);
        let (request_id, trace_id) = (request::request_id(), request::trace_id());
        info!(target: AUDIT, actor, before, after = document, request_id, trace_id, "override set");
        self.refresh().await;
        let replaced = before.map(|before| StoredOverride::parse(&name, &before, &self.bounds));
        Ok(SetOutcome { value: Arc::new(value), replaced, effects })
    }

    /// Ends the override of this pattern; `None`: there was none.
    ///
    /// # Errors
    /// [`SetError`].
    pub async fn end(&self, domain: &str, pattern: &[String], actor: &str) -> Result<Option<StoredOverride>, SetError> {
        let pattern: Vec<Box<str>> = pattern.iter().map(|segment| segment.as_str().into()).collect();
        let name = document::name(domain, &pattern);
        let change = DocumentChange { name: name.clone(), document: None, expected: None, actor: actor.to_owned() };
        let ended = audit_end(actor, &name);
        let changed = self.documents.change(change).await;
        ScopeGuard::into_inner(ended);
        let Some(before) = changed?.and_then(|changed| changed.before) else { return Ok(None) };
        let (request_id, trace_id) = (request::request_id(), request::trace_id());
        info!(target: AUDIT, actor, before, request_id, trace_id, "override ended");
        self.refresh().await;
        Ok(Some(StoredOverride::parse(&name, &before, &self.bounds)))
    }

    /// Returns the overrides of a domain, or of all, whose patterns start with `prefix`, by domain and pattern, also
    /// those that this replica cannot apply.
    ///
    /// # Errors
    /// [`Failure`] if the store cannot be read.
    pub async fn list(&self, domain: Option<&str>, prefix: &[String]) -> Result<Vec<StoredOverride>, Failure> {
        self.read().await?;
        let is_wanted = |one: &StoredOverride| {
            let (its_domain, pattern) = one.keys();
            let mut segments = pattern.iter();
            domain.is_none_or(|domain| its_domain == domain)
                && prefix.iter().all(|segment| segments.next().is_some_and(|its| **its == **segment))
        };
        let mut wanted: Vec<_> = self.cache.lock().stored().filter(is_wanted).collect();
        wanted.sort_by(|one, other| one.keys().cmp(&other.keys()));
        Ok(wanted)
    }

    /// Returns changes before a position in the log, or the last ones; the newest first.
    ///
    /// # Errors
    /// [`Failure`] if the store cannot be read.
    pub async fn audit(&self, before: Option<ChangeId>, most: usize) -> Result<Vec<Changed>, Failure> {
        self.documents.log(before, most).await
    }

    /// Returns the bounds of parameters.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }
}

async fn at_each_poll<F: Future<Output = ()>>(work: impl Fn() -> F) {
    let mut ticks = interval(POLL_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        work().await;
    }
}

/// The log target of changes to overrides.
const AUDIT: &str = "weir::audit";

/// Logs a change that continues without its call, unless the result is defused.
fn audit_end<'a>(actor: &'a str, name: &'a str) -> ScopeGuard<(), impl FnOnce(()) + 'a> {
    scopeguard::guard((), move |()| {
        let (request_id, trace_id) = (request::request_id(), request::trace_id());
        info!(target: AUDIT, actor, name, request_id, trace_id, "a call ended before the store: the override may change yet");
    })
}
