use std::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use metrics::Gauge;
use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex},
    runtime::Handle,
    task::{JoinHandle, yield_now},
    time::Instant,
};
use tokio_rustls::TlsConnector;
use weir_settings::Time;
use weir_telemetry::Registry;

use super::*;
use crate::{
    Traffic,
    connection_slots::ConnectionSlots,
    metrics::TlsMetrics,
    tls::{ListenerTls, TlsFiles},
    unread,
};

/// Maximum number of bytes that one connection reads before others have their turn: its first portion, the shared
/// budget, and a turn.
const MAX_BYTES_AT_ONCE: u64 = (2 + 8 + 12) << 10;

/// The server's end of a connection, which counts the bytes that are read.
struct Counted(DuplexStream, Arc<AtomicU64>);

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.0).poll_read(cx, buffer);
        self.1.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Answers a request once its body is complete, with a large body for one path. Only requests for these paths authenticate
/// the client.
struct Reader(Connected);

const AUTHENTICATED: &str = "/authenticated";
const LARGE: &str = "/authenticated/large";
const LARGE_BYTES: usize = 1 << 20;

impl Serve for Reader {
    type Body = Full<Bytes>;

    fn on(&self, connected: Connected) -> Self {
        Self(connected)
    }

    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let in_flight = self.0.begin(path.starts_with(AUTHENTICATED));
        let _ = request.into_body().collect().await;
        let large = || self.0.unread(LARGE_BYTES, Some(in_flight)).unwrap().with(vec![b'x'; LARGE_BYTES].into());
        Response::new(Full::new(if path == LARGE { large() } else { Bytes::new() }))
    }
}

/// Makes a connection with TLS and one of these slots, and the certificate of its port.
fn connection(slots: &Arc<ConnectionSlots>, drain: &Drain, traffic: Traffic) -> (Connection<Reader>, RootCertStore) {
    let registry = Registry::default();
    let (key, params) = (KeyPair::generate().unwrap(), CertificateParams::new(["weir".to_owned()]).unwrap());
    let certificate = params.self_signed(&key).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let (cert, key) = (file("crt", certificate.pem()), file("key", key.serialize_pem()));
    let settings = ListenerTls { cert, key, ..ListenerTls::default() };
    let files = TlsFiles::read(&settings, &[b"http/1.1"], None).unwrap();
    let tls = Arc::new(Tls::new(&settings, files, TlsMetrics::new(&registry, "test")));
    let handshake = tls.slot().unwrap();
    let (metrics, activity) = (Arc::new(ListenerMetrics::new(&registry, "test")), Arc::new(Activity::new(true)));
    let slot = slots.take(Arc::clone(&activity)).unwrap();
    let made = Connection {
        service: Arc::new(Reader(Connected::new(drain.clone()))),
        settings: ConnectionSettings { name: "test", http2_only: false, max_connections: 1, max_streams: 1, traffic },
        drain: drain.clone(),
        tls: Some((tls, handshake)),
        clients: None,
        metrics,
        activity,
        unread: Unread::new(&unread::of_port()),
        slot,
        queue: FairQueue::start(&Handle::current()),
    };
    let mut trusted = RootCertStore::empty();
    trusted.add(certificate.der().clone()).unwrap();
    (made, trusted)
}

#[tokio::test]
async fn turns_count_the_bytes_on_the_wire_also_under_tls() {
    const BODY_BYTES: usize = 30_000;
    let (connection, trusted) =
        connection(&ConnectionSlots::new(1, Gauge::noop()), &Drain::default(), Traffic::default());
    let (server, client) = duplex(4 << 20);
    let read = Arc::new(AtomicU64::new(0));
    tokio::spawn(connection.encrypted(Counted(server, Arc::clone(&read)), "127.0.0.1:1".parse().unwrap()));
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(trusted);
    let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
    let name = ServerName::try_from("weir").unwrap();
    let mut client = connector.connect(name, client).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nhost: weir\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    // Each byte is a record of 23 bytes. All wait to be read before the server runs.
    let (_, tls) = client.get_mut();
    tls.set_buffer_limit(None);
    for _ in 0..BODY_BYTES {
        std::io::Write::write_all(&mut tls.writer(), b"x").unwrap();
    }
    let answer = tokio::spawn(async move {
        client.flush().await.unwrap();
        let mut status = [0; 12];
        client.read_exact(&mut status).await.unwrap();
        status
    });
    let mut most = 0;
    while !answer.is_finished() {
        let before = read.load(Ordering::Relaxed);
        yield_now().await;
        most = most.max(read.load(Ordering::Relaxed) - before);
    }
    assert_eq!(&answer.await.unwrap(), b"HTTP/1.1 200");
    assert!(read.load(Ordering::Relaxed) > 20 * BODY_BYTES as u64);
    assert!(most <= MAX_BYTES_AT_ONCE, "{most} bytes were read at once");
}

/// Starts the drain. The task returns whether it has ended in time.
fn start_drain(drain: &Drain) -> JoinHandle<bool> {
    let drain = drain.clone();
    tokio::spawn(async move { drain.finish(Duration::from_secs(60)).await })
}

/// Starts the drain, or takes the slot of the only connection for another one.
fn drain_or_evict(is_drained: bool, drain: &Drain, slots: &Arc<ConnectionSlots>) -> Option<Arc<ConnectionSlot>> {
    if is_drained {
        start_drain(drain);
        return None;
    }
    slots.take(Arc::new(Activity::new(false)))
}

