//! Connection pools for one server, or for the master that Sentinel reports, built on `deadpool-redis`.
//!
//! A pool of the crate creates all its connections with the same parameters. When the master, a password file or a
//! certificate changes, a new pool starts a new connection epoch. An idle connection must answer a `PING` before it is
//! used again.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool::{
    Runtime,
    managed::{self, Hook, HookError, Object, Timeouts},
};
use deadpool_redis::redis::{
    PushInfo, PushKind,
    aio::{MultiplexedConnection, SendError},
};
use parking_lot::Mutex;
use tokio::{
    sync::{RwLock, RwLockWriteGuard},
    time::Instant,
};
use tracing::{info, warn};

use super::{
    connector::{Connector, Purpose, Secrets},
    eviction::EvictionLog,
    manager::{Connection, Manager, idle_only},
    probe::ProbeKey,
    sentinel::Sentinels,
};
use crate::{Failure, url::Address};
use weir_telemetry::LogLimit;

/// Minimum interval between two log lines about failures to connect: a bad network could cause many a second.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Connections to one server, or to the current master.
pub struct Pool {
    connector: Arc<Connector>,
    target: Target,
    purpose: Purpose,
    max_size: usize,
    ping_timeout: Duration,
    epochs: Mutex<Epochs>,
    /// Number of changes to another server.
    changes: AtomicU64,
    /// The logged failure, until a connection is made: only changes are logged.
    logged: Mutex<Option<Failure>>,
    log_limit: LogLimit,
    eviction: Arc<EvictionLog>,
    /// Write-locked while checks are paused.
    pause: RwLock<()>,
}

#[derive(Default)]
struct Epochs {
    /// Only the last one opens connections; the older ones have some still in use or under way.
    list: Vec<Arc<Epoch>>,
    /// The number of switches of the master, by a majority of the Sentinels or an announced promotion, and the last such
    /// master.
    switches: u64,
    master: Option<Address>,
}

/// The destination of a pool's connections.
pub enum Target {
    /// One server.
    Fixed(Address),
    /// The master that Sentinel reports.
    Sentinel(Arc<Sentinels>),
}

/// Connections with the same parameters.
struct Epoch {
    address: Address,
    secrets: Secrets,
    /// No new commands may be sent on its connections.
    is_over: AtomicBool,
    disconnections: Arc<AtomicU64>,
    pool: managed::Pool<Manager>,
}

/// A connection from a pool, returned to it on drop.
pub struct Pooled {
    connection: Object<Manager>,
    epoch: Arc<Epoch>,
    /// The epoch's count of disconnections before this connection was checked out.
    disconnections: u64,
}

impl Pool {
    /// Creates a pool of at most `max_size` connections to `target`, each verified with `probe_key` to run the script.
    /// An idle one must answer a `PING` within `ping_timeout`.
    pub fn new(
        connector: Arc<Connector>,
        target: Target,
        probe_key: Arc<ProbeKey>,
        max_size: usize,
        ping_timeout: Duration,
    ) -> Self {
        let (epochs, changes, logged, eviction, pause) = Default::default();
        let log_limit = LogLimit::every(LOG_INTERVAL);
        let purpose = Purpose::Checks(probe_key);
        Self { connector, target, purpose, max_size, ping_timeout, epochs, changes, logged, log_limit, eviction, pause }
    }

    /// Returns a connection that is ready for commands: an idle one that answers, or a new one.
    ///
    /// # Errors
    /// [`Failure`] when there is no connection.
    pub async fn get(&self) -> Result<Pooled, Failure> {
        if let Some(idle) = self.idle().await {
            return Ok(idle);
        }
        let made = self.connect().await;
        self.log_change(made.as_ref().err());
        made
    }

    async fn idle(&self) -> Option<Pooled> {
        let epoch = self.epochs.lock().list.last().map(Arc::clone)?;
        if epoch.pool.status().available == 0 {
            return None;
        }
        let timeouts = Timeouts { wait: Some(Duration::ZERO), ..Timeouts::default() };
        let disconnections = epoch.disconnections();
        let deadline = Instant::now() + self.ping_timeout;
        // To open a connection, the files must be read and Sentinel asked before.
        let get = idle_only(epoch.pool.timeout_get(&timeouts));
        let connection = self.connector.in_time(&epoch.address, deadline, get).await.ok()?;
        Some(Pooled { connection, epoch, disconnections }).filter(Pooled::is_usable)
    }

