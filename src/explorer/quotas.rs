//! Envoy's quotas (RLQS): the rates that this replica has assigned to the Envoys that report to it.

use axum::extract::{Request, State};
use serde::Deserialize;
use serde_json::json;

use super::{Explorer, Reply, json_reply, read};

/// Maximum number of buckets in a reply.
const MAX_BUCKETS: usize = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    domain: String,
}

/// Returns the buckets of a domain with the largest demand, and the usage of their Envoys in requests per second.
/// `divided` says whether the domain is one of `rlqs.domains`.
pub(super) async fn serve(State(explorer): State<Explorer>, request: Request) -> Reply {
    let Wanted { domain } = read(&explorer, request).await?;
    let found = explorer.0.quotas.as_ref().and_then(|quotas| Some((quotas, quotas.domain(&domain)?)));
    let Some((quotas, number)) = found else { return Ok(json_reply(&json!({ "divided": false }))) };
    let (streams, count, statuses) = {
        let state = quotas.lock();
        (state.stream_count(), state.bucket_count(), state.statuses(number, MAX_BUCKETS))
    };
    let buckets = statuses.into_iter().map(|bucket| {
        let envoys = bucket.envoys.into_iter().map(|envoy| {
            json!({
                "peer": envoy.peer,
                "assigned": envoy.assigned,
                "used": envoy.used,
                "denied": envoy.denied,
                "has_left": envoy.has_left,
            })
        });
        json!({
            "entries": bucket.entries,
            "limit": bucket.limit,
            "streams": bucket.streams,
            "envoys": envoys.collect::<Vec<_>>(),
        })
    });
    Ok(json_reply(&json!({
        "divided": true,
        "streams": streams,
        "count": count,
        "buckets": buckets.collect::<Vec<_>>(),
    })))
}
