//! A reply that is lost: the store has charged for the check, so it must not be asked again.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use weir_test_redis::{Options, Server};

use super::{
    callers::{RULES, of_rule},
    scene::service,
};
use crate::{
    service::{assert_no_panic, runtime},
    support::{
        Server as Service, eventually_async,
        requests::{check, peek},
    },
};

/// Replies that are lost.
const LOST: u64 = 10;

/// Stands between a service and a server, and loses a reply when it is told to.
struct Wire {
    port: u16,
    lose_next: Arc<AtomicBool>,
}

impl Wire {
    fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let lose_next = Arc::new(AtomicBool::new(false));
        let lose = Arc::clone(&lose_next);
        // It waits for more until the test's process ends.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                carry(client, &socket, &lose);
            }
        });
        Self { port, lose_next }
    }
}

/// Carries what the two say to each other, until either ends or a reply is lost and the connection with it.
fn carry(client: TcpStream, socket: &Path, lose_next: &Arc<AtomicBool>) {
    let Ok(server) = UnixStream::connect(socket) else { return };
    client.set_nodelay(true).expect("a socket");
    let (mut requests, mut to_server) = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
    std::thread::spawn(move || {
        // What is wrong with either end shows at the other.
        let _ = std::io::copy(&mut requests, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    let (mut replies, mut to_client, lose_next) = (server, client, Arc::clone(lose_next));
    std::thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok(length @ 1..) = replies.read(&mut bytes) {
            if lose_next.swap(false, Ordering::Relaxed) || to_client.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

/// Every other reply is lost; each check is charged once all the same.
async fn lose_replies(service: &Service, wires: &[Wire]) {
    let mut client = service.client().await;
    for (rule, name) in RULES.iter().enumerate() {
        let key = ["story", "alex", "trade"];
        let mut ask = async |cost| {
            let answer = client.check(of_rule(rule, if cost == 0 { peek(&key) } else { check(&key) })).await;
            answer.map(tonic::Response::into_inner).ok().filter(|answer| !answer.degraded)
        };
        let before = eventually_async("the store answers", async || ask(0).await).await;
        for _ in 0..LOST {
            wires.iter().for_each(|wire| wire.lose_next.store(true, Ordering::Relaxed));
            assert!(ask(1).await.is_none(), "{name}: by its rule");
            wires.iter().for_each(|wire| wire.lose_next.store(false, Ordering::Relaxed));
            assert!(ask(1).await.is_some(), "{name}: by the store");
        }
        let after = ask(0).await.expect("the store answers");
        assert_eq!(before.remaining - after.remaining, 2 * LOST, "{name}: once for each check");
    }
    let lost = "weir_store_errors_total{store=\"redis\",kind=\"lost\"}";
    assert_eq!(service.metric(lost), (LOST * RULES.len() as u64) as f64);
    assert_no_panic(service);
}

#[test]
fn a_lost_reply_is_not_asked_for_again() {
    let redis = Server::start(Options::socket());
    let wire = Wire::to(redis.socket());
    // One connection, so that no reply to another one's greeting is lost instead.
    let setup = service(&format!("redis://127.0.0.1:{}", wire.port)).env("WEIR_STORE__REDIS__POOL_SIZE", "1");
    runtime().block_on(lose_replies(&setup.start(), &[wire]));
}
