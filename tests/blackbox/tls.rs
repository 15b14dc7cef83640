//! TLS listeners: verification of servers and of clients, and connections that stall in the handshake.

use std::{io::Read, net::TcpStream, path::Path};

use tonic::Code;
use weir::proto::rate_limiter_client::RateLimiterClient;

use crate::support::{
    Folder, Run, Server, TIMEOUT, eventually, finish, http,
    pki::{Authority, Leaf, Pair, channel, http_client},
    requests::{check, reset},
    server::Setup,
    weir, weir_bench,
};

const POLICY: &str = "schema: { '*': { limits: [[999, 1, 86400]] } }";
/// A client that may read metrics with the token `m`.
const METRICS: &str = "callers: { prometheus: { roles: [metrics], tokens: [{ sha256: \
                       62c66a7a5dd70c3146618063c344e531e6d4b59e379808443ce962b3abd63c5a }] }, \
                       peers: { roles: [check], certificates: ['*'] } }";

/// Runs `weir check a` against an address.
fn ask(address: &str, options: &[&str]) -> Run {
    finish(weir().args(["check", "a", "--addr", address]).args(options))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

#[test]
fn the_server_certificate_is_verified_by_ca_and_name() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let pair = authority.sign(Leaf::host("localhost"));
    let setup = Setup::new().policy(POLICY).grpc_tls(&pair).http_tls(&pair);
    let server =
        setup.file("UNUSED_CA", "ca.pem", &authority.pem).file("UNUSED_OTHER", "other.pem", &stranger.pem).start();
    let (ca, other) = (server.dir.path().join("ca.pem"), server.dir.path().join("other.pem"));
    let port = server.grpc.rsplit(':').next().expect("a port");
    let by_name = format!("https://localhost:{port}");

    let good = ask(&by_name, &["--tls-ca", text(&ca)]);
    assert_eq!(good.code, 0, "{}", good.err);
    let good = ask(&server.grpc, &["--tls-ca", text(&ca), "--tls-server-name", "localhost"]);
    assert_eq!(good.code, 0, "{}", good.err);
    for (address, options, expected) in [
        (&by_name, &["--tls-ca", text(&other)][..], "UnknownIssuer"),
        (&server.grpc, &["--tls-ca", text(&ca)], "not valid for name"),
        (&by_name, &["--tls-ca", "/nowhere.pem"], "/nowhere.pem: No such file"),
        (&format!("http://{}", server.grpc), &["--tls-ca", text(&ca)], "is not encrypted"),
        (&server.grpc, &[], &format!("write https://{} (--tls-ca FILE", server.grpc)),
    ] {
        let run = ask(address, options);
        assert_eq!(run.code, 2, "{address} {options:?}: {}", run.out);
        assert!(run.err.contains(expected), "{address} {options:?}: {}", run.err);
    }
    let address = format!("https://{}", server.grpc);
    let variables =
        [("WEIR_ADDR", address.as_str()), ("WEIR_TLS_CA", text(&ca)), ("WEIR_TLS_SERVER_NAME", "localhost")];
    let run = finish(weir().arg("health").envs(variables));
    assert_eq!((run.code, run.out.as_str()), (0, "SERVING\n"), "{}", run.err);
    let plain = Server::with_policy(POLICY);
    let run = ask(&format!("https://{}", plain.grpc), &["--tls-ca", text(&ca)]);
    assert!(run.code == 2 && run.err.contains("the server answers without TLS"), "{}", run.err);
    // Options name another service, so the variables do not apply.
    for other in [format!("http://{}", plain.grpc), by_name.clone()] {
        let run = finish(weir().args(["health", "--addr", &other]).envs(variables));
        assert_eq!(run.code, 0, "{other}: {}", run.err);
    }
    let empty = variables.map(|(name, _)| (name, ""));
    let run = finish(weir().args(["health", "--addr", &plain.grpc]).envs(empty));
    assert_eq!(run.code, 0, "{}", run.err);
    let run = finish(weir().arg("health").env("WEIR_ADDR", "nowhere"));
    assert!(run.code == 2 && run.err.contains("WEIR_ADDR: `nowhere`"), "{}", run.err);
    let bench = ["--addr", &by_name, "--tls-ca", text(&ca), "--duration", "100ms", "--warmup", "0s"];
    let run = finish(weir_bench().args(bench));
    assert_eq!(run.code, 0, "{}", run.err);

    let mut pages = http_client(&server.http, &authority, None).expect("it accepts connections");
    let answer = pages.post("/v1/check", &serde_json::json!({ "key": ["a"] }));
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(pages.ask("GET /readyz", &[], b"").expect("it answers").status, 200);
    assert!(http::get(&server.http, "/readyz").is_err(), "what is not encrypted is not answered");
}

