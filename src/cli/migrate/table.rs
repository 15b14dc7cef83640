//! The environment variables of envoyproxy/ratelimit and their equivalents. `docs/envoy.md` shows this table.

/// A variable, or several if there is a `*` in the name.
pub(super) struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its equivalent.
    pub equivalent: Equivalent,
    /// A remark: how the setting differs, or why there is none. It contains no value of any variable.
    pub note: &'static str,
}

/// The equivalent of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Equivalent {
    /// This setting.
    Setting(&'static str),
    /// None, because none is needed.
    NotNeeded,
    /// None, because there is no such feature.
    Unsupported,
}

use Equivalent::{NotNeeded, Setting, Unsupported};

impl Variable {
    const fn new(name: &'static str, equivalent: Equivalent, note: &'static str) -> Self {
        Self { name, equivalent, note }
    }

    /// Whether the name is that of this variable, or matches its `*`.
    fn covers(&self, name: &str) -> bool {
        match self.name.split_once('*') {
            Some((head, tail)) => {
                name.len() > head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
            }
            None => self.name == name,
        }
    }
}

/// Returns the variable of this name, if envoyproxy/ratelimit has it.
pub(super) fn find(name: &str) -> Option<&'static Variable> {
    TABLE.iter().find(|variable| variable.covers(name))
}

/// Returns the setting that is the equivalent of a variable.
pub(super) fn setting(name: &str) -> Option<&'static str> {
    match find(name)?.equivalent {
        Setting(key) => Some(key),
        NotNeeded | Unsupported => None,
    }
}

const MEMCACHED: &str = "memcached is not supported: it cannot decide in one atomic step; see BACKEND_TYPE";
const STATSD: &str = "no statsd; scrape GET /metrics of http.listen";
const NO_WAIT: &str = "the service starts and answers without its store, and reconnects continuously";

