//! Live data: counters of limits, the shared store, hot keys.

use std::collections::HashMap;

use axum::extract::{Request, State};
use serde::Deserialize;
use serde_json::{Value, json};
use weir_core::domain::OnStoreFailure;
use weir_store::{metrics::ServerStatus, redis::RedisStore};
use weir_telemetry::Histogram;

use super::{Explorer, Reply, json_reply, no_domain, read};
use crate::telemetry::{CallKind, HotKey, HotKeys};

/// Maximum number of keys in each list.
const MAX_KEYS: usize = 15;
/// Maximum number of limits of the keys in a list.
const MAX_KEY_LIMITS: usize = 4 * MAX_KEYS;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    domain: String,
    /// Only hot keys that contain this text, with segments joined by `/`; ignores case.
    #[serde(default)]
    search: String,
}

/// Returns the counters of a domain since its policy came into force, the status of the shared store, and hot keys.
/// `checks` are the checks that passed, were refused and failed; `unmatched` are those that met no limit. `limits`
/// lists only limits with decisions: index, allowed, limited, limited in shadow mode, near. `latency` and the store's
/// round trips are of the whole service.
pub(super) async fn serve(State(explorer): State<Explorer>, request: Request) -> Reply {
    let Wanted { domain, search } = read(&explorer, request).await?;
    let limiter = &explorer.0.limiter;
    let handle = limiter.policy();
    let domain = handle.policy.domain(&domain).ok_or_else(|| no_domain(&domain))?;
    let counts = handle.counters.counts();
    let limits = domain.limits().filter_map(|limit| {
        let row @ [allowed, limited, shadow_limited, near] = counts.limit(limit.index)?;
        row.iter().any(|count| *count > 0).then(|| [limit.index.into(), allowed, limited, shadow_limited, near])
    });
    let limits: Vec<_> = limits.collect();
    let search = search.to_lowercase();
    let wanted = |key: &[Box<str>]| search.is_empty() || key.join("/").to_lowercase().contains(&search);
    let read_keys = |keys: &HotKeys| keys.read(&domain.name, MAX_KEY_LIMITS, wanted);
    let (hot, near) = limiter.hot_keys().map(read_keys).unwrap_or_default();
    let degraded = counts
        .degraded(domain.index)
        .map(|counts| OnStoreFailure::ALL.map(OnStoreFailure::name).into_iter().zip(counts).collect::<HashMap<_, _>>());
    Ok(json_reply(&json!({
        "version": handle.version,
        "at_ms": explorer.0.started.elapsed().as_millis() as u64,
        "states": limiter.store().memory().stats().keys,
        "checks": counts.domain(domain.index),
        "unmatched": counts.unmatched(domain.index),
        "degraded": degraded,
        "latency": buckets(CallKind::ALL.map(|transport| limiter.metrics().check_duration(transport)).as_slice()),
        "store": limiter.store().shared().map(|shared| store(shared.redis())),
        "limits": limits,
        "busy": by_key(&hot),
        "near": by_key(&near),
    })))
}

fn store(redis: &RedisStore) -> Value {
    json!({
        "servers": redis.servers().iter().map(server).collect::<Vec<_>>(),
        "round_trips": buckets(&[redis.metrics().round_trips()]),
    })
}

fn server(status: &ServerStatus) -> Value {
    let outage = status.outage.as_ref();
    json!({
        "server": status.server,
        "up": outage.is_none(),
        "down_for_ms": outage.map(|outage| outage.since.elapsed().as_millis() as u64),
        "cause": outage.map(|outage| &*outage.cause),
        "waiting": status.waiting,
    })
}

/// Adds up histograms with the same buckets. Returns the bucket bounds in seconds, and the count of each bucket.
fn buckets(histograms: &[&Histogram]) -> Value {
    let Some(first) = histograms.first() else { return Value::Null };
    let mut counts = first.counts();
    for other in &histograms[1..] {
        counts.iter_mut().zip(other.counts()).for_each(|(count, more)| *count += more);
    }
    json!({ "bounds": first.bounds().collect::<Vec<_>>(), "counts": counts })
}

/// Groups hot keys: one entry for each of the first `MAX_KEYS` keys, with all its limits.
fn by_key(found: &[HotKey]) -> Vec<Value> {
    let mut keys: Vec<(&[Box<str>], Vec<&HotKey>)> = Vec::new();
    for hot in found {
        match keys.iter().position(|(key, _)| **key == *hot.segments) {
            Some(at) => keys[at].1.push(hot),
            None if keys.len() < MAX_KEYS => keys.push((&hot.segments, vec![hot])),
            None => {}
        }
    }
    let entry = |(key, limits): (&[Box<str>], Vec<&HotKey>)| json!({ "key": key, "limits": limits.into_iter().map(limit).collect::<Vec<_>>() });
    keys.into_iter().map(entry).collect()
}

fn limit(hot: &HotKey) -> Value {
    json!({
        "name": hot.limit,
        "shadow": hot.shadow,
        "per_second": hot.per_second,
        "error_per_second": hot.error_per_second,
        "refused_per_second": hot.refused_per_second,
        "allowed": hot.decision.allowed,
        "remaining": hot.decision.remaining,
        "of": hot.decision.limit,
        "seconds_ago": hot.seconds_ago,
    })
}
