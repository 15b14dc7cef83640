//! Lingering close: writes end immediately, reads continue until the client closes too, so that the last bytes are not
//! lost.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Timeout for the client to close its side.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Size of one discarding read.
const DISCARD_BYTES: usize = 4 << 10;
/// Maximum number of discarded bytes: those that a client may have sent before it received the close. A client that
/// sends more is not waited for.
const MAX_DISCARDED_BYTES: usize = 64 << 10;

/// A shutdown that waits until the client has closed its side.
// A client may send a call just as it receives GOAWAY. If the socket were closed by then, that write would fail, and
// the client would not know that the call was not processed.
#[derive(Default)]
pub(crate) struct Linger {
    timeout: Option<Pin<Box<Sleep>>>,
    discarded_bytes: usize,
}

impl Linger {
    pub(crate) fn poll_shutdown<I: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { timeout, discarded_bytes } = self;
        let timeout = match timeout {
            Some(timeout) => timeout,
            None => {
                ready!(Pin::new(&mut *io).poll_shutdown(cx))?;
                timeout.insert(Box::pin(sleep(LINGER_TIMEOUT)))
            }
        };
        if timeout.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        while *discarded_bytes < MAX_DISCARDED_BYTES {
            let mut bytes = [0; DISCARD_BYTES];
            let mut discarded = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut *io).poll_read(cx, &mut discarded)) {
                Ok(()) if !discarded.filled().is_empty() => *discarded_bytes += discarded.filled().len(),
                // The client has closed its side or disconnected.
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
        runtime::Handle,
        time::Instant,
    };

    use super::*;
    use crate::fair_queue::{FairQueue, FairStream};

    fn lingering(io: DuplexStream) -> FairStream<DuplexStream> {
        FairStream::new(io, FairQueue::start(&Handle::current()))
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_for_the_client_to_close() {
        let (server, mut client) = duplex(64);
        let mut server = lingering(server);
        server.write_all(b"last").await.unwrap();
        let shutdown = tokio::spawn(async move { server.shutdown().await });
        let mut seen = Vec::new();
        client.read_to_end(&mut seen).await.unwrap();
        assert_eq!(seen, b"last");
        client.write_all(&[0; 1_000]).await.unwrap();
        assert!(!shutdown.is_finished());
        drop(client);
        shutdown.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_does_not_wait_for_a_client_that_keeps_sending() {
        let (server, mut client) = duplex(MAX_DISCARDED_BYTES);
        let started = Instant::now();
        client.write_all(&vec![0; MAX_DISCARDED_BYTES]).await.unwrap();
        lingering(server).shutdown().await.unwrap();
        assert_eq!(started.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_ends_without_the_client_after_one_second() {
        let (server, client) = duplex(64);
        let started = Instant::now();
        lingering(server).shutdown().await.unwrap();
        assert!((LINGER_TIMEOUT..LINGER_TIMEOUT * 2).contains(&started.elapsed()));
        drop(client);
    }
}
