//! The Redis and Valkey store, shared by all replicas: a script decides plans atomically on the server that has their
//! states.

mod batch;
mod bounded;
mod breaker;
mod cluster;
pub mod command;
pub mod connector;
pub mod credentials;
mod cross_slot;
mod encode;
mod eviction;
mod factory;
pub mod hello;
mod holds;
mod io;
pub mod manager;
mod members;
mod msgpack;
mod node;
mod outage_charger;
pub mod pool;
pub mod probe;
mod queue;
mod read_hash;
pub mod reply;
mod reserve;
mod reset;
mod retry;
mod scan;
mod script;
pub mod sentinel;
mod servers;
pub mod settings;
pub mod slots;
mod store_time;
pub mod tls;
mod worker;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use smallvec::{SmallVec, smallvec};
use tokio::{runtime::Handle, time::Instant};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::{cross_slot::is_undone, encode::RenewalPlan, io::Io, read_hash::read_hash};
use self::{
    cross_slot::{Group, groups},
    encode::{Mode, Part, call_head},
    factory::NodeFactory,
    holds::{granted, no_grant},
    io::{IoThread, Tasks},
    outage_charger::OutageCharger,
    reply::{Answer, Decided},
    reset::ResetScope,
    script::Task,
    servers::Servers,
    settings::RedisSettings,
    slots::slot_of,
};
use super::{
    Decide, Failure, Remote, ResetDone, Store, Verdict,
    documents::{Documents, RedisDocuments},
    outage_charges::OutageCharges,
    platform::{OsPlatform, Platform},
    url::RedisUrl,
};
use weir_core::{
    domain::{Clock, Key},
    hold::{Grant, Renewal},
    plan::Plan,
};

pub(crate) use encode::{documents_call, rule_of, work};

use crate::metrics::{ServerStatus, StoreMetrics};

/// Why a plan has no decision, and the fate of each level.
#[derive(Clone, Debug)]
pub struct Undecided {
    /// The failure.
    pub failure: Failure,
    /// The fate of each level, in order.
    pub fates: SmallVec<[Fate; 4]>,
    /// The refusal by the levels that have a decision, which the others cannot change.
    pub refusal: Option<Box<Refusal>>,
}

/// A refusal by some levels, while others have no decision.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The verdict. The decisions of levels without one are placeholders.
    pub verdict: Verdict,
    /// The positions of the levels without a decision.
    pub undecided: SmallVec<[usize; 4]>,
}

impl Refusal {
    fn new(verdict: Verdict, groups: &[Group], answers: &[Answer]) -> Box<Self> {
        let failed = groups.iter().zip(answers).filter(|(_, answer)| answer.is_err());
        Box::new(Self { verdict, undecided: failed.flat_map(|(group, _)| group.iter().copied()).collect() })
    }
}

impl Undecided {
    /// All levels have the same fate.
    fn all(plan: &Plan<'_>, failure: Failure) -> Self {
        Self { fates: smallvec![Fate::after(&failure); plan.levels().len()], failure, refusal: None }
    }
}

/// The effect of a failed request on a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Certainly not charged.
    NotCharged,
    /// Charged, as the level itself decided.
    Charged,
    /// Possibly charged, or its state is unusable.
    Unknown,
}

impl Fate {
    fn after(failure: &Failure) -> Self {
        if failure.is_without_effect() { Self::NotCharged } else { Self::Unknown }
    }
}

/// A store in Redis or Valkey.
pub struct RedisStore {
    pub(crate) io: Io,
    prefix: Arc<[u8]>,
    metrics: Arc<StoreMetrics>,
    pub(crate) platform: Arc<dyn Platform>,
    /// The thread of its connections, if the store owns it. Declared last, so that everything running on it is dropped
    /// first.
    _thread: Option<IoThread>,
}

impl RedisStore {
    /// Starts a store at `url`, which need not be reachable yet. Decisions use the server's clock unless `clock` is
    /// given, as in `simulate` and tests.
    ///
    /// # Errors
    /// When the operating system cannot start a thread.
    pub fn start(
        url: &RedisUrl,
        settings: &RedisSettings,
        clock: Option<Arc<dyn Clock>>,
        metrics: Arc<StoreMetrics>,
    ) -> std::io::Result<Self> {
        let thread = IoThread::start()?;
        let store = Self::start_on(Arc::new(OsPlatform), thread.handle().clone(), url, settings, clock, metrics);
        Ok(Self { _thread: Some(thread), ..store })
    }

