//! The names and HELP texts of all metrics that no other file defines.

use weir_telemetry::Metric;

pub(super) const CHECKS: Metric =
    ("weir_checks_total", "Checks answered, by domain, transport and outcome (allowed, limited, error).");
pub(super) const DRY_RUNS: Metric = (
    "weir_dry_runs_total",
    "Checks with `dry_run`, which charge nothing, by domain. They are in no other counter of checks and decisions.",
);
pub(super) const REPEATED: Metric = (
    "weir_repeated_requests_total",
    "Checks and reservations that got the answer to an earlier request of the same `request_id` and charged nothing, \
     by domain. They count as checks and decisions again.",
);
pub(super) const ABANDONED: Metric = (
    "weir_abandoned_checks_total",
    "Checks, and calls about reservations, that ended before the shared store answered, as their deadline passed or \
     their client hung up, by domain. They may be charged, and no other counter of checks has them.",
);
pub(super) const UNMATCHED: Metric = (
    "weir_unmatched_checks_total",
    "Checks allowed because no limit of the policy or the request matched their key, by domain.",
);
pub(super) const OVERRIDDEN: Metric = (
    "weir_overridden_checks_total",
    "Checks on which an override acted, by domain and change (factor, limits, unlimited, shadow, ban).",
);
pub(super) const RESERVATIONS: Metric = (
    "weir_reservations_total",
    "Calls about reservations, by domain and outcome (reserved, refused, committed, cancelled, extended, unknown). \
     Repeated calls count again.",
);
pub(super) const RESERVATION_UNITS: Metric = (
    "weir_reservation_units_total",
    "Units of reservations, by domain and kind: reserved, refunded (not used, given back), overage (used beyond what \
     was reserved). Repeated calls move none.",
);
pub(super) const CLIENT_LEASES: Metric = (
    "weir_client_leases_renewals_total",
    "Requests about leases of clients, by domain and result: ok; changed (the terms are others than the client knew), \
     not_leasable, lost (the store did not answer).",
);
pub(super) const CLIENT_LEASES_GRANTED: Metric =
    ("weir_client_leases_granted_units_total", "Units granted to leases of clients, by domain.");
pub(super) const CLIENT_LEASES_SPENT: Metric = (
    "weir_client_leases_spent_units_total",
    "Units that clients spent from their leases, by domain. It moves when they tell, within half a lease.",
);
pub(super) const CLIENT_LEASES_RETURNED: Metric =
    ("weir_client_leases_returned_units_total", "Units that clients gave back from their leases, by domain.");
pub(super) const CLIENT_LEASES_BURNT: Metric = (
    "weir_client_leases_burnt_units_total",
    "Units that clients still held when their leases had ended, so that they count as spent, by domain. What clients \
     held that never came back is not counted.",
);
pub(super) const DECISIONS: Metric = (
    "weir_decisions_total",
    "Decisions of each limit, by domain, limit and outcome (allowed, limited, shadow_limited). A limit also counts as \
     allowed where another limit refused the request: for capacity see weir_charged_units_total.",
);
pub(super) const CHARGED: Metric = (
    "weir_charged_units_total",
    "Units charged to each limit, by domain and limit: the costs of the requests that passed, and of refused ones \
     where the policy charges those. Refunds are not subtracted.",
);
pub(super) const NEAR_LIMIT: Metric =
    ("weir_near_limit_total", "Decisions that allowed and left less than a fifth of the limit, by domain and limit.");
pub(super) const NEAR_CACHE_REFUSALS: Metric =
    ("weir_near_cache_refusals_total", "Refusals of a limit answered from the near cache, by domain and limit.");
pub(super) const DEGRADED: Metric =
    ("weir_degraded_total", "Checks decided without the shared store, by domain and mode (local, allow, deny, error).");
pub(super) const CHECK_DURATION: Metric =
    ("weir_check_duration_seconds", "Time to answer a check, in seconds, by transport; a batch counts once.");
pub(super) const KEYS: Metric =
    ("weir_keys", "States in memory, one for each limit and key; large ones count as several.");
pub(super) const MAX_KEYS: Metric = ("weir_keys_max", "Capacity of the memory store, in states (store.max_keys).");
pub(super) const EVICTIONS: Metric =
    ("weir_evictions_total", "States removed from memory, by reason (expired, evicted, snapshot).");
pub(super) const STORE_FULL: Metric =
    ("weir_store_full_total", "Decisions for which the memory store had no room, by rule applied.");
pub(super) const SNAPSHOT_FAILURES: Metric = ("weir_snapshot_failures_total", "Snapshots that could not be written.");
pub(super) const SNAPSHOT_LAST_SUCCESS: Metric =
    ("weir_snapshot_last_success_timestamp_seconds", "Unix time of the last complete snapshot, in seconds.");
pub(super) const SNAPSHOT_DURATION: Metric =
    ("weir_snapshot_duration_seconds", "Time to write the last snapshot, in seconds.");
pub(super) const SNAPSHOT_BYTES: Metric = ("weir_snapshot_bytes", "Size of the last snapshot, in bytes.");
pub(super) const RELOADS: Metric = ("weir_policy_reloads_total", "Reloads of the policy, by result (success, error).");
pub(super) const LAST_RELOAD: Metric =
    ("weir_policy_last_reload_success_timestamp_seconds", "Unix time of the last successful policy load, in seconds.");
pub(super) const RELOAD_SUCCESSFUL: Metric = (
    "weir_policy_last_reload_successful",
    "Whether the newest policy is in force, or the first one awaited (1); 0 after an invalid change.",
);
pub(super) const DECISIONS_WITHOUT_SERIES: Metric =
    ("weir_decisions_without_series_total", "Decisions counted as `other` because metrics.max_series was reached.");
pub(super) const WITHOUT_SERIES: Metric = (
    "weir_limits_without_series",
    "Domains and limits of the policy that are counted as `other` because metrics.max_limit_series was reached.",
);
pub(super) const DESCRIPTORS_IGNORED: Metric =
    ("weir_descriptors_ignored_total", "Descriptors ignored because their request met too many limits.");
pub(super) const POLICY_INFO: Metric = (
    "weir_policy_info",
    "Always 1; the label hash tells the files of the policy in force from others, on all replicas alike.",
);
pub(super) const XDS_CONNECTED: Metric = (
    "weir_xds_connected",
    "Whether the control plane of the policy has answered on the open stream (1); 0 before, and while it is away.",
);
pub(super) const READ_TIMEOUTS: Metric =
    ("weir_file_read_timeouts_total", "File reads abandoned because they timed out, by setting.");
pub(super) const BUILD_INFO: Metric = ("weir_build_info", "Always 1; the labels describe the build.");
