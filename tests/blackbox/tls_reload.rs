//! Certificate rotation under load.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use tonic::{Code, transport::Channel};
use weir::proto::rate_limiter_client::RateLimiterClient;

use crate::support::{
    Server, eventually, eventually_async, in_time,
    pki::{Authority, Leaf, Pair, channel, put, shown_by},
    requests::{check, open_stream},
    server::Setup,
};

const POLICY: &str = "schema: { '*': { limits: [[999, 1, 86400]] } }";
const RELOADED: &str = "weir_tls_reloads_total{listener=\"grpc\",result=\"success\"}";
const NOT_RELOADED: &str = "weir_tls_reloads_total{listener=\"grpc\",result=\"error\"}";
const EXPIRY: &str = "weir_tls_certificate_expiry_timestamp_seconds{listener=\"grpc\"}";
const KEPT: &str = "grpc.tls on disk cannot be used; the previous certificates stay in force";
/// A client that may read metrics with the token `m`.
const METRICS: &str = "prometheus: { roles: [metrics], tokens: [{ sha256: \
                       62c66a7a5dd70c3146618063c344e531e6d4b59e379808443ce962b3abd63c5a }] }";

fn server_of(pair: &Pair) -> Server {
    Setup::new().policy(POLICY).grpc_tls(pair).start()
}

fn wait_until_shown(server: &Server, authority: &Authority, pair: &Pair) {
    let shown = || shown_by(&server.grpc, authority).expect("a handshake");
    eventually("the certificate is in force", || (shown() == pair.der()).then_some(()));
}

async fn is_answered(client: &mut RateLimiterClient<Channel>) -> bool {
    client.check(check(&["a"])).await.is_ok()
}

#[tokio::test]
async fn new_connections_get_a_new_certificate_and_old_ones_are_kept() {
    let authority = Authority::new("ours");
    let leaf = || Leaf::host("localhost");
    let (first, second, third) = (authority.sign(leaf()), authority.sign(leaf().until(2099)), authority.sign(leaf()));
    let server = server_of(&first);
    let mut old = RateLimiterClient::new(channel(&server.grpc, &authority, None).await.expect("connected"));
    assert!(is_answered(&mut old).await);
    assert_eq!(server.metric(EXPIRY), 4_102_444_801.0);

    // The files are replaced one after the other, as operators do; in between, certificate and key do not match.
    put(&server.dir.path().join("grpc.pem"), &second.cert);
    server.wait_for_metric(NOT_RELOADED, 1.0);
    assert_eq!(shown_by(&server.grpc, &authority).expect("a handshake"), first.der());
    put(&server.dir.path().join("grpc.key"), &second.key);
    wait_until_shown(&server, &authority, &second);
    assert_eq!(server.metric(RELOADED), 1.0);
    assert_eq!(server.metric(EXPIRY), 4_070_908_801.0);
    assert!(is_answered(&mut old).await, "the connection made before is still good");

    third.write(server.dir.path(), "grpc");
    wait_until_shown(&server, &authority, &third);
}

#[test]
fn a_swapped_data_link_reloads_certificate_and_key_together() {
    let authority = Authority::new("ours");
    let pairs = [authority.sign(Leaf::host("localhost")), authority.sign(Leaf::host("localhost"))];
    let setup = Setup::new();
    let at = |name: &str| setup.path(name);
    for (version, pair) in ["..1", "..2"].iter().zip(&pairs) {
        fs::create_dir(at(version)).expect("made");
        pair.write(&at(version), "tls");
    }
    symlink("..1", at("..data")).expect("linked");
    symlink("..data/tls.pem", at("tls.crt")).expect("linked");
    symlink("..data/tls.key", at("tls.key")).expect("linked");
    let (cert, key) = (at("tls.crt"), at("tls.key"));
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let server =
        setup.env("WEIR_GRPC__TLS__CERT", &path(&cert)).env("WEIR_GRPC__TLS__KEY", &path(&key)).policy(POLICY).start();
    assert_eq!(shown_by(&server.grpc, &authority).expect("a handshake"), pairs[0].der());
    symlink("..2", server.dir.path().join("..new")).expect("linked");
    fs::rename(server.dir.path().join("..new"), server.dir.path().join("..data")).expect("swapped");
    wait_until_shown(&server, &authority, &pairs[1]);
    assert_eq!(server.metric(NOT_RELOADED), 0.0);
}

