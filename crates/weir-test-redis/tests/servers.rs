//! Tests of the servers' own behaviour, on which other tests rely.

#![allow(clippy::expect_used)]

use std::time::Duration;

use weir_test_redis::{Options, Server};

#[test]
fn a_server_is_paused_killed_and_started_again() {
    let mut server = Server::start(Options::port().set("requirepass", "secret"));
    assert_eq!(server.cli(&["SET", "key", "value"]), "OK");
    server.cli(&["CONFIG", "SET", "requirepass", "other"]);
    assert_eq!(server.cli(&["GET", "key"]), "value");

    server.pause();
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| server.cli(&["GET", "key"]));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!answer.is_finished(), "it is paused");
        server.resume();
        answer.join().expect("an answer")
    });
    assert_eq!(answer, "value");

    let port = server.port();
    server.pause();
    server.kill();
    assert!(server.try_cli(&["PING"]).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.cli(&["GET", "key"]), "");
}

#[test]
fn servers_do_not_outlive_a_panic() {
    let (socket, dir) = std::thread::spawn(|| {
        let server = Server::start(Options::socket());
        let seen = (server.socket(), server.dir().to_owned());
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _server = server;
            std::panic::resume_unwind(Box::new("as a test that fails"));
        }));
        assert!(panic.is_err());
        seen
    })
    .join()
    .expect("seen");
    assert!(std::os::unix::net::UnixStream::connect(socket).is_err());
    assert!(!dir.exists());
}
