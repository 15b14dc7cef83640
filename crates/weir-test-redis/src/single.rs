//! A single server.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use super::{
    eventually, ports,
    process::Process,
    wire::{self, Reply},
};

/// Maximum number of starts, since another process may take the port first.
const MOST_TRIES: usize = 20;
/// Number of log lines that are printed when a test fails.
const LINES_SHOWN: usize = 30;

/// The user of this harness, with all rights and without a password, independent of the test's settings.
pub const HARNESS: &str = "harness";

/// Certificates of a server, as paths of PEM files.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Its certificate.
    pub cert: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// The CA certificate that the server and its clients trust.
    pub ca: PathBuf,
    /// Whether clients need a certificate of the same CA.
    pub clients_too: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Data,
    Sentinel,
    Node,
}

/// The options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    role: Role,
    tcp: bool,
    tls: Option<TlsFiles>,
    settings: Vec<(String, String)>,
}

impl Options {
    /// Makes a server on a unix socket only: the fastest, and no port can be taken by another process.
    pub fn socket() -> Self {
        Self { role: Role::Data, tcp: false, tls: None, settings: Vec::new() }
    }

    /// Makes a server on a loopback port and the socket.
    pub fn port() -> Self {
        Self { tcp: true, ..Self::socket() }
    }

    /// Makes a server on a loopback port with TLS.
    pub fn tls(files: TlsFiles) -> Self {
        Self { tls: Some(files), ..Self::port() }
    }

    /// Makes a Sentinel; `set("sentinel monitor", …)` configures the monitored master.
    pub fn sentinel() -> Self {
        Self { role: Role::Sentinel, ..Self::port() }
    }

    /// Makes a node of a Cluster, without slots.
    pub fn node() -> Self {
        Self { role: Role::Node, ..Self::port() }
    }

    /// Adds a setting of `redis.conf`: `set("maxmemory", "2mb")`, `set("user", "weir on >word ~weir:* +@all")`.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    fn config(&self, dir: &Path, port: u16) -> String {
        let mut text = format!(
            "bind 127.0.0.1\nprotected-mode no\nunixsocket {0}/redis.sock\ndir {0}\nuser {HARNESS} on nopass ~* &* +@all\n",
            dir.display()
        );
        if let Some(TlsFiles { cert, key, ca, clients_too }) = &self.tls {
            let clients = if *clients_too { "yes" } else { "no" };
            let (cert, key, ca) = (cert.display(), key.display(), ca.display());
            text += &format!(
                "port 0\ntls-port {port}\ntls-cert-file {cert}\ntls-key-file {key}\ntls-ca-cert-file {ca}\n\
                 tls-auth-clients {clients}\n"
            );
        } else {
            text += &format!("port {port}\n");
        }
        if self.role != Role::Sentinel {
            text += "save \"\"\nappendonly no\nenable-debug-command yes\nrepl-diskless-sync-delay 0\n\
                     repl-ping-replica-period 1\n";
        }
        if self.role == Role::Node {
            text += "cluster-enabled yes\ncluster-config-file nodes.conf\n";
        }
        for (name, value) in &self.settings {
            text += &format!("{name} {value}\n");
        }
        text
    }

    fn free_port(&self) -> u16 {
        match (self.tcp, self.role) {
            (false, _) => 0,
            (true, Role::Node) => ports::free_with_bus(),
            (true, _) => ports::free(),
        }
    }
}

/// A running server, stopped on drop.
pub struct Server {
    options: Options,
    port: u16,
    dir: PathBuf,
    process: Option<Process>,
}

impl Server {
    /// Starts a server, and waits until it answers.
    pub fn start(options: Options) -> Self {
        let dir = tempfile::Builder::new().prefix("weir-redis-").tempdir().expect("a directory").keep();
        let mut server = Self { options, port: 0, dir, process: None };
        for _ in 0..MOST_TRIES {
            server.port = server.options.free_port();
            fs::write(server.dir.join("redis.conf"), server.options.config(&server.dir, server.port)).expect("written");
            if server.run() {
                return server;
            }
        }
        panic!("no port was free for long enough");
    }

