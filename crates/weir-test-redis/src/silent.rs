//! Servers that accept connections and never answer, stop answering, or never end an answer. Their threads end with the
//! process.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A server whose connections the kernel accepts and buffers; no process reads them.
pub struct Silent(TcpListener);

impl Silent {
    /// Listens on a free port.
    pub fn start() -> Self {
        Self(listener())
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.0.local_addr().expect("it listens").port()
    }

    /// Returns its `store.url`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }
}

/// A server that answers the first command of each connection, `HELLO`, with an empty array, and no other command.
pub struct HelloOnly(SocketAddr);

impl HelloOnly {
    /// Listens on a free port.
    pub fn start() -> Self {
        let listener = listener();
        let address = listener.local_addr().expect("it listens");
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let answered = stream.read(&mut [0; 1_024]).and_then(|_| stream.write_all(b"*0\r\n"));
                held.push((stream, answered));
            }
        });
        Self(address)
    }

    /// Returns its port.
    pub fn port(&self) -> u16 {
        self.0.port()
    }
}

/// A server that answers each connection with one endless string.
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

    /// Returns its `store.url`.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Returns the maximum number of bytes sent on one connection before its client closed it.
    pub fn most_sent(&self) -> u64 {
        self.most.load(Ordering::Acquire)
    }
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")
}
