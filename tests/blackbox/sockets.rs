//! Unix sockets in place of ports.

use std::{fs, os::unix::net::UnixListener, path::Path};

use rustix::process::Signal;

use crate::support::{finish, http, server::Setup, weir};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[0, 1, 86400]] } } } }";

fn unix(path: &Path) -> String {
    format!("unix:{}", path.to_str().expect("a path"))
}

/// A service on two sockets in its directory.
fn on_sockets() -> Setup {
    let setup = Setup::new().policy(POLICY);
    let (grpc, http) = (unix(&setup.path("grpc.sock")), unix(&setup.path("http.sock")));
    setup.env("WEIR_GRPC__LISTEN", &grpc).env("WEIR_HTTP__LISTEN", &http)
}

#[test]
fn unix_sockets_serve_both_ports_and_are_removed_at_shutdown() {
    let mut server = on_sockets().start();
    assert!(server.grpc.starts_with("unix:") && server.http.starts_with("unix:"));
    assert_eq!(server.run(&["check", "user", "alex"]).code, 0);
    assert_eq!(server.run(&["check", "user", "alex"]).code, 1);
    assert_eq!(server.run(&["health"]).code, 0);
    assert_eq!(http::get(&server.http, "/healthz").expect("an answer"), (200, "ok\n".to_owned()));
    server.signal(Signal::TERM);
    assert_eq!(server.wait_for_end(), 0);
    assert!(!server.dir.path().join("grpc.sock").exists() && !server.dir.path().join("http.sock").exists());
}

#[test]
fn a_stale_socket_file_is_replaced() {
    let setup = on_sockets();
    for name in ["grpc.sock", "http.sock"] {
        drop(UnixListener::bind(setup.path(name)).expect("bound"));
        assert!(setup.path(name).exists());
    }
    let server = setup.start();
    assert_eq!(server.run(&["check", "user", "alex"]).code, 0);
    assert_eq!(server.get("/readyz").0, 200);
}

#[test]
fn a_socket_in_use_is_not_replaced() {
    let server = on_sockets().start();
    let mut second = weir();
    second
        .args(["serve", "--allow-all"])
        .env("WEIR_GRPC__LISTEN", &server.grpc)
        .env("WEIR_HTTP__LISTEN", "127.0.0.1:0");
    let refused = finish(&mut second);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("another process answers on this socket"), "{}", refused.err);
    assert_eq!(server.run(&["check", "user", "alex"]).code, 0);
}

#[test]
fn a_regular_file_is_not_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notes");
    fs::write(&path, "mine").expect("written");
    let mut serve = weir();
    serve.args(["serve", "--allow-all"]).env("WEIR_GRPC__LISTEN", unix(&path)).env("WEIR_HTTP__LISTEN", "127.0.0.1:0");
    let refused = finish(&mut serve);
    assert_eq!(refused.code, 2);
    assert_eq!(fs::read_to_string(&path).expect("still there"), "mine");
}

#[test]
fn a_port_in_use_is_reported() {
    let server = Setup::new().start();
    let mut second = weir();
    second
        .args(["serve", "--allow-all"])
        .env("WEIR_GRPC__LISTEN", "127.0.0.1:0")
        .env("WEIR_HTTP__LISTEN", &server.http);
    let refused = finish(&mut second);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains(&format!("cannot listen on http.listen {}", server.http)), "{}", refused.err);
}
