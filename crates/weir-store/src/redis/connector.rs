//! Making a connection by the crate `redis`: to which address, as whom, over TLS or not, and whether the server there is the
//! one that the URL means. All before one deadline.

use std::{fmt::Display, sync::Arc, time::Duration};

use deadpool_redis::{
    HookError, PoolError, TimeoutType,
    redis::{
        AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion,
        RedisConnectionInfo, RedisError, RedisResult,
        aio::MultiplexedConnection,
        io::tcp::{TcpSettings, socket2::TcpKeepalive},
    },
};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use super::{
    command::{command, failure, query, trouble},
    credentials::CredentialsSource,
    hello::{self, Hello, ServerMode},
    probe::{ProbeKey, probe},
    script,
    settings::{RedisSettings, TlsSettings},
    tls::{self, Host},
};
use crate::{
    Failure,
    failure::cut,
    url::{Address, Credentials, RedisUrl},
};
use weir_settings::tls::Texts;

/// Most threads that read the files of passwords and certificates; they may hang there.
const MAX_READS: usize = 16;
/// After how long of silence the system asks whether the other end is still there, and again how often.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Messages and bytes that a connection takes before whoever sends has to wait: a whole batch of a pipeline worker.
const SEND_BUFFER_MESSAGES: usize = 1_024;
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// What is said of a server without a command that is needed. The server's own words repeat what was sent, with the password.
const TOO_OLD: &str = "the server does not know the command; Redis 6.2 or Valkey is needed";

/// Makes connections as the settings say. One serves all servers of a store.
pub struct Connector {
    mode: ServerMode,
    database: u32,
    credentials: CredentialsSource,
    sentinel_credentials: CredentialsSource,
    tls: Option<TlsSettings>,
    timeout: Duration,
    /// A place for each read of files under way.
    reads: Arc<Semaphore>,
}

/// What a connection is for.
#[derive(Clone)]
pub enum Purpose {
    /// Checks and resets: to a master that takes them, which is tried with this key.
    Checks(Arc<ProbeKey>),
    /// Asking any node of a Cluster which nodes there are.
    Topology,
    /// Asking a Sentinel for the master.
    Sentinel,
}

/// What the files of passwords and certificates say when a connection is made.
#[derive(PartialEq, Eq)]
pub struct Secrets {
    credentials: Option<Credentials>,
    certificates: Option<Texts>,
}

impl Connector {
    /// A connector to the servers of `url`.
    pub fn new(url: &RedisUrl, settings: &RedisSettings) -> Self {
        Self {
            mode: ServerMode::of(&url.topology),
            database: url.database,
            credentials: CredentialsSource::of_servers(url.credentials.as_ref(), settings),
            sentinel_credentials: CredentialsSource::of_sentinels(&settings.sentinel),
            tls: (url.tls || settings.tls.enabled).then(|| settings.tls.clone()),
            timeout: settings.connect_timeout.duration(),
            reads: Arc::new(Semaphore::new(MAX_READS)),
        }
    }

    /// When an attempt that begins now must be over.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// A connection outside every pool.
    ///
    /// # Errors
    /// [`Failure::Refused`] is the server's own word: credentials, rights, a replica, or data still being read. [`Failure::Late`]
    /// is too many connections in use; [`Failure::Connect`] is what else is wrong.
    pub async fn connect(
        self: &Arc<Self>,
        address: &Address,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<MultiplexedConnection, Failure> {
        let secrets = self.secrets(address, &purpose, deadline).await?;
        let (connector, info) = (Arc::clone(self), self.info(address, &secrets));
        let config = self.config(address);
        let connect = async move {
            let client = Client::open(info?)?;
            let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            connector.prepare(&connection, &purpose).await?;
            Ok(connection)
        };
        self.in_time(address, deadline, async { connect.await.map_err(PoolError::Backend) }).await
    }

    /// What follows on a new connection: whether the server is what the URL says, and for checks the database, the script, and
    /// whether all works that a check does.
    ///
    /// # Errors
    /// What is wrong with the server.
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
        script::load(connection.clone()).await?;
        probe(connection.clone(), &probe_key.get()).await
    }

