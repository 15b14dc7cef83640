//! A TCP proxy between service and store, with added latency, lost replies or low bandwidth.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{sleep, spawn},
    time::Duration,
};

use weir_test_redis::Server;

/// Part of the keys of those checks whose replies may be lost.
pub const CHECKED: &str = "story";

/// The port of a proxy to one server.
pub struct Wire {
    port: u16,
    lose_next: Arc<AtomicBool>,
    rejects: Arc<AtomicBool>,
}

impl Wire {
    /// Starts a proxy that delays replies.
    pub fn to(server: &Server, delay: Duration) -> Self {
        Self::new(server, delay, None)
    }

    /// Starts a proxy that limits the requests of each connection to this bandwidth.
    pub fn narrow(server: &Server, bytes_per_second: u32) -> Self {
        Self::new(server, Duration::ZERO, Some(bytes_per_second))
    }

    fn new(server: &Server, delay: Duration, bytes_per_second: Option<u32>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let (lose_next, socket): (Arc<AtomicBool>, PathBuf) = (Arc::default(), server.socket());
        let rejects: Arc<AtomicBool> = Arc::default();
        let (lose, rejecting) = (Arc::clone(&lose_next), Arc::clone(&rejects));
        // The thread accepts connections until the test's process ends.
        spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                carry(client, &socket, [&lose, &rejecting], delay, bytes_per_second);
            }
        });
        Self { port, lose_next, rejects }
    }

    /// Returns the proxy's `store.url`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sets whether the reply to the next check of [`CHECKED`] is lost.
    pub fn lose_next(&self, lose: bool) {
        self.lose_next.store(lose, Ordering::Relaxed);
    }

    /// Sets whether checks of [`CHECKED`] are answered with an error of the proxy's own, and not forwarded.
    pub fn reject(&self, rejects: bool) {
        self.rejects.store(rejects, Ordering::Relaxed);
    }
}

/// Forwards bytes both ways until either side closes, or a reply is lost and the connection is closed.
fn carry(
    client: TcpStream,
    socket: &Path,
    [lose_next, rejects]: [&Arc<AtomicBool>; 2],
    delay: Duration,
    bytes_per_second: Option<u32>,
) {
    let Ok(server) = UnixStream::connect(socket) else { return };
    client.set_nodelay(true).expect("a socket");
    let (mut requests, mut to_server) = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
    let is_lost = Arc::new(AtomicBool::default());
    let (lose_next, lose, rejects) = (Arc::clone(lose_next), Arc::clone(&is_lost), Arc::clone(rejects));
    let mut errors = client.try_clone().expect("a handle");
    spawn(move || {
        let mut bytes = [0; 4_096];
        // An error on one side closes the other.
        while let Ok(length @ 1..) = requests.read(&mut bytes) {
            if let Some(rate) = bytes_per_second {
                sleep(Duration::from_secs(length as u64) / rate);
            }
            // Only calls of the script for [`CHECKED`] keys count, not the service's other commands.
            let has = |word: &[u8]| bytes[..length].windows(word.len()).any(|part| part == word);
            let is_check = has(b"EVALSHA") && has(CHECKED.as_bytes());
            if is_check && lose_next.swap(false, Ordering::Relaxed) {
                lose.store(true, Ordering::Release);
            }
            if is_check && rejects.load(Ordering::Relaxed) {
                let _ = errors.write_all(b"-ERR max daily request limit exceeded\r\n");
                continue;
            }
            if to_server.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let (mut replies, mut to_client) = (server, client);
    spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok(length @ 1..) = replies.read(&mut bytes) {
            sleep(delay);
            if is_lost.load(Ordering::Acquire) || to_client.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}