/// All variables, by component of envoyproxy/ratelimit.
pub(super) const TABLE: &[Variable] = &[
    // Listeners.
    Variable::new("HOST", Setting("http.listen"), "with PORT; the default there is every address, here only loopback"),
    Variable::new("PORT", Setting("http.listen"), "JSON, health and metrics"),
    Variable::new(
        "GRPC_HOST",
        Setting("grpc.listen"),
        "with GRPC_PORT; the default there is every address, here only loopback",
    ),
    Variable::new("GRPC_PORT", Setting("grpc.listen"), ""),
    Variable::new("GRPC_UDS", Setting("grpc.listen"), "`unix:PATH`; takes precedence over GRPC_HOST and GRPC_PORT"),
    Variable::new(
        "DEBUG_HOST",
        NotNeeded,
        "no debug port: `weir limits explain` for /rlconfig, GET /metrics for /stats",
    ),
    Variable::new(
        "DEBUG_PORT",
        NotNeeded,
        "no debug port: `weir limits explain` for /rlconfig, GET /metrics for /stats",
    ),
    Variable::new(
        "GRPC_MAX_CONNECTION_AGE",
        Setting("grpc.max_connection_age"),
        "with the same tenth of jitter; the default there is 24h, here 1h",
    ),
    Variable::new(
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        Setting("grpc.max_connection_age_grace"),
        "the default there is 1h, here 30s; then open streams end with UNAVAILABLE",
    ),
    Variable::new("GRPC_SERVER_USE_TLS", Setting("grpc.tls.cert"), "TLS is on if there is a certificate"),
    Variable::new("GRPC_SERVER_TLS_CERT", Setting("grpc.tls.cert"), "read again when it changes"),
    Variable::new("GRPC_SERVER_TLS_KEY", Setting("grpc.tls.key"), "read again when it changes"),
    Variable::new(
        "GRPC_CLIENT_TLS_CACERT",
        Setting("grpc.tls.client_ca"),
        "clients need a certificate, which gives the role `check`; /metrics and resets need roles from `auth.file`",
    ),
    Variable::new(
        "GRPC_CLIENT_TLS_SAN",
        Setting("grpc.tls.client_names"),
        "a list, also of URIs and with `*`; `auth.file` gives clients different roles",
    ),
    // Policy.
    Variable::new("CONFIG_TYPE", Setting("limits"), "a path, or `xds://…` ([xds.md](xds.md))"),
    Variable::new(
        "RUNTIME_ROOT",
        Setting("limits"),
        "root, subdirectory and app directory joined; only *.yaml and *.yml are read, no hidden files and no subdirectories",
    ),
    Variable::new("RUNTIME_SUBDIRECTORY", Setting("limits"), ""),
    Variable::new("RUNTIME_APPDIRECTORY", Setting("limits"), ""),
    Variable::new("RUNTIME_WATCH_ROOT", NotNeeded, "files are checked every `limits_poll`, however they are replaced"),
    Variable::new("RUNTIME_IGNOREDOTFILES", NotNeeded, "hidden files are always skipped"),
    Variable::new("MERGE_DOMAIN_CONFIG", Setting("envoy.merge_domains"), ""),
    Variable::new(
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        Setting("xds.start"),
        "`ready`; with files an invalid policy at start is an error (exit code 2) with file and line",
    ),
    Variable::new(
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        Setting("xds.start"),
        "`not_ready`; a policy without a domain is healthy here",
    ),
    Variable::new("CONFIG_GRPC_XDS_SERVER_URL", Setting("limits"), "`xds://HOST:PORT`"),
    Variable::new("CONFIG_GRPC_XDS_NODE_ID", Setting("xds.node_id"), ""),
    Variable::new("CONFIG_GRPC_XDS_NODE_METADATA", Setting("xds.node_metadata"), ""),
    Variable::new(
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        Setting("xds.headers"),
        "never printed, as it may have a token: give it as WEIR_XDS__HEADERS",
    ),
    Variable::new("CONFIG_GRPC_XDS_SERVER_USE_TLS", Setting("xds.tls.enabled"), ""),
    Variable::new("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Setting("xds.tls.ca"), "replaces the system's CA certificates"),
    Variable::new("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Setting("xds.tls.server_name"), ""),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Setting("xds.tls.cert"), "read for each connection"),
    Variable::new("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Setting("xds.tls.key"), "read for each connection"),
    Variable::new(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        NotNeeded,
        "see XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
    ),
    Variable::new(
        "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
        Setting("xds.backoff.initial"),
        "the pauses double; the default there is 10s, here 500ms",
    ),
    Variable::new("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Setting("xds.backoff.max"), "the default there is 60s, here 30s"),
    Variable::new("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", NotNeeded, "up to half of each pause is random"),
    Variable::new("XDS_CLIENT_BACKOFF_JITTER", NotNeeded, "up to half of each pause is random"),
    Variable::new(
        "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        Setting("xds.max_message_bytes"),
        "at most 64 MiB, which is the default",
    ),
    // Responses.
    Variable::new("LIMIT_RESPONSE_HEADERS_ENABLED", Setting("envoy.headers"), "`ratelimit`"),
    Variable::new("LIMIT_LIMIT_HEADER", Setting("envoy.limit_header"), ""),
    Variable::new("LIMIT_REMAINING_HEADER", Setting("envoy.remaining_header"), ""),
    Variable::new("LIMIT_RESET_HEADER", Setting("envoy.reset_header"), ""),
    Variable::new("RESPONSE_DYNAMIC_METADATA", Setting("envoy.dynamic_metadata"), ""),
    Variable::new("SHADOW_MODE", Setting("envoy.shadow_mode"), ""),
    Variable::new("QUOTA_MODE", Setting("envoy.quota_mode"), ""),
    // Store.
    Variable::new("BACKEND_TYPE", Setting("store.url"), "`redis`; memcached is not supported"),
    Variable::new("REDIS_TYPE", Setting("store.url"), "`redis://`, `redis-sentinel://`, `redis-cluster://`"),
    Variable::new("REDIS_SOCKET_TYPE", Setting("store.url"), "`unix`, which is the default there: `redis+unix://`"),
    Variable::new("REDIS_URL", Setting("store.url"), "without its password; see REDIS_AUTH"),
    Variable::new(
        "REDIS_AUTH",
        Setting("store.redis.password"),
        "and `username`; never printed, give it as WEIR_STORE__REDIS__PASSWORD or in `store.redis.password_file`",
    ),
    Variable::new(
        "REDIS_AUTH_FILE",
        Setting("store.redis.password_file"),
        "the password alone, read for each new connection",
    ),
    Variable::new(
        "REDIS_SENTINEL_AUTH",
        Setting("store.redis.sentinel.password"),
        "and `username`; never printed, give it as WEIR_STORE__REDIS__SENTINEL__PASSWORD or in `store.redis.sentinel.password_file`",
    ),
    Variable::new("REDIS_TLS", Setting("store.redis.tls.enabled"), "or `rediss://`"),
    Variable::new("REDIS_TLS_CACERT", Setting("store.redis.tls.ca"), "replaces the system's CA certificates"),
    Variable::new("REDIS_TLS_CLIENT_CERT", Setting("store.redis.tls.cert"), "read again when it changes"),
    Variable::new("REDIS_TLS_CLIENT_KEY", Setting("store.redis.tls.key"), "read again when it changes"),
    Variable::new(
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        Unsupported,
        "names are always verified; `store.redis.tls.server_name` is the expected name",
    ),
    Variable::new(
        "REDIS_TIMEOUT",
        Setting("store.redis.connect_timeout"),
        "there only for connecting; the time of a check is `store.redis.command_timeout`, 100ms. 0 (no timeout) becomes 1m",
    ),
    Variable::new("REDIS_OP_TIMEOUT", Setting("store.redis.command_timeout"), "proposed there, never released"),
    Variable::new(
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        Setting("store.redis.required_for_readiness"),
        "not recommended: if the store is down for all replicas, none is ready, and `on_store_failure` has no effect",
    ),
    Variable::new(
        "CACHE_KEY_PREFIX",
        Setting("store.redis.key_prefix"),
        "with `weir:` appended, so that the keys of both services stay apart",
    ),
    Variable::new("EXPIRATION_JITTER_MAX_SECONDS", NotNeeded, "keys expire with the states that they hold"),
    Variable::new(
        "REDIS_POOL_SIZE",
        NotNeeded,
        "checks share connections and round trips; `store.redis.pool_size` is 2; raise it for a slow network",
    ),
    Variable::new(
        "REDIS_PIPELINE_WINDOW",
        NotNeeded,
        "checks that arrive during a round trip share the next one, without a timer",
    ),
    Variable::new(
        "REDIS_PIPELINE_LIMIT",
        NotNeeded,
        "`store.redis.max_batch` is the maximum number of checks in one call of the script",
    ),
    Variable::new(
        "REDIS_CLUSTER_PIPELINE_PARALLELISM",
        NotNeeded,
        "the nodes of a Cluster are always asked in parallel",
    ),
    Variable::new(
        "REDIS_POOL_ON_EMPTY_BEHAVIOR",
        NotNeeded,
        "checks queue, at most `store.redis.max_queue`, and at most `store.redis.command_timeout` long",
    ),
    Variable::new("REDIS_STARTUP_INITIAL_INTERVAL", NotNeeded, NO_WAIT),
    Variable::new("REDIS_STARTUP_MAX_INTERVAL", NotNeeded, NO_WAIT),
    Variable::new("REDIS_STARTUP_MAX_ELAPSED_TIME", NotNeeded, NO_WAIT),
    Variable::new(
        "REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR",
        NotNeeded,
        "a check that a replica rejects is resent to the master",
    ),
    Variable::new("REDIS_PERSECOND", Unsupported, "per-second limits are counted in `store.url`, like all others"),
    Variable::new("REDIS_PERSECOND_*", Unsupported, "see REDIS_PERSECOND"),
    Variable::new(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        Setting("store.near_cache.enabled"),
        "remembers refusals for `store.near_cache.max_age`, not until their window ends; not with `charge: over_limit_only`. `store.near_cache.max_entries` is its size",
    ),
    Variable::new(
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        Setting("envoy.charge"),
        "`over_limit_only`, one atomic step; a policy file can say it as `charge`",
    ),
    Variable::new(
        "NEAR_LIMIT_RATIO",
        Unsupported,
        "`weir_near_limit_total` counts allowed checks that left less than a fifth of the limit, which is the default there",
    ),
    Variable::new("MEMCACHE_HOST_PORT", Unsupported, MEMCACHED),
    Variable::new("MEMCACHE_SRV", Unsupported, MEMCACHED),
    Variable::new("MEMCACHE_SRV_REFRESH", Unsupported, MEMCACHED),
    Variable::new("MEMCACHE_MAX_IDLE_CONNS", Unsupported, MEMCACHED),
    Variable::new("MEMCACHE_TLS", Unsupported, MEMCACHED),
    Variable::new("MEMCACHE_TLS_CLIENT_CERT", Unsupported, MEMCACHED),
    Variable::new("MEMCACHE_TLS_CLIENT_KEY", Unsupported, MEMCACHED),
    Variable::new("MEMCACHE_TLS_CACERT", Unsupported, MEMCACHED),
    Variable::new("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Unsupported, MEMCACHED),
    // Telemetry.
    Variable::new(
        "LOG_LEVEL",
        Setting("log.level"),
        "the default there is `warn`, here `info`: a few lines at start, end and reload",
    ),
    Variable::new("LOG_FORMAT", Setting("log.format"), "JSON lines with other field names"),
    Variable::new("USE_PROMETHEUS", Setting("metrics.listen"), "GET /metrics, always of http.listen too"),
    Variable::new("PROMETHEUS_ADDR", Setting("metrics.listen"), "GET /metrics, without authentication"),
    Variable::new("PROMETHEUS_PATH", Unsupported, "the path is /metrics"),
    Variable::new("PROMETHEUS_MAPPER_YAML", Unsupported, "metrics have labels, which the scraper can change"),
    Variable::new("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Unsupported, "durations are in seconds"),
    Variable::new("USE_STATSD", Unsupported, STATSD),
    Variable::new("STATSD_HOST", Unsupported, STATSD),
    Variable::new("STATSD_PORT", Unsupported, STATSD),
    Variable::new("STATSD_PROTOCOL", Unsupported, STATSD),
    Variable::new("EXTRA_TAGS", Unsupported, "the scraper adds labels"),
    Variable::new("STATS_FLUSH_INTERVAL", NotNeeded, "each scrape has the current values"),
    Variable::new("DISABLE_STATS", NotNeeded, "metrics are only served, never sent"),
    Variable::new("USE_DOG_STATSD", Unsupported, STATSD),
    Variable::new("USE_DOG_STATSD_MOGRIFIERS", Unsupported, STATSD),
    Variable::new("DOG_STATSD_MOGRIFIER*", Unsupported, STATSD),
    Variable::new("TRACING_ENABLED", Setting("tracing.otlp_endpoint"), "with OTEL_EXPORTER_OTLP_ENDPOINT"),
    Variable::new("TRACING_EXPORTER_PROTOCOL", Setting("tracing.protocol"), "the default there is `http`, here `grpc`"),
    Variable::new(
        "TRACING_SERVICE_NAME",
        Setting("tracing.service_name"),
        "the default there is `RateLimit`, here `weir`",
    ),
    Variable::new("TRACING_SERVICE_NAMESPACE", Setting("tracing.service_namespace"), ""),
    Variable::new("TRACING_SERVICE_INSTANCE_ID", Setting("tracing.service_instance_id"), ""),
    Variable::new(
        "TRACING_SAMPLING_RATE",
        Setting("tracing.sample_ratio"),
        "for traces that begin here; a client's sampled flag takes precedence",
    ),
    Variable::new(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        Setting("tracing.otlp_endpoint"),
        "over HTTP with /v1/traces behind its path",
    ),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Setting("tracing.otlp_endpoint"), "takes precedence"),
    Variable::new("OTEL_EXPORTER_OTLP_CERTIFICATE", Setting("tracing.ca"), "replaces the system's CA certificates"),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", Setting("tracing.ca"), "takes precedence"),
    Variable::new("OTEL_EXPORTER_OTLP_TIMEOUT", Setting("tracing.timeout"), "the default there is 10s, here 5s"),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", Setting("tracing.timeout"), "takes precedence"),
    Variable::new("OTEL_EXPORTER_OTLP_HEADERS", NotNeeded, "the OpenTelemetry SDK reads it here too"),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_HEADERS", NotNeeded, "the OpenTelemetry SDK reads it here too"),
    Variable::new("OTEL_EXPORTER_OTLP_COMPRESSION", NotNeeded, "the OpenTelemetry SDK reads it here too"),
    Variable::new("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", NotNeeded, "the OpenTelemetry SDK reads it here too"),
    Variable::new(
        "OTEL_EXPORTER_OTLP_*",
        Unsupported,
        "`tracing.otlp_endpoint` and `tracing.ca` name the collector; it holds the credentials of the backends behind it",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders the table as in the guide.
    fn rendered() -> String {
        let mut text = "| variable | here |\n|---|---|\n".to_owned();
        for Variable { name, equivalent, note } in TABLE {
            let here = match equivalent {
                Setting(key) => format!("`{key}`"),
                NotNeeded => "not needed".to_owned(),
                Unsupported => "no equivalent".to_owned(),
            };
            let colon = if note.is_empty() { "" } else { ": " };
            text.push_str(&format!("| `{name}` | {here}{colon}{note} |\n"));
        }
        text
    }

    #[test]
    fn the_guide_contains_this_table() {
        let guide = include_str!("../../../docs/envoy.md");
        let table = rendered();
        assert!(guide.contains(&table), "docs/envoy.md does not have this table:\n{table}");
    }

    #[test]
    fn no_variable_is_listed_twice() {
        for (at, variable) in TABLE.iter().enumerate() {
            let first = TABLE.iter().position(|other| other.covers(variable.name));
            let same = variable.name.contains('*') || first == Some(at);
            assert!(same, "{} is covered before", variable.name);
        }
        assert_eq!(find("DOG_STATSD_MOGRIFIER_1_NAME").map(|found| found.name), Some("DOG_STATSD_MOGRIFIER*"));
        assert!(find("REDIS_PERSECOND_").is_none() && find("PATH").is_none());
    }
}
