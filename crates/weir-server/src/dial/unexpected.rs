//! Error messages for a server that speaks another protocol than the client expects.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use rustls::CertificateError;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Content types of the TLS records with which a server answers bytes that are not TLS.
const TLS_ALERT: u8 = 21;
const TLS_HANDSHAKE: u8 = 22;
/// The first byte of an HTTP/1 response. HTTP/2 starts with the length of a frame, whose first byte is far lower.
const HTTP_1: u8 = b'H';

/// The protocol mismatch, once it is detected. An HTTP/2 client may hide the error of its connection behind another
/// one.
pub(super) type Unexpected = Arc<OnceLock<String>>;

/// Advice for connections to a server that does not answer as expected, in terms of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    /// The server at this authority requires TLS.
    pub requires_tls: fn(&str) -> String,
    /// The server answers without TLS.
    pub without_tls: &'static str,
    /// The setting of the CA bundle.
    pub ca: &'static str,
    /// The setting of the server's expected name.
    pub server_name: &'static str,
}

/// A connection without TLS, whose first byte shows whether the server speaks HTTP/2.
pub(super) struct Plain {
    stream: TcpStream,
    /// The server's address, until the first byte.
    authority: Option<String>,
    hints: Hints,
    found: Unexpected,
}

impl Plain {
    pub(super) fn new(stream: TcpStream, authority: &str, hints: Hints, found: Unexpected) -> Self {
        Self { stream, authority: Some(authority.to_owned()), hints, found }
    }

    /// Returns the error for a server whose answer starts with this byte, or that closes before the first byte.
    fn unexpected(&mut self, first: Option<u8>) -> Option<io::Error> {
        let authority = self.authority.take()?;
        let https = (self.hints.requires_tls)(&authority);
        let found = match first {
            Some(TLS_ALERT | TLS_HANDSHAKE) => format!("{authority} requires TLS: {https}"),
            Some(HTTP_1) => format!("{authority} answers in HTTP/1, which is not gRPC"),
            Some(_) => return None,
            // The last bytes of a server may be lost with its connection.
            None => format!("{authority} closed the connection without an answer; if it requires TLS, {https}"),
        };
        Some(io::Error::new(ErrorKind::InvalidData, self.found.get_or_init(|| found).as_str()))
    }

    /// Returns the reason of a failed write: a server that has closed the connection may have answered before.
    fn reason(&mut self, cx: &mut Context<'_>, error: io::Error) -> io::Error {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        // The result does not matter, only whether there is a byte.
        let _ = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        self.unexpected(buffer.filled().first().copied()).unwrap_or(error)
    }
}

impl AsyncRead for Plain {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, has_capacity) = (buffer.filled().len(), buffer.remaining() > 0);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if self.authority.is_none() || !has_capacity {
            return Poll::Ready(read);
        }
        let first = buffer.filled().get(before).copied();
        Poll::Ready(self.unexpected(first).map_or(read, Err))
    }
}

impl AsyncWrite for Plain {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(written.map_err(|error| self.reason(cx, error)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices));
        Poll::Ready(written.map_err(|error| self.reason(cx, error)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Adds a hint to the error of a TLS handshake, where the remedy is clear.
pub(super) fn explained(error: io::Error, Hints { without_tls, ca, server_name, .. }: Hints) -> io::Error {
    use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext, UnknownIssuer};
    let hint = match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(rustls::Error::InvalidMessage(_)) => {
            return io::Error::new(error.kind(), format!("the server answers without TLS: {without_tls}"));
        }
        Some(rustls::Error::InvalidCertificate(cause)) => match cause {
            UnknownIssuer => format!("no known CA signed it; {ca} names the CA bundle"),
            NotValidForName | NotValidForNameContext { .. } => format!("{server_name} names one that it has"),
            Expired | ExpiredContext { .. } => "the server needs a new one".to_owned(),
            CertificateError::Other(_) => format!("{ca} names it if it is self-signed"),
            _ => return error,
        },
        None if error.kind() == ErrorKind::UnexpectedEof => "does this port speak TLS?".to_owned(),
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}
