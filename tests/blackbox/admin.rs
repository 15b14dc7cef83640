//! `weir.v1.Admin`: access control, on both ports and in the commands, and the data of the replica.

use std::net::{IpAddr, UdpSocket};

use serde_json::{Value, json};
use tonic::{Code, Status};
use weir::proto::{ListReplicasRequest, Replica, admin_client::AdminClient};

use crate::{
    support::{
        Server,
        http::{Answer, Client},
        server::Setup,
    },
    tokens::{by, caller, token},
};

const POLICY: &str = "schema: { user: { children: { '*': { limits: [[9, 1, 86400]] } } } }";

/// The HTTP paths of the API.
const PAGES: [&str; 8] = [
    "POST /v1/admin/list_replicas",
    "POST /v1/admin/list_keys",
    "POST /v1/admin/list_holds",
    "POST /v1/admin/list_hot_keys",
    "POST /v1/admin/list_overrides",
    "POST /v1/admin/list_audit",
    "POST /v1/admin/end_override",
    "POST /v1/admin/set_override",
];

/// An override that ends between two pages does not hide later ones.
#[tokio::test]
async fn pages_of_overrides_hold_each_that_lasts() {
    let server = Server::with_policy(POLICY);
    for user in ["a", "b", "c", "d", "e"] {
        let set = json!({ "override": { "key": ["user", user], "ban": true, "reason": "a test" } });
        assert_eq!(server.ask("POST /v1/admin/set_override", None, &set).status, 200);
    }
    let page = |cursor: &Value| {
        server.ask("POST /v1/admin/list_overrides", None, &json!({ "pageSize": 2, "cursor": cursor })).json()
    };
    let users = |page: &Value| -> Vec<Value> {
        page["overrides"].as_array().expect("a list").iter().map(|one| one["key"][1].clone()).collect()
    };
    let first = page(&json!(""));
    server.ask("POST /v1/admin/end_override", None, &json!({ "key": ["user", "a"] }));
    let second = page(&first["nextCursor"]);
    server.ask("POST /v1/admin/end_override", None, &json!({ "key": ["user", "d"] }));
    let third = page(&second["nextCursor"]);
    assert_eq!([&first, &second, &third].map(users), [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
    assert_eq!(third["nextCursor"], "");
}

#[tokio::test]
async fn pages_of_overrides_go_by_pattern_and_hold_each_once() {
    let server = Server::with_policy(POLICY);
    let patterns = [json!([]), json!(["user"]), json!(["user", "a"]), json!(["user", "a", "b"]), json!(["user", "b"])];
    for pattern in &patterns {
        let set = json!({ "override": { "key": pattern, "shadow": true, "reason": "a test" } });
        assert_eq!(server.ask("POST /v1/admin/set_override", None, &set).status, 200);
    }
    for size in [1, 2, 3] {
        let (mut listed, mut cursor) = (Vec::new(), json!(""));
        for _ in 0..patterns.len() {
            let query = json!({ "pageSize": size, "cursor": cursor });
            let page = server.ask("POST /v1/admin/list_overrides", None, &query).json();
            listed.extend(page["overrides"].as_array().expect("a list").iter().map(|one| one["key"].clone()));
            cursor = page["nextCursor"].clone();
            if cursor == "" {
                break;
            }
        }
        assert_eq!(listed, patterns, "pages of {size}");
    }
    for (query, expected) in [
        (json!({ "prefix": ["user", "a"] }), &patterns[2..4]),
        (json!({ "domain": "", "prefix": ["user"] }), &patterns[1..]),
        (json!({ "domain": "other" }), &[]),
    ] {
        let page = server.ask("POST /v1/admin/list_overrides", None, &query).json();
        let listed = page["overrides"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(listed.iter().map(|one| &one["key"]).eq(expected), "{query}: {page}");
    }
}

/// Returns the outcome of a call over gRPC and over HTTP.
async fn list_replicas(server: &Server, token: Option<&str>) -> (Result<Vec<Replica>, Status>, Answer) {
    let mut client = AdminClient::new(server.channel().await);
    let answer = client.list_replicas(by(token, ListReplicasRequest {})).await;
    (answer.map(|answer| answer.into_inner().replicas), server.ask(PAGES[0], token, &json!({})))
}

#[tokio::test]
async fn operators_need_the_role_admin() {
    let tokens: Vec<_> = (0..2).map(|_| token()).collect();
    let [others, admin] = &tokens[..] else { unreachable!() };
    let callers = [caller("others", "check, reset, metrics", others, ""), caller("ops", "admin", admin, "")];
    let server = Setup::new().policy(POLICY).credentials(&format!("callers:\n{}", callers.concat())).start();
    for (token, code, status) in
        [(Some(others), Code::PermissionDenied, 403), (None, Code::Unauthenticated, 401), (Some(admin), Code::Ok, 200)]
    {
        let token = token.map(|token| token.token.as_str());
        let (by_grpc, by_http) = list_replicas(&server, token).await;
        assert_eq!((by_grpc.map_or_else(|status| status.code(), |_| Code::Ok), by_http.status), (code, status));
        for page in PAGES {
            // An empty request of an authorized client is invalid for set_override.
            let empty = if status == 200 && page.ends_with("set_override") { 400 } else { status };
            assert_eq!(server.ask(page, token, &json!({})).status, empty, "{page}");
        }
    }
}

/// Returns an address of this machine that is not loopback, if there is one.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // No packet is sent: the system only selects the source address.
    socket.connect("198.51.100.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[tokio::test]
async fn without_authentication_only_this_machine_may_call() {
    let server = Setup::new()
        .policy(POLICY)
        .env("WEIR_GRPC__LISTEN", "0.0.0.0:0")
        .env("WEIR_HTTP__LISTEN", "0.0.0.0:0")
        .env("WEIR_HTTP__UI__ENABLED", "true")
        .start();
    let at = |address: &str, host: &str| format!("{host}:{}", address.rsplit_once(':').expect("a port").1);
    let call = async |host: &str| {
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", at(&server.grpc, host)));
        let channel = channel.expect("an address").connect().await.expect("a connection");
        let by_grpc = AdminClient::new(channel).list_replicas(ListReplicasRequest {}).await;
        let mut client = Client::connect(&at(&server.http, host)).expect("it accepts connections");
        let by_http = client.ask(PAGES[0], &[], b"{}").expect("an answer");
        let mut client = Client::connect(&at(&server.http, host)).expect("it accepts connections");
        let session = client.ask("GET /ui/api/session", &[], b"").expect("an answer").json();
        let is_admin = session["roles"].as_array().is_some_and(|roles| roles.contains(&json!("admin")));
        (by_grpc.map(drop), by_http, is_admin)
    };
    let (by_grpc, by_http, is_admin) = call("127.0.0.1").await;
    assert!(by_grpc.is_ok() && by_http.status == 200 && is_admin, "{by_grpc:?} {by_http:?}");
    // A machine with loopback only cannot test this; the unit tests of the rule do.
    let Some(address) = own_address() else { return };
    let (by_grpc, by_http, is_admin) = call(&address.to_string()).await;
    let status = by_grpc.expect_err("it is denied");
    assert_eq!((status.code(), by_http.status, is_admin), (Code::PermissionDenied, 403, false));
    assert!(status.message().contains("without authentication") && status.message().contains("auth.file"), "{status}");
}

#[tokio::test]
async fn a_replica_in_memory_lists_itself() {
    let server = Server::with_policy(POLICY);
    let (by_grpc, by_http) = list_replicas(&server, None).await;
    let [replica] = &by_grpc.expect("an answer")[..] else { panic!("more than one replica") };
    assert!(replica.answering && replica.store_healthy, "{replica:?}");
    assert_eq!(replica.version, env!("CARGO_PKG_VERSION"));
    let hash = format!(r#"weir_policy_info{{hash="{}"}} 1"#, replica.policy_hash);
    assert!(server.get("/metrics").1.contains(&hash), "{replica:?}");
    assert_eq!(by_http.json()["replicas"][0]["id"], json!(replica.id));
    let answer = server.ask("POST /v1/admin/list_replicas", None, &json!({ "nothing": 1 }));
    assert_eq!((answer.status, answer.json()["error"]["field"].as_str()), (400, Some("nothing")));

    let listed = server.run(&["replicas", "--json"]).json();
    assert_eq!((&listed["id"], &listed["policy_hash"]), (&json!(replica.id), &json!(replica.policy_hash)));
    let listed = server.run(&["replicas"]);
    assert!(listed.out.contains(&replica.id) && listed.out.starts_with("id "), "{}", listed.out);
}

#[tokio::test]
async fn without_authentication_requests_through_a_proxy_are_not_local() {
    let server = Setup::new().policy(POLICY).env("WEIR_HTTP__UI__ENABLED", "true").start();
    for header in ["forwarded", "x-forwarded-for", "x-real-ip"] {
        let ask = |request: &str, body: &[u8]| {
            let mut client = Client::connect(&server.http).expect("it accepts connections");
            client.ask(request, &[(header, "192.0.2.1")], body).expect("an answer")
        };
        for page in PAGES {
            assert_eq!(ask(page, b"{}").status, 403, "{header} {page}");
        }
        let roles = ask("GET /ui/api/session", b"").json()["roles"].clone();
        assert_eq!(roles, json!(["check", "reset", "metrics"]), "{header}");
        let mut request = tonic::Request::new(ListReplicasRequest {});
        request.metadata_mut().insert(header, "192.0.2.1".parse().expect("a value"));
        let status = AdminClient::new(server.channel().await).list_replicas(request).await.expect_err("it is denied");
        assert_eq!(status.code(), Code::PermissionDenied, "{header}");
    }
}

#[tokio::test]
async fn operators_calls_may_need_authentication() {
    let setup = || Setup::new().policy(POLICY).env("WEIR_ADMIN", "authenticated").env("WEIR_HTTP__UI__ENABLED", "true");
    let without = setup().start();
    let (by_grpc, by_http) = list_replicas(&without, None).await;
    let status = by_grpc.expect_err("it is denied");
    assert_eq!((status.code(), by_http.status), (Code::PermissionDenied, 403));
    assert!(status.message().contains("(setting `admin`)"), "{status}");
    let session = Client::connect(&without.http).expect("it accepts connections").ask("GET /ui/api/session", &[], b"");
    assert_eq!(session.expect("an answer").json()["roles"], json!(["check", "reset", "metrics"]));
    let admin = token();
    let callers = ["callers:\n", &caller("ops", "admin", &admin, "")].concat();
    let (by_grpc, by_http) = list_replicas(&setup().credentials(&callers).start(), Some(&admin.token)).await;
    assert!(by_grpc.is_ok() && by_http.status == 200, "{by_grpc:?} {by_http:?}");
}
