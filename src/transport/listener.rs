//! Where the service listens: a TCP address or a unix socket.

use std::{
    fmt, fs, io,
    os::unix::{fs::FileTypeExt, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener, lookup_host};

/// Backlog of connections that the system accepts before we do.
const BACKLOG: i32 = 4_096;

/// An address as it is configured: `host:port` or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Listen {
    /// A host, by name or number, and a port; port 0 takes any.
    Tcp(String),
    /// A unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// A port of the loopback interface.
    pub fn loopback(port: u16) -> Self {
        Self::Tcp(format!("127.0.0.1:{port}"))
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.trim_start_matches("//") {
                "" => Err(format!("`{text}` names no path")),
                path => Ok(Self::Unix(path.into())),
            };
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self::Tcp(text.to_owned())),
            _ => Err(format!("`{text}` is no address; write host:port or unix:PATH")),
        }
    }
}

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Listen> for String {
    fn from(listen: Listen) -> Self {
        listen.to_string()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that listens.
pub enum Listener {
    /// On TCP.
    Tcp(TcpListener),
    /// On a unix socket, whose file goes when this does.
    Unix(UnixListener, SocketFile),
}

/// The file of a unix socket; removed on drop.
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Listens. A socket file that nobody answers on any more is replaced.
    ///
    /// # Errors
    /// When the address cannot be resolved or is taken.
    pub async fn bind(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => bind_tcp(address).await,
            Listen::Unix(path) => {
                remove_stale(path)?;
                Ok(Self::Unix(UnixListener::bind(path)?, SocketFile(path.clone())))
            }
        }
    }

    /// The address, with the port that was taken.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(|address| address.to_string()).unwrap_or_default(),
            Self::Unix(_, file) => format!("unix:{}", file.0.display()),
        }
    }
}

async fn bind_tcp(address: &str) -> io::Result<Listener> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(address).await? {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        match socket.bind(&address.into()).and_then(|()| socket.listen(BACKLOG)) {
            Ok(()) => return Ok(Listener::Tcp(TcpListener::from_std(socket.into())?)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn remove_stale(path: &Path) -> io::Result<()> {
    // To connect to what is no socket is refused as well; that is nobody's to remove.
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        return Ok(());
    }
    match StdUnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers on this socket")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}
