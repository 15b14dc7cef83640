//! The upper bound of a service's memory within its settings, printed by `weir config check`.

use std::fmt::{self, Display};

use weir_core::domain::request::MAX_LEVELS;
use weir_policy::{Domain, Policy, tree::NodeId};
use weir_server::{FREE_UNREAD_BYTES, MAX_HELD_REQUEST_BYTES, MAX_UNREAD_BYTES, max_open};
use weir_store::{StoreUrl, lease::MAX_LEASES, memory::WEIGHT_BYTES};

use super::ports::MAX_REQUESTS_TO_A_SHARED_STORE;
use crate::{
    config::Settings,
    transport::{
        grpc::{LARGE_MESSAGE_BYTES, MAX_REFLECTIONS, MAX_REPORT_BYTES, MAX_WATCHES, READ_AHEAD_BYTES},
        incomplete_calls,
        rlqs::HOLDERS_OF_A_BUCKET,
    },
};

/// Baseline of the process, in bytes.
const BASE_BYTES: usize = 32 << 20;
/// Bytes of one state with a key of 24 bytes: measured by `cargo bench --bench states`, with 80 bytes for the arrival
/// time of each of four limits that apply together, rounded up.
const STATE_BYTES: usize = 448;
/// Bytes of each mark of a state beyond the first (`sliding_log`, `sliding_buckets`).
const MARK_BYTES: usize = 8;
/// Bytes of one connection without calls: measured by `./drill attack silent`, rounded up.
const CONNECTION_BYTES: usize = 32 << 10;
/// Bytes of one call that was received but not yet dispatched, or whose small answer is not read: measured by `./drill
/// attack unread`, rounded up.
const IDLE_CALL_BYTES: usize = 4 << 10;
/// Bytes of one call that waits for the store: measured, rounded up.
const CALL_BYTES: usize = 8 << 10;
/// Bytes of one check of a batch that waits for the store: measured, rounded up.
const CHECK_BYTES: usize = 4 << 10;
/// Bytes of one refusal in the near cache, with the longest key and the maximum number of levels.
const REFUSAL_BYTES: usize = 4 << 10;
/// Bytes of one charge of size 1, as `charge_after_outage.max_keys` counts it, with its share of the containers.
const OUTAGE_CHARGE_BYTES: usize = 1 << 10;
/// Bytes of one quota bucket without its limits, of one of its limits, and of one Envoy with a bucket: measured by
/// `./drill rlqs`, rounded up. Larger buckets count as several.
const QUOTA_BUCKET_BYTES: usize = 2 << 10;
const QUOTA_LIMIT_BYTES: usize = 2 << 10;
const QUOTA_HOLDER_BYTES: usize = 320;
/// Bytes that a stream of quotas may keep of its largest report: the message that it is split into, and its buffer.
const QUOTA_REPORT_BYTES: usize = 2 * MAX_REPORT_BYTES;
/// Bytes of one lease without its limits, and of each of its limits, which holds the path once more. Leases of long
/// paths count as several.
const LEASE_BYTES: usize = 1 << 10;
const LEASE_LIMIT_BYTES: usize = 512;
/// Bytes of one open health watch.
const WATCH_BYTES: usize = 6 << 10;
/// Bytes of one open stream of checks or reflection, mostly buffers.
const STREAM_BYTES: usize = 40 << 10;
/// Bytes that a stream of checks may keep of its largest message, decompressed and compressed, without being counted.
const STREAM_MESSAGE_BYTES: usize = 2 * LARGE_MESSAGE_BYTES;

/// Bytes of one series with labels of 250 bytes, with its line in the page of a scrape: measured, rounded up.
const SERIES_BYTES: usize = 5 << 10;
/// Bytes of one span that waits for the collector: measured, rounded up.
const SPAN_BYTES: usize = 1536;
/// Bytes of one hot key, and of one hot limit.
const HOT_KEY_BYTES: usize = 2 << 10;
/// Bytes that a replay of the recent checks takes for each of theirs: measured with keys of 30 bytes, rounded up.
const REPLAY_COPIES: usize = 8;

