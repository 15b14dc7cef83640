//! Connection setup with the crate `redis`: address, credentials, TLS, and verification that the server is of the URL's
//! kind, all before one deadline.

use std::{fmt::Display, sync::Arc, time::Duration};

use deadpool::managed::{HookError, Manager as _, TimeoutType};
use deadpool_redis::{
    PoolError,
    redis::{AsyncConnectionConfig, ErrorKind, RedisError, RedisResult, aio::MultiplexedConnection},
};
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use super::{
    command::{command, describe, failure, query},
    credentials::CredentialsSource,
    hello::{self, Hello, ServerMode},
    manager::{Connection, Manager},
    probe::{ProbeKey, probe},
    script,
    settings::{RedisSettings, TlsSettings},
    tls::Certificates,
};
use crate::{
    Failure,
    failure::cut,
    platform::Platform,
    url::{Address, Credentials, RedisUrl},
};

/// Most threads that read password and certificate files, since reads may hang.
const MAX_READS: usize = 16;
/// Messages and bytes buffered on a connection before senders wait: a whole batch of a pipeline worker.
const SEND_BUFFER_MESSAGES: usize = 1_024;
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// The error for a server that lacks `HELLO`. The server's own error would repeat the password.
const TOO_OLD: &str = "the server does not know the command; Redis 6.2 or Valkey is needed";

/// Opens connections according to the settings. All servers of a store share one.
pub struct Connector {
    platform: Arc<dyn Platform>,
    mode: ServerMode,
    database: u32,
    credentials: CredentialsSource,
    sentinel_credentials: CredentialsSource,
    tls: Option<TlsSettings>,
    waits_for_replicas: bool,
    timeout: Duration,
    /// A permit for each concurrent read of files.
    reads: Arc<Semaphore>,
}

/// The purpose of a connection.
#[derive(Clone)]
pub enum Purpose {
    /// Checks and resets: requires a writable master, verified with this probe key.
    Checks(Arc<ProbeKey>),
    /// Topology requests to any node of a Cluster.
    Topology,
    /// Requests to a Sentinel.
    Sentinel,
}

/// Contents of the password and certificate files at connection time.
#[derive(PartialEq)]
pub struct Secrets {
    pub(super) credentials: Option<Credentials>,
    pub(super) certificates: Option<Certificates>,
}

impl Connector {
    /// Creates a connector for the servers of `url` on this machine.
    pub fn new(platform: Arc<dyn Platform>, url: &RedisUrl, settings: &RedisSettings) -> Self {
        Self {
            platform,
            mode: ServerMode::of(&url.topology),
            database: url.database,
            credentials: CredentialsSource::of_servers(url.credentials.as_ref(), settings),
            sentinel_credentials: CredentialsSource::of_sentinels(&settings.sentinel),
            tls: (url.tls || settings.tls.enabled).then(|| settings.tls.clone()),
            waits_for_replicas: settings.wait_replicas > 0,
            timeout: settings.connect_timeout.duration(),
            reads: Arc::new(Semaphore::new(MAX_READS)),
        }
    }

    /// Returns the deadline of a connection attempt that starts now.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Opens a connection outside of a pool.
    ///
    /// # Errors
    /// [`Failure::Rejected`] when the server rejects it: for credentials, permissions, a replica, or data still
    /// loading. [`Failure::Late`] when too many connections are in use; [`Failure::Connect`] otherwise.
    pub async fn connect(
        self: &Arc<Self>,
        address: &Address,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Connection, Failure> {
        self.connect_with(address, purpose, Self::config(), deadline).await
    }

    /// Opens a connection outside of a pool with the crate's settings.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub(crate) async fn connect_with(
        self: &Arc<Self>,
        address: &Address,
        purpose: Purpose,
        config: AsyncConnectionConfig,
        deadline: Instant,
    ) -> Result<Connection, Failure> {
        let secrets = self.secrets(address, &purpose, deadline).await?;
        let connect = async {
            let connection = self.manager(address, &secrets, config)?.create().await?;
            self.prepare(&connection, &purpose).await?;
            Ok(connection)
        };
        self.in_time(address, deadline, async { connect.await.map_err(PoolError::Backend) }).await
    }

