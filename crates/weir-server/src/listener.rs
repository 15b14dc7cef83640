//! Where the service listens: a TCP address or a unix socket.

use std::{
    fs, io,
    os::unix::{fs::FileTypeExt, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
};

use tokio::net::{TcpListener, UnixListener, lookup_host};

use crate::Listen;

/// Backlog of connections that the system accepts before we do.
const BACKLOG: i32 = 4_096;

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
    /// Listens. A stale socket file is replaced.
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
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name resolves to no address");
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
    // Connecting to a file that is not a socket is refused as well; such a file is not removed.
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()) {
        return Ok(());
    }
    match StdUnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers on this socket")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}
