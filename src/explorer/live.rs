//! Live data: counters of limits, hot keys.

use axum::extract::{Request, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Explorer, Reply, json_reply, no_domain, read};
use crate::telemetry::{HotKey, HotKeys};

/// Most keys of each list.
const MAX_KEYS: usize = 15;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    domain: String,
}

/// The counters of a domain since its policy is in force, and its keys that are worth a look; `checks` are those that
/// passed, were refused and failed, `unmatched` those that met no limit. Of limits only those that have
/// decided anything: number, allowed, limited, limited as a shadow, near.
pub async fn tell(State(explorer): State<Explorer>, request: Request) -> Reply {
    let Wanted { domain } = read(&explorer, request).await?;
    let limiter = &explorer.0.limiter;
    let handle = limiter.policy_handle();
    let domain = handle.policy.domain(&domain).ok_or_else(|| no_domain(&domain))?;
    let counts = handle.meters.counts();
    let limits = domain.limits().filter_map(|limit| {
        let count = counts.limit(limit.index)?;
        let row = [count.allowed, count.limited, count.shadow_limited, count.near];
        row.iter().any(|count| *count > 0).then(|| [u64::from(limit.index), row[0], row[1], row[2], row[3]])
    });
    let limits: Vec<_> = limits.collect();
    let (busy, near) = limiter.hot_keys().map(|keys: &HotKeys| keys.read(&domain.name, MAX_KEYS)).unwrap_or_default();
    Ok(json_reply(&json!({
        "version": handle.version,
        "at_ms": explorer.0.started.elapsed().as_millis() as u64,
        "states": limiter.store().memory().stats().keys,
        "shared_store": limiter.store().shared().is_some(),
        "checks": counts.domain(domain.index),
        "unmatched": counts.unmatched(domain.index),
        "limits": limits,
        "busy": busy.iter().map(key).collect::<Vec<_>>(),
        "near": near.iter().map(key).collect::<Vec<_>>(),
    })))
}

fn key(key: &HotKey) -> Value {
    json!({
        "key": key.segments,
        "limit": key.limit,
        "shadow": key.shadow,
        "per_second": key.per_second,
        "error_per_second": key.error_per_second,
        "refused_per_second": key.refused_per_second,
        "allowed": key.decision.allowed,
        "remaining": key.decision.remaining,
        "of": key.decision.limit,
        "seconds_ago": key.seconds_ago,
    })
}
