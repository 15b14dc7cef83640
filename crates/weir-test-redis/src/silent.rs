//! Servers that accept connections and do not answer, or not for long.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// The system accepts for it and takes what is sent; nobody ever reads it.
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

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")
}
