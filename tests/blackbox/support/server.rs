//! A running service with its own directory.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::Channel;
use weir::proto::{CheckRequest, CheckResponse, rate_limiter_client::RateLimiterClient};

use super::{TIMEOUT, eventually, http, pki, weir};

/// Number of lines of the log that a failed test shows.
const LINES_SHOWN: usize = 30;

/// A service process. Drop kills it, and fails the test if the log contains a panic.
pub struct Server {
    child: Child,
    log: Arc<Log>,
    /// The address of the gRPC listener.
    pub grpc: String,
    /// The address of the HTTP listener.
    pub http: String,
    /// The service's directory; the policy is `limits.yaml` in it.
    pub dir: TempDir,
}

/// The log of a service so far.
#[derive(Default)]
struct Log {
    lines: Mutex<Lines>,
    grown: Condvar,
}

#[derive(Default)]
struct Lines {
    text: Vec<String>,
    /// Whether the process has closed its log.
    ended: bool,
    /// Whether the test has stopped reading the log.
    closed: bool,
    /// Whether it has stopped, and keeps the pipe open.
    stalled: bool,
}

/// The configuration of a service.
pub struct Setup {
    command: Command,
    /// The service's directory.
    pub dir: TempDir,
}

impl Setup {
    /// Configures a service on free ports of the loopback interface, without a policy and without a shutdown delay.
    pub fn new() -> Self {
        let mut command = weir();
        command.arg("serve");
        for (name, value) in [
            ("WEIR_GRPC__LISTEN", "127.0.0.1:0"),
            ("WEIR_HTTP__LISTEN", "127.0.0.1:0"),
            ("WEIR_LOG__FORMAT", "json"),
            ("WEIR_ALLOW_ALL", "true"),
            ("WEIR_LIMITS_POLL", "10ms"),
            ("WEIR_SHUTDOWN__DELAY", "0s"),
        ] {
            command.env(name, value);
        }
        Self { command, dir: tempfile::tempdir().expect("a directory") }
    }

    /// Configures the program as `ratelimit`, which reads the variables of envoyproxy/ratelimit, on free ports.
    pub fn ratelimit() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("ratelimit");
        symlink(env!("CARGO_BIN_EXE_weir"), &program).expect("a link");
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null());
        for (name, value) in [
            ("HOST", "127.0.0.1"),
            ("PORT", "0"),
            ("GRPC_HOST", "127.0.0.1"),
            ("GRPC_PORT", "0"),
            ("LOG_FORMAT", "json"),
            ("WEIR_LIMITS_POLL", "10ms"),
            ("WEIR_SHUTDOWN__DELAY", "0s"),
        ] {
            command.env(name, value);
        }
        Self { command, dir }
    }

    /// Sets variables, one a line.
    pub fn variables(self, lines: &str) -> Self {
        lines.lines().fold(self, |setup, line| {
            let (name, value) = line.split_once('=').expect("NAME=value");
            setup.env(name, value)
        })
    }

    /// Runs the program to its end.
    pub fn run(&mut self) -> super::Run {
        super::finish(&mut self.command)
    }

    /// Writes the policy to `limits.yaml`.
    pub fn policy(self, yaml: &str) -> Self {
        let path = self.path("limits.yaml");
        fs::write(&path, yaml).expect("a policy is written");
        self.limits(path)
    }

    /// Uses the policy at this path.
    pub fn limits(mut self, path: PathBuf) -> Self {
        self.command.arg("--limits").arg(path);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn arg(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    /// Writes a file to the directory, and sets a variable to its path.
    pub fn file(self, variable: &str, name: &str, text: &str) -> Self {
        let path = self.path(name);
        pki::put(&path, text);
        self.env(variable, path.to_str().expect("a path"))
    }

    /// Enables TLS on the gRPC port, with `grpc.pem` and `grpc.key`.
    pub fn grpc_tls(self, pair: &pki::Pair) -> Self {
        self.file("WEIR_GRPC__TLS__CERT", "grpc.pem", &pair.cert).file("WEIR_GRPC__TLS__KEY", "grpc.key", &pair.key)
    }

    /// Enables TLS on the HTTP port, with `http.pem` and `http.key`.
    pub fn http_tls(self, pair: &pki::Pair) -> Self {
        self.file("WEIR_HTTP__TLS__CERT", "http.pem", &pair.cert).file("WEIR_HTTP__TLS__KEY", "http.key", &pair.key)
    }

    /// Uses this credentials file, in `auth.yaml`.
    pub fn credentials(self, yaml: &str) -> Self {
        self.file("WEIR_AUTH__FILE", "auth.yaml", yaml)
    }

    /// Uses this shared store, with timeouts that a busy machine meets.
    pub fn shared(self, redis: &weir_test_redis::Server) -> Self {
        let patient =
            self.env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "60s").env("WEIR_STORE__REDIS__CONNECT_TIMEOUT", "60s");
        patient.env("WEIR_STORE__URL", &redis.url())
    }

    /// Keeps the snapshot in this file.
    pub fn snapshot(self, path: impl AsRef<Path>) -> Self {
        self.env("WEIR_STORE__SNAPSHOT__PATH", path.as_ref().to_str().expect("a path"))
    }

    /// Returns a path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the service and waits until it serves.
    pub fn start(self) -> Server {
        self.spawn().serving()
    }

    /// Starts the service without waiting for it.
    pub fn spawn(mut self) -> Server {
        let mut child = self.command.stderr(Stdio::piped()).spawn().expect("the service starts");
        let log = Arc::new(Log::default());
        let stderr = child.stderr.take().expect("its log is captured");
        std::thread::spawn({
            let log = Arc::clone(&log);
            move || log.read(stderr)
        });
        Server { child, log, grpc: String::new(), http: String::new(), dir: self.dir }
    }
}

