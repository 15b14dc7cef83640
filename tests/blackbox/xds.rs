//! The policy from a control plane, over xDS.

mod start;

use std::{
    fs,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use prost_types::{Any, Struct, Value, value::Kind};
use tonic::Status;
use weir_envoy::{
    envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
    ratelimit::config::ratelimit::v3::{RateLimitDescriptor, RateLimitPolicy, RateLimitReplace},
};

use crate::support::{
    Folder, Server,
    control_plane::{ControlPlane, config, yearly},
    envoy::{descriptor, should_rate_limit},
    eventually, eventually_async,
    pki::{Authority, Leaf, acceptor},
    run,
    server::Setup,
};

const ACCEPTED: &str = "weir_policy_reloads_total{result=\"success\"}";
const REJECTED: &str = "weir_policy_reloads_total{result=\"error\"}";
const CONNECTED: &str = "weir_xds_connected";

/// Configures a service with this control plane's policy, and a short backoff.
fn setup(plane: &ControlPlane) -> Setup {
    let pauses = [("WEIR_XDS__BACKOFF__INITIAL", "10ms"), ("WEIR_XDS__BACKOFF__MAX", "50ms")];
    pauses.into_iter().fold(Setup::new().limits(plane.limits().into()), |setup, (name, value)| setup.env(name, value))
}

/// Starts a service with this first policy.
fn serving(plane: &ControlPlane, resources: Vec<Any>) -> Server {
    let server = setup(plane).spawn();
    plane.request(0);
    plane.send("1", resources);
    server.serving()
}

async fn ask(server: &Server, domain: &str, key: &[&str], hits: i64) -> Result<RateLimitResponse, Status> {
    let descriptors = vec![descriptor(key, hits)];
    let request = RateLimitRequest { domain: domain.to_owned(), descriptors, ..RateLimitRequest::default() };
    should_rate_limit(server.channel().await, request).await
}

/// Returns the limit of a key and its remaining units; `None` without a limit.
async fn left(server: &Server, domain: &str, key: &[&str]) -> Option<(u32, u32)> {
    let answer = ask(server, domain, key, 0).await.expect("an answer");
    let status = answer.statuses.first().expect("a status");
    status.current_limit.as_ref().map(|limit| (limit.requests_per_unit, status.limit_remaining))
}

#[tokio::test]
async fn responses_are_acknowledged_and_replace_the_whole_policy() {
    let plane = ControlPlane::start();
    let port = TcpListener::bind(ControlPlane::FREE).expect("a port").local_addr().expect("an address");
    let server = setup(&plane)
        .env("WEIR_GRPC__LISTEN", &port.to_string())
        .env("WEIR_XDS__NODE_ID", "edge")
        .env("WEIR_XDS__NODE_METADATA", "zone=a,rack=7")
        .env("WEIR_XDS__HEADERS", "Authorization: Bearer geheim, x-tenant:b")
        .spawn();
    let (metadata, first) = plane.call(0);
    let node = first.node.clone().expect("a node");
    let fields = node.metadata.expect("metadata").fields;
    let zone = fields.get("zone").and_then(|value| value.kind.clone());
    assert_eq!((node.id.as_str(), zone, fields.len()), ("edge", Some(Kind::StringValue("a".to_owned())), 2));
    let header = |name| metadata.get(name).and_then(|value| value.to_str().ok());
    assert_eq!((header("authorization"), header("x-tenant")), (Some("Bearer geheim"), Some("b")));
    assert_eq!(first.type_url, "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig");
    assert_eq!((first.version_info.as_str(), first.response_nonce.as_str(), first.error_detail), ("", "", None));
    assert!(first.resource_names.is_empty());
    assert!(TcpStream::connect(port).is_err(), "the ports are closed until there is a policy");

    let ack = plane.send("v1", vec![config("a", "d", vec![yearly("k", "", 3), yearly("only", "1", 1)])]);
    assert_eq!((ack.version_info.as_str(), ack.response_nonce.as_str()), ("v1", "nonce of v1"));
    assert!(ack.error_detail.is_none() && ack.node.is_some());
    let server = server.serving();
    assert_eq!(ask(&server, "d", &["k", "v"], 2).await.expect("an answer").overall_code, Code::Ok as i32);
    assert_eq!(server.metric(CONNECTED), 1.0);

    let two = vec![config("a", "d", vec![yearly("k", "", 5)]), config("b", "e", vec![yearly("k", "", 7)])];
    let ack = plane.send("v2", two);
    assert_eq!((ack.version_info.as_str(), ack.error_detail), ("v2", None));
    let all = [left(&server, "d", &["k", "v"]).await, left(&server, "e", &["k", "v"]).await];
    assert_eq!(all, [Some((5, 3)), Some((7, 7))], "counts are kept");
    assert_eq!(left(&server, "d", &["only", "1"]).await, None);
    let change = server.wait_for_log("policy reloaded");
    assert_eq!((&change["changed"], &change["domains"], &change["limits"]), (&1.into(), &2.into(), &2.into()));

    let ack = plane.send("v3", Vec::new());
    assert_eq!((ack.version_info.as_str(), ack.error_detail), ("v3", None));
    assert_eq!(left(&server, "d", &["k", "v"]).await, None, "without resources everything passes");
    server.wait_for_metric(ACCEPTED, 3.0);
    assert!(server.log().iter().all(|line| !line.contains("geheim")));
}

#[tokio::test]
async fn one_bad_resource_rejects_the_whole_response() {
    let plane = ControlPlane::start();
    let good = || config("good", "d", vec![yearly("k", "", 3)]);
    let server = serving(&plane, vec![good()]);
    let with = |policy: RateLimitPolicy| RateLimitDescriptor { rate_limit: Some(policy), ..yearly("k", "v", 1) };
    let nested = RateLimitDescriptor { descriptors: vec![with(RateLimitPolicy::default())], ..yearly("user", "a", 1) };
    let same_replaced = RateLimitPolicy {
        unit: 4,
        replaces: vec![RateLimitReplace { name: String::new() }],
        ..RateLimitPolicy::default()
    };
    let unlimited = RateLimitPolicy { unit: 1, unlimited: true, ..RateLimitPolicy::default() };
    let odd = |type_url: &str, value: &[u8]| Any { type_url: type_url.to_owned(), value: value.to_vec() };
    let cases = [
        (config("bad", "e", vec![nested]), "xds:bad: e.user_a.k_v: unknown unit `UNKNOWN`"),
        (
            config("bad", "e", vec![with(RateLimitPolicy { unit: 99, ..RateLimitPolicy::default() })]),
            "unknown unit `99`",
        ),
        (config("bad", "e", vec![with(same_replaced)]), "xds:bad: e.k_v: an entry of replaces needs a name"),
        (config("bad", "e", vec![with(unlimited)]), "xds:bad: e.k_v: an unlimited rate_limit has no unit"),
        (config("bad", "e", vec![yearly("", "", 1)]), "a descriptor needs a key that is not empty"),
        (config("bad", "e", vec![yearly("k", "v", 1), yearly("k", "v", 2)]), "duplicate descriptor `k/v`"),
        (config("bad", "", vec![yearly("k", "", 1)]), "xds:bad: descriptors need their domain's name"),
        (config("bad", "", vec![with(RateLimitPolicy::default())]), "xds:bad: k_v: unknown unit `UNKNOWN`"),
        (
            config("bad", "d", vec![yearly("l", "", 1)]),
            "domain `d` is also defined in xds:bad; define it once (or set envoy.merge_domains)",
        ),
        (odd("type.googleapis.com/google.protobuf.Empty", b""), "the resource is a `type.googleapis.com/google"),
        (odd(&good().type_url, b"\xff"), "xds:#1: the resource cannot be decoded"),
        (
            config(
                "bad",
                "e",
                vec![(0..150).fold(yearly("k", "", 1), |inner, _| RateLimitDescriptor {
                    descriptors: vec![inner],
                    ..yearly("k", "", 1)
                })],
            ),
            "xds:#1: the resource cannot be decoded: failed to decode Protobuf message: RateLimitDescriptor.rate_limit: …: recursion limit reached",
        ),
    ];
    let count = cases.len();
    for (number, (bad, expected)) in cases.into_iter().enumerate() {
        let nack = plane.send(&format!("bad {number}"), vec![good(), bad]);
        let message = nack.error_detail.expect("an error").message;
        assert!(message.contains(expected), "{expected}: {message}");
        assert_eq!((nack.version_info.as_str(), nack.response_nonce), ("1", format!("nonce of bad {number}")));
    }
    let nack = plane.send_as("type.googleapis.com/envoy.config.cluster.v3.Cluster", "clusters", Vec::new());
    assert!(
        nack.error_detail.is_some_and(|error| error.message.contains("the response is of `type.googleapis.com/envoy"))
    );
    assert_eq!(left(&server, "d", &["k", "v"]).await, Some((3, 3)), "the previous policy stays in force");
    assert_eq!((server.metric(REJECTED), server.metric(ACCEPTED)), (count as f64 + 1.0, 1.0));
    assert_eq!(server.metric("weir_policy_last_reload_successful"), 0.0);
    const NOT_VALID: &str = "the new policy is not valid; the previous one stays in force";
    // A line for each problem; one resource has two.
    let lines = count + 2;
    let logged = |lines| {
        let count = || Some(server.log_lines(NOT_VALID).len()).filter(|count| *count >= lines);
        assert_eq!(eventually("its lines", count), lines);
    };
    logged(lines);
    // Some control planes repeat the resources after a NACK, in any order and also as a new version: logged once, rejected
    // with a backoff.
    let started = Instant::now();
    let mut resources = vec![good(), config("bad", "", Vec::new())];
    for version in ["2", "2", "3", "4", "5"] {
        let nack = plane.send(version, resources.clone());
        assert!(nack.error_detail.is_some_and(|error| error.message.contains("descriptors need their domain's name")));
        resources.reverse();
    }
    assert!(started.elapsed() >= Duration::from_millis(10 + 20 + 40 + 80), "{:?}", started.elapsed());
    let ack = plane.send("2", vec![good()]);
    assert_eq!((ack.version_info.as_str(), ack.error_detail), ("2", None));
    logged(lines + 1);
    assert_eq!(server.metric(REJECTED), count as f64 + 2.0);
    assert_eq!(server.metric("weir_policy_last_reload_successful"), 1.0);
}

#[tokio::test]
async fn a_response_above_the_maximum_size_changes_nothing() {
    let plane = ControlPlane::start();
    let server = setup(&plane).env("WEIR_XDS__MAX_MESSAGE_BYTES", "2048").spawn();
    plane.request(0);
    plane.send("1", vec![config("a", "d", vec![yearly("k", "", 3)])]);
    let server = server.serving();
    let large = (0..200).map(|number| yearly(&format!("key {number}"), "", 9)).collect();
    let again = plane.send("2", vec![config("a", "d", large)]);
    assert_eq!((again.response_nonce.as_str(), again.error_detail), ("", None), "the first request of another stream");
    let line = server.wait_for_log("control plane unreachable: the last policy, if any, stays in force");
    let cause = line["cause"].as_str().expect("a text");
    assert!(cause.starts_with("a response is larger than xds.max_message_bytes: ") && cause.contains("2048"), "{line}");
    assert_eq!(left(&server, "d", &["k", "v"]).await, Some((3, 3)));
}

#[tokio::test]
async fn messages_mean_what_the_same_file_means() {
    let plane = ControlPlane::start();
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let metadata = Struct { fields: [("tier".to_owned(), text("gold"))].into() };
    let limit = |name: &str, replaces: &str| {
        let replaces = (!replaces.is_empty()).then(|| RateLimitReplace { name: replaces.to_owned() });
        let replaces = replaces.into_iter().collect();
        Some(RateLimitPolicy { unit: 4, requests_per_unit: 1, name: name.to_owned(), replaces, unlimited: false })
    };
    let descriptors = vec![
        RateLimitDescriptor {
            shadow_mode: true,
            metadata: Some(metadata),
            detailed_metric: true,
            ..yearly("shadow", "a*", 1)
        },
        RateLimitDescriptor { quota_mode: true, ..yearly("quota", "", 1) },
        RateLimitDescriptor { rate_limit: limit("slow", ""), ..yearly("slow", "", 1) },
        RateLimitDescriptor { rate_limit: limit("fast", "slow"), ..yearly("fast", "", 1) },
        RateLimitDescriptor { rate_limit: None, descriptors: vec![yearly("inner", "", 2)], ..yearly("outer", "x", 1) },
        RateLimitDescriptor {
            rate_limit: Some(RateLimitPolicy { unlimited: true, ..RateLimitPolicy::default() }),
            ..yearly("free", "", 1)
        },
    ];
    let other = config("b", "d", vec![yearly("more", "", 9)]);
    let server =
        setup(&plane).env("WEIR_ENVOY__MERGE_DOMAINS", "true").env("WEIR_ENVOY__DYNAMIC_METADATA", "true").spawn();
    plane.request(0);
    assert_eq!(plane.send("1", vec![other, config("a", "d", descriptors)]).error_detail, None);
    let server = server.serving();
    assert_eq!(left(&server, "d", &["more", "1"]).await, Some((9, 9)), "the resources of a domain are merged");
    assert_eq!(left(&server, "d", &["outer", "x", "inner", "y"]).await, Some((2, 2)));
    assert_eq!(left(&server, "d", &["free", "1"]).await, None);
    let shadow = ask(&server, "d", &["shadow", "ab"], 9).await.expect("an answer");
    assert_eq!(shadow.statuses[0].code, Code::Ok as i32, "a shadow");
    let fields = shadow.dynamic_metadata.expect("metadata").fields;
    assert!(format!("{:?}", fields["metadata"]).contains("gold"), "{fields:?}");
    let descriptors = vec![descriptor(&["slow", "1"], 1), descriptor(&["fast", "1"], 1)];
    let request = RateLimitRequest { domain: "d".to_owned(), descriptors, ..RateLimitRequest::default() };
    let answer = should_rate_limit(server.channel().await, request).await.expect("an answer");
    assert!(answer.statuses[0].current_limit.is_none() && answer.statuses[1].current_limit.is_some(), "replaced");
}

#[tokio::test]
async fn a_broken_stream_is_opened_again_and_the_policy_stays() {
    let plane = ControlPlane::start();
    let policy = || vec![config("a", "d", vec![yearly("k", "", 3)])];
    let server = serving(&plane, policy());
    let requests = plane.requests();
    plane.end_stream();
    let again = plane.request(requests);
    let sent = (again.version_info.as_str(), again.response_nonce.as_str(), again.error_detail);
    assert_eq!(sent, ("", "", None), "the control plane may count its versions anew");
    assert_eq!(server.metric(CONNECTED), 0.0, "it may hang: it has not answered on this stream");
    plane.send("7", policy());
    server.wait_for_log("policy unchanged");
    assert_eq!(server.metric(CONNECTED), 1.0);
    assert!(!server.log().iter().any(|line| line.contains("policy reloaded")), "leases and the near cache survive");

    let address = plane.address().to_owned();
    drop(plane);
    server.wait_for_metric(CONNECTED, 0.0);
    assert_eq!(ask(&server, "d", &["k", "v"], 1).await.expect("an answer").overall_code, Code::Ok as i32);
    assert_eq!(left(&server, "d", &["k", "v"]).await, Some((3, 2)));
    let away = server.wait_for_log("control plane unreachable: the last policy, if any, stays in force");
    assert!(away["retry_ms"].as_u64().is_some_and(|pause| pause <= 50), "{away}");

    let plane = ControlPlane::at(&address, None);
    assert_eq!(plane.request(0).version_info, "");
    plane.send("1", vec![config("a", "d", vec![yearly("k", "", 9)])]);
    assert_eq!(left(&server, "d", &["k", "v"]).await, Some((9, 8)));
    assert_eq!(server.metric(CONNECTED), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_of_a_file_go_on_under_the_same_policy_of_a_control_plane() {
    let data = Folder::new();
    let keeping = |setup: Setup| setup.snapshot(data.path("snapshot"));
    let file = "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: year, requests_per_unit: 9 } }";
    let server = keeping(Setup::new().policy(file)).start();
    ask(&server, "d", &["k", "v"], 4).await.expect("an answer");
    let mut server = server;
    server.stop();

    for start in ["wait", "ready"] {
        let plane = ControlPlane::start();
        let server = keeping(setup(&plane)).env("WEIR_XDS__START", start).spawn();
        plane.request(0);
        if start == "ready" {
            server.wait_for_log("serving");
        }
        plane.send("1", vec![config("a", "d", vec![yearly("k", "", 9)])]);
        let mut server = server.serving();
        assert_eq!(left(&server, "d", &["k", "v"]).await, Some((9, 5)), "{start}");
        server.stop();
    }
}

#[tokio::test]
async fn certificates_are_read_for_each_connection() {
    let (ours, theirs, new) = (Authority::new("ours"), Authority::new("theirs"), Authority::new("new"));
    let server_pair = ours.sign(Leaf::host("localhost"));
    let plane = ControlPlane::at(ControlPlane::FREE, Some(acceptor(&server_pair, Some(&ours))));
    let address = plane.address().to_owned();
    let client = |authority: &Authority| authority.sign(Leaf::common("weir"));
    let setup = Setup::new()
        .limits(plane.limits().into())
        .env("WEIR_XDS__TLS__ENABLED", "true")
        .env("WEIR_XDS__TLS__SERVER_NAME", "localhost")
        .env("WEIR_XDS__BACKOFF__INITIAL", "10ms")
        .env("WEIR_XDS__BACKOFF__MAX", "50ms")
        .file("WEIR_XDS__TLS__CA", "ca.pem", &ours.pem)
        .file("WEIR_XDS__TLS__CERT", "xds.pem", "")
        .file("WEIR_XDS__TLS__KEY", "xds.key", "");
    let dir = setup.dir.path().to_owned();
    client(&theirs).write(&dir, "xds");
    let server = setup.spawn();
    server.wait_for_log("control plane unreachable: the last policy, if any, stays in force");
    assert_eq!(plane.requests(), 0, "the certificate is another authority's");
    client(&ours).write(&dir, "xds");
    plane.request(0);
    plane.send("1", vec![config("a", "d", vec![yearly("k", "", 3)])]);
    let server = server.serving();

    // Everything changes: the control plane's certificate, its CA, and the CA that it trusts.
    drop(plane);
    let plane = ControlPlane::at(&address, Some(acceptor(&new.sign(Leaf::host("localhost")), Some(&new))));
    eventually_async("the log names the setting", async || {
        server.log().iter().any(|line| line.contains("xds.tls.ca names the CA bundle")).then_some(())
    })
    .await;
    fs::write(dir.join("ca.pem"), &new.pem).expect("written");
    client(&new).write(&dir, "xds");
    assert_eq!(plane.request(0).version_info, "");
    plane.send("2", vec![config("a", "d", vec![yearly("k", "", 4)])]);
    eventually_async("the new policy is in force", async || {
        (left(&server, "d", &["k", "v"]).await == Some((4, 4))).then_some(())
    })
    .await;
}

#[test]
fn settings_of_a_control_plane_are_checked() {
    let dir = Folder::new();
    let checked = |settings: &str| run(&["config", "check", &dir.write("weir.yaml", settings)]);
    let good = checked("limits: xds://plane:18000\nxds: { node_id: a, start: ready }");
    assert_eq!(good.code, 0, "{good:?}");
    assert!(good.out.starts_with("policy          from the control plane xds://plane:18000\n"), "{good:?}");
    for (settings, expected) in [
        ("limits: xds://plane", ":1:9: limits: `xds://plane` has no port; write xds://host:port\n"),
        ("limits: xds://user@plane:1", "is not the address of a control plane; write xds://host:port"),
        ("limits: xds://plane:1\nxds: { tls: { ca: x } }", ":2:19: xds.tls.ca is set but TLS is not enabled"),
        ("limits: xds://plane:1\nxds: { tls: { enabled: true, cert: x } }", "either both are set or none"),
        ("limits: xds://plane:1\nxds: { tls: { enabled: true, ca: x } }", "x: No such file"),
        ("limits: xds://plane:1\nxds: { node_metadata: [a] }", "xds.node_metadata: `a` is not name=value"),
        ("limits: xds://plane:1\nxds: { headers: ['a b: geheim'] }", "xds.headers: `a b` is not a header name"),
        ("limits: xds://plane:1\nxds: { headers: ['geheim'] }", "xds.headers: an entry is not `name: value`"),
        ("limits: xds://plane:1\nxds: { backoff: { initial: 1m } }", "xds.backoff.initial must be 10ms to"),
        ("limits: xds://plane:1\nxds: { start: now }", "xds.start must be `wait`, `not_ready` or `ready`, not `now`"),
        ("limits: xds://plane:1\nxds: { max_message_bytes: 1 }", "xds.max_message_bytes must be 1024 to"),
        ("limits: xds://plane:1\nallow_all: true", "allow_all is set, and so is limits"),
    ] {
        let bad = checked(settings);
        assert!(bad.code == 2 && bad.err.contains(expected) && !bad.err.contains("geheim"), "{expected}: {bad:?}");
    }
}
