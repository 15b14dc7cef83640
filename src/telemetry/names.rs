//! The names and HELP texts of all metrics that no other file defines.

pub(super) const CHECKS: &str = "weir_checks_total";
pub(super) const DRY_RUNS: &str = "weir_dry_runs_total";
pub(super) const REPEATED: &str = "weir_repeated_requests_total";
pub(super) const ABANDONED: &str = "weir_abandoned_checks_total";
pub(super) const UNMATCHED: &str = "weir_unmatched_checks_total";
pub(super) const OVERRIDDEN: &str = "weir_overridden_checks_total";
pub(super) const RESERVATIONS: &str = "weir_reservations_total";
pub(super) const RESERVATION_UNITS: &str = "weir_reservation_units_total";
pub(super) const CLIENT_LEASES: &str = "weir_client_leases_renewals_total";
pub(super) const CLIENT_LEASES_GRANTED: &str = "weir_client_leases_granted_units_total";
pub(super) const CLIENT_LEASES_SPENT: &str = "weir_client_leases_spent_units_total";
pub(super) const CLIENT_LEASES_RETURNED: &str = "weir_client_leases_returned_units_total";
pub(super) const CLIENT_LEASES_BURNT: &str = "weir_client_leases_burnt_units_total";
pub(super) const DECISIONS: &str = "weir_decisions_total";
pub(super) const CHARGED: &str = "weir_charged_units_total";
pub(super) const NEAR_LIMIT: &str = "weir_near_limit_total";
pub(super) const NEAR_CACHE_REFUSALS: &str = "weir_near_cache_refusals_total";
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
pub(super) const DECISIONS_WITHOUT_SERIES: &str = "weir_decisions_without_series_total";
pub(super) const WITHOUT_SERIES: &str = "weir_limits_without_series";
pub(super) const DESCRIPTORS_IGNORED: &str = "weir_descriptors_ignored_total";
pub(super) const POLICY_INFO: &str = "weir_policy_info";
pub(super) const XDS_CONNECTED: &str = "weir_xds_connected";
pub(super) const READ_TIMEOUTS: &str = "weir_file_read_timeouts_total";
pub(super) const BUILD_INFO: &str = "weir_build_info";

pub(super) const COUNTERS: &[(&str, &str)] = &[
    (CHECKS, "Checks answered, by domain, transport and outcome (allowed, limited, error)."),
    (
        DRY_RUNS,
        "Checks with `dry_run`, which charge nothing, by domain. They are in no other counter of checks and decisions.",
    ),
    (
        REPEATED,
        "Checks and reservations that got the answer to an earlier request of the same `request_id` and charged nothing, by \
         domain. They count as checks and decisions again.",
    ),
    (
        ABANDONED,
        "Checks, and calls about reservations, that ended before the shared store answered, as their deadline passed or \
         their client hung up, by domain. They may be charged, and no other counter of checks has them.",
    ),
    (UNMATCHED, "Checks allowed because no limit of the policy or the request matched their key, by domain."),
    (OVERRIDDEN, "Checks on which an override acted, by domain and change (factor, limits, unlimited, shadow, ban)."),
    (
        RESERVATIONS,
        "Calls about reservations, by domain and outcome (reserved, refused, committed, cancelled, extended, unknown). Repeated \
         calls count again.",
    ),
    (
        RESERVATION_UNITS,
        "Units of reservations, by domain and kind: reserved, refunded (not used, given back), overage (used beyond what was \
         reserved). Repeated calls move none.",
    ),
    (
        CLIENT_LEASES,
        "Requests about leases of clients, by domain and result: ok; changed (the terms are others than the client knew), \
         not_leasable, lost (the store did not answer).",
    ),
    (CLIENT_LEASES_GRANTED, "Units granted to leases of clients, by domain."),
    (
        CLIENT_LEASES_SPENT,
        "Units that clients spent from their leases, by domain. It moves when they tell, within half a lease.",
    ),
    (CLIENT_LEASES_RETURNED, "Units that clients gave back from their leases, by domain."),
    (
        CLIENT_LEASES_BURNT,
        "Units that clients still held when their leases had ended, so that they count as spent, by domain. What clients held \
         that never came back is not counted.",
    ),
    (
        DECISIONS,
        "Decisions of each limit, by domain, limit and outcome (allowed, limited, shadow_limited). A limit also counts as \
         allowed where another limit refused the request: for capacity see weir_charged_units_total.",
    ),
    (
        CHARGED,
        "Units charged to each limit, by domain and limit: the costs of the requests that passed, and of refused ones where \
         the policy charges those. Refunds are not subtracted.",
    ),
    (NEAR_LIMIT, "Decisions that allowed and left less than a fifth of the limit, by domain and limit."),
    (NEAR_CACHE_REFUSALS, "Refusals of a limit answered from the near cache, by domain and limit."),
    (DEGRADED, "Checks decided without the shared store, by domain and mode (local, allow, deny, error)."),
    (EVICTIONS, "States removed from memory, by reason (expired, evicted, snapshot)."),
    (STORE_FULL, "Decisions for which the memory store had no room, by rule applied."),
    (SNAPSHOT_FAILURES, "Snapshots that could not be written."),
    (RELOADS, "Reloads of the policy, by result (success, error)."),
    (READ_TIMEOUTS, "File reads abandoned because they timed out, by setting."),
    (DECISIONS_WITHOUT_SERIES, "Decisions counted as `other` because metrics.max_series was reached."),
    (DESCRIPTORS_IGNORED, "Descriptors ignored because their request met too many limits."),
];

pub(super) const GAUGES: &[(&str, &str)] = &[
    (KEYS, "States in memory, one for each limit and key; large ones count as several."),
    (MAX_KEYS, "Capacity of the memory store, in states (store.max_keys)."),
    (SNAPSHOT_LAST_SUCCESS, "Unix time of the last complete snapshot, in seconds."),
    (SNAPSHOT_DURATION, "Time to write the last snapshot, in seconds."),
    (SNAPSHOT_BYTES, "Size of the last snapshot, in bytes."),
    (LAST_RELOAD, "Unix time of the last successful policy load, in seconds."),
    (
        WITHOUT_SERIES,
        "Domains and limits of the policy that are counted as `other` because metrics.max_limit_series was reached.",
    ),
    (
        RELOAD_SUCCESSFUL,
        "Whether the newest policy is in force, or the first one awaited (1); 0 after an invalid change.",
    ),
    (
        XDS_CONNECTED,
        "Whether the control plane of the policy has answered on the open stream (1); 0 before, and while it is away.",
    ),
    (BUILD_INFO, "Always 1; the labels describe the build."),
];
