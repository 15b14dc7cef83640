//! Leases: units of hot keys that this process holds, and spends without a call. [`ClientLease`] decides when to ask
//! for units; this module keeps the table of keys and the time.
//!
//! [`ClientLease`]: weir_core::hold::ClientLease

mod entry;
mod message;
mod stream;
#[cfg(test)]
#[cfg(unix)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use tokio::{
    sync::{
        Notify,
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};
use weir_core::{
    domain::Micros,
    hold::{CheckAction, LeaseRequest, Spend},
};

use self::{
    entry::{ByKey, Entry},
    stream::Job,
};
use crate::{Check, Decision, Error, call::Caller, proto::CheckResponse, telemetry::Telemetry};

/// Maximum number of leased keys. The service decides checks of all others.
const MAX_KEYS: usize = 10_000;
const TICK: Duration = Duration::from_millis(20);
/// Minimum deadline of a request that no check waits for.
const MIN_DEADLINE: Duration = Duration::from_millis(100);

/// The answer to the check that a request carries; `None`: the service rejects the stream, and a unary call must
/// decide.
pub(crate) type Answer = Result<Option<CheckResponse>, Error>;

pub(crate) fn late() -> Error {
    Error::DeadlineExceeded("no answer about the lease in time".to_owned())
}

pub(crate) struct Leases {
    started: Instant,
    table: RwLock<HashMap<ByKey, Arc<Entry>>>,
    /// Notified when the table gets its first entry.
    filled: Notify,
    queue: mpsc::Sender<Job>,
    deadline: Duration,
    caller: Arc<Caller>,
    telemetry: Arc<Telemetry>,
}

/// The way a check is decided.
pub(crate) enum Route {
    /// Decided by held units.
    Here(Decision),
    /// Decided by the service, with the lease request.
    Requested(oneshot::Receiver<Answer>),
    /// Decided by the service in an ordinary check, which reports its answer to the lease.
    Ordinary(Option<CheckReport>),
}

/// The lease to which an ordinary check reports its answer.
pub(crate) struct CheckReport {
    entry: Arc<Entry>,
    cost: i64,
    sent: Micros,
}

impl Leases {
    /// Starts the renewal tasks, which end with the set.
    pub(crate) fn start(
        caller: Arc<Caller>,
        telemetry: Arc<Telemetry>,
        deadline: Duration,
        tasks: &mut JoinSet<()>,
    ) -> Arc<Self> {
        let (queue, jobs) = mpsc::channel(MAX_KEYS);
        let (started, table, filled) = (Instant::now(), RwLock::default(), Notify::new());
        let leases = Arc::new(Self { started, table, filled, queue, deadline, caller, telemetry });
        tasks.spawn(stream::run(Arc::clone(&leases), jobs));
        tasks.spawn(Arc::clone(&leases).keep());
        leases
    }

    fn now(&self) -> Micros {
        self.started.elapsed().as_micros() as Micros
    }

    /// Decides a check that a lease may decide. If held units pay for it, this only takes the table's read lock and
    /// allocates nothing.
    pub(crate) fn decide(&self, check: &Check) -> Route {
        let (key, now) = (ByKey(Arc::clone(&check.request)), self.now());
        // The table stays locked, so that an entry that is dropped as idle stays idle.
        if let Some(entry) = self.table.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return self.decide_by(entry, check, now);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.len() >= MAX_KEYS {
            return Route::Ordinary(None);
        }
        if table.is_empty() {
            self.filled.notify_one();
        }
        let entry = table.entry(key).or_insert_with_key(Entry::new);
        self.decide_by(entry, check, now)
    }

    fn decide_by(&self, entry: &Arc<Entry>, check: &Check, now: Micros) -> Route {
        let cost = check.cost_or_default();
        match entry.balance.spend(cost, now) {
            Spend::Spent => {}
            Spend::Low => {
                let request = entry.lease().low(&entry.balance, now);
                request.into_iter().for_each(|request| self.renew(entry, request));
            }
            Spend::Short => {
                let on_check = entry.lease().short(&entry.balance, cost, now);
                match on_check {
                    CheckAction::Refuse { retry_after } => {
                        return Route::Here(entry.refuse(cost, retry_after, now));
                    }
                    CheckAction::Check => {
                        return Route::Ordinary(Some(CheckReport { entry: Arc::clone(entry), cost, sent: now }));
                    }
                    CheckAction::Request(request) => {
                        let deadline = check.deadline.unwrap_or(self.deadline);
                        let (job, answer) = Job::new(entry, request, deadline).answered(!check.request.summary_only);
                        self.send(job);
                        return Route::Requested(answer);
                    }
                }
            }
        }
        Route::Here(entry.allow())
    }

    /// Records the answer to an ordinary check.
    pub(crate) fn checked(&self, report: &CheckReport, answer: &CheckResponse) {
        let is_refused = message::is_refused_for_now(answer);
        let now = self.now();
        report.entry.lease().checked(report.cost, is_refused, report.sent, now);
        report.entry.decided_by_service(report.cost, answer, now);
    }

    /// Sends a request that no check waits for.
    fn renew(&self, entry: &Arc<Entry>, request: LeaseRequest) {
        self.send(Job::new(entry, request, self.deadline.max(MIN_DEADLINE)));
    }

    fn send(&self, job: Job) {
        if job.is_late() {
            // No sign of an outage: the caller has used up its time.
            return job.fail(late(), self.now());
        }
        if let Err(error) = self.queue.try_send(job) {
            let why = match &error {
                TrySendError::Full(_) => Error::Unavailable("the requests of leases are too many".to_owned()),
                TrySendError::Closed(_) => Error::closed(),
            };
            error.into_inner().fail(why, self.now());
        }
    }

    /// Renews leases when due, and drops idle entries, while the table is not empty.
    async fn keep(self: Arc<Self>) {
        loop {
            self.filled.notified().await;
            let mut tick = interval(TICK);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !self.table.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
                tick.tick().await;
                self.tick();
            }
        }
    }

    fn tick(&self) {
        let now = self.now();
        let mut idle = Vec::new();
        for (key, entry) in &*self.table.read().unwrap_or_else(PoisonError::into_inner) {
            entry.tell(&self.telemetry);
            let mut lease = entry.lease();
            if let Some(request) = lease.due(&entry.balance, now) {
                drop(lease);
                self.renew(entry, request);
            } else if lease.is_idle(&entry.balance, now) {
                idle.push(key.clone());
            }
        }
        for key in idle {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            // The entry may have been used in the meantime.
            if table.get(&key).is_some_and(|entry| entry.lease().is_idle(&entry.balance, now)) {
                table.remove(&key).into_iter().for_each(|entry| entry.tell(&self.telemetry));
            }
        }
    }

    /// Returns all held units and waits until the service confirms that, at most for the client's deadline.
    pub(crate) async fn close(&self) {
        let entries = std::mem::take(&mut *self.table.write().unwrap_or_else(PoisonError::into_inner));
        let return_units = async {
            let mut answers = Vec::new();
            for entry in entries.into_values() {
                entry.tell(&self.telemetry);
                let request = entry.lease().close(&entry.balance, self.now());
                if let Some(request) = request {
                    let (job, answer) = Job::new(&entry, request, self.deadline).answered(false);
                    // The task that receives it may have ended.
                    let _ = self.queue.send(job).await;
                    answers.push(answer);
                }
            }
            for answer in answers {
                // Without an answer the units count as spent.
                let _ = answer.await;
            }
        };
        // After the timeout the units count as spent too.
        let _ = timeout(self.deadline, return_units).await;
    }
}
