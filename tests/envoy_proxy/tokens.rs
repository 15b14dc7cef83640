//! `examples/envoy/tokens.yaml`: an estimate of tokens is reserved before the call of the model, and settled
//! afterwards.

use serde_json::json;

use crate::{
    proxy::Proxy,
    support::{
        eventually,
        http::{self, Client},
        server::{Server, Setup},
    },
    upstream::{NEVER, USED, Upstream},
};

const ENVOY: &str = include_str!("../../examples/envoy/tokens.yaml");
const LIMITS: &str = include_str!("../../examples/envoy/limits/llm.yaml");

/// The example, with a stub of the model.
struct Scene {
    model: Upstream,
    weir: Server,
    proxy: Proxy,
}

impl Scene {
    fn start() -> Self {
        let model = Upstream::start();
        // No window ends during the test.
        let weir = Setup::new().policy(&replaced(LIMITS, "unit: minute", "unit: year")).start();
        let port = |address: &str| address.rsplit(':').next().expect("a port").to_owned();
        let mut config = replaced(ENVOY, "port_value: 8081", &format!("port_value: {}", port(&weir.grpc)));
        let (listeners, clusters) = config.split_once("  clusters:").expect("listeners, then clusters");
        let of_model = format!("port_value: {}", model.address.port());
        let clusters = replaced(clusters, "port_value: 10001", &of_model);
        config = format!("{}  clusters:{clusters}", replaced(listeners, "port_value: 10001", "port_value: 0"));
        for port in ["port_value: 10000", "port_value: 9901"] {
            config = replaced(&config, port, "port_value: 0");
        }
        // A slow answer of a busy machine must not count as an outage.
        config = replaced(&config, "timeout: 0.1s", "timeout: 5s");
        config = replaced(&config, "failure_mode_deny: false", "failure_mode_deny: true");
        Self { model, weir, proxy: Proxy::start(&config) }
    }

    /// Sends a request to the model, which uses this many tokens, or answers without JSON if `used` is empty. If the
    /// client is dropped before it reads the answer, the request is cut off.
    fn ask(&self, body: &str, used: &str) -> Client {
        let mut client = Client::connect(&self.proxy.address).expect("it accepts connections");
        let headers = [("x-tenant", "acme"), ("content-type", "application/json"), (USED, used)];
        let headers = &headers[..if used.is_empty() { 2 } else { 3 }];
        client.send("POST /", headers, Some(body.len()), body.as_bytes()).expect("sent");
        client
    }

    fn status(&self, body: &str, used: &str) -> u16 {
        self.ask(body, used).receive().expect("an answer").status
    }

    fn left(&self) -> u64 {
        let peek = json!({ "domain": "llm", "key": ["tenant", "acme"], "cost": "0" });
        let answer = Client::connect(&self.weir.http).expect("it listens").post("/v1/check", &peek);
        answer.json()["remaining"].as_str().and_then(|left| left.parse().ok()).expect("what is left")
    }

    /// Waits until Envoy has made this many calls: one for a request, and one after it.
    fn called(&self, times: u64) {
        let calls = || {
            let page = http::get(&self.weir.http, "/metrics").expect("a page").1;
            let series =
                |outcome| format!("weir_checks_total{{domain=\"llm\",transport=\"envoy\",outcome=\"{outcome}\"}}");
            ["allowed", "limited"].map(|outcome| http::metric(&page, &series(outcome)) as u64).iter().sum::<u64>()
        };
        eventually(&format!("{times} calls"), || (calls() == times).then_some(()));
    }
}

/// Replaces the only occurrence of a text.
fn replaced(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to)
}

#[test]
fn an_estimate_is_reserved_and_settled_by_the_usage_of_the_answer() {
    let scene = Scene::start();
    assert_eq!(scene.status(r#"{"max_tokens": 2000}"#, "300"), 200);
    scene.called(2);
    assert_eq!(scene.left(), 4700);

    let open = scene.ask(r#"{"max_tokens": 4000}"#, NEVER);
    scene.called(3);
    assert_eq!(scene.left(), 700, "what is reserved is not left for others");
    assert_eq!(scene.status(r#"{"max_tokens": 701}"#, "1"), 429);
    scene.called(5);
    assert_eq!((scene.left(), scene.model.served()), (700, 2), "what is refused costs nothing");
    assert_eq!(scene.status(r#"{"max_tokens": 700}"#, "100"), 200);
    scene.called(7);
    assert_eq!(scene.left(), 600);

    drop(open);
    scene.called(8);
    assert_eq!(scene.left(), 600, "a request that is cut off is charged its estimate");
}

#[test]
fn usage_above_the_estimate_is_charged_too() {
    let scene = Scene::start();
    assert_eq!(scene.status(r#"{"max_tokens": 10}"#, "4999"), 200);
    scene.called(2);
    assert_eq!(scene.left(), 1);
    assert_eq!(scene.status(r#"{"max_tokens": 1}"#, "3"), 200);
    scene.called(4);
    assert_eq!(scene.left(), 0);
    assert_eq!(scene.status(r#"{"max_tokens": 1}"#, "1"), 429);
}

#[test]
fn answers_without_usage_are_free_and_the_estimate_has_a_default() {
    let scene = Scene::start();
    for (number, body) in ["{}", "not JSON"].into_iter().enumerate() {
        let open = scene.ask(body, NEVER);
        scene.called(1 + 2 * number as u64);
        assert_eq!(scene.left(), 4000 - 1000 * number as u64, "{body}");
        drop(open);
        scene.called(2 + 2 * number as u64);
    }
    assert_eq!(scene.status(r#"{"max_tokens": 2000}"#, "unknown"), 200);
    scene.called(6);
    assert_eq!(scene.left(), 3000, "the two before are charged their estimate, the last one nothing");
    assert_eq!(scene.status(r#"{"max_tokens": 500}"#, ""), 200);
    scene.called(8);
    assert_eq!(scene.left(), 2500, "what is not JSON is charged its estimate");
}
