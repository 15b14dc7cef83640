//! The messages of a call, cut out of its body: each stands behind a byte that says whether it is compressed, and its length
//! in four.

use std::{
    future::poll_fn,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper::body::Body;
use tonic::Status;

/// Bytes before a message.
const HEAD: usize = 5;

/// The messages of one call.
pub struct Messages<B> {
    body: B,
    most: usize,
    /// What has come and is not taken.
    buffer: Bytes,
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    /// Those of `body`, of at most `most` bytes each.
    pub fn new(body: B, most: usize) -> Self {
        Self { body, most, buffer: Bytes::new() }
    }

    /// The next message, if it is there as a whole.
    ///
    /// # Errors
    /// A status for a message that is compressed or too long.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(message) = self.next_message()? else { return Ok(None) };
        if message.end == self.buffer.len() {
            let mut all = std::mem::take(&mut self.buffer);
            all.advance(message.start);
            return Ok(Some(all));
        }
        let mut taken = self.buffer.split_to(message.end);
        taken.advance(message.start);
        Ok(Some(taken))
    }

    /// Hands over those messages that are there as a whole, until `each` says that it is enough.
    ///
    /// # Errors
    /// As [`Messages::take`].
    pub fn take_while(&mut self, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), Status> {
        let mut more = true;
        while more && let Some(message) = self.next_message()? {
            more = each(&self.buffer[message.clone()]);
            self.buffer.advance(message.end);
        }
        Ok(())
    }

    /// Whether a message is there as a whole.
    pub fn has_next(&self) -> bool {
        matches!(self.next_message(), Ok(Some(_)))
    }

    /// Where the next message is in the buffer.
    #[inline]
    fn next_message(&self) -> Result<Option<Range<usize>>, Status> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = self.length(*head)?;
        Ok((rest.len() >= length).then_some(HEAD..HEAD + length))
    }

    fn length(&self, head: [u8; HEAD]) -> Result<usize, Status> {
        let [compressed, length @ ..] = head;
        if compressed != 0 {
            return Err(Status::unimplemented("messages are read uncompressed alone"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.most {
            let message = format!("a message is at most {} bytes, not {length}", self.most);
            return Err(Status::out_of_range(message));
        }
        Ok(length)
    }

    /// Waits for more bytes. `false`: there are none.
    ///
    /// # Errors
    /// A status where the body breaks off, or ends within a message.
    pub fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Status>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None if self.buffer.is_empty() => return Poll::Ready(Ok(false)),
                None => return Poll::Ready(Err(Status::internal("the call ended within a message"))),
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Poll::Ready(Err(Status::cancelled("the call broke off"))),
            };
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                self.append(data);
                return Poll::Ready(Ok(true));
            }
        }
    }

    fn append(&mut self, data: Bytes) {
        if self.buffer.is_empty() {
            self.buffer = data;
            return;
        }
        let mut all = std::mem::take(&mut self.buffer).try_into_mut().unwrap_or_else(|shared| {
            // Room for the whole message at once, as far as its length may be believed.
            let head = shared.first_chunk::<HEAD>().and_then(|head| self.length(*head).ok());
            let mut all = BytesMut::with_capacity((shared.len() + data.len()).max(HEAD + head.unwrap_or_default()));
            all.put_slice(&shared);
            all
        });
        all.put_slice(&data);
        self.buffer = all.freeze();
    }

    /// The one message of a call that has one, when the caller has nothing more to say.
    ///
    /// # Errors
    /// As [`Messages::take`] and [`Messages::poll_more`], and where there is none or another.
    pub async fn only(mut self) -> Result<Bytes, Status> {
        let message = loop {
            if let Some(message) = self.take()? {
                break message;
            }
            if !poll_fn(|cx| self.poll_more(cx)).await? {
                return Err(Status::invalid_argument("the call has no message"));
            }
        };
        let ended = self.buffer.is_empty() && (self.body.is_end_stream() || !poll_fn(|cx| self.poll_more(cx)).await?);
        if ended { Ok(message) } else { Err(Status::invalid_argument("the call has more than one message")) }
    }
}

/// Makes room for what stands before a message; where it begins.
#[inline]
pub fn begin(out: &mut BytesMut) -> usize {
    let start = out.len();
    out.put_bytes(0, HEAD);
    start
}

/// Fills in what stands before the message that was begun at `start` and is complete.
#[inline]
pub fn finish(out: &mut BytesMut, start: usize) {
    let length = (out.len() - start - HEAD) as u32;
    out[start + 1..start + HEAD].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tonic::Code;

    use super::*;

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let mut out = BytesMut::new();
        for message in messages {
            let start = begin(&mut out);
            out.put_slice(message);
            finish(&mut out, start);
        }
        out.to_vec()
    }

    fn body(pieces: Vec<Vec<u8>>) -> impl Body<Data = Bytes, Error = Status> + Unpin {
        StreamBody::new(stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece.into())))))
    }

    fn only(pieces: Vec<Vec<u8>>, most: usize) -> Result<Bytes, Code> {
        let read = Messages::new(body(pieces), most).only().now_or_never();
        read.expect("all is there").map_err(|status| status.code())
    }

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let messages: [&[u8]; 4] = [b"one", b"", &[7; 1_000], b"four"];
        let bytes = framed(&messages);
        for size in [1, 2, 5, 6, 100, 2_000] {
            let mut cut = Messages::new(body(bytes.chunks(size).map(<[u8]>::to_vec).collect()), 1_000);
            let mut found = Vec::new();
            while poll_fn(|cx| cut.poll_more(cx)).now_or_never().expect("all is there").expect("more or the end") {
                cut.take_while(|message| {
                    found.push(message.to_vec());
                    found.len() != 2
                })
                .expect("messages");
                while let Some(message) = cut.take().expect("messages") {
                    found.push(message.to_vec());
                }
            }
            assert_eq!(found, messages, "cut into {size}");
        }
    }

    #[test]
    fn a_call_with_one_message_has_one() {
        let one = framed(&[b"one"]);
        assert_eq!(only(vec![one.clone()], 3), Ok(Bytes::from_static(b"one")));
        assert_eq!(only(vec![one[..4].to_vec(), vec![], one[4..].to_vec(), vec![]], 3), Ok(Bytes::from_static(b"one")));
        assert_eq!(only(vec![], 3), Err(Code::InvalidArgument));
        assert_eq!(only(vec![framed(&[b"one", b"two"])], 3), Err(Code::InvalidArgument));
        assert_eq!(only(vec![one.clone(), one.clone()], 3), Err(Code::InvalidArgument));
        assert_eq!(only(vec![one.clone()], 2), Err(Code::OutOfRange));
        assert_eq!(only(vec![one[..6].to_vec()], 3), Err(Code::Internal));
        assert_eq!(only(vec![vec![0, 0xff, 0xff, 0xff, 0xff]], 3), Err(Code::OutOfRange), "before it has come");
        assert_eq!(only(vec![[&[1], &one[1..]].concat()], 3), Err(Code::Unimplemented));
    }
}
