//! Connections to one server, or to the master that Sentinels name, in pools of `deadpool-redis`.
//!
//! A pool of the crate makes all its connections alike, so there is another one whenever the master, a password file or a
//! certificate has changed. What is idle answers a `PING` before it is given out again.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool_redis::{
    Connection, Hook, HookError, Manager, PoolError, Runtime, TimeoutType, Timeouts,
    redis::{
        PushInfo, PushKind,
        aio::{MultiplexedConnection, SendError},
        make_extension_error,
    },
};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    command::words,
    connector::{Connector, Secrets},
    epoch::ConnectionEpoch,
    probe::ProbeKey,
    sentinel::Sentinels,
};
use crate::store::{Failure, url::Address};

/// Connections to one server, or to the master of the moment.
pub struct Pool {
    connector: Arc<Connector>,
    target: Target,
    probe_key: Arc<ProbeKey>,
    max_size: usize,
    ping_timeout: Duration,
    /// The last is the one that connections are made by.
    generations: Mutex<Vec<Arc<Generation>>>,
    /// What went wrong last, so that the log tells of changes only.
    trouble: Mutex<Option<Failure>>,
}

/// Where a pool's connections lead.
#[derive(Debug)]
pub enum Target {
    /// To one server.
    Fixed(Address),
    /// To the master that Sentinels name.
    Sentinel(Arc<Sentinels>),
}

/// Connections that were made alike.
struct Generation {
    address: Address,
    secrets: Secrets,
    epoch: ConnectionEpoch,
    disconnections: Arc<AtomicU64>,
    pool: deadpool_redis::Pool,
}

/// A connection out of a pool, to which it goes back when it is dropped.
pub struct Pooled {
    connection: Connection,
    generation: Arc<Generation>,
    /// The generation's disconnections before this connection was given out.
    disconnections: u64,
}

impl Pool {
    /// At most `max_size` connections to `target`, on which the script can be run; `probe_key` is for trying that. An idle one
    /// has to answer within `ping_timeout`.
    pub fn new(
        connector: Arc<Connector>,
        target: Target,
        probe_key: Arc<ProbeKey>,
        max_size: usize,
        ping_timeout: Duration,
    ) -> Self {
        let (generations, trouble) = Default::default();
        Self { connector, target, probe_key, max_size, ping_timeout, generations, trouble }
    }

