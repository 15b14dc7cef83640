//! Servers that accept connections and do not answer, or not for long, or without an end. Their threads end with the process.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
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
pub struct Greeter(SocketAddr);

impl Greeter {
    /// Listens on a free port.
    pub fn start() -> Self {
        let listener = listener();
        let address = listener.local_addr().expect("it listens");
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let greeted = stream.read(&mut [0; 1_024]).and_then(|_| stream.write_all(b"*0\r\n"));
                held.push((stream, greeted));
            }
        });
        Self(address)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.0.port()
    }
}

/// Answers each connection with one string that never ends.
pub struct Endless {
    address: SocketAddr,
    most: Arc<AtomicU64>,
}

impl Endless {
    /// Listens on a free port.
    pub fn start() -> Self {
        let (listener, most) = (listener(), Arc::new(AtomicU64::new(0)));
        let address = listener.local_addr().expect("it listens");
        let sent = Arc::clone(&most);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut bytes, mut piece) = (0, b"$9000000000000\r\n".as_slice());
                while stream.write_all(piece).is_ok() {
                    bytes += piece.len() as u64;
                    piece = &[b'x'; 64 << 10];
                }
                sent.fetch_max(bytes, Ordering::AcqRel);
            }
        });
        Self { address, most }
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

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")
}
