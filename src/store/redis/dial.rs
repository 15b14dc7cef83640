//! Making a connection: stream, TLS, greeting, database, script, all before one deadline.

use std::{fmt::Display, sync::Arc, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpStream, UnixStream},
    time::{Instant, timeout_at},
};

use super::{
    connection::{Connection, Stream},
    greeting::{Greeting, Mode},
    login::Login,
    settings::RedisSettings,
    tls::Tls,
};
use crate::store::{
    Failure,
    url::{Address, RedisUrl},
};

/// After how long of silence the system asks whether the other end is still there, and again how often.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What is said of a server without the command that every connection begins with.
const TOO_OLD: &str = "the server does not know the command; Redis 6.2 or Valkey is needed";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Checks and resets: to a master, in the database, the script loaded.
    Checks,
    /// Asking any node of a Cluster which nodes there are.
    Topology,
}

/// Makes connections as the settings say. One serves all servers of a store.
pub struct Dialer {
    mode: Mode,
    database: u32,
    login: Login,
    sentinel_login: Login,
    tls: Option<Arc<Tls>>,
    script: Arc<str>,
    timeout: Duration,
}

impl Dialer {
    /// A dialer for the servers of `url`, which are to have `script`.
    pub fn new(url: &RedisUrl, settings: &RedisSettings, script: Arc<str>) -> Self {
        Self {
            mode: Mode::of(&url.topology),
            database: url.database,
            login: Login::to_servers(url.credentials.as_ref(), settings),
            sentinel_login: Login::to_sentinels(&settings.sentinel),
            tls: (url.tls || settings.tls.enabled).then(|| Arc::new(Tls::new(settings.tls.clone()))),
            script,
            timeout: settings.connect_timeout.duration(),
        }
    }

    /// When an attempt that begins now must be over.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// A connection to the server at an address.
    ///
    /// # Errors
    /// [`Failure::Connect`] says what was being done. [`Failure::Refused`] is the server's own word: credentials, rights,
    /// a replica, or data still being read.
    pub async fn dial(&self, address: &Address, purpose: Purpose) -> Result<Connection, Failure> {
        self.dial_by(address, purpose, self.deadline()).await
    }

    pub(super) async fn dial_by(
        &self,
        address: &Address,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Connection, Failure> {
        let mut connection = self.open(address, deadline).await?;
        let as_master = purpose == Purpose::Checks;
        let step = Step { address, deadline };
        step.greet(&mut connection, &self.login).await?.check(address, self.mode, as_master)?;
        if as_master {
            if self.database != 0 {
                let select: [&[u8]; 2] = [b"SELECT", &self.database.to_string().into_bytes()];
                step.answered("SELECT on", connection.command(&select)).await?;
            }
            step.answered("SCRIPT LOAD on", connection.load_script(&self.script)).await?;
        }
        Ok(connection)
    }

    /// A connection to a Sentinel.
    pub(super) async fn dial_sentinel(&self, address: &Address, deadline: Instant) -> Result<Connection, Failure> {
        let mut connection = self.open(address, deadline).await?;
        let greeting = Step { address, deadline }.greet(&mut connection, &self.sentinel_login).await?;
        greeting.check(address, Mode::Sentinel, false)?;
        Ok(connection)
    }

    async fn open(&self, address: &Address, deadline: Instant) -> Result<Connection, Failure> {
        let step = Step { address, deadline };
        let stream: Box<dyn Stream> = match address {
            Address::Unix(path) => Box::new(step.done("connecting to", UnixStream::connect(path)).await?),
            Address::Tcp { host, port } => {
                let stream = step.done("connecting to", TcpStream::connect((host.as_str(), *port))).await?;
                step.done("setting up the socket to", async { tuned(&stream) }).await?;
                Box::new(stream)
            }
        };
        match &self.tls {
            None => Ok(Connection::new(stream)),
            Some(tls) => Ok(Connection::encrypted(step.encrypt(tls, stream).await?)),
        }
    }
}

fn tuned(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Steps of making one connection.
pub(super) struct Step<'a> {
    pub address: &'a Address,
    pub deadline: Instant,
}

impl Step<'_> {
    fn failed(&self, what: &str, why: impl Display) -> Failure {
        Failure::Connect(format!("{what} {}: {why}", self.address).into())
    }

    /// A step that fails for the connection alone.
    async fn done<T, E: Display>(&self, what: &str, work: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
        match timeout_at(self.deadline, work).await {
            Ok(done) => done.map_err(|error| self.failed(what, error)),
            Err(_) => Err(self.failed(what, "no answer in time")),
        }
    }

    /// A step that the server answers. Its refusals keep their code.
    pub async fn answered<T>(&self, what: &str, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match timeout_at(self.deadline, work).await {
            Ok(Err(Failure::Lost(why) | Failure::Server(why))) => Err(self.failed(what, why)),
            Ok(Err(Failure::Closed)) => Err(self.failed(what, "the connection was closed")),
            Ok(answer) => answer,
            Err(_) => Err(self.failed(what, "no answer in time")),
        }
    }

    async fn encrypt(&self, tls: &Arc<Tls>, stream: Box<dyn Stream>) -> Result<Box<dyn Stream>, Failure> {
        let what = "TLS with";
        let name = tls.name_of(self.address).map_err(|error| self.failed(what, error))?;
        let files = Arc::clone(tls);
        let connector = self.done(what, tokio::task::spawn_blocking(move || files.connector())).await?;
        let connector = connector.map_err(|error| self.failed(what, error))?;
        Ok(Box::new(self.done("TLS handshake with", connector.connect(name, stream)).await?))
    }

    async fn greet(&self, connection: &mut Connection, login: &Login) -> Result<Greeting, Failure> {
        let credentials = self.answered("credentials for", login.read()).await?;
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"2"];
        if let Some(credentials) = &credentials {
            let user = if credentials.user.is_empty() { "default" } else { &credentials.user };
            hello.extend([b"AUTH".as_slice(), user.as_bytes(), credentials.password.reveal().as_bytes()]);
        }
        // Named here and not by CLIENT SETNAME, so that its user needs no right for it.
        hello.extend([b"SETNAME".as_slice(), b"weir"]);
        let told = async {
            match connection.command(&hello).await {
                // Servers repeat what they do not know, and with it the password.
                Err(Failure::Server(text)) if text.contains("unknown command") => Err(Failure::Server(TOO_OLD.into())),
                told => told,
            }
        };
        let reply = self.answered("HELLO to", told).await?;
        Greeting::read(&reply).map_err(|why| self.failed("HELLO to", why))
    }
}
