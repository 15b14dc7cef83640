use std::{io, time::Duration};

use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use super::{connection::Connection, target::Location};

/// A connection attempt that takes longer fails, and is retried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// HTTP/2 keepalive: a dead peer is noticed within 35 s, on idle connections too.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Dialer {
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<super::Tls>,
}

impl Dialer {
    /// Returns a connection, and a future that completes when it takes no more calls.
    pub(super) async fn connect(
        &self,
        to: &Location,
    ) -> Result<(Connection, impl Future<Output = ()> + use<>), String> {
        match timeout(CONNECT_TIMEOUT, self.open(to)).await {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(error)) => Err(format!("{to}: {error}")),
            Err(_) => Err(format!("{to}: no connection within {CONNECT_TIMEOUT:?}")),
        }
    }

    async fn open(&self, to: &Location) -> io::Result<(Connection, impl Future<Output = ()> + use<>)> {
        let (stream, origin) = self.stream(to).await?;
        let origin = origin.parse().map_err(io::Error::other)?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let (connection, closing) = Connection::new(to.clone(), sender, origin);
        let driver = async move {
            let _closing = closing;
            if let Err(error) = driver.await {
                tracing::debug!(%error, "connection closed");
            }
        };
        Ok((connection, driver))
    }

    /// Opens a byte stream. Returns it with the origin for its calls.
    async fn stream(&self, to: &Location) -> io::Result<(Box<dyn Stream>, String)> {
        let (address, host) = match to {
            Location::Tcp(address, host) => (address, host),
            // A Unix socket has no authority, but HTTP/2 requires one.
            #[cfg(unix)]
            Location::Unix(path) => {
                return Ok((Box::new(tokio::net::UnixStream::connect(path).await?), "http://localhost".to_owned()));
            }
            #[cfg(not(unix))]
            Location::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let host_in_uri = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        let authority = format!("{host_in_uri}:{}", address.port());
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return Ok((Box::new(tls.connect(stream, host).await?), format!("https://{authority}")));
        }
        Ok((Box::new(stream), format!("http://{authority}")))
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