impl Log {
    fn read(&self, from: impl Read) {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.text.push(line);
            self.grown.notify_all();
            if lines.closed {
                break;
            }
            while lines.stalled {
                lines = self.grown.wait(lines).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.grown.notify_all();
    }
}

impl Server {
    /// Waits until the service serves.
    pub fn serving(mut self) -> Self {
        let serving = self.wait_for_log("serving");
        let address = |field: &str| serving[field].as_str().expect("an address").to_owned();
        (self.grpc, self.http) = (address("grpc"), address("http"));
        self
    }

    /// Starts a service with this policy.
    pub fn with_policy(yaml: &str) -> Self {
        Setup::new().policy(yaml).start()
    }

    /// Returns the log lines so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lines.lock().unwrap_or_else(PoisonError::into_inner).text.clone()
    }

    /// Closes the log after the next line.
    pub fn close_log(&self) {
        self.log.lines.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
    }

    /// Leaves the log open and unread after the next line, until `read_log`.
    pub fn stall_log(&self) {
        self.log.lines.lock().unwrap_or_else(PoisonError::into_inner).stalled = true;
    }

    /// Reads a stalled log again.
    pub fn read_log(&self) {
        self.log.lines.lock().unwrap_or_else(PoisonError::into_inner).stalled = false;
        self.log.grown.notify_all();
    }

