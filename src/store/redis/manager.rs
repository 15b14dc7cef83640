//! A pool of connections to one server. Taking one out costs no round trip.

use std::{fmt, sync::Arc, time::Duration};

use deadpool::{
    Runtime,
    managed::{self, Metrics, PoolError, RecycleError, RecycleResult, Timeouts},
};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::{
    connection::Connection,
    dial::{Dialer, Purpose},
    run::{self, ProbeKey},
    sentinel::Sentinels,
};
use crate::store::{Failure, url::Address};

/// Connections to one server, or to the master of the moment.
pub struct Pool(Result<managed::Pool<Manager>, Failure>);

/// A connection out of a pool, to which it goes back when it is dropped.
pub type Pooled = managed::Object<Manager>;

/// Where a pool's connections lead.
#[derive(Debug)]
pub enum Target {
    /// To one server.
    Fixed(Address),
    /// To the master that Sentinels name.
    Sentinel(Arc<Sentinels>),
}

/// Makes connections for a pool, and judges those that come back.
pub struct Manager {
    target: Target,
    dialer: Arc<Dialer>,
    probe_key: Option<Arc<ProbeKey>>,
    /// What went wrong last, so that the log tells of changes only.
    trouble: Mutex<Option<Failure>>,
}

impl Manager {
    /// Connections to `target`, made by `dialer`.
    pub fn new(target: Target, dialer: Arc<Dialer>) -> Self {
        Self { target, dialer, probe_key: None, trouble: Mutex::new(None) }
    }

    /// The same, which give out only connections on which the script can be carried out. `key` is for trying that.
    pub fn probing(self, key: Arc<ProbeKey>) -> Self {
        Self { probe_key: Some(key), ..self }
    }

    async fn probed(&self, mut connection: Connection, deadline: Instant) -> Result<Connection, Failure> {
        if let Some(key) = &self.probe_key {
            let late = |_| Failure::Connect("trying the script: no answer in time".into());
            timeout_at(deadline, run::probe(&mut connection, &key.get())).await.map_err(late)??;
        }
        Ok(connection)
    }

    fn tell(&self, trouble: Option<&Failure>) {
        let before = std::mem::replace(&mut *self.trouble.lock(), trouble.cloned());
        match trouble {
            Some(failure) if before.as_ref() != trouble => warn!(server = %self.target, "{failure}"),
            None if before.is_some() => info!(server = %self.target, "connected again"),
            _ => {}
        }
    }
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = Failure;

    async fn create(&self) -> Result<Connection, Failure> {
        let deadline = self.dialer.deadline();
        let made = match &self.target {
            Target::Fixed(address) => self.dialer.dial(address, Purpose::Checks).await,
            Target::Sentinel(sentinels) => sentinels.dial(&self.dialer).await,
        };
        let made = match made {
            Ok(connection) => self.probed(connection, deadline).await,
            Err(failure) => Err(failure),
        };
        self.tell(made.as_ref().err());
        made
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Failure> {
        if connection.is_usable() { Ok(()) } else { Err(RecycleError::Backend(Failure::Closed)) }
    }
}

impl Pool {
    /// A pool of at most `size` connections, for one of which a caller waits `wait` at most. Making one has the dialer's
    /// own deadline.
    pub fn new(manager: Manager, size: usize, wait: Duration) -> Self {
        let timeouts = Timeouts { wait: Some(wait), create: None, recycle: None };
        let pool = managed::Pool::builder(manager).max_size(size).timeouts(timeouts).runtime(Runtime::Tokio1).build();
        Self(pool.map_err(|error| Failure::Connect(error.to_string().into())))
    }

    /// A connection that is ready for commands.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn get(&self) -> Result<Pooled, Failure> {
        self.0.as_ref().map_err(Clone::clone)?.get().await.map_err(failure)
    }

    /// A number that changes whenever connections lead to another server than before.
    pub fn changes(&self) -> u64 {
        match self.0.as_ref().map(|pool| &pool.manager().target) {
            Ok(Target::Sentinel(sentinels)) => sentinels.changes(),
            _ => 0,
        }
    }

    /// Connections that there are, and those of them that nobody uses.
    pub fn sizes(&self) -> (usize, usize) {
        let status = self.0.as_ref().map(managed::Pool::status);
        status.map_or((0, 0), |status| (status.size, status.available))
    }
}

/// Closes a connection instead of giving it back.
pub fn discard(connection: Pooled) {
    drop(Pooled::take(connection));
}

fn failure(error: PoolError<Failure>) -> Failure {
    match error {
        PoolError::Backend(failure) => failure,
        PoolError::Timeout(_) => Failure::Late,
        PoolError::Closed => Failure::Closed,
        other => Failure::Connect(other.to_string().into()),
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
