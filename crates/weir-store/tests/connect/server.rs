//! Servers with a directory of their own, ended when they are dropped.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use weir_settings::Time;
use weir_store::{
    Failure, StoreUrl,
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

use deadpool_redis::redis::{Client, ConnectionAddr, Value, aio::MultiplexedConnection};
use tempfile::TempDir;

/// Longest wait for what must come.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Ports that are tried: a free one may be taken by another process before the server has it.
const ATTEMPTS: usize = 5;

/// A running server.
pub struct Server {
    child: Child,
    /// Its port, unless it listens on its socket alone.
    pub port: u16,
    /// Its directory, with `redis.sock`.
    pub dir: TempDir,
}

impl Server {
    /// A server that listens on a unix socket alone.
    pub fn unix(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self::start(dir, 0, &["--port", "0"], options).expect("the server starts")
    }

    /// A server that listens on a port of the loopback interface too.
    pub fn tcp(options: &[&str]) -> Self {
        Self::on_free_port("--port", options)
    }

    /// A server whose port takes TLS.
    pub fn tls(options: &[&str]) -> Self {
        Self::on_free_port("--tls-port", &[&["--port", "0"], options].concat())
    }

    fn on_free_port(option: &str, options: &[&str]) -> Self {
        let mut started = (0..ATTEMPTS).filter_map(|_| {
            let port = free_port();
            Self::start(tempfile::tempdir().expect("a directory"), port, &[option, &port.to_string()], options)
        });
        started.next().expect("the server starts")
    }

    fn start(dir: TempDir, port: u16, listen: &[&str], options: &[&str]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command.args(listen).args(["--bind", "127.0.0.1", "--unixsocket"]).arg(dir.path().join("redis.sock"));
        command.args(["--save", "", "--repl-diskless-sync-delay", "0", "--dir"]).arg(dir.path()).args(options);
        let child = command.stdout(Stdio::piped()).spawn().expect("redis-server is installed");
        Self { child, port, dir }.ready("eady to accept connections")
    }

    /// A Sentinel that watches `mymaster` on a port, with more lines for its file.
    pub fn sentinel(master: u16, lines: &str) -> Self {
        let mut started = (0..ATTEMPTS).filter_map(|_| {
            let (dir, port) = (tempfile::tempdir().expect("a directory"), free_port());
            let file = dir.path().join("sentinel.conf");
            let watch = format!("sentinel monitor mymaster 127.0.0.1 {master} 1");
            let text = format!("port {port}\nbind 127.0.0.1\ndir {}\n{watch}\n{lines}\n", dir.path().display());
            std::fs::write(&file, text).expect("written");
            let mut command = Command::new("redis-server");
            command.arg(&file).arg("--sentinel").stdout(Stdio::piped());
            let child = command.spawn().expect("redis-server is installed");
            Self { child, port, dir }.ready("+monitor master")
        });
        started.next().expect("the Sentinel starts")
    }

    /// Waits until it says so; `None` when it ends before.
    fn ready(mut self, word: &str) -> Option<Self> {
        let mut lines = BufReader::new(self.child.stdout.take().expect("captured")).lines().map_while(Result::ok);
        let ready = lines.any(|line| line.contains(word));
        // It would stop if nobody read what it writes.
        std::thread::spawn(move || lines.for_each(drop));
        ready.then_some(self)
    }

    /// A path in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A URL of its unix socket, with what may stand before the path.
    pub fn url(&self, credentials: &str) -> String {
        format!("redis+unix://{credentials}{}", self.path("redis.sock").display())
    }

    /// A connection as an operator's, without any of what a connector does.
    pub async fn admin(&self) -> MultiplexedConnection {
        operator(ConnectionAddr::Unix(self.path("redis.sock"))).await
    }

    /// The same by its port, which Sentinels have alone.
    pub async fn admin_by_port(&self) -> MultiplexedConnection {
        operator(ConnectionAddr::Tcp("127.0.0.1".to_owned(), self.port)).await
    }

    /// Has it carry out a command, whose parts stand between spaces.
    pub async fn run(&self, command: &str) -> Value {
        ask(&self.admin().await, command).await.expect("an answer")
    }
}

async fn operator(address: ConnectionAddr) -> MultiplexedConnection {
    let client = Client::open(address).expect("an address");
    client.get_multiplexed_async_connection().await.expect("connected")
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of the loopback interface on which nobody listens.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
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
    let connector = Arc::new(Connector::new(&url, settings));
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
    Pool::new(connector, target, Arc::new(ProbeKey::new("weir:", None)), size, PATIENCE)
}

/// Connects for checks.
pub async fn connect(url: &str, settings: &RedisSettings) -> Result<Pooled, Failure> {
    pool(url, settings, 1).get().await
}

/// Why there is no connection.
pub async fn refused(url: &str, settings: &RedisSettings) -> Failure {
    match connect(url, settings).await {
        Ok(_) => panic!("{url} is connected to"),
        Err(failure) => failure,
    }
}
