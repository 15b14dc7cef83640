//! The state of one key, level by level.

use axum::extract::{Request, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, Told, read, told};
use crate::{
    limiter::{self, Invalid, LevelAnswer},
    transport::{http::problem::Problem, status::Refused},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    domain: String,
    key: Vec<String>,
    /// Units that a request would ask for.
    #[serde(default = "one")]
    cost: i64,
    /// Its factor.
    #[serde(default = "unchanged")]
    factor: f64,
}

fn one() -> i64 {
    1
}

fn unchanged() -> f64 {
    1.0
}

/// What a request would be answered now. It is not made.
pub async fn tell(State(explorer): Asked, request: Request) -> Told {
    let wanted: Wanted = read(&explorer, request).await?;
    // Units that are given back are no question.
    if wanted.cost < 0 {
        return Err(Problem::from(Refused::from(limiter::CheckError::from(Invalid::field_error(
            "cost",
            "cost is at least 0",
        )))));
    }
    let refused = |error: limiter::CheckError| Problem::from(Refused::from(error));
    let mut request = limiter::Request::new(&wanted.domain, &wanted.key).map_err(|error| refused(error.into()))?;
    request.set_terms(wanted.cost, None, wanted.factor).map_err(|error| refused(error.into()))?;
    let snapshot = explorer.0.limiter.snapshot();
    let answer = explorer.0.limiter.look(&snapshot, &request).await.map_err(refused)?;
    Ok(told(&json!({
        "allowed": answer.summary.allowed,
        "retry_after_us": answer.summary.retry_after,
        "never": answer.summary.never,
        "degraded": answer.degraded,
        "binding": answer.summary.binding,
        "levels": answer.levels.iter().map(level).collect::<Vec<_>>(),
    })))
}

fn level(level: &LevelAnswer<'_>) -> Value {
    let LevelAnswer { limit, depth, decision, .. } = level;
    json!({
        "name": limit.name,
        "depth": depth,
        "shadow": limit.shadow,
        "algorithm": limit.params.name(),
        "parameters": limit.params.describe(),
        "allowed": decision.allowed,
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after_us": decision.retry_after,
        "reset_after_us": decision.reset_after,
        "wait_us": decision.wait,
        "never": decision.never,
    })
}
