//! Servers, and connections to them as opened by the store.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use weir_settings::Time;
use weir_store::{
    Failure, StoreUrl,
    platform::OsPlatform,
    redis::{
        command::{command, failure, query},
        connector::Connector,
        pool::{Pool, Pooled, Target},
        probe::ProbeKey,
        sentinel::Sentinels,
        settings::RedisSettings,
    },
    url::{Address, RedisUrl, Topology},
};
use weir_test_redis::{self as redis_servers, Options};

use deadpool_redis::redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Value, aio::MultiplexedConnection,
};

pub use weir_test_redis::{TIMEOUT, TlsFiles, free_port};

pub struct Server {
    redis: redis_servers::Server,
    /// The port, unless it listens only on its socket.
    pub port: u16,
}

impl Server {
    /// Starts a server on a Unix socket only, with these lines of `redis.conf`.
    pub fn unix(lines: &[&str]) -> Self {
        Self::start(Options::socket(), lines)
    }

    /// Starts a server that also listens on a loopback port.
    pub fn tcp(lines: &[&str]) -> Self {
        Self::start(Options::port(), lines)
    }

    /// Starts a server whose port requires TLS.
    pub fn tls(files: TlsFiles) -> Self {
        Self::start(Options::tls(files), &[])
    }

    /// Starts a node of a Cluster, without slots.
    pub fn node() -> Self {
        Self::start(Options::node(), &[])
    }

    /// Starts a Sentinel of the master on this port, with further lines of its configuration.
    pub fn sentinel(master: u16, lines: &[&str]) -> Self {
        let watching = Options::sentinel().set("sentinel monitor", &format!("mymaster 127.0.0.1 {master} 1"));
        Self::start(watching, lines)
    }

    fn start(options: Options, lines: &[&str]) -> Self {
        let set = |options: Options, line: &&str| {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            options.set(name, value)
        };
        let redis = redis_servers::Server::start(lines.iter().fold(options, set));
        Self { port: redis.port(), redis }
    }

    /// Returns a path in the server's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.redis.dir().join(name)
    }

    /// Returns the URL of its Unix socket, with credentials.
    pub fn url(&self, credentials: &str) -> String {
        format!("redis+unix://{credentials}{}", self.redis.socket().display())
    }

    /// Opens a connection with all permissions.
    pub async fn admin(&self) -> MultiplexedConnection {
        let info: ConnectionInfo =
            ConnectionAddr::Unix(self.redis.socket()).into_connection_info().expect("an address");
        let settings = info.redis_settings().clone().set_username(redis_servers::HARNESS).set_password("");
        let client = Client::open(info.set_redis_settings(settings)).expect("an address");
        client.get_multiplexed_async_connection().await.expect("connected")
    }

    /// Runs a command, given as words, and returns the reply.
    pub fn run(&self, command: &str) -> String {
        self.redis.cli(&command.split(' ').collect::<Vec<_>>())
    }

    /// Returns the number of calls of each command.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        self.redis.calls()
    }

    /// Runs a command that may fail.
    pub fn try_run(&self, command: &str) -> Result<String, String> {
        self.redis.try_cli(&command.split(' ').collect::<Vec<_>>())
    }
}

/// Polls until the condition holds.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < TIMEOUT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Sends a command, given as words.
pub async fn ask(connection: &MultiplexedConnection, words: &str) -> Result<Value, Failure> {
    let command = command(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    query(connection.clone(), &command, false).await.map_err(failure)
}

/// Returns the text of a bulk string.
pub fn text(reply: Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8(bytes).expect("a text"),
        other => panic!("{other:?}"),
    }
}

/// Parses the URL of a Redis store.
pub fn redis(url: &str) -> RedisUrl {
    match url.parse() {
        Ok(StoreUrl::Redis(url)) => url,
        other => panic!("{url}: {other:?}"),
    }
}

/// Settings with a timeout that a busy machine meets.
pub fn patient() -> RedisSettings {
    RedisSettings { connect_timeout: Time::seconds(30), ..RedisSettings::default() }
}

/// Returns a connector for the servers of a URL, and the address of the first one.
pub fn connector(url: &str, settings: &RedisSettings) -> (Arc<Connector>, Address) {
    let url = redis(url);
    let connector = Arc::new(Connector::new(Arc::new(OsPlatform), &url, settings));
    match url.topology {
        Topology::Single(address) => (connector, address),
        Topology::Cluster { seeds } => (connector, seeds[0].clone()),
        Topology::Sentinel { sentinels, .. } => (connector, sentinels[0].clone()),
    }
}

/// Makes a pool of at most `size` connections to the server of a URL: the first one, or the master that Sentinels name.
pub fn pool(url: &str, settings: &RedisSettings, size: usize) -> Pool {
    let (connector, address) = connector(url, settings);
    let target = match redis(url).topology {
        Topology::Sentinel { sentinels, master } => {
            Target::Sentinel(Arc::new(Sentinels::new(sentinels, master, Arc::clone(&connector))))
        }
        _ => Target::Fixed(address),
    };
    Pool::new(connector, target, Arc::new(ProbeKey::new("weir:", None)), size, TIMEOUT)
}

/// Opens a connection for checks.
pub async fn connect(url: &str, settings: &RedisSettings) -> Result<Pooled, Failure> {
    pool(url, settings, 1).get().await
}

/// Returns the reason why a connection fails.
pub async fn refused(url: &str, settings: &RedisSettings) -> Failure {
    match connect(url, settings).await {
        Ok(_) => panic!("{url} is connected to"),
        Err(failure) => failure,
    }
}
