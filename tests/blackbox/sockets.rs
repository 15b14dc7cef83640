//! Unix sockets in place of ports.

use std::{fs, os::unix::net::UnixListener, path::Path, process::Command};

use serde_json::json;

use crate::support::{Folder, Run, finish, http, server::Setup, weir};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[0, 1, 86400]] } } } }";

fn unix(path: &Path) -> String {
    format!("unix:{}", path.to_str().expect("a path"))
}

/// Configures a service on two sockets in its directory.
fn on_sockets() -> Setup {
    let setup = Setup::new().policy(POLICY);
    let (grpc, http) = (unix(&setup.path("grpc.sock")), unix(&setup.path("http.sock")));
    setup.env("WEIR_GRPC__LISTEN", &grpc).env("WEIR_HTTP__LISTEN", &http)
}

/// Runs a second server, which must fail to start at these addresses.
fn refused(grpc: &str, http: &str) -> Run {
    refused_by(weir().env("WEIR_GRPC__LISTEN", grpc).env("WEIR_HTTP__LISTEN", http))
}

fn refused_by(second: &mut Command) -> Run {
    let run = finish(second.args(["serve", "--allow-all"]));
    assert_eq!(run.code, 2, "{run:?}");
    run
}

#[test]
fn unix_sockets_replace_stale_ones_serve_both_ports_and_are_removed_at_shutdown() {
    let setup = on_sockets().env("WEIR_HTTP__WORKERS", "1");
    for name in ["grpc.sock", "http.sock"] {
        drop(UnixListener::bind(setup.path(name)).expect("bound"));
        assert!(setup.path(name).exists());
    }
    let mut server = setup.start();
    assert!(server.grpc.starts_with("unix:") && server.http.starts_with("unix:"));
    assert_eq!(server.run(&["check", "user", "alex"]).code, 0);
    assert_eq!(server.run(&["check", "user", "alex"]).code, 1);
    assert_eq!(server.run(&["health"]).code, 0);
    let listed = server.run(&["replicas", "--json"]);
    assert_eq!(listed.code, 0, "a unix socket is this machine: {}", listed.err);
    assert_eq!(http::get(&server.http, "/healthz").expect("an answer"), (200, "ok\n".to_owned()));
    assert_eq!(server.get("/readyz").0, 200);
    let mut client = http::Client::connect(&server.http).expect("a connection");
    let answer = client.post("/v1/check", &json!({ "key": ["user", "berta"] }));
    assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!("0")));

    // A socket in use is not replaced.
    let refused = refused(&server.grpc, "127.0.0.1:0");
    assert!(refused.err.contains("another process answers on this socket"), "{}", refused.err);
    assert_eq!(server.run(&["check", "user", "carl"]).code, 0);

    server.stop();
    assert!(!server.dir.path().join("grpc.sock").exists() && !server.dir.path().join("http.sock").exists());
}

#[test]
fn a_regular_file_is_not_replaced() {
    let dir = Folder::new();
    let path = dir.write("notes", "mine");
    let refused = refused(&format!("unix:{path}"), "127.0.0.1:0");
    assert!(refused.err.contains("there is a file that is not a socket"), "{}", refused.err);
    assert_eq!(fs::read_to_string(&path).expect("still there"), "mine");
}

#[test]
fn the_socket_of_a_successor_is_left_to_it() {
    let dir = Folder::new();
    let address = format!("unix:{}", dir.path("grpc.sock"));
    let start = || Setup::new().env("WEIR_GRPC__LISTEN", &address).start();
    let mut first = start();
    fs::remove_file(dir.path("grpc.sock")).expect("removed");
    let second = start();
    first.stop();
    assert_eq!(second.run(&["health"]).code, 0);
}

#[test]
fn a_port_in_use_is_reported() {
    let server = Setup::new().start();
    let refused = refused("127.0.0.1:0", &server.http);
    assert!(refused.err.contains(&format!("cannot listen on http.listen {}", server.http)), "{}", refused.err);
    let refused = refused_by(weir().env("WEIR_GRPC__LISTEN", &server.grpc).env("WEIR_GRPC__RUNTIME", "multi_thread"));
    assert!(refused.err.contains(&format!("cannot listen on grpc.listen {}", server.grpc)), "{}", refused.err);
    assert!(!refused.err.contains("panicked"), "{}", refused.err);
}