    async fn connect(&self) -> Result<Pooled, Failure> {
        let deadline = self.connector.deadline();
        match &self.target {
            Target::Fixed(address) => self.connect_to(address, None, deadline).await,
            Target::Sentinel(sentinels) => {
                let switches = Some(self.epochs.lock().switches);
                let connect =
                    |master: Address, deadline| async move { self.connect_to(&master, switches, deadline).await };
                sentinels.connect_to_master(deadline, connect).await
            }
        }
    }

    /// `switches`: those before a Sentinel was asked for the address.
    async fn connect_to(&self, address: &Address, switches: Option<u64>, deadline: Instant) -> Result<Pooled, Failure> {
        let secrets = self.connector.secrets(address, &self.purpose, deadline).await?;
        let epoch = self.epoch(address, secrets, switches)?;
        let disconnections = epoch.disconnections();
        // Half of the remaining time to wait for a connection in use, half to open one.
        let wait = deadline.saturating_duration_since(Instant::now()) / 2;
        let timeouts = Timeouts { wait: Some(wait), create: None, recycle: Some(self.ping_timeout) };
        let connection = self.connector.in_time(address, deadline, epoch.pool.timeout_get(&timeouts)).await?;
        let made = Pooled { connection, epoch, disconnections };
        if made.epoch.is_over() {
            made.discard();
            return Err(superseded());
        }
        Ok(made)
    }

