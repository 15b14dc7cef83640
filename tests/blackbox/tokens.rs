//! Authorization by tokens, on every surface.

use serde_json::json;
use tonic::{Code, Request, Status, metadata::MetadataValue, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use weir::proto::{CheckBatchRequest, SuggestRequest, rate_limiter_client::RateLimiterClient};
use weir_envoy::envoy::service::ratelimit::v3::RateLimitRequest;

use crate::support::{
    Server, envoy, finish, http,
    requests::{check, reset},
    run,
    server::Setup,
    weir, weir_bench,
};

const POLICY: &str = "schema: { '*': { limits: [[999, 1, 86400]] } }";

/// A token made by the program.
pub struct Token {
    /// The token itself, in plain text.
    pub token: String,
    /// The SHA-256 hash of the token.
    pub sha256: String,
}

/// Makes a token with `weir token`.
pub fn token() -> Token {
    let made = run(&["token", "somebody", "--json"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let made = made.json();
    let text = |key: &str| made[key].as_str().expect("a text").to_owned();
    Token { token: text("token"), sha256: text("sha256") }
}

/// Writes an entry of the credentials file.
pub fn caller(name: &str, role: &str, token: &Token, rest: &str) -> String {
    format!("  {name}: {{ roles: [{role}], tokens: [{{ sha256: {}{rest} }}] }}\n", token.sha256)
}

/// Makes a request with a bearer token, or without one.
pub fn by<T>(token: Option<&str>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        let value = MetadataValue::try_from(format!("Bearer {token}")).expect("a header");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Returns the status of every gRPC call: the checks, the reset, and the call that reads the policy.
async fn calls(channel: &Channel, token: Option<&str>) -> Vec<Code> {
    let code = |status: Option<Status>| status.map_or(Code::Ok, |status| status.code());
    let mut client = RateLimiterClient::new(channel.clone());
    let mut codes = vec![code(client.check(by(token, check(&["a"]))).await.err())];
    let batch = CheckBatchRequest { checks: vec![check(&["a"])] };
    codes.push(code(client.check_batch(by(token, batch)).await.err()));
    let stream = client.check_stream(by(token, futures_util::stream::iter([check(&["a"])]))).await;
    codes.push(match stream {
        Err(status) => status.code(),
        Ok(answers) => code(answers.into_inner().message().await.err()),
    });
    codes.push(code(envoy::ask(channel.clone(), by(token, RateLimitRequest::default())).await.err()));
    codes.push(code(client.reset(by(token, reset(&["a"], false))).await.err()));
    let suggest = SuggestRequest { key: vec!["a".to_owned()], ..Default::default() };
    codes.push(code(client.suggest(by(token, suggest)).await.err()));
    codes
}

/// Returns the status of every HTTP path: the checks, the reset, the metrics, and an unknown path.
fn pages(server: &Server, token: Option<&str>) -> Vec<u16> {
    let checked = json!({ "key": ["a"] });
    let descriptors = json!({ "domain": "", "descriptors": [] });
    [
        ("POST /v1/check", &checked),
        ("POST /v1/check_batch", &json!({ "checks": [] })),
        ("POST /json", &descriptors),
        ("POST /v1/reset", &checked),
        ("GET /metrics", &checked),
        ("GET /elsewhere", &checked),
    ]
    .map(|(request, body)| server.ask(request, token, body).status)
    .to_vec()
}

#[tokio::test]
async fn every_api_requires_authentication_and_a_role() {
    let tokens: Vec<_> = (0..6).map(|_| token()).collect();
    let [checks, resets, metrics, all, expired, unknown] = &tokens[..] else { unreachable!() };
    let callers = [
        caller("checks", "check", checks, ""),
        caller("resets", "reset", resets, ""),
        caller("metrics", "metrics", metrics, ""),
        caller("all", "check, reset, metrics", all, ", expires: 2100-01-01"),
        caller("expired", "check, reset, metrics", expired, ", expires: 2021-01-01"),
    ];
    let server = Setup::new()
        .policy(POLICY)
        .env("WEIR_LOG__LEVEL", "trace")
        .credentials(&format!("callers:\n{}", callers.concat()))
        .start();
    let channel = server.channel().await;
    use Code::{InvalidArgument, Ok, PermissionDenied, Unauthenticated};
    // Envoy's request has no domain and is invalid, but it is only parsed once the client is authenticated.
    for (token, by_grpc, by_http) in [
        (
            Some(checks),
            [Ok, Ok, Ok, InvalidArgument, PermissionDenied, PermissionDenied],
            [200, 200, 400, 403, 403, 404],
        ),
        (
            Some(resets),
            [PermissionDenied, PermissionDenied, PermissionDenied, PermissionDenied, Ok, PermissionDenied],
            [403, 403, 403, 200, 403, 404],
        ),
        (
            Some(metrics),
            [PermissionDenied, PermissionDenied, PermissionDenied, PermissionDenied, PermissionDenied, Ok],
            [403, 403, 403, 403, 200, 404],
        ),
        (Some(all), [Ok, Ok, Ok, InvalidArgument, Ok, Ok], [200, 200, 400, 200, 200, 404]),
        (Some(expired), [Unauthenticated; 6], [401; 6]),
        (Some(unknown), [Unauthenticated; 6], [401; 6]),
        (None, [Unauthenticated; 6], [401; 6]),
        (
            Some(checks),
            [Ok, Ok, Ok, InvalidArgument, PermissionDenied, PermissionDenied],
            [200, 200, 400, 403, 403, 404],
        ),
    ] {
        let token = token.map(|token| token.token.as_str());
        assert_eq!(calls(&channel, token).await, by_grpc, "{token:?}");
        assert_eq!(pages(&server, token), by_http, "{token:?}");
    }
    for path in ["/healthz", "/readyz", "/healthcheck"] {
        assert_eq!(server.get(path).0, 200, "{path} is for everybody");
    }
    let mut health = HealthClient::new(channel.clone());
    health.check(HealthCheckRequest::default()).await.expect("health is for everybody");

    let answer = server.ask("POST /v1/check", None, &json!({ "key": ["a"] }));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.json()["error"]["code"], Code::Unauthenticated as i32);
    let answer = server.ask("POST /v1/reset", Some(&checks.token), &json!({ "key": ["a"] }));
    assert_eq!(answer.json()["detail"], "the role `reset` is required");

    let shown = server.log().join("\n") + &server.ask("GET /metrics", Some(&metrics.token), &json!(null)).body;
    for Token { token, sha256 } in &tokens {
        assert!(!shown.contains(&token["weir_".len()..]) && !shown.contains(sha256.as_str()), "{shown}");
    }
    for (series, least) in [
        ("weir_auth_rejected_total{listener=\"grpc\",reason=\"unauthenticated\"}", 18.0),
        ("weir_auth_rejected_total{listener=\"grpc\",reason=\"permission_denied\"}", 14.0),
        ("weir_auth_rejected_total{listener=\"http\",reason=\"unauthenticated\"}", 19.0),
        ("weir_auth_rejected_total{listener=\"http\",reason=\"permission_denied\"}", 13.0),
    ] {
        assert_eq!(http::metric(&shown, series), least, "{series}");
    }
}

#[test]
fn commands_authenticate_with_a_token() {
    let token = token();
    let server =
        Setup::new().policy(POLICY).credentials(&format!("callers:\n{}", caller("a", "check", &token, ""))).start();
    assert_eq!(server.run(&["check", "a", "--token", &token.token]).code, 0);
    let variable = |name: &str, value: &str, args: &[&str]| {
        finish(weir().args(args).args(["--addr", &server.grpc]).env(name, value))
    };
    assert_eq!(variable("WEIR_TOKEN", &token.token, &["check", "a"]).code, 0);
    assert_eq!(variable("WEIR_TOKEN", "", &["health"]).code, 0);
    let load = ["--duration", "100ms", "--warmup", "0s", "--addr", &server.grpc];
    let bench = |token: &str| finish(weir_bench().args(load).env("WEIR_TOKEN", token));
    assert_eq!((bench(&token.token).code, bench("geheim").code), (0, 2));
    for (run, expected) in [
        (server.run(&["check", "a"]), "a bearer token or the certificate of a client is required (UNAUTHENTICATED)"),
        (variable("WEIR_TOKEN", "geheim", &["check", "a"]), "the bearer token is unknown (UNAUTHENTICATED)"),
        (variable("WEIR_TOKEN", "ge\nheim", &["check", "a"]), "the token has characters that no header can hold"),
        (variable("WEIR_TOKEN", &token.token, &["reset", "a"]), "the role `reset` is required (PERMISSION_DENIED)"),
    ] {
        assert_eq!(run.code, 2, "{}", run.out);
        assert!(run.err.contains(expected) && !run.err.contains("geheim"), "{}", run.err);
    }
    let help = finish(weir().args(["check", "--help"]).env("WEIR_TOKEN", "geheim"));
    assert!(help.out.contains("WEIR_TOKEN") && !help.out.contains("geheim"), "{}", help.out);
}

#[test]
fn the_token_command_prints_a_valid_credentials_entry() {
    let made = run(&["token", "pay: 'x'", "--roles", "check,metrics", "--expires", "90d"]);
    assert_eq!(made.code, 0, "{}", made.err);
    let (token, entry) = made.out.split_once('\n').expect("lines");
    let server = Setup::new().policy(POLICY).credentials(&format!("callers:\n{entry}")).start();
    assert_eq!(server.run(&["check", "a", "--token", token]).code, 0);
    assert_eq!(server.metric_by(token, "weir_keys"), 1.0);
    for args in
        [&["token"][..], &["token", ""], &["token", "a", "--roles", "chek"], &["token", "a", "--expires", "soon"]]
    {
        assert_eq!(run(args).code, 2, "{args:?}");
    }
    assert_eq!(run(&["token", "a", "--expires", "0d"]).code, 2, "it would be over");
}

#[test]
fn commands_recognize_an_http_port_that_requires_a_token() {
    let one = token();
    let server =
        Setup::new().policy(POLICY).credentials(&["callers:\n", &caller("shop", "check", &one, "")].concat()).start();
    for command in [&["check", "a"][..], &["reset", "a"], &["keys"]] {
        let failed = run(&[command, &["--addr", &server.http]].concat());
        assert!(failed.code == 2 && failed.err.contains("an HTTP server answers there, and not gRPC"), "{failed:?}");
    }
}

#[test]
fn a_reset_does_not_warn_of_limits_that_it_may_not_ask_about() {
    let (resets, all) = (token(), token());
    let callers = ["callers:\n", &caller("ops", "reset", &resets, ""), &caller("all", "reset, metrics", &all, "")];
    let server =
        Setup::new().policy("schema: { user: { limits: [[9, 1, 1]] } }").credentials(&callers.concat()).start();
    for (token, key, warns) in
        [(&resets, "user", false), (&all, "user", false), (&resets, "a", false), (&all, "a", true)]
    {
        let reset = finish(weir().args(["reset", key, "alex", "--addr", &server.grpc]).env("WEIR_TOKEN", &token.token));
        assert_eq!(reset.code, 0, "{}", reset.err);
        assert_eq!(reset.err.contains("no limit applies"), warns, "{key}: {}", reset.err);
    }
}

#[tokio::test]
async fn resets_may_need_authentication() {
    let without = Setup::new().policy(POLICY).env("WEIR_RESET", "authenticated").start();
    let mut client = without.client().await;
    client.check(check(&["user", "alex"])).await.expect("checks need no authentication");
    let reset = || reset(&["user", "alex"], false);
    let rejected = client.reset(reset()).await.expect_err("without authentication");
    assert_eq!(rejected.code(), tonic::Code::PermissionDenied);
    assert_eq!(rejected.message(), "only authenticated clients may reset keys (setting `reset`)");
    let operator = token();
    let callers = ["callers:\n", &caller("ops", "reset", &operator, "")].concat();
    let with = Setup::new().policy(POLICY).credentials(&callers).env("WEIR_RESET", "authenticated").start();
    with.client().await.reset(by(Some(&operator.token), reset())).await.expect("done");
}
