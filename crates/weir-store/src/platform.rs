//! The operating-system services that a shared store uses in addition to tokio's runtime, so that tests can simulate
//! them: connections, the wall clock and randomness.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    io,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use deadpool_redis::redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use futures_util::future::{BoxFuture, select_ok};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream, lookup_host},
};

use crate::url::Address;
use weir_core::domain::Micros;

/// Idle time before the first TCP keepalive probe, and the interval between probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The real operating system, or a simulated one.
pub trait Platform: Send + Sync + 'static {
    /// Connects to a server.
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;

    /// Returns the wall clock in microseconds since 1970.
    fn wall_clock(&self) -> Micros;

    /// Returns an unpredictable random number.
    fn random(&self) -> u64;
}

/// The real operating system.
#[derive(Clone, Copy, Debug)]
pub struct OsPlatform;

impl Platform for OsPlatform {
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            Ok(match address {
                Address::Unix(path) => Box::new(UnixStream::connect(path).await?) as Box<dyn Stream>,
                Address::Tcp { host, port } => Box::new(connect_by_tcp(host, *port).await?),
            })
        })
    }

    fn wall_clock(&self) -> Micros {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as Micros
    }

    fn random(&self) -> u64 {
        // std seeds `RandomState` from the operating system.
        RandomState::new().build_hasher().finish()
    }
}

async fn connect_by_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    // Connects to all resolved addresses concurrently and keeps the first connection: a firewall may drop packets to
    // some.
    let addresses = lookup_host((host, port)).await?;
    let (stream, _) = select_ok(addresses.map(|address| Box::pin(TcpStream::connect(address)))).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}