    /// Starts a store whose tasks run on `runtime`, and which reaches its servers through `platform`.
    pub fn start_on(
        platform: Arc<dyn Platform>,
        runtime: Handle,
        url: &RedisUrl,
        settings: &RedisSettings,
        clock: Option<Arc<dyn Clock>>,
        metrics: Arc<StoreMetrics>,
    ) -> Self {
        let tasks = Tasks::on(runtime);
        let place = (Arc::clone(&platform), tasks.clone());
        let factory = NodeFactory::new(url, settings, clock, Arc::clone(&metrics), place);
        let servers = Arc::new(Servers::start(&url.topology, factory));
        let (timeout, connect_timeout) = (settings.command_timeout.duration(), settings.connect_timeout.duration());
        let io = Io { servers, tasks, timeout, connect_timeout };
        Self { io, prefix: settings.key_prefix.as_bytes().into(), metrics, platform, _thread: None }
    }

    /// Whether the circuit breakers of all servers are closed.
    pub fn is_up(&self) -> bool {
        self.io.servers.is_up()
    }

    /// Waits until one of its background tasks panics.
    pub async fn panicked(&self) {
        self.io.tasks.panicked().await;
    }

    /// Returns the current status of its servers.
    pub fn servers(&self) -> Vec<ServerStatus> {
        self.io.servers.status()
    }

    /// Updates the metrics with the current status of its servers.
    pub fn report_servers(&self) {
        self.metrics.servers(self.servers());
    }

    /// Returns its metrics.
    pub fn metrics(&self) -> &StoreMetrics {
        &self.metrics
    }

    /// Decides a plan.
    ///
    /// # Errors
    /// [`Undecided`] when the plan was not decided, or the decision is unknown.
    pub async fn verdict(&self, plan: &Plan<'_>) -> Result<Verdict, Undecided> {
        if let Some(reservation) = plan.reservation {
            return Box::pin(self.reserve(plan, &reservation)).await;
        }
        if let Some(renewal) = plan.renewal {
            return Box::pin(self.verdict_and_grant(plan, renewal)).await;
        }
        let deadline = self.io.deadline();
        match &self.groups(plan)[..] {
            [group] => match self.ask(plan, group, Mode::Decide, deadline).await {
                Ok(decided) => {
                    let Decided { decisions, at, idempotency, .. } = *decided;
                    Ok(Verdict { decisions, at, idempotency, ..Verdict::default() })
                }
                Err(failure) => Err(Undecided::all(plan, failure)),
            },
            // Boxed, so that the future of the usual case stays small.
            groups => Box::pin(self.decide_cross_slot(plan, groups, deadline)).await,
        }
    }

    /// Whether the plan is decided in one atomic step, which holds on its units require.
    pub fn decides_in_one_step(&self, plan: &Plan<'_>) -> bool {
        self.groups(plan).len() == 1
    }

    /// Encodes a plan for background renewals.
    pub(crate) fn renewal_plan(&self, plan: &Plan<'_>) -> RenewalPlan {
        RenewalPlan::new(plan, &self.prefix)
    }

