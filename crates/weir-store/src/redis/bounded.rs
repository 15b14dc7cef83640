//! A bound on the size of replies, because the crate `redis` buffers a reply of any size.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that a server may send between two writes to it: more than twice the largest reply to any command used
/// here, even `CLUSTER SLOTS` with 16,384 ranges.
pub(super) const MAX_REPLY_BYTES: usize = 16 << 20;

/// A stream whose reads fail once the bound is exceeded.
pub(super) struct Bounded<S> {
    stream: S,
    /// Bytes received since the last write.
    received: usize,
}

impl<S> Bounded<S> {
    /// Bounds the reads of a stream.
    pub(super) fn new(stream: S) -> Self {
        Self { stream, received: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.received > MAX_REPLY_BYTES {
            return Poll::Ready(Err(io::Error::other("the reply is larger than any valid one")));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.received += buffer.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.received = 0;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn each_write_allows_another_reply() {
        let (ours, mut server) = duplex(64 << 10);
        let mut stream = Bounded::new(ours);
        let sent = tokio::spawn(async move { while server.write_all(&[0; 4_096]).await.is_ok() {} });
        let mut reply = vec![0; MAX_REPLY_BYTES];
        for _ in 0..2 {
            stream.write_all(b"PING").await.unwrap();
            stream.read_exact(&mut reply).await.unwrap();
        }
        let beyond = stream.read_exact(&mut reply).await.unwrap_err();
        assert!(beyond.to_string().contains("larger than any valid one"), "{beyond}");
        drop(stream);
        sent.await.unwrap();
    }
}