    /// The credentials and certificates of connections, as the files say now.
    ///
    /// # Errors
    /// [`Failure::Connect`] names the file.
    pub async fn secrets(&self, address: &Address, purpose: &Purpose, deadline: Instant) -> Result<Secrets, Failure> {
        let of_sentinel = matches!(purpose, Purpose::Sentinel);
        let source = if of_sentinel { &self.sentinel_credentials } else { &self.credentials };
        let (source, tls) = (source.clone(), self.tls.clone());
        let places = Arc::clone(&self.reads);
        let read = async move {
            let place = places.acquire_owned().await.map_err(|error| error.to_string())?;
            let read = move || -> Result<Secrets, String> {
                let _place = place;
                Ok(Secrets { credentials: source.read()?, certificates: tls.as_ref().map(tls::read).transpose()? })
            };
            spawn_blocking(read).await.unwrap_or_else(|error| Err(error.to_string()))
        };
        let read = match timeout_at(deadline, read).await {
            Ok(read) => read,
            Err(_) => Err("the files of passwords and certificates are not read in time".to_owned()),
        };
        read.map_err(|error| self.failed(address, error))
    }

    /// What the crate has to know of a server.
    ///
    /// # Errors
    /// It cannot use the certificates.
    pub fn info(&self, address: &Address, secrets: &Secrets) -> RedisResult<ConnectionInfo> {
        let place = match (address, &self.tls) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
            (Address::Tcp { host, port }, Some(TlsSettings { server_name, .. })) => {
                let name = if server_name.is_empty() { host } else { server_name };
                ConnectionAddr::TcpTls { host: name.clone(), port: *port, insecure: false, tls_params: None }
            }
        };
        let mut redis = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        if let Some(Credentials { user, password }) = &secrets.credentials {
            let user = if user.is_empty() { "default" } else { user };
            redis = redis.set_username(user).set_password(password.reveal());
        }
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let info = place.into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(redis);
        match &secrets.certificates {
            None => Ok(info),
            Some(texts) => Ok(Client::build_with_tls(info, tls::certificates(texts))?.get_connection_info().clone()),
        }
    }

    /// How the crate connects. Deadlines are ours.
    pub fn config(&self, address: &Address) -> AsyncConnectionConfig {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(SEND_BUFFER_MESSAGES)
            .set_write_backpressure_boundary(SEND_BUFFER_BYTES);
        match address {
            Address::Tcp { host, .. } => config.set_dns_resolver(Host(host.clone())),
            Address::Unix(_) => config,
        }
    }

    /// Awaits what makes a connection. With TLS that happens on a thread of its own: the crate reads the system's certificates
    /// for each connection, and blocks meanwhile.
    ///
    /// # Errors
    /// As of [`Self::connect`].
    pub async fn in_time<T: Send + 'static>(
        &self,
        address: &Address,
        deadline: Instant,
        work: impl Future<Output = Result<T, PoolError>> + Send + 'static,
    ) -> Result<T, Failure> {
        let work = timeout_at(deadline, work);
        let done = match self.tls {
            None => work.await,
            Some(_) => {
                let runtime = Handle::current();
                let done = spawn_blocking(move || runtime.block_on(work)).await;
                done.map_err(|error| self.failed(address, error))?
            }
        };
        match done {
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
        self.refused(address, error)
    }

    /// Why there is no connection: the server's refusal, or what else is wrong.
    pub fn refused(&self, address: &Address, error: RedisError) -> Failure {
        if error.kind() == ErrorKind::RESP3NotSupported {
            return self.failed(address, TOO_OLD);
        }
        let why = trouble(&error);
        match failure(error) {
            Failure::Server(words) if words.contains("unknown command") => self.failed(address, TOO_OLD),
            Failure::Server(words) => self.failed(address, words),
            Failure::Lost(_) => self.failed(address, why),
            failure => failure,
        }
    }

    fn failed(&self, address: &Address, why: impl Display) -> Failure {
        let how = if self.tls.is_some() { " over TLS" } else { "" };
        Failure::Connect(cut(&format!("connecting to {address}{how}: {why}")))
    }
}