/// The upper bound of the memory, by part.
pub struct MemoryBound(Vec<Part>);

struct Part {
    what: &'static str,
    count: usize,
    bytes_each: usize,
}

impl MemoryBound {
    /// Computes the bound within these settings, under this policy if it is known.
    pub fn of(settings: &Settings, policy: Option<&Policy>) -> Self {
        let (grpc, http) = (&settings.grpc, &settings.http);
        let part = |what, count, bytes_each| Part { what, count, bytes_each };
        let [open_grpc, open_http] = [grpc.max_connections, http.max_connections].map(max_open);
        let mut parts = vec![
            part("the process", 1, BASE_BYTES),
            part(
                "states (store.max_keys), of the policy's largest limit",
                settings.store.max_keys,
                state_bytes(policy),
            ),
            part("what they take by longer keys, and by limits of requests", settings.store.max_keys, WEIGHT_BYTES),
            part("gRPC connections (grpc.max_connections, and those that end)", open_grpc, CONNECTION_BYTES),
            part(
                "calls not yet dispatched, or answered and not read (grpc.max_streams of each connection)",
                open_grpc.saturating_mul(grpc.max_streams as usize),
                IDLE_CALL_BYTES,
            ),
            part(
                "calls that wait for their message, with their headers and its received part",
                1,
                incomplete_calls::max_bytes(grpc.max_message_bytes),
            ),
            part(
                "requests and answers that each holds while its client does not read",
                open_grpc,
                MAX_HELD_REQUEST_BYTES as usize + FREE_UNREAD_BYTES,
            ),
            part("large answers that are not read, gRPC and HTTP", 2, MAX_UNREAD_BYTES),
            part("health watches", open_grpc.saturating_mul(MAX_WATCHES), WATCH_BYTES),
            part("reflection streams", MAX_REFLECTIONS, STREAM_BYTES),
            part(
                "streams of checks (grpc.max_open_streams)",
                grpc.max_open_streams,
                STREAM_BYTES + STREAM_MESSAGE_BYTES + READ_AHEAD_BYTES,
            ),
            part(
                "unfinished HTTP bodies, and what they are read into",
                2,
                incomplete_calls::max_bytes(grpc.max_message_bytes),
            ),
            part("unfinished bodies of rejected HTTP requests", 1, incomplete_calls::max_bytes(0)),
            part("HTTP connections (http.max_connections, and those that end)", open_http, CONNECTION_BYTES),
            part("series with values of requests (metrics.max_series)", settings.metrics.max_series, SERIES_BYTES),
        ];
        if settings.store.url != StoreUrl::Memory {
            for (what, setting) in [
                ("gRPC decisions that wait (grpc.max_concurrent_requests)", grpc.max_concurrent_requests),
                ("HTTP decisions that wait (http.max_concurrent_requests)", http.max_concurrent_requests),
            ] {
                parts.push(part(what, if setting == 0 { MAX_REQUESTS_TO_A_SHARED_STORE } else { setting }, CALL_BYTES));
            }
            let redis = &settings.store.redis;
            let waiting = redis.max_queue.saturating_mul(redis.pool_size);
            parts.push(part("checks of batches that wait for a server (store.redis.max_queue)", waiting, CHECK_BYTES));
            let charges = &redis.charge_after_outage;
            if charges.enabled {
                parts.push(part(
                    "charges after an outage (store.redis.charge_after_outage.max_keys)",
                    charges.max_keys,
                    OUTAGE_CHARGE_BYTES,
                ));
            }
            let leases = |domain: &Domain| domain.limits().any(|limit| limit.leased_for().is_some());
            let leased = max_limits_per_key(policy, leases);
            if leased > 0 {
                parts.push(part("leases of keys in demand", MAX_LEASES, LEASE_BYTES + leased * LEASE_LIMIT_BYTES));
            }
            let near = &settings.store.near_cache;
            if near.enabled {
                parts.push(part("the near cache (store.near_cache.max_entries)", near.max_entries, REFUSAL_BYTES));
            }
        }
        let rlqs = &settings.rlqs;
        if !rlqs.domains.is_empty() {
            let is_divided = |domain: &Domain| rlqs.domains.iter().any(|divided| *divided.domain == *domain.name);
            let bytes = QUOTA_BUCKET_BYTES + max_limits_per_key(policy, is_divided) * QUOTA_LIMIT_BYTES;
            parts.push(part("buckets of quotas (rlqs.max_buckets)", rlqs.max_buckets, bytes));
            parts.push(part(
                "what their streams keep of the largest report",
                grpc.max_open_streams,
                QUOTA_REPORT_BYTES,
            ));
            let holders = rlqs.max_buckets.saturating_mul(HOLDERS_OF_A_BUCKET);
            parts.push(part("Envoys' shares of them", holders, QUOTA_HOLDER_BYTES));
        }
        if http.ui.enabled {
            let what = "recent checks (http.ui.max_traffic_bytes), and a replay of them";
            parts.push(part(what, 1 + REPLAY_COPIES, http.ui.max_traffic_bytes));
            parts.push(part("hot keys and limits (http.ui.max_hot_keys)", http.ui.max_hot_keys, 2 * HOT_KEY_BYTES));
        }
        if settings.tracing.is_on() {
            parts.push(part("spans to export (tracing.max_queue)", settings.tracing.max_queue, SPAN_BYTES));
        }
        Self(parts)
    }

