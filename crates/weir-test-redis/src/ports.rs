//! Free ports of the loopback interface.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// The range of ports. It is below the ephemeral ports of outgoing connections: a client that keeps connecting to one
/// of those while its server is down can end up connected to itself. The bus of a Cluster node is 10,000 above its
/// port.
const FIRST: u16 = 11_000;
const COUNT: u16 = 10_000;
const BUS: u16 = 10_000;

/// Offset at which the next search starts; it differs between processes.
static NEXT: AtomicU16 = AtomicU16::new(u16::MAX);

/// Returns a port that nothing listens on. Another process may take it at any time, so starting a server on it may
/// fail.
pub fn free() -> u16 {
    search(is_free)
}

/// Returns a port whose Cluster bus port is free too.
pub(crate) fn free_with_bus() -> u16 {
    search(|port| is_free(port) && is_free(port + BUS))
}

fn search(mut good: impl FnMut(u16) -> bool) -> u16 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").subsec_nanos();
    let start = ((time / 1_000 + std::process::id()) % u32::from(COUNT)) as u16;
    let _ = NEXT.compare_exchange(u16::MAX, start, Ordering::Relaxed, Ordering::Relaxed);
    let step = |next: u16| Some((next + 1) % COUNT);
    let mut ports = (0..COUNT).map(|_| {
        let offset = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).expect("it always steps");
        FIRST + offset
    });
    ports.find(|port| good(*port)).expect("a free port")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
