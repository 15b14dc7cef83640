//! The state of one key, level by level.

use axum::extract::{Request, State};
use serde::{
    Deserialize,
    ser::{Serialize, SerializeMap, Serializer},
};
use serde_json::json;
use weir_policy::Domain;
use weir_store::{SharedStore, scan::Hold};

use super::{
    Explorer, Reply, json_reply, read,
    simulate::{invalid, rejected},
};
use crate::{
    limiter::{self, LevelAnswer},
    transport::decision_json,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    domain: String,
    key: Vec<String>,
    /// Cost of the request; 1 by default.
    cost: Option<i64>,
    /// Factor of the request; 1 by default.
    factor: Option<f64>,
}

/// Previews the decision of a request; nothing is charged.
pub(super) async fn serve(State(explorer): State<Explorer>, request: Request) -> Reply {
    let wanted: Wanted = read(&explorer, request).await?;
    let (cost, factor) = (wanted.cost.unwrap_or(1), wanted.factor.unwrap_or(1.0));
    // A negative cost refunds units, which is never refused.
    if cost < 0 {
        return Err(invalid("cost", "cost must be at least 0"));
    }
    let mut request = limiter::Request::new(&wanted.domain, &wanted.key).map_err(|error| rejected(error.into()))?;
    request.set_terms(cost, None, factor).map_err(|error| rejected(error.into()))?;
    let handle = explorer.0.limiter.policy();
    let lifted = |domain: &Domain| domain.walk(&request.key).any(|(_, _, node)| domain.is_lifted(node));
    let unlimited = factor == 0.0 || handle.policy.domain(&wanted.domain).is_some_and(lifted);
    let answer = explorer.0.limiter.preview(&handle, &request).await.map_err(rejected)?;
    let mut holds = match answer.degraded {
        false => explorer.0.limiter.holds(&handle, &request).await.map_err(rejected)?,
        true => Vec::new(),
    };
    holds.resize_with(answer.levels.len(), Vec::new);
    let own = explorer.0.limiter.store().shared().map(SharedStore::owner);
    let levels = answer.levels.iter().zip(&holds).map(|(level, holds)| Level { level, holds, own });
    Ok(json_reply(&json!({
        "allowed": answer.summary.decision.allowed,
        "retry_after_us": answer.summary.decision.retry_after,
        "never": answer.summary.decision.never,
        "degraded": answer.degraded,
        "binding": answer.summary.binding,
        "unlimited": unlimited,
        "override": answer.overridden.map(|overridden| overridden.id),
        "ban_reason": answer.overridden.and_then(|overridden| overridden.ban).map(|ban| ban.reason),
        "levels": levels.collect::<Vec<_>>(),
    })))
}

/// One level: its limit, its decision, and the holds on it.
struct Level<'a> {
    level: &'a LevelAnswer<'a>,
    holds: &'a [Hold],
    /// The owner id of this replica.
    own: Option<u64>,
}

impl Serialize for Level<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let LevelAnswer { limit, depth, shadow, decision, .. } = self.level;
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("name", &limit.name)?;
        members.serialize_entry("depth", depth)?;
        members.serialize_entry("shadow", shadow)?;
        members.serialize_entry("algorithm", limit.params.name())?;
        members.serialize_entry("parameters", &limit.params.describe())?;
        decision_json::serialize(&mut members, decision, true)?;
        let hold = |held: &Hold| {
            json!({
                "owner": held.owner.map(|owner| format!("{owner:016x}")),
                "own": held.owner.is_some() && held.owner == self.own,
                "units": held.units,
                "expires_after_us": held.expires_after,
            })
        };
        members.serialize_entry("holds", &self.holds.iter().map(hold).collect::<Vec<_>>())?;
        members.end()
    }
}