    /// Returns the log lines so far with this message.
    pub fn log_lines(&self, message: &str) -> Vec<Value> {
        let lines = self.log().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    /// Waits for a log line with this message.
    pub fn wait_for_log(&self, message: &str) -> Value {
        let found = |lines: &Vec<String>| lines.iter().any(|line| line.contains(&format!("\"message\":\"{message}")));
        let lines = self.log.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.log.grown.wait_timeout_while(lines, TIMEOUT, |lines| !lines.ended && !found(&lines.text));
        drop(waited);
        let first = self.log_lines(message).into_iter().next();
        first.unwrap_or_else(|| panic!("no `{message}` in the log: {:#?}", self.log()))
    }

    /// Returns a client with a separate connection.
    pub async fn client(&self) -> RateLimiterClient<Channel> {
        RateLimiterClient::new(self.channel().await)
    }

    /// Sends a check over a separate connection.
    pub async fn check(&self, request: CheckRequest) -> CheckResponse {
        self.client().await.check(request).await.expect("an answer").into_inner()
    }

    /// Opens a connection.
    pub async fn channel(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.grpc)).expect("an address");
        endpoint.connect().await.expect("it accepts connections")
    }

    /// Gets a path from the HTTP port: status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        http::get(&self.http, path).expect("it answers")
    }

    /// Sends JSON over a separate connection, with this bearer token or without one.
    pub fn ask(&self, request: &str, token: Option<&str>, body: &Value) -> http::Answer {
        let authorization = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        let mut client = http::Client::connect(&self.http).expect("it accepts connections");
        client.ask(request, &headers, body.to_string().as_bytes()).expect("it answers")
    }

    /// Returns a series of `/metrics`, 0 if it is missing.
    pub fn metric(&self, series: &str) -> f64 {
        http::metric(&self.get("/metrics").1, series)
    }

    /// Returns a series of a service that requires a token for metrics.
    pub fn metric_by(&self, token: &str, series: &str) -> f64 {
        http::metric(&self.metrics_by(token), series)
    }

    /// Returns all metrics of such a service.
    pub fn metrics_by(&self, token: &str) -> String {
        let answer = self.ask("GET /metrics", Some(token), &Value::Null);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Waits until a series of such a service is at least this.
    pub fn wait_for_metric_by(&self, token: &str, series: &str, least: f64) {
        eventually(&format!("{series} {least}"), || (self.metric_by(token, series) >= least).then_some(()));
    }

    /// Waits until a series of `/metrics` has this value. It blocks, so connections of the caller's own runtime cannot
    /// close in the meantime.
    pub fn wait_for_metric(&self, series: &str, value: f64) {
        eventually(&format!("{series} {value}"), || (self.metric(series) == value).then_some(()));
    }

    /// Replaces the policy like editors do: a new file is renamed over the old one.
    pub fn replace_policy(&self, yaml: &str) {
        let new = self.dir.path().join(".limits.yaml.new");
        fs::write(&new, yaml).expect("written");
        fs::rename(new, self.dir.path().join("limits.yaml")).expect("renamed");
    }

    /// Runs a client command against the service.
    pub fn run(&self, args: &[&str]) -> super::Run {
        super::finish(weir().args(args).args(["--addr", &self.grpc]))
    }

    /// Runs the load generator against the service.
    pub fn bench(&self, args: &[&str]) -> super::Run {
        super::finish(super::weir_bench().args(args).args(["--addr", &self.grpc]))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Limits the size of the files that it writes (`ulimit -S -f`), or lifts the limit.
    pub fn limit_file_size(&self, bytes: Option<u64>) {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit).expect("it lives");
    }

    /// Returns the names of the threads.
    pub fn threads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("its threads");
        // A thread may have ended in the meantime.
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
        tasks.filter_map(|task| Some(name(task.ok()?)?.trim_end().to_owned())).collect()
    }

    /// Returns the resident memory in bytes.
    pub fn resident(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    }

    /// Whether the process is running.
    pub fn lives(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// Waits for the process to end, and returns its exit code. It blocks: the service waits for open connections, and
    /// connections of the caller's own runtime close only if it has another thread.
    pub fn wait_for_end(&mut self) -> i32 {
        let status = eventually("the service ends", || self.child.try_wait().expect("its state"));
        status.code().unwrap_or_else(|| panic!("a signal ended it: {status}"))
    }

    /// Stops the service with SIGTERM, and waits for its successful end as [`Self::wait_for_end`] does.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.wait_for_end(), 0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let log = self.log();
        if std::thread::panicking() {
            eprintln!("--- the end of a service's log:\n{}", log[log.len().saturating_sub(LINES_SHOWN)..].join("\n"));
        } else {
            assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
        }
    }
}