    /// A connection that is ready for commands: an idle one that answers, or a new one.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn get(&self) -> Result<Pooled, Failure> {
        if let Some(idle) = self.idle().await {
            return Ok(idle);
        }
        let made = self.connect().await;
        self.log_change(made.as_ref().err());
        made
    }

    async fn idle(&self) -> Option<Pooled> {
        let latest = self.generations.lock().last().map(Arc::clone)?;
        if latest.pool.status().available == 0 {
            return None;
        }
        let timeouts = Timeouts {
            wait: Some(Duration::ZERO),
            // None is made: that begins with the files, and with Sentinels.
            create: Some(Duration::ZERO),
            recycle: Some(self.ping_timeout),
        };
        let disconnections = latest.disconnections();
        let connection = latest.pool.timeout_get(&timeouts).await.ok()?;
        Some(Pooled { connection, generation: latest, disconnections }).filter(Pooled::is_usable)
    }

    async fn connect(&self) -> Result<Pooled, Failure> {
        let deadline = self.connector.deadline();
        let sentinels = match &self.target {
            Target::Fixed(address) => return self.connect_to(address, deadline).await,
            Target::Sentinel(sentinels) => sentinels,
        };
        let mut failure = Failure::Connect("no Sentinel is named".into());
        for lookup in sentinels.lookups() {
            let deadline = lookup.share_of(deadline);
            match self.connect_through(sentinels, lookup.sentinel, deadline).await {
                Ok(connection) => {
                    sentinels.ask_first(lookup.index);
                    return Ok(connection);
                }
                Err(next) => failure = next,
            }
        }
        // Another begins next time: the first may have led astray so slowly that the others had little time.
        sentinels.ask_next_first();
        Err(failure)
    }

    async fn connect_through(
        &self,
        sentinels: &Sentinels,
        sentinel: &Address,
        deadline: Instant,
    ) -> Result<Pooled, Failure> {
        let master = sentinels.look_up(&self.connector, sentinel, deadline).await?;
        let pooled = self.connect_to(&master, deadline).await?;
        sentinels.connected(&master, &pooled.generation.epoch);
        Ok(pooled)
    }

    async fn connect_to(&self, address: &Address, deadline: Instant) -> Result<Pooled, Failure> {
        let secrets = self.connector.in_time(address, deadline, self.connector.secrets(address)).await??;
        let generation = self.generation(address, secrets)?;
        let disconnections = generation.disconnections();
        let (status, pool) = (generation.pool.status(), generation.pool.clone());
        let is_full = status.size == status.max_size && status.available == 0;
        let get = async move { pool.get().await };
        let connection = match self.connector.made(address, deadline, get).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(PoolError::Backend(error))) => return Err(self.connector.not_connected(address, &error)),
            Ok(Err(error)) => return Err(failure(error)),
            Err(_) if is_full => return Err(Failure::Late),
            Err(late) => return Err(late),
        };
        Ok(Pooled { connection, generation, disconnections })
    }

    /// What makes connections to `address` with these secrets: the latest, or else a new one, after which the older ones only
    /// take back what they have given out.
    fn generation(&self, address: &Address, secrets: Secrets) -> Result<Arc<Generation>, Failure> {
        let mut generations = self.generations.lock();
        if let Some(latest) = generations.last()
            && latest.address == *address
            && latest.secrets == secrets
            && !latest.epoch.is_over()
        {
            return Ok(Arc::clone(latest));
        }
        generations.iter().for_each(|older| older.pool.close());
        generations.retain(|older| older.pool.status().size > 0);
        let generation = Arc::new(self.new_generation(address, secrets)?);
        generations.push(Arc::clone(&generation));
        Ok(generation)
    }

    fn new_generation(&self, address: &Address, secrets: Secrets) -> Result<Generation, Failure> {
        let not_connected = |error| self.connector.not_connected(address, &error);
        let (disconnections, epoch) = (Arc::new(AtomicU64::new(0)), ConnectionEpoch::default());
        let counted = Arc::clone(&disconnections);
        let config = self.connector.config(address).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), SendError>(())
        });
        let info = self.connector.info(address, &secrets).map_err(not_connected)?;
        let manager = Manager::new_with_config(info, config).map_err(not_connected)?;
        let pool = deadpool_redis::Pool::builder(manager)
            .max_size(self.max_size)
            .recycle_timeout(Some(self.ping_timeout))
            .runtime(Runtime::Tokio1)
            .post_create(self.preparation(address))
            .build()
            .map_err(|error| Failure::Connect(error.to_string().into()))?;
        Ok(Generation { address: address.clone(), secrets, epoch, disconnections, pool })
    }

    fn preparation(&self, address: &Address) -> Hook {
        let (connector, probe_key) = (Arc::clone(&self.connector), Arc::clone(&self.probe_key));
        let address = address.clone();
        Hook::async_fn(move |connection: &mut MultiplexedConnection, _| {
            let (connector, probe_key, address) = (Arc::clone(&connector), Arc::clone(&probe_key), address.clone());
            Box::pin(async move {
                let prepared = connector.prepare(connection, &address, &probe_key).await;
                prepared.map_err(hook_error)
            })
        })
    }

    fn log_change(&self, trouble: Option<&Failure>) {
        let before = std::mem::replace(&mut *self.trouble.lock(), trouble.cloned());
        match trouble {
            Some(failure) if before.as_ref() != trouble => warn!(server = %self.target, "{failure}"),
            None if before.is_some() => info!(server = %self.target, "connected again"),
            _ => {}
        }
    }

    /// A number that changes whenever connections lead to another server than before.
    pub fn changes(&self) -> u64 {
        match &self.target {
            Target::Sentinel(sentinels) => sentinels.changes(),
            Target::Fixed(_) => 0,
        }
    }

    /// Connections that there are, and those of them that are idle.
    pub fn sizes(&self) -> (usize, usize) {
        let all: Vec<_> = self.generations.lock().iter().map(|generation| generation.pool.status()).collect();
        all.iter().fold((0, 0), |(open, idle), status| (open + status.size, idle + status.available))
    }
}

impl Generation {
    fn disconnections(&self) -> u64 {
        self.disconnections.load(Ordering::Relaxed)
    }
}

impl Pooled {
    /// Whether a command may be sent on it: its master is still the one, and no connection like it has ended since it was
    /// given out, which may have been this one. Back in its pool, it shows by a `PING`.
    pub fn is_usable(&self) -> bool {
        !self.generation.epoch.is_over() && self.generation.disconnections() == self.disconnections
    }

    /// Closes it instead of giving it back.
    pub fn discard(self) {
        drop(Connection::take(self.connection));
    }
}

impl Deref for Pooled {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        &self.connection
    }
}

/// A failure as the pool carries it; [`failure`] makes the same of it again.
fn hook_error(failure: Failure) -> HookError {
    match failure {
        Failure::Refused(error) => {
            let mut words = error.text.splitn(2, ' ').map(str::to_owned);
            HookError::Backend(make_extension_error(words.next().unwrap_or_default(), words.next()))
        }
        Failure::Connect(why) => HookError::message(why.to_string()),
        failure => HookError::message(failure.to_string()),
    }
}

fn failure(error: PoolError) -> Failure {
    match error {
        PoolError::PostCreateHook(HookError::Backend(error)) => match error.try_into() {
            Ok(error) => Failure::of_server(&words(&error)),
            Err(error) => Failure::Connect(error.to_string().into()),
        },
        PoolError::PostCreateHook(HookError::Message(why)) => Failure::Connect(why.into()),
        PoolError::Timeout(TimeoutType::Wait) => Failure::Late,
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
