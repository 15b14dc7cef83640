//! Shared fixtures: runs of the program, a running service, and its clients.

pub mod collector;
pub mod control_plane;
pub mod crowd;
pub mod envoy;
pub mod gateway;
pub mod grpc_server;
pub mod http;
mod load;
pub mod overrides;
pub mod pki;
pub mod plain;
pub mod quotas;
pub mod raw;
pub mod requests;
pub mod reservations;
pub mod server;
pub mod slots;

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

pub use load::weir_bench;
pub use server::Server;

/// Timeout of every wait of a test; far above the normal duration, for busy machines.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two evaluations of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the command of the program, in an environment without settings.
pub fn weir() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// A finished run of the program.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Run {
    /// Parses standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Parses standard output as one JSON value per line.
    pub fn json_lines(&self) -> Vec<Value> {
        let value = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        self.out.lines().map(value).collect()
    }
}

/// Runs the program with these arguments to its end.
pub fn run<S: AsRef<str>>(args: &[S]) -> Run {
    finish(weir().args(args.iter().map(AsRef::as_ref)))
}

/// Runs a command to its end, at most for the timeout.
pub fn finish(command: &mut Command) -> Run {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let out = child.stdout.take().map(reader).expect("captured");
    let err = child.stderr.take().map(reader).expect("captured");
    let since = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("its state") {
            break status;
        }
        if since.elapsed() > TIMEOUT {
            child.kill().expect("killed");
            child.wait().expect("its end");
            panic!("{command:?} does not end; it printed {:?}, and on standard error {:?}", out.join(), err.join());
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let text = |reader: JoinHandle<String>| reader.join().expect("the program prints UTF-8");
    Run { code: status.code().expect("no signal ended it"), out: text(out), err: text(err) }
}

/// A process that is killed on drop.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).expect("the program prints UTF-8");
        text
    })
}

/// Runs the program with `input` as its standard input.
pub fn run_with<S: AsRef<str>>(args: &[S], input: &str) -> Run {
    let mut input_file = tempfile::tempfile().expect("a file");
    input_file.write_all(input.as_bytes()).expect("written");
    std::io::Seek::rewind(&mut input_file).expect("rewound");
    finish(weir().args(args.iter().map(AsRef::as_ref)).stdin(input_file))
}

/// A directory of files, removed on drop.
pub struct Folder(TempDir);

impl Folder {
    /// Makes an empty directory.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    /// Makes a directory with these files.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let folder = Self::new();
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    /// Writes a file. Returns its path.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Returns the path of a file or directory in it.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a path").to_owned()
    }
}

/// Polls until there is a value; fails the test after the timeout.
pub fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(since.elapsed() < TIMEOUT, "not in time: {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Like [`eventually`], for conditions that are checked over the network.
pub async fn eventually_async<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(value) = poll().await {
            return value;
        }
        assert!(since.elapsed() < TIMEOUT, "not in time: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Awaits a future; fails the test after the timeout.
pub async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(TIMEOUT, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}