    /// Returns the total.
    pub fn bytes(&self) -> usize {
        self.0.iter().fold(0, |sum, part| sum.saturating_add(part.bytes()))
    }
}

impl Part {
    fn bytes(&self) -> usize {
        self.count.saturating_mul(self.bytes_each)
    }
}

impl Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            let Part { what, count, bytes_each } = part;
            writeln!(f, "{:>8} MB  {what}: {count} of {bytes_each} bytes", megabytes(part.bytes()))?;
        }
        write!(f, "{:>8} MB  in all", megabytes(self.bytes()))
    }
}

/// Returns the size of a state of the largest limit, in bytes.
fn state_bytes(policy: Option<&Policy>) -> usize {
    let limits = policy.into_iter().flat_map(Policy::limits);
    let marks = limits.map(|(_, limit)| limit.params.marks_max()).max().unwrap_or(1);
    let further = usize::try_from(marks - 1).unwrap_or(usize::MAX);
    STATE_BYTES.saturating_add(further.saturating_mul(MARK_BYTES))
}

/// Returns the maximum number of limits of a key, among the domains that `is_meant` selects.
fn max_limits_per_key(policy: Option<&Policy>, is_meant: impl Fn(&Domain) -> bool) -> usize {
    fn below(domain: &Domain, node: NodeId) -> usize {
        let deeper = domain.children(node).map(|(_, child)| below(domain, child)).max().unwrap_or_default();
        domain.limits_at(node).len() + deeper
    }
    let Some(policy) = policy else { return MAX_LEVELS };
    policy.domains().filter(|domain| is_meant(domain)).map(|domain| below(domain, 0)).max().unwrap_or_default()
}

/// Converts to megabytes, rounded up.
fn megabytes(bytes: usize) -> usize {
    bytes.div_ceil(1_000_000)
}

#[cfg(test)]
mod tests {
    use weir_policy::parse;

    use super::*;