#[test]
fn an_invalid_pair_keeps_the_previous_one_and_names_the_file() {
    let authority = Authority::new("ours");
    let leaf = || Leaf::host("localhost");
    let [first, other, third] = [(); 3].map(|()| authority.sign(leaf()));
    let expired = authority.sign(leaf().until(2021));
    let server = server_of(&first);
    let pair = |cert: &str, key: &str| Pair { cert: cert.to_owned(), key: key.to_owned() };
    let (half_cert, half_key) = (&other.cert[..other.cert.len() / 2], &other.key[..other.key.len() / 2]);
    // The two files are written one after the other, and each one does not match the other that is there.
    for (bad, file) in [
        (pair("nonsense", &first.key), "grpc.pem: it contains no certificate"),
        (pair(half_cert, &first.key), "grpc.pem: "),
        (pair(&other.cert, half_key), "grpc.key: "),
        (pair(&first.cert, &third.key), "grpc.key: not the key of the certificate in"),
        (expired, "grpc.pem: the certificate has expired"),
        (pair("", ""), "grpc.pem: it contains no certificate"),
    ] {
        let errors = server.metric(NOT_RELOADED);
        bad.write(server.dir.path(), "grpc");
        eventually(file, || {
            let shown = server.log_lines(KEPT);
            let problem = shown.last().and_then(|line| line["problem"].as_str());
            let is_told = server.metric(NOT_RELOADED) > errors && problem.is_some_and(|problem| problem.contains(file));
            is_told.then_some(())
        });
        assert_eq!(shown_by(&server.grpc, &authority).expect("a handshake"), first.der(), "{file}");
    }
    let good = authority.sign(leaf());
    good.write(server.dir.path(), "grpc");
    wait_until_shown(&server, &authority, &good);
    let keys = [&first.key, &third.key, &good.key].map(|key| key.lines().nth(1).expect("a line").to_owned());
    let shown = server.log().join("\n") + &server.get("/metrics").1;
    assert!(!keys.iter().any(|key| shown.contains(key.as_str())) && !shown.contains("PRIVATE"), "{shown}");
}

/// Starts a service that accepts client certificates of the CA `clients`, with these entries in `auth.yaml`.
fn guarded(authority: &Authority, clients: &Authority, callers: &str) -> Server {
    Setup::new()
        .policy(POLICY)
        .grpc_tls(&authority.sign(Leaf::host("localhost")))
        .file("WEIR_GRPC__TLS__CLIENT_CA", "clients.pem", &clients.pem)
        .credentials(&format!("callers: {{ {METRICS}, {callers} }}"))
        .start()
}

/// Number of connections with a certificate that is revoked.
const CONNECTIONS: usize = 10;

/// Revokes a certificate with `change`. Asserts that its connections are closed, one with its stream, and that another
/// one stays open.
async fn is_revoked(server: &Server, authority: &Authority, [shown, kept]: [&Pair; 2], change: impl FnOnce(&Path)) {
    let connect = async |pair| channel(&server.grpc, authority, Some(pair)).await.expect("connected");
    let mut client = RateLimiterClient::new(connect(shown).await);
    let mut other = RateLimiterClient::new(connect(kept).await);
    assert!(is_answered(&mut client).await && is_answered(&mut other).await);
    let mut more = Vec::new();
    for _ in 1..CONNECTIONS {
        more.push(connect(shown).await);
    }
    let (_send, mut answers) = open_stream(&mut client, check(&["a"])).await;
    change(server.dir.path());
    let end = in_time("the stream ends", answers.message()).await.expect_err("it ends");
    assert_eq!(end.code(), Code::Unauthenticated, "{end:?}");
    // The client reconnects, and is rejected or not authenticated.
    let refused = client.check(check(&["a"])).await.expect_err("refused");
    assert!(
        matches!(
            refused.code(),
            Code::Unauthenticated | Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal
        ),
        "{refused:?}"
    );
    assert!(is_answered(&mut other).await, "others go on");
    let series = "weir_tls_connections_revoked_total{listener=\"grpc\"}";
    let all = CONNECTIONS as f64;
    eventually_async("all are counted", async || (server.metric_by("m", series) >= all).then_some(())).await;
    let message = "connection closed: the client certificate is no longer accepted";
    server.wait_for_log(message);
    assert!(server.log_lines(message).len() < CONNECTIONS, "one line a second");
}

#[tokio::test]
async fn removing_a_client_ca_closes_its_connections() {
    let (authority, old, new) = (Authority::new("ours"), Authority::new("old"), Authority::new("new"));
    let mut both = Authority::new("unused");
    both.pem = format!("{}{}", old.pem, new.pem);
    let server = guarded(&authority, &both, "peers: { roles: [check], certificates: ['*'] }");
    let (shown, kept) = (old.sign(Leaf::host("a.example")), new.sign(Leaf::host("b.example")));
    is_revoked(&server, &authority, [&shown, &kept], |dir| put(&dir.join("clients.pem"), &new.pem)).await;
    let let_in = async |pair| match channel(&server.grpc, &authority, Some(pair)).await {
        Ok(channel) => is_answered(&mut RateLimiterClient::new(channel)).await,
        Err(_) => false,
    };
    assert!(!let_in(&shown).await && let_in(&kept).await);
}

#[tokio::test]
async fn an_expired_client_certificate_closes_its_connection() {
    let authority = Authority::new("ours");
    let server = guarded(&authority, &authority, "peers: { roles: [check], certificates: ['*'] }");
    // Long enough to connect and send a check on a busy machine.
    let shown = authority.sign(Leaf::host("a.example").lasting(Duration::from_secs(15)));
    let kept = authority.sign(Leaf::host("b.example"));
    is_revoked(&server, &authority, [&shown, &kept], |_| {}).await;
}

#[tokio::test]
async fn revoking_a_certificate_name_closes_its_connections() {
    let authority = Authority::new("ours");
    let callers = "a: { roles: [check], certificates: [a.example] }, b: { roles: [check], certificates: [b.example] }";
    let server = guarded(&authority, &authority, callers);
    let (shown, kept) = (authority.sign(Leaf::host("a.example")), authority.sign(Leaf::host("b.example")));
    is_revoked(&server, &authority, [&shown, &kept], |dir| {
        let left = callers.replace("[a.example]", "[]");
        put(&dir.join("auth.yaml"), &format!("callers: {{ {METRICS}, {left} }}"));
    })
    .await;
}
