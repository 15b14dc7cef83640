//! gRPC at the level of bytes, over an HTTP/2 client without gRPC support, which shows exactly the bytes sent.

use bytes::{BufMut, Bytes};
use h2::client::SendRequest;
use hyper::{HeaderMap, Request};
use tokio::net::TcpStream;
use tonic::Code;

use super::in_time;

#[derive(Clone)]
pub struct Plain(SendRequest<Bytes>);

/// The raw answer to a call.
#[derive(Debug)]
pub struct Answer {
    /// The response headers.
    pub headers: HeaderMap,
    /// Whether the response ended with its headers (trailers-only).
    pub is_head_alone: bool,
    /// The bytes between headers and trailers.
    pub body: Bytes,
    /// The trailers, possibly empty.
    pub trailers: HeaderMap,
}

impl Answer {
    /// Returns the status, from headers or trailers.
    pub fn code(&self) -> Code {
        let status = self.headers.get("grpc-status").or_else(|| self.trailers.get("grpc-status")).expect("a status");
        Code::from_bytes(status.as_bytes())
    }

    /// Decodes its only message.
    pub fn message<M: prost::Message + Default>(&self) -> M {
        assert_eq!(self.code(), Code::Ok, "{self:?}");
        M::decode(self.body.slice(5..)).expect("a message")
    }
}

impl Plain {
    pub async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("it accepts connections");
        let (send, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        Self(send)
    }

    /// Returns the HTTP status of a call with this content type, or without one.
    pub async fn status(&self, path: &str, kind: Option<&str>, body: Bytes) -> u16 {
        let mut request = Request::post(format!("http://localhost{path}"));
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let mut send = self.0.clone().ready().await.expect("open");
        let (answer, mut stream) = send.send_request(request.body(()).expect("a request"), false).expect("sent");
        stream.send_data(body, true).expect("sent");
        in_time("an answer", answer).await.expect("an answer").status().as_u16()
    }

    /// Makes a call with this body, and waits for its end.
    pub async fn call(&self, path: &str, headers: &[(&'static str, &str)], body: Bytes) -> Answer {
        in_time("an answer", self.begin(path, headers, body, true)).await
    }

    /// Makes a call without ending its request stream.
    pub async fn call_without_end(&self, path: &str, headers: &[(&'static str, &str)], body: Bytes) -> Answer {
        in_time("an answer", self.begin(path, headers, body, false)).await
    }

    async fn begin(&self, path: &str, headers: &[(&'static str, &str)], body: Bytes, ends: bool) -> Answer {
        let mut request = Request::post(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut send = self.0.clone().ready().await.expect("open");
        let (answer, mut stream) = send.send_request(request.body(()).expect("a request"), false).expect("sent");
        stream.send_data(body, ends).expect("sent");
        let (head, mut rest) = answer.await.expect("an answer").into_parts();
        assert_eq!(head.status, 200);
        let is_head_alone = rest.is_end_stream();
        let mut body = Vec::new();
        while let Some(data) = rest.data().await {
            let data = data.expect("the rest of an answer");
            rest.flow_control().release_capacity(data.len()).expect("read");
            body.extend_from_slice(&data);
        }
        let trailers = rest.trailers().await.expect("the end of an answer").unwrap_or_default();
        Answer { headers: head.headers, is_head_alone, body: body.into(), trailers }
    }
}

/// Adds the gRPC prefix to a message: compressed flag and length.
pub fn framed(message: &[u8], is_compressed: bool) -> Bytes {
    let mut bytes = vec![u8::from(is_compressed)];
    bytes.put_u32(message.len() as u32);
    bytes.put_slice(message);
    bytes.into()
}
