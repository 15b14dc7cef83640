//! Making a connection by the crate `redis`: to which address, as whom, over TLS or not, and whether the server at the other
//! end is the one that is meant. All before one deadline.

use std::{fmt::Display, sync::Arc, time::Duration};

use deadpool_redis::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, RedisError, RedisResult, ServerError,
    aio::MultiplexedConnection,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use super::{
    command::{command, query, trouble, words},
    credentials::CredentialsSource,
    hello::{self, Hello, ServerMode},
    probe::{ProbeKey, probe},
    script,
    settings::RedisSettings,
    tls::{Host, Tls, certificates},
};
use crate::{
    store::{
        Failure,
        url::{Address, Credentials, RedisUrl},
    },
    tls::client::Texts,
};

/// After how long of silence the system asks whether the other end is still there, and again how often.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Messages and bytes that a connection takes before whoever sends has to wait: a whole batch of a pipeline worker.
const SEND_BUFFER_MESSAGES: usize = 1_024;
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// What is said of a server without the command that every connection begins with.
const TOO_OLD: &str = "the server does not know the command; Redis 6.2 or Valkey is needed";

/// Makes connections as the settings say. One serves all servers of a store.
pub struct Connector {
    mode: ServerMode,
    database: u32,
    credentials: CredentialsSource,
    sentinel_credentials: CredentialsSource,
    tls: Option<Arc<Tls>>,
    timeout: Duration,
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
            tls: (url.tls || settings.tls.enabled).then(|| Arc::new(Tls::new(settings.tls.clone()))),
            timeout: settings.connect_timeout.duration(),
        }
    }

    /// When an attempt that begins now must be over.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// A connection to a server, outside every pool, which takes checks.
    ///
    /// # Errors
    /// [`Failure::Connect`] says what was being done. [`Failure::Refused`] is the server's own word: credentials, rights,
    /// a replica, or data still being read.
    pub async fn to_master(
        &self,
        address: &Address,
        probe_key: &ProbeKey,
        deadline: Instant,
    ) -> Result<MultiplexedConnection, Failure> {
        let connected = async {
            let connection = self.connect(address, &self.credentials, deadline).await?;
            self.prepare(&connection, address, probe_key).await?;
            Ok(connection)
        };
        self.in_time(address, deadline, connected).await?
    }

    /// A connection to any node of a Cluster, which tells what nodes there are.
    ///
    /// # Errors
    /// As of [`Self::to_master`].
    pub async fn to_any_node(&self, address: &Address, deadline: Instant) -> Result<MultiplexedConnection, Failure> {
        let connected = async {
            let connection = self.connect(address, &self.credentials, deadline).await?;
            hello(&connection, address).await?.check(address, self.mode, false)?;
            Ok(connection)
        };
        self.in_time(address, deadline, connected).await?
    }

    /// A connection to a Sentinel.
    ///
    /// # Errors
    /// As of [`Self::to_master`].
    pub async fn to_sentinel(&self, address: &Address, deadline: Instant) -> Result<MultiplexedConnection, Failure> {
        let connected = async {
            let connection = self.connect(address, &self.sentinel_credentials, deadline).await?;
            hello(&connection, address).await?.check(address, ServerMode::Sentinel, false)?;
            Ok(connection)
        };
        self.in_time(address, deadline, connected).await?
    }

    /// What a new connection to a server needs before checks go there: that it is a master of the kind that the URL says, the
    /// database, the script, and whether all works that checks do.
    ///
    /// # Errors
    /// As of [`Self::to_master`].
    pub async fn prepare(
        &self,
        connection: &MultiplexedConnection,
        address: &Address,
        probe_key: &ProbeKey,
    ) -> Result<(), Failure> {
        hello(connection, address).await?.check(address, self.mode, true)?;
        if self.database != 0 {
            let select = command(&[b"SELECT", self.database.to_string().as_bytes()]);
            query(connection, select, false).await.map_err(|failure| at("SELECT on", address, failure))?;
        }
        script::load(connection).await.map_err(|failure| at("SCRIPT LOAD on", address, failure))?;
        probe(connection, &probe_key.get()).await.map_err(|failure| at("trying the script on", address, failure))
    }

    /// The credentials and certificates of connections to servers, as the files say now.
    ///
    /// # Errors
    /// [`Failure::Connect`] names the file.
    pub async fn secrets(&self, address: &Address) -> Result<Secrets, Failure> {
        self.read(address, &self.credentials).await
    }

    async fn read(&self, address: &Address, source: &CredentialsSource) -> Result<Secrets, Failure> {
        let (source, tls) = (source.clone(), self.tls.clone());
        let read = move || -> Result<Secrets, String> {
            Ok(Secrets { credentials: source.read()?, certificates: tls.map(|tls| tls.read()).transpose()? })
        };
        let read = spawn_blocking(read).await.unwrap_or_else(|error| Err(error.to_string()));
        read.map_err(|error| self.failed(address, error))
    }

    async fn connect(
        &self,
        address: &Address,
        source: &CredentialsSource,
        deadline: Instant,
    ) -> Result<MultiplexedConnection, Failure> {
        let secrets = self.read(address, source).await?;
        let info = self.info(address, &secrets).map_err(|error| self.not_connected(address, &error))?;
        let config = self.config(address);
        let connect = async move { Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await };
        self.made(address, deadline, connect).await?.map_err(|error| self.not_connected(address, &error))
    }

    /// What the crate has to know of a server to connect to it.
    ///
    /// # Errors
    /// Certificates cannot be used.
    pub fn info(&self, address: &Address, secrets: &Secrets) -> RedisResult<ConnectionInfo> {
        let mut redis = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        if let Some(Credentials { user, password }) = &secrets.credentials {
            redis = redis.set_password(password.reveal());
            if !user.is_empty() {
                redis = redis.set_username(user);
            }
        }
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        let info = self.place(address).into_connection_info()?.set_tcp_settings(tcp).set_redis_settings(redis);
        match &secrets.certificates {
            None => Ok(info),
            Some(texts) => Ok(Client::build_with_tls(info, certificates(texts))?.get_connection_info().clone()),
        }
    }

    fn place(&self, address: &Address) -> ConnectionAddr {
        match (address, &self.tls) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
            (Address::Tcp { host, port }, Some(tls)) => {
                let host = tls.server_name().unwrap_or(host).to_owned();
                ConnectionAddr::TcpTls { host, port: *port, insecure: false, tls_params: None }
            }
        }
    }

    /// How the crate connects to a server. Deadlines are ours.
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

    /// Awaits what makes a connection. With TLS that happens on a thread of its own, as the crate reads the system's
    /// certificates for each connection, which blocks.
    ///
    /// # Errors
    /// [`Failure::Connect`] when the deadline passes.
    pub async fn made<T: Send + 'static>(
        &self,
        address: &Address,
        deadline: Instant,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        if self.tls.is_none() {
            return self.in_time(address, deadline, work).await;
        }
        let (work, runtime) = (timeout_at(deadline, work), Handle::current());
        match spawn_blocking(move || runtime.block_on(work)).await {
            Ok(made) => made.map_err(|_| self.late(address)),
            Err(error) => Err(self.failed(address, error)),
        }
    }

    /// Awaits a part of making a connection.
    ///
    /// # Errors
    /// [`Failure::Connect`] when the deadline passes.
    pub async fn in_time<T>(
        &self,
        address: &Address,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        timeout_at(deadline, work).await.map_err(|_| self.late(address))
    }

    fn late(&self, address: &Address) -> Failure {
        self.failed(address, "no answer in time")
    }

    fn failed(&self, address: &Address, why: impl Display) -> Failure {
        let how = if self.tls.is_some() { " over TLS" } else { "" };
        Failure::Connect(format!("connecting to {address}{how}: {why}").into())
    }

    /// Why the crate has made no connection, `HELLO` with the credentials included.
    pub fn not_connected(&self, address: &Address, error: &RedisError) -> Failure {
        if error.kind() == ErrorKind::RESP3NotSupported {
            return at("HELLO to", address, Failure::Server(TOO_OLD.into()));
        }
        let Ok(told) = ServerError::try_from(error.clone()) else { return self.failed(address, trouble(error)) };
        match Failure::of_server(&words(&told)) {
            // Servers repeat what they do not know, and with it the password.
            Failure::Server(text) if text.contains("unknown command") => {
                at("HELLO to", address, Failure::Server(TOO_OLD.into()))
            }
            failure => at("HELLO to", address, failure),
        }
    }
}

async fn hello(connection: &MultiplexedConnection, address: &Address) -> Result<Hello, Failure> {
    let reply = query(connection, hello::command(), false).await;
    let hello = reply.and_then(|reply| Hello::read(&reply).map_err(|why| Failure::Server(why.into())));
    hello.map_err(|failure| at("HELLO to", address, failure))
}

/// A step of making a connection, or of asking who is the master, has failed. Refusals of the server keep their code.
pub fn at(step: &str, address: &Address, failure: Failure) -> Failure {
    match failure {
        Failure::Lost(why) | Failure::Server(why) => Failure::Connect(format!("{step} {address}: {why}").into()),
        failure => failure,
    }
}