    #[test]
    fn the_total_is_the_sum_of_its_lines_and_grows_with_each_setting() {
        let bytes = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            MemoryBound::of(&settings, None).bytes()
        };
        let default = bytes(|_| ());
        for change in [
            (|settings| settings.store.max_keys += 1) as fn(&mut Settings),
            |settings| settings.grpc.max_connections += 1,
            |settings| settings.grpc.max_streams += 1,
            |settings| settings.grpc.max_open_streams += 1,
            |settings| settings.http.max_connections += 1,
            |settings| settings.metrics.max_series += 1,
            |settings| settings.store.url = "redis://localhost".parse().unwrap(),
            |settings| settings.http.ui.enabled = true,
        ] {
            assert!(bytes(change) > default);
        }
        let shared = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            settings.store.url = "redis://localhost".parse().unwrap();
            let before = MemoryBound::of(&settings, None).bytes();
            change(&mut settings);
            MemoryBound::of(&settings, None).bytes() - before
        };
        let Settings { store, .. } = Settings::default();
        assert_eq!(shared(|settings| settings.store.redis.max_queue += 1), store.redis.pool_size * CHECK_BYTES);
        let explorer = |max_hot_keys| {
            let mut settings = Settings::default();
            (settings.http.ui.enabled, settings.http.ui.max_hot_keys) = (true, max_hot_keys);
            MemoryBound::of(&settings, None).bytes()
        };
        assert_eq!(explorer(11) - explorer(10), 2 * HOT_KEY_BYTES);
        let Settings { tracing, .. } = Settings::default();
        let spans = tracing.max_queue * SPAN_BYTES;
        assert_eq!(shared(|settings| settings.tracing.otlp_endpoint = "http://localhost:4317".into()), spans);
        assert_eq!(shared(|settings| settings.store.redis.charge_after_outage.max_keys += 1), OUTAGE_CHARGE_BYTES);
        let near = store.near_cache.max_entries * REFUSAL_BYTES;
        assert_eq!(shared(|settings| settings.store.near_cache.enabled = true), near);
        let Settings { grpc, rlqs, .. } = Settings::default();
        let bucket = QUOTA_BUCKET_BYTES + MAX_LEVELS * QUOTA_LIMIT_BYTES + HOLDERS_OF_A_BUCKET * QUOTA_HOLDER_BYTES;
        assert_eq!(
            shared(|settings| settings.rlqs.domains.push("api=user".to_owned().try_into().unwrap())),
            rlqs.max_buckets * bucket + grpc.max_open_streams * QUOTA_REPORT_BYTES
        );
        assert!(MemoryBound::of(&Settings::default(), None).to_string().ends_with("MB  in all"));
        assert_eq!(bytes(|settings| settings.store.max_keys = usize::MAX), usize::MAX);
    }

    #[test]
    fn a_state_has_room_for_every_mark_of_the_largest_limit() {
        let bytes = |limits: &str| {
            let text = format!("schema: {{ user: {{ children: {{ '*': {{ limits: [{limits}] }} }} }} }}");
            state_bytes(Some(&parse(&text, &weir_policy::Rules::default()).unwrap()))
        };
        assert_eq!(bytes("[9, 10, 1]"), STATE_BYTES);
        assert_eq!(bytes("[9, 10, 1], { sliding_log: { count: 101, period: 1m } }"), STATE_BYTES + 100 * MARK_BYTES);
    }
    #[test]
    fn leases_are_counted_where_limits_are_leased_with_the_limits_on_a_path() {
        let mut settings = Settings::default();
        settings.store.url = "redis://localhost".parse().unwrap();
        let bytes = |lease: &str| {
            let text = format!(
                "lease: {lease}\nschema: {{ user: {{ limits: [[9, 10, 1]], children: {{ a: {{ limits: [[9, 10, 1], [9, 10, 60]] }}, \
                 b: {{ limits: [[9, 10, 1]] }} }} }} }}"
            );
            MemoryBound::of(&settings, Some(&parse(&text, &weir_policy::Rules::default()).unwrap())).bytes()
        };
        assert_eq!(bytes("true") - bytes("false"), MAX_LEASES * (LEASE_BYTES + 3 * LEASE_LIMIT_BYTES));
    }
}
