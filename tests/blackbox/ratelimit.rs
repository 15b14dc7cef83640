//! The program called as `ratelimit`: a replacement of envoyproxy/ratelimit that reads its variables.

use std::fs;

use tonic::{Request, transport::Channel};
use weir::proto::ResetRequest;
use weir_envoy::envoy::service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code};
use weir_test_redis::{Options, Server as Redis};

use crate::support::{
    collector::{Collector, attributes},
    control_plane::{config, yearly},
    envoy::{self, descriptor, should_rate_limit},
    eventually_async,
    gateway::Gateway,
    http,
    pki::channel,
    requests::reset,
    server::Setup,
};

async fn code(channel: Channel, key: &[&str]) -> i32 {
    let request = RateLimitRequest {
        domain: "default/eg/http".to_owned(),
        descriptors: vec![descriptor(key, 1)],
        ..RateLimitRequest::default()
    };
    should_rate_limit(channel, request).await.expect("an answer").overall_code
}

#[tokio::test]
async fn the_variables_of_envoy_gateway_start_it() {
    let gateway = Gateway::start();
    let Gateway { plane, authority, pair, .. } = &gateway;
    // The variable that the image sets for its own command.
    let server = gateway.setup().env("WEIR_LIMITS", "/etc/weir/limits").start();
    assert_eq!(plane.request(0).node.expect("a node").id, "envoy-ratelimit");
    assert_eq!(server.get("/healthcheck"), (200, "OK".to_owned()), "its probe, without a policy");
    plane.send("1", vec![config("default/eg/http", "default/eg/http", vec![yearly("rule-0", "rule-0", 1)])]);

    let envoy = channel(&server.grpc, authority, Some(pair)).await.expect("connected");
    let key = ["rule-0", "rule-0"];
    let codes = [code(envoy.clone(), &key).await, code(envoy, &key).await];
    assert_eq!(codes, [Code::Ok as i32, Code::OverLimit as i32]);
    if let Ok(stranger) = channel(&server.grpc, authority, None).await {
        let request = RateLimitRequest { domain: "d".to_owned(), ..RateLimitRequest::default() };
        should_rate_limit(stranger, request).await.expect_err("no certificate");
    }
    let metrics = server.wait_for_log("serving")["metrics"].as_str().expect("an address").to_owned();
    let (status, page) = http::get(&metrics, "/metrics").expect("it answers");
    assert!(status == 200 && page.contains("weir_xds_connected 1"), "{page}");
    assert_eq!(http::get(&metrics, "/v1/check").expect("it answers").0, 404, "no checks");
}

#[tokio::test]
async fn policy_files_and_a_password_are_used() {
    let redis = Redis::start(Options::port());
    redis.command(&["CONFIG", "SET", "requirepass", "geheim"]);
    let setup = Setup::ratelimit();
    let config = setup.path("root/config");
    fs::create_dir_all(&config).expect("a directory");
    let text = "domain: default/eg/http\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 1 } }]";
    fs::write(config.join("rules.yaml"), text).expect("written");
    let root = setup.path("root");
    let server = setup
        .env("RUNTIME_ROOT", root.to_str().expect("a path"))
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", &format!("127.0.0.1:{}", redis.port()))
        .env("REDIS_AUTH", "geheim")
        .env("NEAR_LIMIT_RATIO", "0.9")
        .env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "60s")
        .start();
    let codes = [code(server.channel().await, &["k", "v"]).await, code(server.channel().await, &["k", "v"]).await];
    assert_eq!(codes, [Code::Ok as i32, Code::OverLimit as i32]);
    assert_eq!(server.metric("weir_degraded_total{domain=\"default/eg/http\",mode=\"local\"}"), 0.0);
    let entry = server.wait_for_log("a variable has no equivalent")["entry"].to_string();
    assert!(entry.contains("NEAR_LIMIT_RATIO: "), "{entry}");
    assert!(server.log().iter().all(|line| !line.contains("geheim")));

    let long = "v".repeat(2 << 20);
    assert_eq!(code(server.channel().await, &["other", &long]).await, Code::Ok as i32, "gRPC's bound in Go is 4 MiB");
    let reset = ResetRequest { domain: "default/eg/http".to_owned(), ..reset(&["k", "v"], false) };
    let rejected = server.client().await.reset(reset).await.expect_err("envoyproxy/ratelimit has no resets");
    assert_eq!(rejected.code(), tonic::Code::PermissionDenied);
}

