//! Envoy's configuration: one listener, the rate-limit filter, one route.

use std::net::SocketAddr;

use serde_json::{Value, json};

/// The namespace of the metadata from which [`overridden`] limits are read.
const NAMESPACE: &str = "test.limits";

/// The parameters of a proxy.
pub struct Wanted {
    /// The domain of its requests.
    pub domain: String,
    /// The sources of its descriptors: `config.route.v3.RateLimit` messages.
    pub rate_limits: Vec<Value>,
    /// The limit for [`overridden`] descriptors.
    pub over: Option<Value>,
    /// Whether a request is refused (500) when the service does not decide.
    pub deny_without_decision: bool,
}

/// A descriptor of headers, with a key for the value of each; without a descriptor if a header is missing.
pub fn headers(keys: &[(&str, &str)]) -> Value {
    let actions =
        keys.iter().map(|(header, key)| json!({ "request_headers": { "header_name": header, "descriptor_key": key } }));
    json!({ "actions": actions.collect::<Vec<_>>() })
}

/// A descriptor of one fixed entry.
pub fn fixed(key: &str, value: &str) -> Value {
    json!({ "actions": [{ "generic_key": { "descriptor_key": key, "descriptor_value": value } }] })
}

/// A descriptor of the client's address.
pub fn remote_address() -> Value {
    json!({ "actions": [{ "remote_address": {} }] })
}

/// Sets the hits of a descriptor from a header of the request or response: `REQ(x-cost)`.
pub fn hits(descriptor: Value, source: &str) -> Value {
    with(descriptor, "hits_addend", json!({ "format": format!("%{source}%") }))
}

/// Sets the hits of a descriptor to 0.
pub fn without_hits(descriptor: Value) -> Value {
    with(descriptor, "hits_addend", json!({ "number": 0 }))
}

/// Makes a descriptor refund its hits.
pub fn give_back(mut descriptor: Value) -> Value {
    descriptor["hits_addend"]["is_negative_hits"] = json!(true);
    descriptor
}

/// Makes a descriptor apply when the request is done.
pub fn when_done(descriptor: Value) -> Value {
    with(descriptor, "apply_on_stream_done", json!(true))
}

/// Adds a limit from the proxy's metadata to a descriptor.
pub fn overridden(descriptor: Value) -> Value {
    let place = json!({ "key": NAMESPACE, "path": [{ "key": "limit" }] });
    with(descriptor, "limit", json!({ "dynamic_metadata": { "metadata_key": place } }))
}

/// Sets a field of a descriptor.
fn with(mut descriptor: Value, field: &str, value: Value) -> Value {
    descriptor[field] = value;
    descriptor
}

impl Wanted {
    /// Writes the configuration, for a Weir and an upstream at these addresses. The proxy uses free ports.
    pub fn config(&self, weir: SocketAddr, upstream: SocketAddr) -> Value {
        let h2 = json!({ "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": { "http2_protocol_options": {} } } });
        let clusters =
            [with(cluster("weir", weir), "typed_extension_protocol_options", h2), cluster("upstream", upstream)];
        json!({
            "admin": { "address": address(([127, 0, 0, 1], 0).into()) },
            "static_resources": { "listeners": [self.listener()], "clusters": clusters },
        })
    }

    fn listener(&self) -> Value {
        let metadata =
            json!({ "header": { "key": "x-metadata", "value": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit)%" } });
        let route = json!({
            "match": { "prefix": "/" },
            "route": { "cluster": "upstream" },
            // Envoy sends hits of single descriptors only for rate limits in this place.
            "typed_per_filter_config": { "envoy.filters.http.ratelimit": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
                "rate_limits": self.rate_limits } },
            "response_headers_to_add": [metadata],
        });
        let manager = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "ingress",
            "use_remote_address": true,
            "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": [route] }] },
            "http_filters": self.filters(),
        });
        let filter = json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager });
        json!({
            "name": "ingress",
            "address": address(([127, 0, 0, 1], 0).into()),
            "filter_chains": [{ "filters": [filter] }],
        })
    }

    fn filters(&self) -> Vec<Value> {
        let over = self.over.as_ref().map(|limit| {
            let value = json!({ "metadata_namespace": NAMESPACE, "value": { "limit": limit } });
            json!({ "name": "envoy.filters.http.set_metadata", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config", "metadata": [value] } })
        });
        let limits = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            "domain": self.domain,
            // Even a busy machine decides in time.
            "timeout": "2s",
            "failure_mode_deny": self.deny_without_decision,
            "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
            "rate_limit_service": {
                "grpc_service": { "envoy_grpc": { "cluster_name": "weir" } },
                "transport_api_version": "V3",
            },
        });
        let router = json!({ "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" });
        let last = [("envoy.filters.http.ratelimit", limits), ("envoy.filters.http.router", router)];
        let last = last.map(|(name, typed)| json!({ "name": name, "typed_config": typed }));
        over.into_iter().chain(last).collect()
    }
}

fn address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

fn cluster(name: &str, to: SocketAddr) -> Value {
    // With Envoy's default circuit breakers the proxy itself would refuse requests of a crowd on a busy machine.
    let most = 100_000;
    let bounds = json!({ "max_connections": most, "max_pending_requests": most, "max_requests": most });
    let endpoint = json!({ "endpoint": { "address": address(to) } });
    json!({
        "name": name,
        "connect_timeout": "5s",
        "type": "STATIC",
        "circuit_breakers": { "thresholds": [bounds] },
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] },
    })
}
