//! A service in the process of the tests, in virtual time. Messages to a Unix socket arrive immediately.

use std::{path::Path, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use http::{HeaderMap, Response};
use prost::Message;
use tokio::{
    net::UnixListener,
    sync::mpsc,
    task::JoinSet,
    time::{interval, pause},
};
use tonic::Code;

/// A call that waits for its answer. It is reset when dropped.
pub(crate) struct Call {
    /// The method's name, such as `Check`.
    pub(crate) method: String,
    response: SendResponse<Bytes>,
}

impl Call {
    pub(crate) fn answer(self, message: &impl Message) {
        self.end(Some(message.encode_to_vec()), Code::Ok);
    }

    /// Accepts the call, which for a stream is its opening, and then ends it with this status.
    pub(crate) fn fail(self, code: Code) {
        self.end(None, code);
    }

    fn end(mut self, message: Option<Vec<u8>>, code: Code) {
        let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a response");
        // The client may have given up.
        let Ok(mut body) = self.response.send_response(head, false) else { return };
        if let Some(message) = message {
            let mut frame = BytesMut::new();
            frame.put_u8(0);
            frame.put_u32(u32::try_from(message.len()).expect("a short message"));
            frame.put_slice(&message);
            body.send_data(frame.freeze(), false).expect("sent");
        }
        let status = ("grpc-status".parse().expect("a name"), i32::from(code).into());
        body.send_trailers(HeaderMap::from_iter([status])).expect("sent");
    }
}

/// Pauses the clock. Each wait for a socket then lasts until the next timer, so there is one every millisecond.
pub(crate) fn virtual_time() {
    pause();
    tokio::spawn(async {
        let mut tick = interval(Duration::from_millis(1));
        loop {
            tick.tick().await;
        }
    });
}

/// Serves on this socket. Returns the calls; when they are dropped, the service ends with its connections.
pub(crate) fn serve(socket: &Path) -> mpsc::UnboundedReceiver<Call> {
    let (sender, calls) = mpsc::unbounded_channel();
    let listener = UnixListener::bind(socket).expect("a free socket");
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let connection = tokio::select! {
                accepted = listener.accept() => accepted.expect("a connection").0,
                () = sender.closed() => return,
            };
            let sender = sender.clone();
            connections.spawn(async move {
                let mut connection = h2::server::handshake(connection).await.expect("HTTP/2");
                while let Some(Ok((request, response))) = connection.accept().await {
                    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                    // The test may have ended.
                    let _ = sender.send(Call { method, response });
                }
            });
        }
    });
    calls
}
