//! Servers, and connections to them as the store makes them.

use std::{path::PathBuf, sync::Arc};

use weir_settings::Time;
use weir_store::{
    Failure, StoreUrl,
    machine::System,
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

/// A running server.
pub struct Server {
    redis: redis_servers::Server,
    /// Its port, unless it listens on its socket alone.
    pub port: u16,
}

impl Server {
    /// A server that listens on a unix socket alone, with these lines of `redis.conf`.
    pub fn unix(lines: &[&str]) -> Self {
        Self::start(Options::socket(), lines)
    }

    /// A server that listens on a port of the loopback interface too.
    pub fn tcp(lines: &[&str]) -> Self {
        Self::start(Options::port(), lines)
    }

    /// A server whose port takes TLS.
    pub fn tls(files: TlsFiles) -> Self {
        Self::start(Options::tls(files), &[])
    }

    /// A node of a Cluster, without slots.
    pub fn node() -> Self {
        Self::start(Options::node(), &[])
    }

    /// A Sentinel that watches the master on this port, with more lines of its file.
    pub fn sentinel(master: u16, lines: &[&str]) -> Self {
        let watching = Options::sentinel().set("sentinel monitor", &format!("mymaster 127.0.0.1 {master} 1"));
        let sentinel = Self::start(watching, lines);
        // It looks at what it watches every ten seconds, and at who was demoted after eight: long for a test.
        sentinel.run("SENTINEL DEBUG INFO-PERIOD 300 PUBLISH-PERIOD 300");
        sentinel
    }

    fn start(options: Options, lines: &[&str]) -> Self {
        let set = |options: Options, line: &&str| {
            let (name, value) = line.split_once(' ').expect("a name and a value");
            options.set(name, value)
        };
        let redis = redis_servers::Server::start(lines.iter().fold(options, set));
        Self { port: redis.port(), redis }
    }

    /// A path in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.redis.dir().join(name)
    }

    /// The URL of its unix socket, with credentials.
    pub fn url(&self, credentials: &str) -> String {
        format!("redis+unix://{credentials}{}", self.redis.socket().display())
    }

    /// A connection of an operator, with all rights.
    pub async fn admin(&self) -> MultiplexedConnection {
        let info: ConnectionInfo =
            ConnectionAddr::Unix(self.redis.socket()).into_connection_info().expect("an address");
        let settings = info.redis_settings().clone().set_username(redis_servers::HARNESS).set_password("");
        let client = Client::open(info.set_redis_settings(settings)).expect("an address");
        client.get_multiplexed_async_connection().await.expect("connected")
    }

    /// The reply to a command, whose parts are separated by spaces.
    pub fn run(&self, command: &str) -> String {
        self.redis.cli(&command.split(' ').collect::<Vec<_>>())
    }

    /// The same, if the command may fail.
    pub fn try_run(&self, command: &str) -> Result<String, String> {
        self.redis.try_cli(&command.split(' ').collect::<Vec<_>>())
    }
}

/// The answer to a command, whose parts stand between spaces.
pub async fn ask(connection: &MultiplexedConnection, words: &str) -> Result<Value, Failure> {
    let command = command(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>());
    query(connection.clone(), &command, false).await.map_err(failure)
}

/// A reply that is a text.
pub fn text(reply: Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8(bytes).expect("a text"),
        other => panic!("{other:?}"),
    }
}

/// The URL of a store that is no memory.
pub fn redis(url: &str) -> RedisUrl {
    match url.parse() {
        Ok(StoreUrl::Redis(url)) => url,
        other => panic!("{url}: {other:?}"),
    }
}

/// Settings that fail no test on a busy machine.
pub fn patient() -> RedisSettings {
    RedisSettings { connect_timeout: Time::seconds(30), ..RedisSettings::default() }
}

/// What connects to the servers of a URL, and the address of the first.
pub fn connector(url: &str, settings: &RedisSettings) -> (Arc<Connector>, Address) {
    let url = redis(url);
    let connector = Arc::new(Connector::new(Arc::new(System), &url, settings));
    match url.topology {
        Topology::Single(address) => (connector, address),
        Topology::Cluster { seeds } => (connector, seeds[0].clone()),
        Topology::Sentinel { sentinels, .. } => (connector, sentinels[0].clone()),
    }
}

/// A pool of at most so many connections to the server of a URL: the first one, or the master that Sentinels name.
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

/// Connects for checks.
pub async fn connect(url: &str, settings: &RedisSettings) -> Result<Pooled, Failure> {
    pool(url, settings, 1).get().await
}

/// Why the connection failed.
pub async fn refused(url: &str, settings: &RedisSettings) -> Failure {
    match connect(url, settings).await {
        Ok(_) => panic!("{url} is connected to"),
        Err(failure) => failure,
    }
}
