//! Every metric, once: its name, what it means, and the handles that count it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use metrics::{Counter, Gauge};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use weir_telemetry::{Histogram, Registry, ShardedCounters, histogram::DURATIONS, request::OTHER};

use super::{
    auth,
    meters::{LimitMeter, Transport},
    spans,
};

/// Checks answered.
pub const CHECKS: &str = "weir_checks_total";
/// What each limit decided.
pub const DECISIONS: &str = "weir_decisions_total";
/// Passes with under a fifth of the limit left.
pub const NEAR_LIMIT: &str = "weir_near_limit_total";
/// Checks decided without the shared store.
pub const DEGRADED: &str = "weir_degraded_total";
const CHECK_DURATION: &str = "weir_check_duration_seconds";
const KEYS: &str = "weir_keys";
const MAX_KEYS: &str = "weir_keys_max";
const EVICTIONS: &str = "weir_evictions_total";
const STORE_FULL: &str = "weir_store_full_total";
const SNAPSHOT_FAILURES: &str = "weir_snapshot_failures_total";
const SNAPSHOT_LAST_SUCCESS: &str = "weir_snapshot_last_success_timestamp_seconds";
const SNAPSHOT_DURATION: &str = "weir_snapshot_duration_seconds";
const SNAPSHOT_BYTES: &str = "weir_snapshot_bytes";
const RELOADS: &str = "weir_policy_reloads_total";
const LAST_RELOAD: &str = "weir_policy_last_reload_success_timestamp_seconds";
const RELOAD_SUCCESSFUL: &str = "weir_policy_last_reload_successful";
const SERIES_REFUSED: &str = "weir_metric_series_refused_total";
const WITHOUT_SERIES: &str = "weir_limits_without_series";
const DESCRIPTORS_PASSED_OVER: &str = "weir_descriptors_passed_over_total";
const BUILD_INFO: &str = "weir_build_info";

const COUNTERS: &[(&str, &str)] = &[
    (CHECKS, "Checks answered, by domain, transport and outcome (allowed, limited, error)."),
    (DECISIONS, "What each limit decided (allowed, limited, shadow_limited)."),
    (NEAR_LIMIT, "Passes that left under a fifth of the limit."),
    (
        DEGRADED,
        "Checks decided without the shared store, by domain and the rule that answered (local, allow, deny, error).",
    ),
    (EVICTIONS, "States dropped from memory, by reason (expired, evicted, snapshot)."),
    (STORE_FULL, "Decisions for which the memory store had no room, by the rule that answered."),
    (SNAPSHOT_FAILURES, "Snapshots that could not be written."),
    (RELOADS, "Reloads of the policy, by result (success, error)."),
    (SERIES_REFUSED, "Decisions counted as `other` because metrics.max_series series show values of requests already."),
    (DESCRIPTORS_PASSED_OVER, "Descriptors left without a limit because their request met too many limits."),
];

const GAUGES: &[(&str, &str)] = &[
    (KEYS, "States held in memory, one for each limit and key."),
    (MAX_KEYS, "Most states that memory has room for (store.max_keys)."),
    (SNAPSHOT_LAST_SUCCESS, "When a snapshot was last written whole."),
    (SNAPSHOT_DURATION, "How long the last snapshot took to write."),
    (SNAPSHOT_BYTES, "Length of the last snapshot."),
    (LAST_RELOAD, "When the policy was last loaded."),
    (
        WITHOUT_SERIES,
        "Domains and limits of the policy in force that are counted as `other` because metrics.max_limit_series others \
         have series already.",
    ),
    (RELOAD_SUCCESSFUL, "Whether the policy on disk is in force; 0 after a change that is not valid."),
    (BUILD_INFO, "Always 1; the labels tell the build."),
];

/// Longest label with values of requests, in bytes.
const MAX_LABEL_BYTES: usize = 256;

/// A domain, or a limit of it.
type Name = (Box<str>, Option<Box<str>>);

/// The registry of one service, and its own metrics.
pub struct Metrics {
    registry: Arc<Registry>,
    named: Mutex<HashSet<Name>>,
    max_named: usize,
    without_series: Gauge,
    valued: Mutex<Valued>,
    check_durations: [Histogram; Transport::ALL.len()],
    keys: Gauge,
    snapshot_failures: Counter,
    descriptors_passed_over: Counter,
    reloaded: Counter,
    not_reloaded: Counter,
    last_reload: Gauge,
    reload_successful: Gauge,
}

/// How much metrics may show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// Most limits and domains of policies that have series of their own while a service runs, those of policies that are gone
    /// included; the others share one.
    pub max_limit_series: usize,
    /// Most limits with values of requests that have series of their own while a service runs.
    pub max_series: usize,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { max_limit_series: 10_000, max_series: 1_000 }
    }
}

/// The meters of limits with values of requests, by domain and label.
struct Valued {
    meters: HashMap<(Box<str>, Box<str>), LimitMeter, foldhash::fast::RandomState>,
    most: usize,
    refused: Counter,
}

impl Metrics {
    /// A registry with nothing counted, with the usual settings.
    pub fn new() -> Arc<Self> {
        Self::with_settings(&MetricsSettings::default())
    }