    /// Kills the server (SIGKILL), also a paused one.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Restarts the server, also after [`Server::kill`]: same port, empty, with its initial settings. In a Cluster or
    /// under Sentinels it keeps its last role.
    pub fn restart(&mut self) {
        self.kill();
        eventually("its port is free again", || self.run().then_some(()).ok_or_else(|| "taken".to_owned()));
    }

    /// Starts the process. `true`: it answers; `false`: it has ended because its port was taken.
    fn run(&mut self) -> bool {
        let _ = fs::remove_file(self.socket());
        let log = OpenOptions::new().append(true).create(true).open(self.log_path()).expect("a log");
        let from = log.metadata().expect("a file").len() as usize;
        let sentinel: &[&str] = if self.options.role == Role::Sentinel { &["--sentinel"] } else { &[] };
        let process = Process::start(&[&["redis-server", "redis.conf"], sentinel].concat(), &self.dir, &log);
        let answers = eventually("a server that answers", || {
            if process.has_ended() {
                return Ok(false);
            }
            match self.try_command(&["PING"]) {
                Ok(Reply::SimpleString(_)) => Ok(true),
                other => Err(format!("{other:?}")),
            }
        });
        if !answers {
            let log = self.log();
            let said = log.get(from..).unwrap_or(&log);
            assert!(said.contains("Address already in use"), "redis-server does not start:\n{said}");
            return false;
        }
        self.process = Some(process);
        true
    }

    /// Pauses the server (SIGSTOP): connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// Continues the server (SIGCONT).
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Whether it was not killed and has not ended on its own. It may be paused.
    pub fn is_running(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.has_ended())
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("it was not killed")
    }

    /// Returns its `store.url`: the port if it has one, else the socket. Without user and password.
    pub fn url(&self) -> String {
        match (&self.options, self.port) {
            (_, 0) => format!("redis+unix://{}", self.socket().display()),
            (Options { tls: Some(_), .. }, port) => format!("rediss://127.0.0.1:{port}"),
            (_, port) => format!("redis://127.0.0.1:{port}"),
        }
    }

    /// Returns its port; 0 if it has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("redis.sock")
    }

    /// Returns its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Sends a command with all rights, whatever passwords the test has set, and returns the reply.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn try_command<W: AsRef<[u8]>>(&self, words: &[W]) -> std::io::Result<Reply> {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        wire::ask(&self.socket(), &[&[b"AUTH", HARNESS.as_bytes(), b""], &words])
    }

    /// Sends a command and returns the reply. Panics without a reply and on an error.
    pub fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        let said = || words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect::<Vec<_>>().join(" ");
        match self.try_command(words) {
            Ok(Reply::ServerError(error)) => panic!("{}: {}", said(), wire::error_text(&error)),
            Ok(reply) => reply,
            Err(error) => panic!("{}: {error}", said()),
        }
    }

    /// Sends a command and returns the reply as text, one value per line. Panics without a reply and on an error.
    pub fn cli(&self, words: &[&str]) -> String {
        wire::text(&self.command(words))
    }

    /// Like [`Self::cli`], for a server that may be down or answer an error: returns the reply or the error as text.
    pub fn try_cli(&self, words: &[&str]) -> Result<String, String> {
        match self.try_command(words) {
            Ok(Reply::ServerError(error)) => Err(wire::error_text(&error)),
            Ok(reply) => Ok(wire::text(&reply)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns a field of `INFO`, such as `role`; empty if it is missing.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn info(&self, field: &str) -> Result<String, String> {
        let info = self.try_cli(&["INFO", "everything"])?;
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(value.unwrap_or_default().trim().to_owned())
    }

    /// Returns the number of calls of each command since the last `CONFIG RESETSTAT`.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        let info = self.cli(&["INFO", "commandstats"]);
        let lines = info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
        let counted = lines.map(|(command, rest)| (command.to_owned(), rest.split_once(',').expect("more").0));
        counted.map(|(command, calls)| (command, calls.parse().expect("a number"))).collect()
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES_SHOWN)..];
            eprintln!("--- the end of the log of {}:\n{}", self.url(), last.join("\n"));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