    /// Decides a plan that [`Self::decides_in_one_step`] and serves the renewal in the same step.
    ///
    /// # Errors
    /// [`Undecided`] when the plan was not decided, or the decision is unknown; the same holds for the renewal.
    pub(crate) async fn verdict_and_grant(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Verdict, Undecided> {
        let deadline = self.io.deadline();
        let all: Group = (0..plan.levels().len()).collect();
        let decided = self.ask(plan, &all, Mode::Renew(renewal), deadline).await;
        let granted = decided.and_then(|decided| Ok((granted(&decided, renewal)?, decided)));
        let (grant, decided) = granted.map_err(|failure| Undecided::all(plan, failure))?;
        let Decided { decisions, at, .. } = *decided;
        Ok(Verdict { decisions, at, grant: Some(Box::new(grant)), ..Verdict::default() })
    }

    /// Charges units admitted during outages whenever the servers are healthy, until the handle is dropped.
    pub fn charge_outages(&self, charges: Arc<OutageCharges>) -> AbortOnDropHandle<()> {
        let charging = OutageCharger { charges, io: self.io.clone(), prefix: Arc::clone(&self.prefix) };
        AbortOnDropHandle::new(self.io.tasks.spawn(charging.run()))
    }

    /// Groups the levels that are decided in one step each.
    fn groups(&self, plan: &Plan<'_>) -> SmallVec<[Group; 2]> {
        if self.io.servers.decide_all_together() {
            // All anchors are on one server, so one call decides them.
            return smallvec![(0..plan.levels().len()).collect::<Group>()];
        }
        groups(plan)
    }

    fn ask(&self, plan: &Plan<'_>, levels: &Group, mode: Mode<'_>, deadline: Instant) -> impl Future<Output = Answer> {
        let anchor = levels.first().map(|index| plan.levels()[*index].anchor_path()).unwrap_or_default();
        // In a Cluster, each anchor has its own records.
        let records = if self.io.servers.decide_all_together() { plan.record_path() } else { None };
        let part = move || Part::new(plan, levels, records, &self.prefix, self.io.servers.time(), mode);
        self.io.servers.ask(move || slot_of(&[&self.prefix[..], anchor].concat()), deadline, part)
    }

    /// Waits up to `patience` for a server that runs the script and accepts writes: the only one, or one of a Cluster's
    /// masters. Writes a probe key that expires within a second.
    ///
    /// # Errors
    /// [`Failure`] with the last failure.
    pub async fn reach(&self, patience: Duration) -> Result<(), Failure> {
        let (key, deadline) = ([&self.prefix[..], b"probe"].concat(), Instant::now() + patience);
        let call = call_head(None, Task::Probe, 0);
        self.io.run(move |io| async move { io.servers.script(&[&key], &call, deadline).await.map(drop) }).await
    }

    /// Returns the documents of this name.
    pub fn documents(&self, name: &str) -> Documents {
        Documents::Redis(RedisDocuments::new(self.io.clone(), &self.prefix, name))
    }

    /// Returns an estimate of its servers' clock, for decisions made elsewhere.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.io.servers.clock()
    }

    /// Deletes all keys under this store's prefix and returns how many there were. The future does not borrow the store,
    /// which must live until it completes.
    ///
    /// # Errors
    /// [`Failure`] when some keys may remain.
    pub fn clear(&self) -> impl Future<Output = Result<usize, Failure>> + use<> {
        let (io, prefix) = (self.io.clone(), self.prefix.to_vec());
        async move { io.run(move |io| async move { io.servers.remove(&prefix).await }).await }
    }
}

impl Remote for RedisStore {
    fn verdict<'a>(&'a self, plan: &'a Plan<'_>) -> BoxFuture<'a, Result<Verdict, Failure>> {
        Box::pin(async move { RedisStore::verdict(self, plan).await.map_err(|undecided| undecided.failure) })
    }
}

impl Store for RedisStore {
    fn decide<'s, 'v>(&'s self, _: &Plan<'_>, _: &'v mut Verdict) -> Decide<'s, 'v> {
        Decide::Waiting(self)
    }

    async fn reset(&self, key: &Key, anchor: u8, subtree: bool) -> Result<ResetDone, Failure> {
        let since = Instant::now();
        let scope = ResetScope::new(&self.prefix, key, anchor, subtree);
        let done = self.io.run(move |io| async move {
            let mut done = reset::reset_hash(&io, &scope).await?;
            if scope.other_hashes {
                done.scanned = true;
                done.removed |= io.servers.remove(&scope.hash).await? > 0;
            }
            Ok(done)
        });
        let done = done.await?;
        self.metrics.reset.record(since.elapsed());
        Ok(done)
    }

    async fn renew(&self, plan: &Plan<'_>, renewal: &Renewal) -> Result<Grant, Failure> {
        let verdict = self.verdict_and_grant(plan, renewal).await.map_err(|undecided| undecided.failure)?;
        verdict.grant.map(|grant| *grant).ok_or_else(no_grant)
    }
}