    /// A registry with nothing counted.
    pub fn with_settings(settings: &MetricsSettings) -> Arc<Self> {
        let registry = Registry::default();
        registry.describe(COUNTERS, GAUGES);
        registry.describe(auth::COUNTERS, auth::GAUGES);
        registry.describe(weir_server::metrics::COUNTERS, weir_server::metrics::GAUGES);
        registry.describe(weir_store::metrics::COUNTERS, &[]);
        registry.describe(spans::COUNTERS, &[]);
        registry.gauge(BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
        Arc::new(Self {
            named: Mutex::default(),
            max_named: settings.max_limit_series,
            without_series: registry.gauge(WITHOUT_SERIES, &[]),
            valued: Mutex::new(Valued {
                meters: HashMap::default(),
                most: settings.max_series,
                refused: registry.counter(SERIES_REFUSED, &[]),
            }),
            check_durations: std::array::from_fn(|_| Histogram::new(DURATIONS)),
            keys: registry.gauge(KEYS, &[]),
            snapshot_failures: registry.counter(SNAPSHOT_FAILURES, &[]),
            descriptors_passed_over: registry.counter(DESCRIPTORS_PASSED_OVER, &[]),
            reloaded: registry.counter(RELOADS, &[("result", "success")]),
            not_reloaded: registry.counter(RELOADS, &[("result", "error")]),
            last_reload: registry.gauge(LAST_RELOAD, &[]),
            reload_successful: registry.gauge(RELOAD_SUCCESSFUL, &[]),
            registry: Arc::new(registry),
        })
    }

    /// Whether a domain, or a limit of it, has series of its own; so it has for ever.
    pub(super) fn admits(&self, domain: &str, limit: Option<&str>) -> bool {
        let mut named = self.named.lock();
        let name = (domain.into(), limit.map(Box::from));
        if named.len() >= self.max_named && !named.contains(&name) {
            tracing::debug!(domain, limit, "counted as `other`: there are metrics.max_limit_series series already");
            return false;
        }
        named.insert(name);
        true
    }

    /// So many domains and limits of the policy that is to serve have no series of their own.
    pub(super) fn without_series(&self, count: usize) {
        self.without_series.set(count as f64);
        if count > 0 {
            let (most, others) = (self.max_named, count);
            tracing::warn!(
                most,
                others,
                "more domains and limits than metrics.max_limit_series: others count as `other`"
            );
        }
    }

    /// The meter of a limit under a label with values of requests, of which a part is shown where it is long; past the bound
    /// on such labels, that of all others of the domain.
    pub fn valued_limit(&self, domain: &str, label: &str) -> LimitMeter {
        let end = (0..=label.len().min(MAX_LABEL_BYTES)).rev().find(|end| label.is_char_boundary(*end));
        let mut name = (Box::from(domain), Box::from(&label[..end.unwrap_or_default()]));
        let mut valued = self.valued.lock();
        if let Some(meter) = valued.meters.get(&name) {
            return meter.clone();
        }
        if valued.meters.len() >= valued.most {
            valued.refused.increment(1);
            name.1 = OTHER.into();
        }
        let meter =
            valued.meters.entry(name).or_insert_with_key(|(domain, label)| LimitMeter::new(self, domain, label));
        meter.clone()
    }

    /// So many descriptors of a request had no limit because it met too many limits.
    pub fn descriptors_passed_over(&self, count: usize) {
        self.descriptors_passed_over.increment(count as u64);
    }

    /// A counter of this service.
    pub(super) fn counter(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        self.registry.counter(name, labels)
    }

    /// Counts for these counters of the service, without threads sharing a cache line.
    pub(super) fn sharded(&self, counters: Vec<Counter>) -> Arc<ShardedCounters> {
        self.registry.sharded(counters)
    }

    /// Where all of it is counted.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// How long checks by a transport take.
    pub fn check_duration(&self, transport: Transport) -> &Histogram {
        &self.check_durations[transport as usize]
    }

    /// A policy was loaded, or one could not be.
    pub fn policy_reload(&self, success: bool) {
        if success {
            self.policy_loaded();
            self.reloaded.increment(1);
        } else {
            self.reload_successful.set(0.0);
            self.not_reloaded.increment(1);
        }
    }

    /// The memory store has room for so many states.
    pub fn max_keys(&self, most: usize) {
        self.registry.gauge(MAX_KEYS, &[]).set(most as f64);
    }

    /// A policy serves from now on.
    pub fn policy_loaded(&self) {
        self.last_reload.set(unix_seconds());
        self.reload_successful.set(1.0);
    }

    /// What the memory store has counted so far: states, those dropped by reason, and requests that lacked room with the
    /// rule that answered them.
    pub fn memory(&self, keys: usize, evictions: &[(&str, usize)], full: (&str, usize)) {
        self.keys.set(keys as f64);
        for (reason, count) in evictions {
            self.counter(EVICTIONS, &[("reason", reason)]).absolute(*count as u64);
        }
        self.counter(STORE_FULL, &[("rule", full.0)]).absolute(full.1 as u64);
    }

    /// A snapshot of so many bytes stands whole on disk.
    pub fn snapshot_written(&self, bytes: u64, took: Duration) {
        let set = |name, value| self.registry.gauge(name, &[]).set(value);
        set(SNAPSHOT_LAST_SUCCESS, unix_seconds());
        set(SNAPSHOT_DURATION, took.as_secs_f64());
        set(SNAPSHOT_BYTES, bytes as f64);
    }

    /// A snapshot could not be written.
    pub fn snapshot_failed(&self) {
        self.snapshot_failures.increment(1);
    }

    /// All of it in Prometheus text.
    pub fn render(&self) -> String {
        let mut text = self.registry.render();
        text.push_str(&format!(
            "# HELP {CHECK_DURATION} Time to answer a check, by transport; a batch counts once.\n# TYPE {CHECK_DURATION} histogram\n"
        ));
        for transport in Transport::ALL {
            let labels = format!("transport=\"{}\"", transport.name());
            self.check_duration(transport).render(CHECK_DURATION, &labels, &mut text);
        }
        text
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
