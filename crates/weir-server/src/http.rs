//! HTTP of a connection: its timeouts, windows and buffers.

use std::time::Duration;

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto,
};

use crate::server::ConnectionSettings;

/// Timeout for the head of an HTTP/1 request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a request's header list over HTTP/2.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Maximum read buffer over HTTP/1, in bytes; the head of a request must fit in it.
const MAX_HTTP1_BUFFER_BYTES: usize = 64 << 10;
/// Flow-control window of a connection, in bytes: held for streams that do not read their requests because their
/// answers are not read. Eight such streams block all others. For a distant client a large batch takes a round trip for
/// each 64 KiB.
// Half of it is h2's budget for unread frames of less than 256 bytes, beyond which it ends the connection. It must
// cover the bytes read in one turn, 12 KiB: 179 KB of the budget if all messages are as small as can be.
pub const MAX_HELD_REQUEST_BYTES: u32 = 512 << 10;
/// Flow-control window of a stream, in bytes: the default of HTTP/2.
const MAX_HELD_STREAM_BYTES: u32 = (64 << 10) - 1;
/// Bytes of answers that a stream buffers for a slow reader before it stops producing.
const MAX_SEND_BUFFER_BYTES: usize = 32 << 10;
/// Maximum number of reset calls of a connection that h2 holds before it reports them: more than fit in a turn, since
/// [`Connected::count_rapid_reset`](crate::Connected::count_rapid_reset) counts the resets of all turns.
const MAX_PENDING_RESETS: usize = 1_024;
/// Maximum number of calls that are reset for protocol errors, in the lifetime of a connection. Correct clients cause
/// none, except by requests that cross a GOAWAY.
const MAX_RESETS_FOR_ERRORS: usize = 1_024;

/// Makes the builder of connections.
pub(crate) fn builder(settings: &ConnectionSettings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .max_concurrent_streams(settings.max_streams)
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_connection_window_size(MAX_HELD_REQUEST_BYTES)
        .initial_stream_window_size(MAX_HELD_STREAM_BYTES)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_RESETS_FOR_ERRORS);
    if settings.http2_only {
        // gRPC clients do not need the date.
        builder.http2().auto_date_header(false);
        builder = builder.http2_only();
    }
    builder
}
