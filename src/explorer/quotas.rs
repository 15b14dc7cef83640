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
    let (streams, count, buckets) = {
        let state = quotas.lock();
        (state.stream_count(), state.bucket_count(), state.statuses(number, MAX_BUCKETS))
    };
    Ok(json_reply(&json!({ "divided": true, "streams": streams, "count": count, "buckets": buckets })))
}
