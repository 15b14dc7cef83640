//! The codec by which tonic serves Weir's own calls: it hands over each message as its bytes, to be read with our own bounds,
//! and takes each answer as its bytes, so that neither is made a generated message on the way.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::Grpc,
};

/// Room for a request of usual length, when its call begins.
const REQUEST_BYTES: usize = 512;
/// Room for the answer of a unary call, and for what precedes it on the wire; for the first answers of a stream.
const ANSWER_BYTES: usize = 256;
/// Bytes of answers that a stream sends in one piece, where so many are ready: a DATA frame of HTTP/2.
pub const FRAME_BYTES: usize = 16 << 10;
/// The length prefix of a gRPC message: compressed flag and length.
pub const PREFIX_BYTES: usize = 5;

/// Messages as their bytes.
#[derive(Clone, Copy, Debug)]
pub struct BytesCodec {
    growth_bytes: usize,
}

/// Serves one unary call, whose message is at most `max_message_bytes` long, also after it was decompressed.
pub fn unary(max_message_bytes: usize) -> Grpc<BytesCodec> {
    serve(0, max_message_bytes)
}

/// Serves one stream of such messages.
pub fn streaming(max_message_bytes: usize) -> Grpc<BytesCodec> {
    serve(FRAME_BYTES, max_message_bytes)
}

fn serve(growth_bytes: usize, max_message_bytes: usize) -> Grpc<BytesCodec> {
    Grpc::new(BytesCodec { growth_bytes })
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(max_message_bytes)
}

impl Codec for BytesCodec {
    type Encode = BytesMut;
    type Decode = Bytes;
    type Encoder = BytesEncoder;
    type Decoder = BytesDecoder;

    fn encoder(&mut self) -> BytesEncoder {
        BytesEncoder { growth_bytes: self.growth_bytes }
    }

    fn decoder(&mut self) -> BytesDecoder {
        BytesDecoder
    }
}

/// Writes answers.
#[derive(Clone, Copy, Debug)]
pub struct BytesEncoder {
    /// Least by which the room for answers grows.
    growth_bytes: usize,
}

impl Encoder for BytesEncoder {
    type Item = BytesMut;
    type Error = Status;

    #[inline]
    fn encode(&mut self, answer: BytesMut, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // A stream that has not answered yet holds no room for a whole frame.
        if out.chunk_mut().len() < answer.len() {
            out.reserve(answer.len().max(self.growth_bytes));
        }
        out.put_slice(&answer);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(ANSWER_BYTES, FRAME_BYTES)
    }
}

/// Reads messages.
// Without fields, so that tonic's box for it is not allocated.
#[derive(Clone, Copy, Debug)]
pub struct BytesDecoder;

impl Decoder for BytesDecoder {
    type Item = Bytes;
    type Error = Status;

    #[inline]
    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(REQUEST_BYTES, FRAME_BYTES)
    }
}
