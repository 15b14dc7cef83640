//! Listening sockets: a TCP address or a unix socket.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::UnixStream as StdUnixStream,
    },
    path::{Path, PathBuf},
};

use socket2::SockRef;
use tokio::net::{TcpListener, UnixListener, lookup_host};

use crate::{Listen, address::KEEPALIVE, connection::Accepted};

/// Backlog of connections that the kernel accepts before this process does.
const BACKLOG: i32 = 4_096;

/// A listening socket.
pub enum Listener {
    /// A TCP socket.
    Tcp(TcpListener),
    /// A unix socket, whose file is removed on drop.
    Unix(UnixListener, Option<SocketFile>),
}

/// The file of a unix socket, removed on drop if it is still the same file.
pub struct SocketFile {
    path: PathBuf,
    /// Its device and inode.
    file: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: file(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have replaced it.
        if file(&self.path).is_ok_and(|file| file == self.file) {
            // It may be gone already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the device and the inode of a file.
fn file(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

impl Listener {
    /// Listens on an address, by the runtime that calls it. A stale socket file is replaced.
    ///
    /// # Errors
    /// The address cannot be resolved or is in use.
    pub(crate) async fn bind(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => bind_tcp(address).await,
            Listen::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                Ok(Self::Unix(listener, Some(SocketFile::at(path)?)))
            }
        }
    }

    /// Accepts a connection.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Tcp(stream.into_std()?, canonical(peer)))
            }
            Self::Unix(listener, _) => listener.accept().await?.0.into_std().map(Accepted::Unix),
        }
    }

    /// Removes the file of a unix socket, so that no further client connects.
    pub(crate) fn close(&mut self) {
        if let Self::Unix(_, file) = self {
            // Later there may be a successor's file at the same path.
            *file = None;
        }
    }

    /// Accepts a connection of the backlog, if there is one. Asks the kernel instead of relying on the readiness that
    /// the runtime has seen.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, and the errors of `accept`.
    pub(crate) fn accept_now(&self) -> io::Result<Accepted> {
        let (socket, peer) = match self {
            Self::Tcp(listener) => SockRef::from(listener).accept()?,
            Self::Unix(listener, _) => SockRef::from(listener).accept()?,
        };
        socket.set_nonblocking(true)?;
        Ok(match peer.as_socket() {
            Some(peer) => Accepted::Tcp(socket.into(), canonical(peer)),
            None => Accepted::Unix(socket.into()),
        })
    }

    /// Returns the address, with the actual port.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(|address| address.to_string()).unwrap_or_default(),
            Self::Unix(_, file) => {
                file.as_ref().map(|file| format!("unix:{}", file.path.display())).unwrap_or_default()
            }
        }
    }
}

fn socket(address: SocketAddr) -> io::Result<socket2::Socket> {
    socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)
}

/// Returns the address of a peer, as IPv4 if it has connected by IPv4, also on a dual-stack socket.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

async fn bind_tcp(address: &str) -> io::Result<Listener> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name resolves to no address");
    for mut address in lookup_host(address).await? {
        let is_dual_stack = address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED);
        let mut made = socket(address);
        // A machine without IPv6 has the addresses of IPv4 alone.
        if made.is_err() && is_dual_stack {
            address.set_ip(Ipv4Addr::UNSPECIFIED.into());
            made = socket(address);
        }
        let socket = match made {
            Ok(socket) => socket,
            Err(error) => {
                last = error;
                continue;
            }
        };
        if address.is_ipv6() && is_dual_stack {
            socket.set_only_v6(false)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        // Accepted sockets inherit these.
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(&KEEPALIVE)?;
        match socket.bind(&address.into()).and_then(|()| socket.listen(BACKLOG)) {
            Ok(()) => return Ok(Listener::Tcp(TcpListener::from_std(socket.into())?)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {}
        // Connecting to it would fail as well, and it must not be removed.
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket")),
        Err(_) => return Ok(()),
    }
    match StdUnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process answers on this socket")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn accepted_sockets_send_at_once_and_are_probed_when_silent() {
        let tcp = Listener::bind(&Listen::Tcp("127.0.0.1:0".to_owned())).await.unwrap();
        let _client = std::net::TcpStream::connect(tcp.address()).unwrap();
        let Accepted::Tcp(stream, _) = tcp.accept().await.unwrap() else { panic!("by TCP") };
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
    }

    #[tokio::test]
    async fn all_addresses_are_those_of_ipv4_too() {
        let tcp = Listener::bind(&Listen::Tcp("[::]:0".to_owned())).await.unwrap();
        let (_, port) = tcp.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
        let client = std::net::TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let Accepted::Tcp(_, peer) = tcp.accept().await.unwrap() else { panic!("by TCP") };
        assert_eq!(peer, client.local_addr().unwrap());
    }

    #[tokio::test]
    async fn a_closed_listener_still_has_its_backlog() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut unix = Listener::bind(&Listen::Unix(path.clone())).await.unwrap();
        let mut tcp = Listener::bind(&Listen::Tcp("127.0.0.1:0".to_owned())).await.unwrap();
        let _clients = (StdUnixStream::connect(&path).unwrap(), std::net::TcpStream::connect(tcp.address()).unwrap());
        for listener in [&mut unix, &mut tcp] {
            listener.close();
            assert!(listener.accept_now().is_ok());
            assert_eq!(listener.accept_now().err().unwrap().kind(), io::ErrorKind::WouldBlock);
        }
        assert!(!path.exists(), "a closed socket has no file");
    }
}
