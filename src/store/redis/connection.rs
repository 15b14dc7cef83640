//! One connection: bytes of commands out, replies in, and a clear word on what certainly was not sent.

use bytes::BytesMut;
use redis_protocol::resp2::{decode::decode, types::OwnedFrame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::store::Failure;

/// What a server answers to one command.
pub type Reply = OwnedFrame;

/// What a connection runs over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// A connection to one server, ready for commands. Deadlines are its user's; whoever gives up on a reply drops it.
pub struct Connection {
    stream: Box<dyn Stream>,
    input: BytesMut,
}

impl Connection {
    /// A connection over an open stream.
    pub fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, input: BytesMut::new() }
    }

    /// Sends commands, already encoded, in one go.
    ///
    /// # Errors
    /// [`Failure::Closed`] when nothing of them was written, [`Failure::Lost`] when some may have been.
    pub async fn send(&mut self, commands: &[u8]) -> Result<(), Failure> {
        let mut written = 0;
        while written < commands.len() {
            match self.stream.write(&commands[written..]).await {
                Ok(0) if written == 0 => return Err(Failure::Closed),
                Err(_) if written == 0 => return Err(Failure::Closed),
                Ok(0) => return Err(Failure::Lost("the connection was closed".into())),
                Err(error) => return Err(Failure::Lost(error.to_string().into())),
                Ok(bytes) => written += bytes,
            }
        }
        self.stream.flush().await.map_err(|error| Failure::Lost(error.to_string().into()))
    }

    /// The next reply.
    ///
    /// # Errors
    /// [`Failure::Lost`] when there is none to come.
    pub async fn receive(&mut self) -> Result<Reply, Failure> {
        loop {
            match decode(&self.input) {
                Ok(Some((reply, length))) => {
                    let _ = self.input.split_to(length);
                    return Ok(reply);
                }
                Ok(None) => {}
                Err(error) => return Err(Failure::Lost(format!("not the Redis protocol: {error}").into())),
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => return Err(Failure::Lost("the connection was closed".into())),
                Ok(_) => {}
                Err(error) => return Err(Failure::Lost(error.to_string().into())),
            }
        }
    }
}
