//! One connection: bytes of commands out, replies in, and a clear word on what certainly was not sent.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};

use bytes::BytesMut;
use redis_protocol::resp2::{
    decode::decode,
    encode::encode_borrowed,
    types::{BorrowedFrame, OwnedFrame},
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::{nesting, term::Term};
use crate::store::Failure;

/// Longest reply in bytes; a server that sends a longer one is given up.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// What a server answers to one command.
pub type Reply = OwnedFrame;

/// What a connection runs over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// A connection to one server, ready for commands. Deadlines are its user's; whoever gives up on a reply drops it.
pub struct Connection {
    stream: Box<dyn Stream>,
    /// The stream may have sent something although its first write failed.
    encrypted: bool,
    input: BytesMut,
    /// False while something is sent or received, and for good once that has failed or was given up midway.
    whole: bool,
    script_sha: Arc<str>,
    term: Term,
}

impl Connection {
    /// A connection over an open stream of the system.
    pub fn new(stream: Box<dyn Stream>) -> Self {
        let (input, script_sha, term) = (BytesMut::new(), Arc::default(), Term::default());
        Self { stream, encrypted: false, input, whole: true, script_sha, term }
    }

    /// A connection over a stream of TLS. It cuts what is written into records, and a write that fails at the second has
    /// sent the first: nothing certainly was not sent.
    pub fn encrypted(stream: Box<dyn Stream>) -> Self {
        Self { encrypted: true, ..Self::new(stream) }
    }

    /// The same, usable for as long as `term` lasts.
    pub fn during(self, term: Term) -> Self {
        Self { term, ..self }
    }

    /// The name under which the server has the script; empty before it was loaded.
    pub fn script_sha(&self) -> &str {
        &self.script_sha
    }

    /// Loads the script that the connection is for.
    ///
    /// # Errors
    /// [`Failure`] as of [`Self::command`].
    pub async fn load_script(&mut self, script: &str) -> Result<(), Failure> {
        match self.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]).await? {
            Reply::BulkString(sha) => self.script_sha = String::from_utf8_lossy(&sha).into(),
            _ => return Err(Failure::Server("SCRIPT LOAD does not answer with a hash".into())),
        }
        Ok(())
    }

    /// Sends one command and awaits its reply.
    ///
    /// # Errors
    /// [`Failure`] as of [`Self::send`] and [`Self::receive`]; a server's error is what [`Failure::of_server`] makes of it.
    pub async fn command(&mut self, args: &[&[u8]]) -> Result<Reply, Failure> {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, args);
        self.send(&bytes).await?;
        match self.receive().await? {
            Reply::Error(text) => Err(Failure::of_server(&text)),
            reply => Ok(reply),
        }
    }

    /// Sends commands, already encoded, in one go.
    ///
    /// # Errors
    /// [`Failure::Closed`] when nothing of them was written, [`Failure::Lost`] when some may have been.
    pub async fn send(&mut self, commands: &[u8]) -> Result<(), Failure> {
        self.whole = false;
        let mut written = 0;
        while let Some(rest) = commands.get(written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest).await {
                Ok(0) | Err(_) if written == 0 && !self.encrypted => return Err(Failure::Closed),
                Ok(0) => return Err(Failure::Lost("the connection was closed".into())),
                Err(error) => return Err(Failure::Lost(error.to_string().into())),
                Ok(bytes) => written += bytes,
            }
        }
        self.stream.flush().await.map_err(|error| Failure::Lost(error.to_string().into()))?;
        self.whole = true;
        Ok(())
    }

    /// The next reply.
    ///
    /// # Errors
    /// [`Failure::Lost`] when there is none to come.
    pub async fn receive(&mut self) -> Result<Reply, Failure> {
        self.whole = false;
        loop {
            if !nesting::is_bounded(&self.input) {
                return Err(Failure::Lost("not the Redis protocol: arrays within arrays".into()));
            }
            match decode(&self.input) {
                Ok(Some((reply, length))) => {
                    let _ = self.input.split_to(length);
                    self.whole = true;
                    return Ok(reply);
                }
                Ok(None) if self.input.len() < MAX_REPLY_BYTES => {}
                Ok(None) => return Err(Failure::Lost(format!("a reply of over {MAX_REPLY_BYTES} bytes").into())),
                Err(error) => return Err(Failure::Lost(format!("not the Redis protocol: {error}").into())),
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => return Err(Failure::Lost("the connection was closed".into())),
                Ok(_) => {}
                Err(error) => return Err(Failure::Lost(error.to_string().into())),
            }
        }
    }

    /// Whether commands can be sent, as far as can be told without waiting: it is open, nothing has gone wrong on it, the
    /// server has said nothing unasked, and its term lasts.
    pub fn is_usable(&mut self) -> bool {
        let (mut byte, mut context) = ([0], Context::from_waker(Waker::noop()));
        // Something to read is either a reply that nobody awaits or the end.
        let unasked = Pin::new(&mut self.stream).poll_read(&mut context, &mut ReadBuf::new(&mut byte));
        self.whole &= self.input.is_empty() && unasked.is_pending() && !self.term.is_over();
        self.whole
    }
}

/// Appends a command as the protocol writes it.
pub fn encode_command(out: &mut Vec<u8>, args: &[&[u8]]) {
    let args: smallvec::SmallVec<[_; 16]> = args.iter().map(|arg| BorrowedFrame::BulkString(arg)).collect();
    let command = BorrowedFrame::Array(&args);
    let start = out.len();
    out.resize(start + command.encode_len(false), 0);
    // The room is what the command says that it takes, so this cannot fail.
    let written = out.get_mut(start..).and_then(|room| encode_borrowed(room, &command, false).ok()).unwrap_or_default();
    out.truncate(start + written);
}
