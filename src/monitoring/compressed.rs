//! A large page, kept compressed until its client reads it.

use std::{
    io::{self, Read as _, Write as _},
    iter,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures_util::stream;
use weir_server::AnswerBytes;

/// Size of the pieces that a client without gzip gets.
const PIECE_BYTES: usize = 64 << 10;

/// Returns `text` compressed.
///
/// # Errors
/// None is expected: it is written to memory.
pub(super) fn compress(text: &str) -> io::Result<Bytes> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes())?;
    gzip.finish().map(Bytes::from)
}

/// Returns a compressed page as the response to a request with these headers.
pub(super) fn respond(gzip: Bytes, request: &HeaderMap) -> Response {
    let varies = [(header::VARY, "accept-encoding")];
    if accepts_gzip(request) {
        return (varies, [(header::CONTENT_ENCODING, "gzip")], gzip).into_response();
    }
    let mut response = (varies, Body::empty()).into_response();
    response.extensions_mut().insert(AnswerBytes(gzip.len() + PIECE_BYTES));
    response.map(|_| Body::from_stream(stream::iter(pieces(gzip))))
}

fn pieces(gzip: Bytes) -> impl Iterator<Item = io::Result<Bytes>> {
    let mut text = GzDecoder::new(io::Cursor::new(gzip));
    iter::from_fn(move || {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let read = text.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece);
        read.map(|bytes| (bytes > 0).then(|| piece.into())).transpose()
    })
}

/// Whether a request's `accept-encoding` lists gzip (RFC 9110, section 12.5.3).
fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_unwanted = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok()) == Some(0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_unwanted
    })
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_page_is_kept_compressed_and_sent_in_pieces_or_as_it_is() {
        let text: String = (0..10_000).map(|line| format!("weir_checks_total{{domain=\"api\"}} {line}\n")).collect();
        let gzip = compress(&text).unwrap();
        let plain = respond(gzip.clone(), &HeaderMap::new());
        let kept = plain.extensions().get().map(|AnswerBytes(bytes)| *bytes);
        assert!(kept.unwrap() < text.len() / 2, "{kept:?} of {}", text.len());
        let mut received = String::new();
        let mut pieces = plain.into_body().into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            received.push_str(str::from_utf8(&piece).unwrap());
        }
        assert!(received == text);

        let takes_gzip = HeaderMap::from_iter([(header::ACCEPT_ENCODING, "gzip".parse().unwrap())]);
        let compressed = respond(gzip, &takes_gzip);
        assert_eq!(compressed.headers()[header::CONTENT_ENCODING], "gzip");
        let bytes = to_bytes(compressed.into_body(), usize::MAX).await.unwrap();
        assert!(io::read_to_string(GzDecoder::new(&*bytes)).unwrap() == text);
    }

    #[test]
    fn gzip_is_sent_to_those_that_list_it() {
        for (listed, expected) in [
            (None, false),
            (Some("gzip"), true),
            (Some("br, GZIP;q=0.5"), true),
            (Some("gzip;q=0, deflate"), false),
            (Some("gzip; q=0.000"), false),
            (Some("identity"), false),
            (Some("x-gzip-like"), false),
        ] {
            let headers = listed.map(|listed| (header::ACCEPT_ENCODING, listed.parse().unwrap()));
            assert_eq!(accepts_gzip(&headers.into_iter().collect()), expected, "{listed:?}");
        }
    }
}
