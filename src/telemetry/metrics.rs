//! The registry of one service, and the metrics that have no separate file.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use metrics::{Counter, Gauge};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_core::domain::key::domain_label;
use weir_telemetry::{Histogram, Registry, Reloads, Render, histogram::SHORT_DURATIONS, request::OTHER, text::heading};

use super::{
    names::{
        BUILD_INFO, CHECK_DURATION, DECISIONS_WITHOUT_SERIES, DESCRIPTORS_IGNORED, EVICTIONS, KEYS, LAST_RELOAD,
        MAX_KEYS, POLICY_INFO, READ_TIMEOUTS, RELOAD_SUCCESSFUL, RELOADS, SNAPSHOT_BYTES, SNAPSHOT_DURATION,
        SNAPSHOT_FAILURES, SNAPSHOT_LAST_SUCCESS, STORE_FULL, WITHOUT_SERIES, XDS_CONNECTED,
    },
    series::{CallKind, LimitCounters},
};

/// Maximum length of a label with values of requests, in bytes.
const MAX_LABEL_BYTES: usize = 256;

/// A domain, or a limit in it.
type Name = (Box<str>, Option<Box<str>>);

/// The registry of one service, and its own metrics.
pub struct Metrics {
    registry: Arc<Registry>,
    named: Mutex<HashSet<Name>>,
    max_named: usize,
    without_series: Gauge,
    valued: Mutex<Valued>,
    check_durations: Arc<CheckDurations>,
    policy: Arc<PolicyInfo>,
    keys: Gauge,
    snapshot_failures: Counter,
    descriptors_ignored: Counter,
    reloads: Reloads,
}

/// The settings of the metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// A port for `/metrics` and the probes alone, in addition to the HTTP port, without authentication; empty: none.
    pub listen: String,
    /// Maximum number of limits and domains of policies that have their own series while a service runs, including
    /// limits and domains of earlier policies; the others share one.
    pub max_limit_series: usize,
    /// Maximum number of limits with values of requests that have their own series while a service runs.
    pub max_series: usize,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { listen: String::new(), max_limit_series: 10_000, max_series: 1_000 }
    }
}

/// The counters of limits with values of requests, by domain and label.
struct Valued {
    counters: HashMap<(Box<str>, Box<str>), LimitCounters, foldhash::fast::RandomState>,
    most: usize,
    rejected: Counter,
}

impl Metrics {
    /// Creates an empty registry with default settings.
    pub fn new() -> Arc<Self> {
        Self::with_settings(&MetricsSettings::default())
    }