    /// Returns the connection epoch for `address` and these secrets: the last one, or else a new one, after which the
    /// older ones hand out no more connections.
    ///
    /// # Errors
    /// The master has been switched since `switches`, or the parameters are invalid.
    fn epoch(&self, address: &Address, secrets: Secrets, switches: Option<u64>) -> Result<Arc<Epoch>, Failure> {
        let mut epochs = self.epochs.lock();
        let has_switched = switches.is_some_and(|switches| switches != epochs.switches);
        if has_switched && epochs.master.as_ref() != Some(address) {
            return Err(superseded());
        }
        let epochs = &mut epochs.list;
        let last = epochs.last();
        if let Some(last) = last.filter(|last| last.is_of(address) && last.secrets == secrets && !last.is_over()) {
            last.pool.manager().trust(&secrets);
            return Ok(Arc::clone(last));
        }
        if last.is_some_and(|last| !last.is_of(address)) {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        epochs.iter().for_each(|older| older.pool.close());
        // Those with a connection in use, or under way: `disconnect_others` must be able to end it.
        epochs.retain(|older| Arc::strong_count(older) > 1);
        let epoch = Arc::new(self.new_epoch(address, secrets)?);
        epochs.push(Arc::clone(&epoch));
        Ok(epoch)
    }

    fn new_epoch(&self, address: &Address, secrets: Secrets) -> Result<Epoch, Failure> {
        let disconnections = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&disconnections);
        let config = Connector::config().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), SendError>(())
        });
        let manager = self.connector.manager(address, &secrets, config);
        let manager = manager.map_err(|error| self.connector.connection_failure(address, error))?;
        let (connector, purpose, server) = (Arc::clone(&self.connector), self.purpose.clone(), address.clone());
        let eviction = Arc::clone(&self.eviction);
        let prepare = Hook::async_fn(move |connection: &mut Connection, _| {
            let (connector, purpose, server) = (Arc::clone(&connector), purpose.clone(), server.clone());
            let eviction = Arc::clone(&eviction);
            Box::pin(async move {
                connector.prepare(connection, &purpose).await.map_err(HookError::Backend)?;
                eviction.ask(connection.clone(), &server).await;
                Ok(())
            })
        });
        let builder = managed::Pool::builder(manager).max_size(self.max_size).post_create(prepare);
        let pool =
            builder.runtime(Runtime::Tokio1).build().map_err(|error| Failure::Connect(error.to_string().into()))?;
        Ok(Epoch { address: address.clone(), secrets, is_over: AtomicBool::new(false), disconnections, pool })
    }

    fn log_change(&self, current: Option<&Failure>) {
        let mut logged = self.logged.lock();
        match current {
            Some(failure) if logged.as_ref() != current && self.log_limit.allows(Instant::now().into_std()) => {
                warn!(server = %self.target, "{failure}");
                *logged = current.cloned();
            }
            None if logged.take().is_some() => info!(server = %self.target, "connected again"),
            _ => {}
        }
    }

    /// Tests with a separate connection whether a server accepts checks.
    ///
    /// # Errors
    /// [`Failure`] when it does not.
    pub(crate) async fn try_checks(&self, address: &Address) -> Result<(), Failure> {
        self.connector.connect(address, self.purpose.clone(), self.connector.deadline()).await.map(drop)
    }

    /// Whether connections to another server are open, or may be under way.
    pub(crate) fn connects_to_other(&self, master: &Address) -> bool {
        self.epochs.lock().list.iter().any(|epoch| !epoch.is_over() && !epoch.is_of(master))
    }

    /// Whether there are connections, and none of them to one of these servers.
    pub(crate) fn connects_to_neither(&self, servers: &[&Address]) -> bool {
        let epochs = self.epochs.lock();
        let mut in_use = epochs.list.iter().filter(|epoch| !epoch.is_over() && epoch.is_in_use()).peekable();
        in_use.peek().is_some() && in_use.all(|epoch| !servers.iter().any(|server| epoch.is_of(server)))
    }

    /// Switches to this master: ends the epochs of connections to other servers and returns the addresses of those with
    /// connections. Attempts to connect that are under way to others fail.
    pub(crate) fn disconnect_others(&self, master: &Address) -> Vec<Address> {
        let mut left = Vec::new();
        let mut epochs = self.epochs.lock();
        if epochs.master.as_ref() != Some(master) {
            epochs.switches += 1;
            epochs.master = Some(master.clone());
        }
        // Also those without connections, whose first one may be under way.
        for epoch in epochs.list.iter().filter(|epoch| !epoch.is_of(master) && !epoch.is_over()) {
            epoch.is_over.store(true, Ordering::Relaxed);
            if epoch.is_in_use() && !left.contains(&epoch.address) {
                left.push(epoch.address.clone());
            }
            // Ends the idle ones.
            epoch.pool.close();
        }
        drop(epochs);
        self.changes.fetch_add(left.len() as u64, Ordering::Relaxed);
        left
    }

    /// Pauses checks until the guard is dropped, because charges made now would be lost.
    pub(crate) async fn pause_checks(&self) -> RwLockWriteGuard<'_, ()> {
        self.pause.write().await
    }

    /// Waits until checks are not paused.
    pub(crate) async fn until_resumed(&self) {
        drop(self.pause.read().await);
    }

    /// Returns a counter that changes whenever the connections lead to another server.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the numbers of open and of idle connections.
    pub fn sizes(&self) -> (usize, usize) {
        let statuses = self.epochs.lock().list.iter().map(|epoch| epoch.pool.status()).collect::<Vec<_>>();
        statuses.iter().fold((0, 0), |(open, idle), status| (open + status.size, idle + status.available))
    }
}

fn superseded() -> Failure {
    Failure::Connect("the master was switched during the look-up".into())
}

impl Epoch {
    fn is_of(&self, address: &Address) -> bool {
        self.address == *address
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn is_in_use(&self) -> bool {
        self.pool.status().size > 0
    }

    fn disconnections(&self) -> u64 {
        self.disconnections.load(Ordering::Relaxed)
    }
}

impl Pooled {
    /// Whether commands may be sent: its epoch is not over, and no connection of that epoch was lost since this one was
    /// checked out, which may have been this one. The `PING` at the next check-out finds out.
    pub fn is_usable(&self) -> bool {
        !self.epoch.is_over() && self.epoch.disconnections() == self.disconnections
    }

    /// Closes the connection instead of returning it.
    pub fn discard(self) {
        drop(Object::take(self.connection));
    }
}

impl Deref for Pooled {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.connection
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(address) => address.fmt(f),
            Self::Sentinel(sentinels) => write!(f, "the master `{}`", sentinels.master()),
        }
    }
}