#[test]
fn clients_that_do_not_accept_the_server_certificate_are_counted() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    for (leaf, ca, name) in [
        (Leaf::host("localhost").until(2021), &authority, "localhost"),
        (Leaf::host("localhost"), &stranger, "localhost"),
        (Leaf::host("localhost"), &authority, "weir.example"),
    ] {
        let setup = Setup::new().policy(POLICY).grpc_tls(&authority.sign(leaf));
        let server = setup.file("UNUSED_CA", "ca.pem", &ca.pem).start();
        let ca = server.dir.path().join("ca.pem");
        let run = ask(&format!("https://{}", server.grpc), &["--tls-ca", text(&ca), "--tls-server-name", name]);
        assert_eq!(run.code, 2, "{}", run.err);
        let series = "weir_tls_handshake_failures_total{listener=\"grpc\",reason=\"certificate\"}";
        server.wait_for_metric(series, 1.0);
        server.wait_for_log("a TLS handshake failed");
    }
}

/// Whether a client is accepted and answered.
async fn is_let_in(server: &Server, authority: &Authority, shown: Option<&Pair>) -> Result<(), Code> {
    let Ok(channel) = channel(&server.grpc, authority, shown).await else { return Err(Code::Unavailable) };
    RateLimiterClient::new(channel).check(check(&["a"])).await.map(drop).map_err(|status| match status.code() {
        // A connection that is refused after the client's last handshake message fails in one of several ways.
        Code::Unknown | Code::Internal | Code::Cancelled => Code::Unavailable,
        code => code,
    })
}

#[tokio::test]
async fn clients_are_accepted_by_ca_and_certificate_name() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let names = "pay.example, *.shop.example, spiffe://example/ns/*, plain";
    let server = Setup::new()
        .policy(POLICY)
        .credentials(METRICS)
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .file("WEIR_GRPC__TLS__CLIENT_CA", "clients.pem", &authority.pem)
        .env("WEIR_GRPC__TLS__CLIENT_NAMES", names)
        .start();
    for leaf in [
        Leaf::host("pay.example"),
        Leaf::host("PAY.example"),
        Leaf::host("a.shop.example"),
        Leaf::uri("spiffe://example/ns/pay"),
        Leaf::common("plain"),
    ] {
        assert_eq!(is_let_in(&server, &authority, Some(&authority.sign(leaf))).await, Ok(()));
    }
    let refused = [
        None,
        Some(stranger.sign(Leaf::host("pay.example"))),
        Some(authority.sign(Leaf::host("pay.example").until(2021))),
        Some(authority.sign(Leaf::host("pay.example.org"))),
        Some(authority.sign(Leaf::host("shop.example"))),
        Some(authority.sign(Leaf::uri("spiffe://example.org/ns/pay"))),
        Some(authority.sign(Leaf::common("spiffe://example/ns/pay"))),
    ];
    for shown in &refused {
        assert_eq!(is_let_in(&server, &authority, shown.as_ref()).await, Err(Code::Unavailable));
    }
    let series = "weir_tls_handshake_failures_total{listener=\"grpc\",reason=\"certificate\"}";
    server.wait_for_metric_by("m", series, refused.len() as f64);
    server.wait_for_log("a TLS handshake failed");
}

#[test]
fn http_clients_are_accepted_by_ca_and_certificate_name() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let pay = || Leaf::host("pay.example");
    for (mode, without) in [("required", None), ("optional", Some(200))] {
        let server = Setup::new()
            .policy(POLICY)
            .http_tls(&authority.sign(Leaf::host("localhost")))
            .file("WEIR_HTTP__TLS__CLIENT_CA", "clients.pem", &authority.pem)
            .env("WEIR_HTTP__TLS__CLIENT_NAMES", "pay.example")
            .env("WEIR_HTTP__TLS__CLIENT_AUTH", mode)
            .start();
        let ask = |shown: Option<&Pair>| {
            let mut client = http_client(&server.http, &authority, shown).ok()?;
            client.ask("GET /readyz", &[], b"").ok().map(|answer| answer.status)
        };
        assert_eq!(ask(Some(&authority.sign(pay()))), Some(200), "{mode}");
        assert_eq!(ask(None), without, "{mode}");
        for refused in [stranger.sign(pay()), authority.sign(pay().until(2021)), authority.sign(Leaf::host("shop"))] {
            assert_eq!(ask(Some(&refused)), None, "{mode}");
        }
    }
}