    /// Creates an empty registry.
    pub fn with_settings(settings: &MetricsSettings) -> Arc<Self> {
        let registry = Registry::default();
        let (check_durations, policy) = (Arc::<CheckDurations>::default(), Arc::<PolicyInfo>::default());
        #[cfg(target_os = "linux")]
        registry.add(Arc::new(super::process::ProcessMetrics));
        registry.add(Arc::new(super::log_writer::LogMetrics));
        registry.add(Arc::clone(&check_durations) as Arc<dyn Render>);
        registry.add(Arc::clone(&policy) as Arc<dyn Render>);
        registry.gauge(BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
        Arc::new(Self {
            named: Mutex::default(),
            max_named: settings.max_limit_series,
            without_series: registry.gauge(WITHOUT_SERIES, &[]),
            valued: Mutex::new(Valued {
                counters: HashMap::default(),
                most: settings.max_series,
                rejected: registry.counter(DECISIONS_WITHOUT_SERIES, &[]),
            }),
            check_durations,
            policy,
            keys: registry.gauge(KEYS, &[]),
            snapshot_failures: registry.counter(SNAPSHOT_FAILURES, &[]),
            descriptors_ignored: registry.counter(DESCRIPTORS_IGNORED, &[]),
            reloads: Reloads::new(&registry, RELOADS, RELOAD_SUCCESSFUL, &[]),
            registry: Arc::new(registry),
        })
    }

    /// Whether a domain, or a limit in it, has its own series. Once it has, it keeps them.
    pub(super) fn admits(&self, domain: &str, limit: Option<&str>) -> bool {
        let mut named = self.named.lock();
        let name = (domain.into(), limit.map(Box::from));
        if named.len() >= self.max_named && !named.contains(&name) {
            tracing::debug!(
                domain = domain_label(domain),
                limit,
                "counted as `other`: metrics.max_limit_series reached"
            );
            return false;
        }
        named.insert(name);
        true
    }

    /// Sets the number of domains and limits of the policy without their own series.
    pub(super) fn without_series(&self, count: usize) {
        self.without_series.set(count as f64);
        if count > 0 {
            let (most, others) = (self.max_named, count);
            tracing::warn!(
                most,
                others,
                "metrics.max_limit_series reached: further domains and limits count as `other`"
            );
        }
    }

    /// Returns the counters of a limit under a label with values of requests. A long label is truncated to
    /// `MAX_LABEL_BYTES`; beyond the maximum number of such labels, they are the shared counters of the domain.
    pub fn valued_limit(&self, domain: &str, label: &str) -> LimitCounters {
        let end = (0..=label.len().min(MAX_LABEL_BYTES)).rev().find(|end| label.is_char_boundary(*end));
        let mut name = (Box::from(domain), Box::from(&label[..end.unwrap_or_default()]));
        let mut valued = self.valued.lock();
        if let Some(counters) = valued.counters.get(&name) {
            return counters.clone();
        }
        if valued.counters.len() >= valued.most {
            valued.rejected.increment(1);
            name.1 = OTHER.into();
        }
        let counters = valued
            .counters
            .entry(name)
            .or_insert_with_key(|(domain, label)| LimitCounters::new(&self.registry, domain, label));
        counters.clone()
    }

    /// Counts descriptors that were ignored because their request met too many limits.
    pub fn descriptors_ignored(&self, count: usize) {
        self.descriptors_ignored.increment(count as u64);
    }

    /// Returns the registry.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Returns the counter of the reads of this setting's files that timed out.
    pub fn read_timeouts(&self, setting: &str) -> Counter {
        self.registry.counter(READ_TIMEOUTS, &[("setting", setting)])
    }

    /// Returns the histogram of the durations of checks by this transport.
    pub fn check_duration(&self, transport: CallKind) -> &Histogram {
        &self.check_durations.0[transport as usize]
    }

    /// Records a reload of the policy.
    pub fn policy_reload(&self, success: bool) {
        if success {
            self.policy_loaded();
        }
        self.reloads.count(success);
    }

    /// Returns the gauge that is 1 while the control plane is connected.
    pub fn xds_connected(&self) -> Gauge {
        self.registry.gauge(XDS_CONNECTED, &[])
    }

    /// Sets the capacity of the memory store, in states.
    pub fn max_keys(&self, most: usize) {
        self.registry.gauge(MAX_KEYS, &[]).set(most as f64);
    }

    /// Records the time at which a policy was loaded.
    pub fn policy_loaded(&self) {
        self.registry.gauge(LAST_RELOAD, &[]).set(unix_seconds());
    }

    /// Sets the totals of the memory store: states, states removed by reason, and requests without capacity with the
    /// rule that answered them.
    pub fn memory(&self, keys: usize, evictions: &[(&str, usize)], full: (&str, usize)) {
        self.keys.set(keys as f64);
        for (reason, count) in evictions {
            self.registry.counter(EVICTIONS, &[("reason", reason)]).absolute(*count as u64);
        }
        self.registry.counter(STORE_FULL, &[("rule", full.0)]).absolute(full.1 as u64);
    }

    /// Records a snapshot that was completely written to disk.
    pub fn snapshot_written(&self, bytes: u64, took: Duration) {
        let set = |metric, value| self.registry.gauge(metric, &[]).set(value);
        set(SNAPSHOT_LAST_SUCCESS, unix_seconds());
        set(SNAPSHOT_DURATION, took.as_secs_f64());
        set(SNAPSHOT_BYTES, bytes as f64);
    }

    /// Counts a snapshot that could not be written.
    pub fn snapshot_failed(&self) {
        self.snapshot_failures.increment(1);
    }

    /// Sets the hash of the policy in force.
    pub fn policy_in_force(&self, hash: &str) {
        *self.policy.0.lock() = hash.to_owned();
    }

    /// Returns the hash of the policy in force; empty: none yet.
    pub fn policy_hash(&self) -> String {
        self.policy.0.lock().clone()
    }

    /// Returns all metrics in the Prometheus text format.
    pub fn render(&self) -> String {
        self.registry.render()
    }
}

/// The time to answer checks, by transport.
struct CheckDurations([Histogram; CallKind::ALL.len()]);

impl Default for CheckDurations {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Histogram::new(SHORT_DURATIONS)))
    }
}

impl Render for CheckDurations {
    fn render(&self, out: &mut String) {
        let (name, help) = CHECK_DURATION;
        heading(out, name, "histogram", help);
        for transport in CallKind::ALL {
            let labels = format!("transport=\"{}\"", transport.name());
            self.0[transport as usize].render(name, &labels, out);
        }
    }
}

/// The hash of the policy in force. The exporter would keep the series of earlier hashes.
#[derive(Default)]
struct PolicyInfo(Mutex<String>);

impl Render for PolicyInfo {
    fn render(&self, out: &mut String) {
        let (name, help) = POLICY_INFO;
        heading(out, name, "gauge", help);
        let hash = self.0.lock();
        if !hash.is_empty() {
            out.push_str(&format!("{name}{{hash=\"{hash}\"}} 1\n"));
        }
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
