//! What a shared store takes from the machine that it runs on, besides tokio's runtime: connections, the wall clock and
//! randomness.

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

/// How long a connection may be silent before the system probes its other end, and the pause between two probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A connection's bytes, both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A machine, or a simulated one.
pub trait Machine: Send + Sync + 'static {
    /// Connects to a server.
    fn connect<'a>(&'a self, address: &'a Address) -> BoxFuture<'a, io::Result<Box<dyn Stream>>>;

    /// The wall clock.
    fn wall_clock(&self) -> Micros;

    /// An unguessable random number.
    fn random(&self) -> u64;
}

/// The machine itself.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Machine for System {
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
        // Keyed by the system's randomness.
        RandomState::new().build_hasher().finish()
    }
}

async fn connect_by_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    // At all of its addresses at the same time: one may be behind a wall.
    let addresses = lookup_host((host, port)).await?;
    let (stream, _) = select_ok(addresses.map(|address| Box::pin(TcpStream::connect(address)))).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}