#[test]
fn commands_present_a_client_certificate() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let server = Setup::new()
        .policy(POLICY)
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .file("WEIR_GRPC__TLS__CLIENT_CA", "clients.pem", &authority.pem)
        .start();
    let address = format!("https://localhost:{}", server.grpc.rsplit(':').next().expect("a port"));
    let ca = server.dir.path().join("clients.pem");
    let with = |command: &[&str], pair: Option<&Pair>| {
        let files = pair.map(|pair| pair.write(server.dir.path(), "client"));
        let options = files.as_ref().map(|(cert, key)| ["--tls-cert", text(cert), "--tls-key", text(key)]);
        let trusted = ["--addr", &address, "--tls-ca", text(&ca)];
        finish(weir().args(command).args(trusted).args(options.iter().flatten()))
    };
    let ours = authority.sign(Leaf::host("shop"));
    let theirs = stranger.sign(Leaf::host("shop"));
    for command in [&["check", "a"][..], &["health"], &["reserve", "a", "--ttl", "1m"]] {
        let good = with(command, Some(&ours));
        assert_eq!(good.code, 0, "{command:?}: {}", good.err);
        // A broken connection reports one of several errors, depending on timing.
        for _ in 0..5 {
            let without = with(command, None);
            assert_eq!(without.code, 2, "{command:?}: {}", without.out);
            let hint = "the service may require a client certificate: --tls-cert FILE --tls-key FILE";
            assert!(without.err.contains(hint), "{command:?}: {}", without.err);
            let wrong = with(command, Some(&theirs));
            assert_eq!(wrong.code, 2, "{command:?}: {}", wrong.out);
            let hint = "the service may not accept the client certificate";
            assert!(wrong.err.contains(hint), "{command:?}: {}", wrong.err);
        }
    }
}

#[test]
fn a_self_signed_server_certificate_is_accepted_as_its_own_ca() {
    // The commands accept it as a server certificate. Name and expiry are still verified, and another certificate like
    // it is rejected.
    let pair = Leaf::host("localhost").self_signed();
    let ended = Leaf::host("localhost").until(2021).self_signed();
    let other = Leaf::host("localhost").self_signed();
    let serve = |shown| Setup::new().policy(POLICY).grpc_tls(shown).start();
    let (good, expired) = (serve(&pair), serve(&ended));
    for (server, trusted, name, expected) in [
        (&good, &pair, "localhost", None),
        (&good, &pair, "elsewhere", Some("not valid for name")),
        (&expired, &ended, "localhost", Some("Expired")),
        (&good, &other, "localhost", Some("invalid peer certificate")),
    ] {
        let dir = Folder::new();
        let ca = dir.write("ca.pem", &trusted.cert);
        let run = ask(&server.grpc, &["--tls-ca", &ca, "--tls-server-name", name]);
        assert_eq!(run.code, if expected.is_some() { 2 } else { 0 }, "{name} {expected:?}: {run:?}");
        let err = run.err.to_lowercase();
        assert!(expected.is_none_or(|expected| err.contains(&expected.to_lowercase())), "{expected:?}: {err}");
    }
}

#[tokio::test]
async fn a_self_signed_client_certificate_in_the_ca_bundle_is_accepted() {
    let authority = Authority::new("ours");
    let leaf = || Leaf::host("pay.example");
    let (good, ended) = (leaf().self_signed(), leaf().until(2021).self_signed());
    let unnamed = Leaf::host("shop.example").self_signed();
    let clients = [&good, &ended, &unnamed].map(|pair| pair.cert.as_str()).concat();
    let server = Setup::new()
        .policy(POLICY)
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .file("WEIR_GRPC__TLS__CLIENT_CA", "clients.pem", &clients)
        .env("WEIR_GRPC__TLS__CLIENT_NAMES", "pay.example")
        .start();
    assert_eq!(is_let_in(&server, &authority, Some(&good)).await, Ok(()));
    // Another certificate with the same contents is rejected.
    let other = leaf().self_signed();
    for refused in [&ended, &unnamed, &other] {
        assert_eq!(is_let_in(&server, &authority, Some(refused)).await, Err(Code::Unavailable));
    }
}