#[tokio::test]
async fn spans_go_where_the_variables_of_envoy_gateway_say() {
    let collector = Collector::start();
    let setup = Setup::ratelimit();
    let root = setup.path("root");
    fs::create_dir_all(root.join("config")).expect("a directory");
    let redis = Redis::start(Options::port());
    let server = setup
        .env("RUNTIME_ROOT", root.to_str().expect("a path"))
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", &format!("127.0.0.1:{}", redis.port()))
        .variables(
            "TRACING_ENABLED=true\nTRACING_SERVICE_NAME=envoy-ratelimit\nTRACING_SERVICE_NAMESPACE=envoy-gateway-system\n\
             TRACING_SERVICE_INSTANCE_ID=envoy-ratelimit-0\nTRACING_SAMPLING_RATE=0.0",
        )
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint)
        .start();
    let ask = async |headers: &[(&'static str, &str)]| {
        let mut request = Request::new(RateLimitRequest {
            domain: "d".to_owned(),
            descriptors: vec![descriptor(&["k", "v"], 1)],
            ..RateLimitRequest::default()
        });
        for (name, value) in headers {
            request.metadata_mut().insert(*name, value.parse().expect("a value"));
        }
        envoy::ask(server.channel().await, request).await.expect("an answer");
    };
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    // The first two requests are not sampled: the ratio is 0, or the caller has decided against it.
    ask(&[]).await;
    ask(&[("b3", &format!("{trace}-{span}-0"))]).await;
    ask(&[("b3", &format!("{trace}-{span}-1"))]).await;
    ask(&[("x-b3-traceid", trace), ("x-b3-spanid", span), ("x-b3-sampled", "1")]).await;
    ask(&[("traceparent", &format!("00-{trace}-{span}-01"))]).await;
    let spans = collector.wait_for_spans(3);
    let bytes = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).expect("hex");
    for made in &spans {
        assert_eq!((&made.trace_id, &made.parent_span_id), (&bytes(trace), &bytes(span)), "{made:?}");
    }
    assert_eq!(spans.len(), 3);
    let requests = collector.requests();
    let resource = requests[0].resource_spans[0].resource.as_ref().expect("a resource");
    let resource = attributes(&resource.attributes);
    let names = ["service.name", "service.namespace", "service.instance.id"].map(|name| resource[name].as_str());
    assert_eq!(names, ["envoy-ratelimit", "envoy-gateway-system", "envoy-ratelimit-0"]);
}

#[tokio::test]
async fn the_last_policy_file_takes_its_limits_with_it() {
    let setup = Setup::ratelimit();
    let config = setup.path("root/config");
    fs::create_dir_all(&config).expect("a directory");
    let root = setup.path("root");
    let redis = Redis::start(Options::port());
    let server = setup
        .env("RUNTIME_ROOT", root.to_str().expect("a path"))
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", &format!("127.0.0.1:{}", redis.port()))
        .env("WEIR_STORE__REDIS__COMMAND_TIMEOUT", "60s")
        .start();
    let has_limit = async || {
        let descriptors = vec![descriptor(&["k", "v"], 0)];
        let request = RateLimitRequest { domain: "d".to_owned(), descriptors, ..RateLimitRequest::default() };
        let answer = should_rate_limit(server.channel().await, request).await.expect("an answer");
        answer.statuses[0].current_limit.is_some()
    };
    assert!(!has_limit().await, "an empty directory");
    let text = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: year, requests_per_unit: 1 } }]";
    fs::write(config.join("rules.yaml"), text).expect("written");
    eventually_async("the limit", async || has_limit().await.then_some(())).await;
    fs::remove_file(config.join("rules.yaml")).expect("removed");
    eventually_async("no limit", async || (!has_limit().await).then_some(())).await;
}

#[test]
fn incompatible_variables_stop_the_start() {
    for (variables, expected) in [
        ("BACKEND_TYPE=memcache", "BACKEND_TYPE: memcached is not supported"),
        ("GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT is not set"),
        ("REDIS_TLS=true", "REDIS_TLS: a unix socket is not encrypted"),
        (
            "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=h:1\nREDIS_TLS=true\nREDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true",
            "ratelimit:\n  REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: names are always verified here; set store.redis.tls.server_name",
        ),
        ("LOG_LEVEL=loud", "LOG_LEVEL is not a level of that service"),
        ("WEIR_CONFIG=/etc/weir/weir.yaml", "WEIR_CONFIG: no settings file is read"),
    ] {
        let run = Setup::ratelimit().variables(variables).run();
        assert!(run.code == 2 && run.err.contains(expected), "{variables}: {run:?}");
    }
    let named = "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=h:1\nREDIS_TLS=true\nREDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true\n\
                 WEIR_STORE__REDIS__TLS__SERVER_NAME=redis.example\nWEIR_CONFIG=/etc/weir/weir.yaml";
    let run = Setup::ratelimit().variables(named).run();
    assert!(run.err.contains("WEIR_CONFIG") && !run.err.contains("REDIS_TLS"), "{run:?}");
    let setup = Setup::ratelimit();
    let root = setup.path("root");
    fs::create_dir_all(root.join("config/more")).expect("a directory");
    fs::write(root.join("config/rules"), "domain: d").expect("written");
    fs::write(root.join("config/more/rules.yaml"), "domain: d").expect("written");
    fs::write(root.join("config.yaml"), "domain: d").expect("written");
    let mut setup = setup.env("RUNTIME_ROOT", root.to_str().expect("a path"));
    let run = setup.run();
    for name in ["config/rules", "config/more", "config.yaml"] {
        let expected = format!("root/{name} is not read: name policy files *.yaml or *.yml in one directory");
        assert!(run.code == 2 && run.err.contains(&expected), "{run:?}");
    }
    let run = setup.variables("RUNTIME_WATCH_ROOT=false").run();
    assert!(run.code == 2 && !run.err.contains("config.yaml"), "{run:?}");
    let setup = Setup::ratelimit();
    fs::create_dir_all(setup.path("root/config")).expect("a directory");
    let root = setup.path("root");
    let mut setup = setup.env("RUNTIME_ROOT", root.to_str().expect("a path")).env("WEIR_LIMITS_ALLOW_EMPTY", "false");
    let run = setup.run();
    assert!(run.code != 0 && run.err.contains("contains no policy file"), "{run:?}");
    let run = Setup::ratelimit().arg("--help").run();
    assert!(run.code == 2 && run.err.contains("takes no arguments"), "{run:?}");
}