/// Serves a connection with one request for `path`, whose body never comes. Returns when it ends, and the client.
async fn unfinished(
    slots: &Arc<ConnectionSlots>,
    drain: &Drain,
    path: &str,
    traffic: Traffic,
) -> (JoinHandle<Instant>, DuplexStream) {
    let (connection, _) = connection(slots, drain, traffic);
    let (server, mut client) = duplex(1 << 10);
    let served = drain.track(connection.plain(server, None));
    let end = tokio::spawn(async move {
        served.await.unwrap();
        Instant::now()
    });
    client
        .write_all(format!("POST {path} HTTP/1.1\r\nhost: weir\r\ncontent-length: 9\r\n\r\n").as_bytes())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    (end, client)
}

#[tokio::test(start_paused = true)]
async fn the_drain_waits_for_clients_that_have_authenticated_and_briefly_for_others() {
    const TIMEOUT: Duration = Duration::from_secs(60);
    for (path, expected) in [("/", FIRST_CALL_TIMEOUT), (AUTHENTICATED, TIMEOUT)] {
        let (slots, drain) = (ConnectionSlots::new(1, Gauge::noop()), Drain::default());
        let (end, _client) = unfinished(&slots, &drain, path, Traffic::default()).await;
        let started = Instant::now();
        assert_eq!(drain.finish(TIMEOUT).await, expected < TIMEOUT);
        assert_eq!((end.await.unwrap() - started).as_millis(), expected.as_millis(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn evicted_connections_end_soon_and_immediately_where_many_do() {
    let (slots, drain) = (ConnectionSlots::new(1, Gauge::noop()), Drain::default());
    let new = || slots.take(Arc::new(Activity::new(false))).unwrap();
    let (end, _client) = unfinished(&slots, &drain, "/", Traffic::default()).await;
    let evicted = Instant::now();
    let mut open = vec![new()];
    assert_eq!((end.await.unwrap() - evicted).as_millis(), 100);
    open.extend((0..40).map(|_| new()));
    let (end, _client) = unfinished(&slots, &drain, "/", Traffic::default()).await;
    let evicted = Instant::now();
    open.push(new());
    assert_eq!(end.await.unwrap(), evicted);
}

#[tokio::test(start_paused = true)]
async fn connections_are_evicted_in_their_grace_period_too() {
    let old = Traffic { max_connection_age: Time::seconds(10), ..Traffic::default() };
    let idle = Traffic { idle_timeout: Time::seconds(10), ..Traffic::default() };
    for traffic in [old, idle] {
        let (slots, drain) = (ConnectionSlots::new(1, Gauge::noop()), Drain::default());
        let (end, _client) = unfinished(&slots, &drain, "/", traffic).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!end.is_finished(), "a grace period of 30 s");
        let evicted = Instant::now();
        let _new = slots.take(Arc::new(Activity::new(false))).unwrap();
        assert_eq!((end.await.unwrap() - evicted).as_millis(), 100);
    }
}

#[tokio::test(start_paused = true)]
async fn the_drain_ends_a_grace_period() {
    let old = Traffic { max_connection_age: Time::seconds(10), ..Traffic::default() };
    let (slots, drain) = (ConnectionSlots::new(1, Gauge::noop()), Drain::default());
    let (end, _client) = unfinished(&slots, &drain, "/", old).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let started = Instant::now();
    assert!(drain.finish(Duration::from_secs(60)).await, "it has only a public request");
    assert_eq!((end.await.unwrap() - started).as_millis(), FIRST_CALL_TIMEOUT.as_millis());
}

#[tokio::test(start_paused = true)]
async fn the_next_http1_response_announces_the_end_of_a_connection() {
    for is_drained in [true, false] {
        let (slots, drain) = (ConnectionSlots::new(1, Gauge::noop()), Drain::default());
        let (connection, _) = connection(&slots, &drain, Traffic::default());
        let (server, mut client) = duplex(1 << 10);
        tokio::spawn(drain.track(connection.plain(server, None)));
        let mut ask = async || {
            let request = format!("GET {AUTHENTICATED} HTTP/1.1\r\nhost: weir\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let mut answer = [0; 1 << 10];
            let bytes = client.read(&mut answer).await.unwrap();
            String::from_utf8_lossy(&answer[..bytes]).into_owned()
        };
        assert!(!ask().await.contains("connection: close"));
        let _new = drain_or_evict(is_drained, &drain, &slots);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(ask().await.contains("connection: close"), "{is_drained}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_being_read_are_not_cut() {
    for is_drained in [true, false] {
        let (slots, drain) = (ConnectionSlots::new(1, Gauge::noop()), Drain::default());
        let (connection, _) = connection(&slots, &drain, Traffic::default());
        let (server, mut client) = duplex(1 << 10);
        tokio::spawn(drain.track(connection.plain(server, None)));
        client.write_all(format!("GET {LARGE} HTTP/1.1\r\nhost: weir\r\n\r\n").as_bytes()).await.unwrap();
        let mut head = [0; 12];
        client.read_exact(&mut head).await.unwrap();
        let _new = drain_or_evict(is_drained, &drain, &slots);
        tokio::time::sleep(Duration::from_secs(20)).await;
        client.read_exact(&mut vec![0; LARGE_BYTES]).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_public_call_does_not_prolong_the_wait_for_a_first_call() {
    let (slots, drain) = (ConnectionSlots::new(1, Gauge::noop()), Drain::default());
    let (connection, _) = connection(&slots, &drain, Traffic::default());
    let (server, mut client) = duplex(1 << 10);
    tokio::spawn(drain.track(connection.plain(server, None)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let started = Instant::now();
    let finished = start_drain(&drain);
    tokio::time::sleep(Duration::from_secs(3)).await;
    client.write_all(b"POST / HTTP/1.1\r\nhost: weir\r\ncontent-length: 9\r\n\r\n").await.unwrap();
    assert!(finished.await.unwrap());
    assert_eq!(started.elapsed().as_millis(), FIRST_CALL_TIMEOUT.as_millis());
}