/// Several clients may match one certificate: the log names the one that permits the call.
#[tokio::test]
async fn the_client_of_a_certificate_is_the_one_with_the_role_that_it_names_best() {
    let authority = Authority::new("ours");
    let server = Setup::new()
        .policy(POLICY)
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .file("WEIR_GRPC__TLS__CLIENT_CA", "clients.pem", &authority.pem)
        .credentials(
            "callers: { all: { roles: [check], certificates: ['*'] }, hosts: { roles: [reset], certificates: ['*.example'] }, ops: { roles: \
             [check, reset], certificates: [ops.example] } }",
        )
        .start();
    for (host, client) in [("ops.example", "ops"), ("other.example", "hosts")] {
        let shown = authority.sign(Leaf::host(host));
        let mut calls =
            RateLimiterClient::new(channel(&server.grpc, &authority, Some(&shown)).await.expect("connected"));
        calls.reset(reset(&[host], false)).await.expect("it may");
        let logged = || server.log_lines("reset").into_iter().find(|line| line.to_string().contains(host));
        let line = eventually("the reset is logged", logged);
        assert!(line.to_string().contains(&format!("\"client\":\"{client}\"")), "{line}");
    }
}

#[tokio::test]
async fn an_invalid_optional_client_certificate_is_rejected() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let server = Setup::new()
        .policy(POLICY)
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .file("WEIR_GRPC__TLS__CLIENT_CA", "clients.pem", &authority.pem)
        .env("WEIR_GRPC__TLS__CLIENT_AUTH", "optional")
        .start();
    let (good, bad) = (authority.sign(Leaf::host("a.example")), stranger.sign(Leaf::host("a.example")));
    assert_eq!(is_let_in(&server, &authority, Some(&good)).await, Ok(()));
    assert_eq!(
        is_let_in(&server, &authority, None).await,
        Err(Code::Unauthenticated),
        "connected, but not authenticated"
    );
    assert_eq!(is_let_in(&server, &authority, Some(&bad)).await, Err(Code::Unavailable));
    // Without a credentials file a certificate permits checks only, and the other port permits no more.
    let mut client = RateLimiterClient::new(channel(&server.grpc, &authority, Some(&good)).await.expect("connected"));
    assert_eq!(client.reset(reset(&["a"], false)).await.expect_err("refused").code(), Code::PermissionDenied);
    for (path, status) in [("/metrics", 401), ("/healthz", 200), ("/readyz", 200)] {
        assert_eq!(server.get(path).0, status, "{path}");
    }
}

#[test]
fn silent_tls_connections_are_evicted_first() {
    let authority = Authority::new("ours");
    let server = Setup::new()
        .policy(POLICY)
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .env("WEIR_GRPC__TLS__MAX_HANDSHAKES", "4")
        .env("WEIR_GRPC__TLS__HANDSHAKE_TIMEOUT", "60s")
        .start();
    let ca = server.dir.path().join("ca.pem");
    std::fs::write(&ca, &authority.pem).expect("written");
    let port = server.grpc.rsplit(':').next().expect("a port");
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&server.grpc).expect("connected")).collect();
    for _ in 0..3 {
        let run = ask(&format!("https://localhost:{port}"), &["--tls-ca", text(&ca)]);
        assert_eq!(run.code, 0, "{}", run.err);
    }
    let series = "weir_tls_handshake_failures_total{listener=\"grpc\",reason=\"evicted\"}";
    eventually("they make room", || (server.metric(series) >= 36.0).then_some(()));
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 3.0);
    // A warning about evictions, of which there are more each time, hides none about certificates.
    let stranger = Authority::new("theirs");
    let theirs = server.dir.path().join("theirs.pem");
    std::fs::write(&theirs, &stranger.pem).expect("written");
    let more: Vec<_> = (0..8).map(|_| TcpStream::connect(&server.grpc).expect("connected")).collect();
    assert_eq!(ask(&format!("https://localhost:{port}"), &["--tls-ca", text(&theirs)]).code, 2);
    eventually("it is logged", || {
        let lines = server.log_lines("a TLS handshake failed");
        lines.iter().any(|line| !line["error"].as_str().unwrap_or_default().starts_with("evicted")).then_some(())
    });
    drop((silent, more));
    server.wait_for_metric("weir_connections{listener=\"grpc\"}", 0.0);
}

