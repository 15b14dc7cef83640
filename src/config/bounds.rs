//! Validation of the settings: their bounds, and contradictions among them.

use weir_core::{
    algorithm::params::MAX_PERIOD,
    domain::time::{DAY, SECOND},
};
use weir_server::Listen;
use weir_settings::ensure;

use super::{Settings, store};

/// Upper bound of the settings for concurrent decisions: a larger value would bound nothing in practice.
const MAX_CONCURRENT_REQUESTS: usize = 10_000_000;

impl Settings {
    /// Returns the settings if they are within their bounds and do not contradict each other; an error names the
    /// setting.
    pub(super) fn checked(self) -> Result<Self, String> {
        ensure((1..=MAX_PERIOD).contains(&self.max_period.0), "max_period must be 1us to 366d")?;
        ensure((SECOND..=DAY).contains(&self.idempotency.window.0), "idempotency.window must be 1s to 1d")?;
        ensure((10_000..=DAY).contains(&self.limits_poll.0), "limits_poll must be 10ms to 1d")?;
        self.xds.check(self.control_plane())?;
        store::check(&self.store)?;
        self.grpc.tls.check("grpc.tls", &self.grpc.listen, self.grpc.max_connections)?;
        self.http.tls.check("http.tls", &self.http.listen, self.http.max_connections)?;
        self.grpc.traffic().check("grpc")?;
        self.http.traffic().check("http")?;
        self.check_listeners()?;
        self.envoy.check()?;
        self.rlqs.check()?;
        self.tracing.check()?;
        self.log.filter()?;
        for (key, count) in [
            ("grpc.max_connections", self.grpc.max_connections),
            ("http.max_connections", self.http.max_connections),
            ("grpc.max_streams", self.grpc.max_streams as usize),
            ("grpc.max_open_streams", self.grpc.max_open_streams),
        ] {
            ensure((1..=1_000_000).contains(&count), format!("{key} must be 1 to 1000000"))?;
        }
        for (key, count) in [
            ("grpc.max_concurrent_requests", self.grpc.max_concurrent_requests),
            ("http.max_concurrent_requests", self.http.max_concurrent_requests),
        ] {
            ensure(count <= MAX_CONCURRENT_REQUESTS, format!("{key} must be 0 to 10000000"))?;
        }
        for (key, time) in [("shutdown.delay", self.shutdown.delay), ("shutdown.timeout", self.shutdown.timeout)] {
            ensure((0..=DAY).contains(&time.0), format!("{key} must be 0 to 1d"))?;
        }
        let timeout = self.grpc.message_timeout.0;
        ensure((SECOND / 10..=DAY).contains(&timeout), "grpc.message_timeout must be 100ms to 1d")?;
        let bytes = self.grpc.max_message_bytes;
        ensure((1_024..=64 << 20).contains(&bytes), "grpc.max_message_bytes must be 1024 to 67108864")?;
        for (key, count) in [
            ("metrics.max_limit_series", self.metrics.max_limit_series),
            ("metrics.max_series", self.metrics.max_series),
        ] {
            ensure(count <= 1_000_000, format!("{key} must be 0 to 1000000"))?;
        }
        let ui = &self.http.ui;
        ensure((10..=10_000).contains(&ui.max_hot_keys), "http.ui.max_hot_keys must be 10 to 10000")?;
        ensure(ui.max_traffic_bytes <= 64 << 20, "http.ui.max_traffic_bytes must be 0 to 67108864")?;
        if let Some(host) = ui.hosts.iter().find(|host| host.is_empty() || host.contains([':', '/', '*'])) {
            return Err(format!("http.ui.hosts has `{host}`: a name has no scheme, port, path or `*`"));
        }
        for (key, count) in [("grpc.workers", self.grpc.workers), ("http.workers", self.http.workers)] {
            ensure(count <= 1_024, format!("{key} must be at most 1024; 0 means one for each core"))?;
        }
        Ok(self)
    }

    /// Rejects two ports with one address, unless the system assigns a free port to each.
    fn check_listeners(&self) -> Result<(), String> {
        let metrics = self.metrics_listen()?;
        let (grpc, http) = (("grpc.listen", &self.grpc.listen), ("http.listen", &self.http.listen));
        let ports: Vec<_> =
            [grpc, http].into_iter().chain(metrics.iter().map(|listen| ("metrics.listen", listen))).collect();
        for (index, (name, listen)) in ports.iter().enumerate() {
            let has_space = matches!(listen, Listen::Tcp(address) if address.contains(char::is_whitespace));
            ensure(!has_space, format!("{name}: `{listen}` is not an address: it has a space"))?;
            if let Some((other, address)) = ports[..index].iter().find(|(_, other)| listen.overlaps(other)) {
                return Err(format!("{name} overlaps {other}: {listen} and {address}"));
            }
        }
        Ok(())
    }
}
