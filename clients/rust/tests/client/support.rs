//! Services, Redis, and timeouts.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;
use tempfile::TempDir;
use weir_client::{Builder, Check, Client};

/// Timeout of every wait of a test; far above the normal duration, for busy machines.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Users have 3 trades a day and 100 units in all; exports have a concurrency limit.
pub const POLICY: &str = r#"
schema:
  user:
    children:
      "*":
        limits: [{ gcra: { burst: 99, count: 1, period: 1d }, name: per-user }]
        children: { trade: { limits: [{ gcra: { burst: 2, count: 1, period: 1d }, name: trades }] } }
  exports: { children: { "*": { limits: [{ concurrency: { max: 1, ttl: 1m }, name: exports-at-once }] } } }
"#;
pub const TRADE: [&str; 3] = ["user", "alex", "trade"];

pub fn program() -> PathBuf {
    let beside = || env::current_exe().ok()?.parent()?.parent().map(|dir| dir.join("weir"));
    let program = env::var_os("WEIR_BINARY").map(PathBuf::from).or_else(beside).expect("a path");
    assert!(program.exists(), "{} is missing: `cargo build --bin weir`, or name one in WEIR_BINARY", program.display());
    program
}

/// The settings of a service. It can be started repeatedly at the same address.
#[derive(Clone)]
pub struct Setup {
    env: Vec<(String, String)>,
    dir: PathBuf,
}

/// A running service, killed on drop.
pub struct Weir {
    child: Child,
    /// The address of its gRPC listener.
    pub address: String,
    http: String,
}

impl Setup {
    /// Writes this policy to a directory that outlives the setup.
    pub fn new(dir: &TempDir, policy: &str) -> Self {
        let limits = dir.path().join("limits.yaml");
        fs::write(&limits, policy).expect("written");
        let env = [
            ("WEIR_GRPC__LISTEN", "127.0.0.1:0"),
            ("WEIR_HTTP__LISTEN", "127.0.0.1:0"),
            ("WEIR_LOG__FORMAT", "json"),
            ("WEIR_LIMITS_POLL", "10ms"),
            ("WEIR_SHUTDOWN__DELAY", "0s"),
            ("WEIR_LIMITS", text(&limits)),
        ];
        let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { env, dir: dir.path().to_owned() }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Listens on a Unix socket with this name.
    pub fn socket(self, name: &str) -> Self {
        let path = self.dir.join(name);
        self.env("WEIR_GRPC__LISTEN", &format!("unix:{}", text(&path)))
    }

    /// Uses this Redis as shared store, with a long command timeout.
    pub fn shared(self, redis: &Redis) -> Self {
        self.env("WEIR_STORE__URL", &redis.url).env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "60s")
    }

    /// Starts the service and waits until it serves.
    pub fn start(&self) -> Weir {
        let mut command = Command::new(program());
        command.arg("serve").env_clear().envs(self.env.iter().cloned()).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the service starts");
        let stderr = child.stderr.take().expect("piped");
        let (line, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for text in BufReader::new(stderr).lines().map_while(Result::ok) {
                // The pipe is read to its end, so that the service's writes do not block.
                let _ = line.send(text);
            }
        });
        let mut seen = Vec::new();
        let serving = loop {
            let next = lines.recv_timeout(TIMEOUT);
            seen.push(next.unwrap_or_else(|_| panic!("it does not serve: {seen:#?}")));
            let value: Value = serde_json::from_str(&seen[seen.len() - 1]).unwrap_or_default();
            if value["message"] == "serving" {
                break value;
            }
        };
        let address = |name: &str| serving[name].as_str().expect("an address").to_owned();
        Weir { child, address: address("grpc"), http: address("http") }
    }
}

impl Weir {
    /// Starts a service with the [`POLICY`].
    pub fn start(dir: &TempDir) -> Self {
        Setup::new(dir, POLICY).start()
    }

    /// Returns a client with a long deadline and otherwise default options.
    pub fn client(&self) -> Client {
        patient(&self.address).build().expect("a client")
    }

    /// Whether the service has received any check.
    pub fn is_asked(&self) -> bool {
        self.metrics().lines().any(|line| line.starts_with("weir_checks_total{") && !line.ends_with(" 0"))
    }

    /// Returns the number of checks answered over a transport: `grpc`, `grpc_stream`.
    pub fn checks(&self, transport: &str) -> u64 {
        self.sum("weir_checks_total{", &format!("transport=\"{transport}\""))
    }

    /// Returns the number of streams rejected because of `grpc.max_open_streams`.
    pub fn rejected_streams(&self) -> u64 {
        self.sum("weir_requests_rejected_total{", "listener=\"grpc\",reason=\"open\"")
    }

    fn sum(&self, name: &str, label: &str) -> u64 {
        let metrics = self.metrics();
        let samples = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
        samples.map(|line| line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok()).expect("a count")).sum()
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("it accepts connections");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: weir\r\nconnection: close\r\n\r\n").expect("sent");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("an answer");
        page
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Stops the process with SIGSTOP, until SIGCONT.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        waitid(WaitId::Pid(Pid::from_child(&self.child)), WaitIdOptions::STOPPED).expect("our child");
    }

    /// Stops the service gracefully and waits for its exit.
    pub fn end(mut self) {
        self.signal(Signal::TERM);
        let status = self.child.wait().expect("its end");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Redis on its own socket, killed on drop.
pub struct Redis {
    child: Child,
    url: String,
    _dir: TempDir,
}

impl Redis {
    pub fn start() -> Self {
        let dir = dir();
        let socket = dir.path().join("redis.sock");
        let args = ["--port", "0", "--save", "", "--dir", text(dir.path()), "--unixsocket", text(&socket)];
        let child = Command::new("redis-server").args(args).stdout(Stdio::null()).spawn().expect("Redis");
        let started = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(started.elapsed() < TIMEOUT, "Redis does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, url: format!("redis+unix://{}", text(&socket)), _dir: dir }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a service with the [`POLICY`], and a client of it.
pub fn started(dir: &TempDir) -> (Weir, Client) {
    let service = Weir::start(dir);
    let client = service.client();
    (service, client)
}

/// Configures a client with a deadline that even a busy machine meets.
pub fn patient(target: &str) -> Builder {
    Client::builder(target).deadline(TIMEOUT)
}

/// Returns a client whose checks go over a stream that this service has accepted.
pub async fn streaming(service: &Weir) -> Client {
    let client = patient(&service.address).coalesce(true).build().expect("a client");
    until_streaming(&client, service).await;
    client
}

/// Sends checks until one goes over a stream.
pub async fn until_streaming(client: &Client, service: &Weir) {
    let before = service.checks("grpc_stream");
    eventually("a check over a stream", async || {
        client.check(Check::new(["other"])).await.expect("an answer");
        (service.checks("grpc_stream") > before).then_some(())
    })
    .await;
}

pub fn dir() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Polls until there is a value; fails the test after the timeout.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(value) = look().await {
            return value;
        }
        assert!(since.elapsed() < TIMEOUT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