#[test]
fn tls_handshakes_time_out() {
    let authority = Authority::new("ours");
    let server = Setup::new()
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .env("WEIR_GRPC__TLS__HANDSHAKE_TIMEOUT", "100ms")
        .start();
    let mut silent = TcpStream::connect(&server.grpc).expect("connected");
    silent.set_read_timeout(Some(TIMEOUT)).expect("set");
    assert_eq!(silent.read(&mut [0; 9]).expect("closed"), 0);
    server.wait_for_metric("weir_tls_handshake_failures_total{listener=\"grpc\",reason=\"timeout\"}", 1.0);
}

#[test]
fn unusable_tls_files_fail_the_start_and_are_named() {
    let authority = Authority::new("ours");
    let (pair, other) = (authority.sign(Leaf::host("localhost")), authority.sign(Leaf::host("localhost")));
    let dir = Folder::new();
    let (cert, key) = (dir.write("a.pem", &pair.cert), dir.write("a.key", &pair.key));
    let (other, half) = (dir.write("b.key", &other.key), dir.write("half.pem", &pair.cert[..pair.cert.len() / 2]));
    let (nothing, cut) =
        (dir.write("nothing.pem", ""), dir.write("cut.key", pair.key.rsplit_once("-----END").expect("an end").0));
    let encrypted = dir.write("encrypted.key", pair.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"));
    for (cert, key, ca, setting, file) in [
        (&cert, &other, None, "grpc.tls: ", "b.key: not the key of the certificate in"),
        (&half, &key, None, "grpc.tls: ", "half.pem: "),
        (&nothing, &key, None, "grpc.tls: ", "nothing.pem: it contains no certificate"),
        (&cert, &nothing, None, "grpc.tls: ", "nothing.pem: no private key"),
        (&cert, &cut, None, "grpc.tls: ", "cut.key: no private key: it is cut off"),
        (&cert, &encrypted, None, "grpc.tls: ", "encrypted.key: no private key: the private key is encrypted"),
        (&cert, &key, Some(&nothing), "grpc.tls: ", "nothing.pem: it contains no certificate"),
        (&dir.path("gone.pem"), &key, None, "grpc.tls: ", "gone.pem: No such file"),
    ] {
        let mut command = weir();
        command
            .args(["serve", "--allow-all"])
            .env("WEIR_GRPC__LISTEN", "127.0.0.1:0")
            .env("WEIR_HTTP__LISTEN", "127.0.0.1:0");
        command.env("WEIR_GRPC__TLS__CERT", cert).env("WEIR_GRPC__TLS__KEY", key);
        if let Some(ca) = ca {
            command.env("WEIR_GRPC__TLS__CLIENT_CA", ca);
        }
        let run = finish(&mut command);
        assert_eq!(run.code, 2, "{}", run.err);
        assert!(run.err.contains(setting) && run.err.contains(file), "{file}: {}", run.err);
    }
    let mut command = weir();
    command.args(["serve", "--allow-all"]).env("WEIR_AUTH__FILE", &cert);
    let run = finish(&mut command);
    assert_eq!(run.code, 2, "{}", run.err);
    assert!(run.err.contains("auth.file: ") && run.err.contains("a.pem:1:"), "{}", run.err);
}

#[test]
fn listening_publicly_without_tls_or_authentication_is_a_warning() {
    let authority = Authority::new("ours");
    let warnings = |server: &Server| {
        let about = |line: &String| line.contains("is not loopback").then(|| line.clone());
        server.log().iter().filter_map(about).collect::<Vec<_>>()
    };
    let open = || Setup::new().env("WEIR_GRPC__LISTEN", "0.0.0.0:0");
    let server = open().start();
    let expected = warnings(&server);
    assert_eq!(expected.len(), 2, "{expected:#?}");
    assert!(expected[0].contains("set grpc.tls.cert") && expected[1].contains("set auth.file"), "{expected:#?}");
    let server = open().credentials("callers: {}").grpc_tls(&authority.sign(Leaf::host("localhost"))).start();
    assert!(warnings(&server).is_empty(), "{:#?}", server.log());
    let server = Setup::new().start();
    assert!(warnings(&server).is_empty(), "{:#?}", server.log());
}
