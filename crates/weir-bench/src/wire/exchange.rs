//! The response of a call: messages, then a status.

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, client::ResponseFuture};
use hyper::{HeaderMap, StatusCode};
use percent_encoding::percent_decode;
use tonic::Code;

use super::{PREFIX, answers::Fault};

/// Maximum length of an answer in bytes, far above the length for a thousand checks with all their
/// levels.
const MAX_ANSWER: usize = 64 << 20;

/// The response of a call as it arrives. `next` is cancel-safe.
pub(crate) enum Incoming {
    /// The headers have not arrived.
    Head(ResponseFuture),
    /// The headers have arrived.
    Body(RecvStream),
}

impl Incoming {
    /// Returns the next bytes; `None` after the last ones, if the status is OK.
    ///
    /// # Errors
    /// [`Fault`] for any other status, or if the connection breaks.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            match self {
                Self::Head(response) => {
                    let (head, body) = response.await.map_err(Fault::unavailable)?.into_parts();
                    if head.status != StatusCode::OK {
                        return Err(Fault::new(code_of(head.status), format!("HTTP status {}", head.status)));
                    }
                    // A trailers-only response has its status in the headers.
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

    /// Returns `bytes` of flow-control capacity to the service.
    pub(crate) fn release(&mut self, bytes: usize) {
        if let Self::Body(body) = self {
            // Fails only if more is released than was received.
            let _ = body.flow_control().release_capacity(bytes);
        }
    }
}

/// Reads the single message of a unary response, without its prefix.
///
/// # Errors
/// [`Fault`] for an error status or a malformed response.
pub(crate) async fn one_message(incoming: &mut Incoming) -> Result<Bytes, Fault> {
    let mut message = Bytes::new();
    while let Some(bytes) = incoming.next().await? {
        // A message that arrives in one piece is smaller than the stream window: no capacity must be released before
        // the end.
        if !message.is_empty() || bytes.len() < PREFIX || bytes.len() < PREFIX + length(&bytes) {
            incoming.release(bytes.len());
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

/// Returns the length of a message, from its prefix.
fn length(bytes: &[u8]) -> usize {
    bytes[1..PREFIX].iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// A splitter of a byte stream into messages.
#[derive(Default)]
pub(crate) struct Messages {
    /// The start of an incomplete message.
    rest: BytesMut,
}

impl Messages {
    /// Calls `each` with every complete message, and keeps the rest.
    ///
    /// # Errors
    /// [`Fault`] for a compressed or too long message.
    pub(crate) fn cut(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), Fault> {
        if self.rest.is_empty() {
            let whole = cut(bytes, &mut each)?;
            self.rest.extend_from_slice(&bytes[whole..]);
        } else {
            self.rest.extend_from_slice(bytes);
            let whole = cut(&self.rest, &mut each)?;
            let _ = self.rest.split_to(whole);
        }
        Ok(())
    }
}

/// Calls `each` with every complete message, and returns the length of all of them.
fn cut(bytes: &[u8], each: &mut impl FnMut(&[u8])) -> Result<usize, Fault> {
    let mut at = 0;
    while let Some(prefix) = bytes.get(at..at + PREFIX) {
        let length = length(prefix);
        if prefix[0] != 0 || length > MAX_ANSWER {
            return Err(Fault::new(Code::Internal, "an answer is compressed or too long"));
        }
        let Some(message) = bytes.get(at + PREFIX..at + PREFIX + length) else { break };
        each(message);
        at += PREFIX + length;
    }
    Ok(at)
}

/// Returns the status in these headers, if any.
fn status(headers: &HeaderMap) -> Option<Result<(), Fault>> {
    let code = headers.get("grpc-status")?.as_bytes();
    if code == b"0" {
        return Some(Ok(()));
    }
    let message = headers.get("grpc-message").map(|it| percent_decode(it.as_bytes()).decode_utf8_lossy().into_owned());
    Some(Err(Fault::new(Code::from_bytes(code), message.unwrap_or_default())))
}

/// Returns the gRPC code of an HTTP status without `grpc-status`, by gRPC's http-grpc-status-mapping.
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
    fn messages_are_split_at_any_chunk_boundary() {
        let stream = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x01z";
        for step in 1..=stream.len() {
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            for bytes in stream.chunks(step) {
                messages.cut(bytes, |message| found.push(message.to_vec())).unwrap();
            }
            assert_eq!(found, [&b"abc"[..], b"", b"z"], "{step}");
            assert!(messages.rest.is_empty());
        }
        assert!(Messages::default().cut(b"\x01\0\0\0\0", |_| ()).is_err(), "compressed");
        assert!(Messages::default().cut(b"\0\xff\0\0\0", |_| ()).is_err(), "too long");
    }

    #[test]
    fn a_grpc_status_is_parsed_with_its_message() {
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