    /// Prepares a new connection: verifies the kind of server, and for checks selects the database, loads the script
    /// and probes the operations of a check.
    ///
    /// # Errors
    /// The reason why the server cannot be used.
    pub async fn prepare(&self, connection: &MultiplexedConnection, purpose: &Purpose) -> RedisResult<()> {
        let hello = Hello::read(&query(connection.clone(), &hello::command(), false).await?)?;
        let probe_key = match purpose {
            Purpose::Sentinel => return hello.check(ServerMode::Sentinel, false),
            Purpose::Topology => return hello.check(self.mode, false),
            Purpose::Checks(probe_key) => probe_key,
        };
        hello.check(self.mode, true)?;
        if self.database != 0 {
            query(connection.clone(), &command(&[b"SELECT", self.database.to_string().as_bytes()]), false).await?;
        }
        if self.waits_for_replicas {
            // Zero replicas, so it returns immediately: only the permission is tested.
            query(connection.clone(), &command(&[b"WAIT", b"0", b"1"]), false).await?;
        }
        script::load(connection.clone()).await?;
        probe(connection.clone(), &probe_key.get()).await
    }

    /// Reads the current credentials and certificates.
    ///
    /// # Errors
    /// [`Failure::Connect`] with the file's path.
    pub async fn secrets(&self, address: &Address, purpose: &Purpose, deadline: Instant) -> Result<Secrets, Failure> {
        let of_sentinel = matches!(purpose, Purpose::Sentinel);
        let source = if of_sentinel { &self.sentinel_credentials } else { &self.credentials };
        if self.tls.is_none() && !source.reads_file() {
            let credentials = source.read().map_err(|error| self.failed(address, error))?;
            return Ok(Secrets { credentials, certificates: None });
        }
        let (source, tls) = (source.clone(), self.tls.clone());
        let places = Arc::clone(&self.reads);
        let read = async move {
            let place = places.acquire_owned().await.map_err(|error| error.to_string())?;
            let read = move || -> Result<Secrets, String> {
                let _place = place;
                Ok(Secrets {
                    credentials: source.read()?,
                    certificates: tls.as_ref().map(Certificates::read).transpose()?,
                })
            };
            spawn_blocking(read).await.unwrap_or_else(|error| Err(error.to_string()))
        };
        let read = match timeout_at(deadline, read).await {
            Ok(read) => read,
            Err(_) => Err("the files of passwords and certificates are not read in time".to_owned()),
        };
        read.map_err(|error| self.failed(address, error))
    }

    /// Creates the manager of connections to a server.
    ///
    /// # Errors
    /// The server's name is not valid in a certificate.
    pub fn manager(&self, address: &Address, secrets: &Secrets, config: AsyncConnectionConfig) -> RedisResult<Manager> {
        Manager::new(Arc::clone(&self.platform), address, self.tls.as_ref(), secrets, config)
    }

    /// Returns the crate's connection settings. Timeouts are off, because this module enforces deadlines.
    pub fn config() -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(SEND_BUFFER_MESSAGES)
            .set_write_backpressure_boundary(SEND_BUFFER_BYTES)
    }

    /// Awaits a step of the connection setup until the deadline.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn in_time<T>(
        &self,
        address: &Address,
        deadline: Instant,
        work: impl Future<Output = Result<T, PoolError>>,
    ) -> Result<T, Failure> {
        match timeout_at(deadline, work).await {
            Ok(done) => done.map_err(|error| self.not_connected(address, error)),
            Err(_) => Err(self.failed(address, "no answer in time")),
        }
    }

    fn not_connected(&self, address: &Address, error: PoolError) -> Failure {
        let error = match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => error,
            PoolError::Timeout(TimeoutType::Wait) => return Failure::Late,
            PoolError::Closed => return Failure::Closed,
            other => return self.failed(address, other),
        };
        self.connection_failure(address, error)
    }

    /// Returns the failure of a connection: the server's error, or another cause.
    pub fn connection_failure(&self, address: &Address, error: RedisError) -> Failure {
        if error.kind() == ErrorKind::RESP3NotSupported {
            return self.failed(address, TOO_OLD);
        }
        let why = describe(&error);
        match failure(error) {
            Failure::Server(text) if text.contains("unknown command") => {
                // The arguments of `HELLO` include the password.
                let command = text.split(" with args").next().unwrap_or_default().trim_end_matches(',');
                let is_hello = command.to_ascii_uppercase().contains("HELLO");
                if is_hello { self.failed(address, TOO_OLD) } else { self.failed(address, command) }
            }
            Failure::Server(text) => self.failed(address, text),
            Failure::Lost(_) => self.failed(address, why),
            failure => failure,
        }
    }

    fn failed(&self, address: &Address, why: impl Display) -> Failure {
        let how = if self.tls.is_some() { " over TLS" } else { "" };
        Failure::Connect(cut(&format!("connecting to {address}{how}: {why}")))
    }
}
