//! Servers that accept connections and do not answer, or not for long, or without an end.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

/// The system accepts for it and takes what is sent; no process ever reads it.
pub struct Silent(TcpListener);

impl Silent {
    /// Listens on a free port.
    pub fn start() -> Self {
        Self(listener())
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.0.local_addr().expect("it listens").port()
    }

    /// Its form of `store.url`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }
}

/// Answers the first command of each connection, `HELLO`, with nothing about itself, and no other.
pub struct Greeter {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Greeter {
    /// Listens on a free port.
    pub fn start() -> Self {
        let (listener, ended) = (listener(), Arc::new(AtomicBool::new(false)));
        let address = listener.local_addr().expect("it listens");
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut held = Vec::new();
            for mut stream in listener.incoming().flatten() {
                if end.load(Ordering::Acquire) {
                    break;
                }
                let greeted = stream.read(&mut [0; 1_024]).and_then(|_| stream.write_all(b"*0\r\n"));
                held.push((stream, greeted));
            }
        });
        Self { address, ended, thread: Some(thread) }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers each connection with one string that never ends.
pub struct Endless {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Endless {
    /// Listens on a free port.
    pub fn start() -> Self {
        let (listener, ended, most) = (listener(), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let address = listener.local_addr().expect("it listens");
        let (end, sent) = (Arc::clone(&ended), Arc::clone(&most));
        let thread = std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                if end.load(Ordering::Acquire) {
                    break;
                }
                let (mut bytes, mut piece) = (0, b"$9000000000000\r\n".as_slice());
                while !end.load(Ordering::Acquire) && stream.write_all(piece).is_ok() {
                    bytes += piece.len() as u64;
                    piece = &[b'x'; 64 << 10];
                }
                sent.fetch_max(bytes, Ordering::AcqRel);
            }
        });
        Self { address, ended, most, thread: Some(thread) }
    }

    /// Its form of `store.url`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The most bytes that were sent on one connection until its client closed it.
    pub fn most_sent(&self) -> u64 {
        self.most.load(Ordering::Acquire)
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")
}
