//! Weir as a replacement of envoyproxy/ratelimit, as Envoy Gateway starts it, behind an Envoy: mTLS everywhere, the
//! policy over xDS.

use serde_json::json;

use crate::{
    client::Client,
    config::{Wanted, headers},
    proxy::Proxy,
    support::{
        control_plane::{config, yearly},
        gateway::Gateway,
    },
    upstream::Upstream,
};

const DOMAIN: &str = "default/eg/http";

#[test]
fn pushed_policies_limit_the_traffic_of_an_envoy() {
    let gateway = Gateway::start();
    let weir = gateway.setup().start();
    gateway.plane.request(0);
    gateway.plane.send("1", vec![config(DOMAIN, DOMAIN, vec![yearly("user", "", 2)])]);

    let upstream = Upstream::start();
    let wanted = Wanted {
        domain: DOMAIN.to_owned(),
        rate_limits: vec![headers(&[("x-user", "user")])],
        over: None,
        deny_without_decision: true,
    };
    let mut configuration = wanted.config(weir.grpc.parse().expect("an address"), upstream.address);
    let inline = |text: &str| json!({ "inline_string": text });
    configuration["static_resources"]["clusters"][0]["transport_socket"] = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": "localhost",
            "common_tls_context": {
                "tls_certificates": [{
                    "certificate_chain": inline(&gateway.pair.cert),
                    "private_key": inline(&gateway.pair.key),
                }],
                "validation_context": { "trusted_ca": inline(&gateway.authority.pem) },
            },
        },
    });
    let proxy = Proxy::start(&configuration.to_string());
    let mut client = Client::connect(&proxy.address);
    let alex = [("x-user", "alex")];
    assert_eq!(client.statuses(3, &alex), [200, 200, 429], "{}", proxy.log());
    gateway.plane.send("2", vec![config(DOMAIN, DOMAIN, vec![yearly("user", "", 4)])]);
    // Refused requests were counted too, as in envoyproxy/ratelimit.
    assert_eq!(client.statuses(2, &alex), [200, 429], "{}", proxy.log());
    assert_eq!(client.get(&[("x-user", "berta")]).status, 200);
    assert_eq!((upstream.served(), proxy.counted("error")), (4, 0));
}
