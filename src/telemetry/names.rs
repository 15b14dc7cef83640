//! Every metric that no other file names: its name, and what it means.

/// Checks answered.
pub(super) const CHECKS: &str = "weir_checks_total";
/// What each limit decided.
pub(super) const DECISIONS: &str = "weir_decisions_total";
/// Passes with under a fifth of the limit left.
pub(super) const NEAR_LIMIT: &str = "weir_near_limit_total";
/// Checks decided without the shared store.
pub(super) const DEGRADED: &str = "weir_degraded_total";
pub(super) const CHECK_DURATION: &str = "weir_check_duration_seconds";
pub(super) const KEYS: &str = "weir_keys";
pub(super) const MAX_KEYS: &str = "weir_keys_max";
pub(super) const EVICTIONS: &str = "weir_evictions_total";
pub(super) const STORE_FULL: &str = "weir_store_full_total";
pub(super) const SNAPSHOT_FAILURES: &str = "weir_snapshot_failures_total";
pub(super) const SNAPSHOT_LAST_SUCCESS: &str = "weir_snapshot_last_success_timestamp_seconds";
pub(super) const SNAPSHOT_DURATION: &str = "weir_snapshot_duration_seconds";
pub(super) const SNAPSHOT_BYTES: &str = "weir_snapshot_bytes";
pub(super) const RELOADS: &str = "weir_policy_reloads_total";
pub(super) const LAST_RELOAD: &str = "weir_policy_last_reload_success_timestamp_seconds";
pub(super) const RELOAD_SUCCESSFUL: &str = "weir_policy_last_reload_successful";
pub(super) const SERIES_REFUSED: &str = "weir_metric_series_refused_total";
pub(super) const WITHOUT_SERIES: &str = "weir_limits_without_series";
pub(super) const DESCRIPTORS_PASSED_OVER: &str = "weir_descriptors_passed_over_total";
pub(super) const READS_GIVEN_UP: &str = "weir_file_reads_given_up_total";
pub(super) const BUILD_INFO: &str = "weir_build_info";

pub(super) const COUNTERS: &[(&str, &str)] = &[
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
    (READS_GIVEN_UP, "Reads of the files of a setting that were given up because they took too long."),
    (SERIES_REFUSED, "Decisions counted as `other` because metrics.max_series series show values of requests already."),
    (DESCRIPTORS_PASSED_OVER, "Descriptors left without a limit because their request met too many limits."),
];

pub(super) const GAUGES: &[(&str, &str)] = &[
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
