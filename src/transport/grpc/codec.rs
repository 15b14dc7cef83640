//! The codec with which tonic serves Weir's own calls. It passes each message as bytes, which the call decodes within
//! our own bounds, and takes each answer as bytes. No generated message is built in between.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper::HeaderMap;
use tonic::{
    Code, Status,
    codec::{BufferSettings, Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder},
    server::Grpc,
};

/// Initial buffer for a request, enough for one of usual length.
const REQUEST_BYTES: usize = 512;
/// Initial buffer for the answer of a unary call with its prefix, or for the first answers of a stream.
const ANSWER_BYTES: usize = 256;
/// Bytes of ready answers that a stream sends in one piece: a DATA frame of HTTP/2.
pub const FRAME_BYTES: usize = 16 << 10;

/// A codec that passes messages as bytes.
#[derive(Clone, Copy, Debug)]
pub struct BytesCodec {
    growth_bytes: usize,
}

/// Returns a server for one unary call, whose message has at most `max_message_bytes`, also after decompression.
pub fn unary(max_message_bytes: usize) -> Grpc<BytesCodec> {
    serve(0, max_message_bytes)
}

/// Returns a server for one stream of such messages.
pub fn streaming(max_message_bytes: usize) -> Grpc<BytesCodec> {
    serve(FRAME_BYTES, max_message_bytes)
}

/// Returns a server for one stream of such messages, which may not be compressed.
pub fn uncompressed_stream(max_message_bytes: usize) -> Grpc<BytesCodec> {
    Grpc::new(BytesCodec { growth_bytes: FRAME_BYTES }).max_decoding_message_size(max_message_bytes)
}

/// Whether tonic has rejected a message beyond the bound, by the headers or trailers of its answer. No call of ours is
/// answered with OUT_OF_RANGE; beyond the bound after decompression tonic answers RESOURCE_EXHAUSTED, as we do under
/// load, but with its own text.
pub fn is_too_large(headers: &HeaderMap) -> bool {
    Status::from_header_map(headers).is_some_and(|status| match status.code() {
        Code::OutOfRange => true,
        Code::ResourceExhausted => status.message().starts_with("Error decompressing: size limit"),
        _ => false,
    })
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

/// Encodes answers.
#[derive(Clone, Copy, Debug)]
pub struct BytesEncoder {
    /// Minimum growth of the buffer for answers.
    growth_bytes: usize,
}

impl Encoder for BytesEncoder {
    type Item = BytesMut;
    type Error = Status;

    #[inline]
    fn encode(&mut self, answer: BytesMut, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // A stream that has not answered yet holds no buffer for a whole frame.
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

/// Decodes messages.
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
