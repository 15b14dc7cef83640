//! What comes back of a call: messages, and a status at the end.

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, client::ResponseFuture};
use hyper::{HeaderMap, StatusCode};
use percent_encoding::percent_decode;
use tonic::Code;

use super::{PREFIX, answers::Fault};

/// Longest answer that is read, in bytes; a thousand checks with all their levels are far below.
const MAX_ANSWER: usize = 64 << 20;

/// The answers of a call as they come in. What it is told between two polls is kept, so it may be dropped and asked again.
pub enum Incoming {
    /// Not even the head has come.
    Head(ResponseFuture),
    /// The head has come.
    Body(RecvStream),
}

impl Incoming {
    /// The next bytes; `None` after the last, where the status says that all went well.
    ///
    /// # Errors
    /// [`Fault`] for any other status, or when the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            match self {
                Self::Head(response) => {
                    let (head, body) = response.await.map_err(Fault::unavailable)?.into_parts();
                    if head.status != StatusCode::OK {
                        return Err(Fault::new(code_of(head.status), format!("HTTP status {}", head.status)));
                    }
                    // An answer of nothing but a status has it in its head.
                    status(&head.headers).unwrap_or(Ok(()))?;
                    *self = Self::Body(body);
                }
                Self::Body(body) => {
                    let Some(bytes) = body.data().await else { break };
                    return bytes.map(Some).map_err(Fault::unavailable);
                }
            }
        }
        let Self::Body(body) = self else { return Ok(None) };
        let trailers = body.trailers().await.map_err(Fault::unavailable)?;
        let missing = || Err(Fault::new(Code::Unknown, "the answer has no grpc-status"));
        trailers.as_ref().and_then(status).unwrap_or_else(missing).map(|()| None)
    }

    /// So many bytes were read, and the service may send as many more.
    pub fn has_read(&mut self, bytes: usize) {
        if let Self::Body(body) = self {
            // It fails only where more is given back than came.
            let _ = body.flow_control().release_capacity(bytes);
        }
    }
}

/// The one message of an answer, without its prefix.
///
/// # Errors
/// [`Fault`] for a status that is an error, and for an answer of another form.
pub async fn one_message(incoming: &mut Incoming) -> Result<Bytes, Fault> {
    let mut message = Bytes::new();
    while let Some(bytes) = incoming.next().await? {
        // Below the window of a call nothing need be given back before its end.
        if !message.is_empty() || bytes.len() < PREFIX || bytes.len() < PREFIX + length(&bytes) {
            incoming.has_read(bytes.len());
        }
        message = if message.is_empty() { bytes } else { [message, bytes].concat().into() };
        if message.len() > MAX_ANSWER {
            return Err(Fault::new(Code::ResourceExhausted, "the answer is too long"));
        }
    }
    if message.len() < PREFIX || message[0] != 0 || length(&message) + PREFIX != message.len() {
        return Err(Fault::new(Code::Internal, "the answer is not one uncompressed message"));
    }
    Ok(message.split_off(PREFIX))
}

/// The length of a message by its prefix.
fn length(bytes: &[u8]) -> usize {
    bytes[1..PREFIX].iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// Cuts what comes in into messages.
#[derive(Default)]
pub struct Messages {
    /// The beginning of one whose end has not come.
    rest: BytesMut,
}

impl Messages {
    /// Tells each message that is whole, and keeps the rest.
    ///
    /// # Errors
    /// [`Fault`] for a message that is compressed or too long.
    pub fn cut(&mut self, bytes: &[u8], mut tell: impl FnMut(&[u8])) -> Result<(), Fault> {
        if self.rest.is_empty() {
            let whole = cut(bytes, &mut tell)?;
            self.rest.extend_from_slice(&bytes[whole..]);
        } else {
            self.rest.extend_from_slice(bytes);
            let whole = cut(&self.rest, &mut tell)?;
            let _ = self.rest.split_to(whole);
        }
        Ok(())
    }
}

/// How many bytes of these are whole messages, each of which is told.
fn cut(bytes: &[u8], tell: &mut impl FnMut(&[u8])) -> Result<usize, Fault> {
    let mut at = 0;
    while let Some(prefix) = bytes.get(at..at + PREFIX) {
        let length = length(prefix);
        if prefix[0] != 0 || length > MAX_ANSWER {
            return Err(Fault::new(Code::Internal, "an answer is compressed or too long"));
        }
        let Some(message) = bytes.get(at + PREFIX..at + PREFIX + length) else { break };
        tell(message);
        at += PREFIX + length;
    }
    Ok(at)
}

/// The status of a call, where it stands here.
fn status(headers: &HeaderMap) -> Option<Result<(), Fault>> {
    let code = headers.get("grpc-status")?.as_bytes();
    if code == b"0" {
        return Some(Ok(()));
    }
    let message = headers.get("grpc-message").map(|it| percent_decode(it.as_bytes()).decode_utf8_lossy().into_owned());
    Some(Err(Fault::new(Code::from_bytes(code), message.unwrap_or_default())))
}

/// What gRPC takes an answer for that is none of its own.
fn code_of(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_wherever_the_bytes_come_apart() {
        let stream = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x01z";
        for step in 1..=stream.len() {
            let (mut messages, mut told) = (Messages::default(), Vec::new());
            for bytes in stream.chunks(step) {
                messages.cut(bytes, |message| told.push(message.to_vec())).unwrap();
            }
            assert_eq!(told, [&b"abc"[..], b"", b"z"], "{step}");
            assert!(messages.rest.is_empty());
        }
        assert!(Messages::default().cut(b"\x01\0\0\0\0", |_| ()).is_err(), "compressed");
        assert!(Messages::default().cut(b"\0\xff\0\0\0", |_| ()).is_err(), "too long");
    }

    #[test]
    fn a_status_is_read_with_its_message() {
        let headers = |code: &'static str| {
            [("grpc-status", code), ("grpc-message", "no%20key")]
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
        };
        assert_eq!(status(&HeaderMap::from_iter(headers("0"))), Some(Ok(())));
        let fault = Fault::new(Code::InvalidArgument, "no key");
        assert_eq!(status(&HeaderMap::from_iter(headers("3"))), Some(Err(fault)));
        assert_eq!(status(&HeaderMap::new()), None);
        assert_eq!(code_of(StatusCode::BAD_GATEWAY), Code::Unavailable);
        assert_eq!(code_of(StatusCode::NOT_FOUND), Code::Unimplemented);
    }
}
