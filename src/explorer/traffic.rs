//! Replays the checks of the last minutes under the policy in force and under a draft, and compares the decisions.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use axum::extract::{Request, State};
use serde::{Deserialize, Serialize};
use serde_json::json;
use weir_core::domain::{Key, Micros, key::domain_name};
use weir_policy::{Policy, lint};

use super::{
    Explorer, Reply, Service, json_reply, no_domain, read,
    simulate::{MAX_TIME, invalid, parse_policy, rejected, run_exclusively, too_long},
};
use crate::{
    limiter::{
        replay::Replay,
        totals::{LimitTotals, Name},
    },
    telemetry::RecordedCheck,
    transport::{admin::key_segments, http::problem::Problem},
};

/// Maximum number of keys in the answer.
const MAX_KEYS: usize = 15;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    domain: String,
    /// A policy file. Empty: only the policy in force is replayed.
    #[serde(default)]
    draft: String,
}

#[derive(Serialize)]
struct Totals {
    allowed: u64,
    refused: u64,
}

/// Decisions of a limit under both policies; `None` if a policy does not have it, or no check met it.
#[derive(Serialize)]
struct ComparedLimit<'a> {
    name: &'a str,
    in_force: Option<Totals>,
    draft: Option<Totals>,
}

/// Number of checks that the draft refuses or allows, unlike the policy in force.
#[derive(Clone, Copy, Default)]
struct Differs {
    refused: u64,
    allowed: u64,
}

/// Replays the recorded checks of a domain under the policy in force and under a draft.
pub(super) async fn serve(State(explorer): State<Explorer>, request: Request) -> Reply {
    let wanted: Wanted = read(&explorer, request).await?;
    run_exclusively(explorer, move |explorer| wanted.run(explorer)).await.map(|found| json_reply(&found))
}

impl Wanted {
    fn run(&self, explorer: &Service) -> Result<serde_json::Value, Problem> {
        let handle = explorer.limiter.policy();
        let domain = &*self.domain;
        let in_force = handle.policy.domain(domain).ok_or_else(|| no_domain(domain))?;
        let draft = match self.draft.trim() {
            "" => None,
            // With the overrides of the policy in force.
            _ => {
                let draft = parse_policy(&self.draft, &explorer.rules)?;
                let elsewhere = || invalid("draft", format!("the draft does not define the {}", lint::shown(domain)));
                draft.domain(domain).ok_or_else(elsewhere)?;
                Some(draft.overridden(handle.policy.overrides().without_cache()))
            }
        };
        let Some(recent_checks) = explorer.limiter.recent_checks() else { return Ok(json!({ "recorded": false })) };
        let (mut checks, one_of) = recent_checks.read();
        checks.retain(|check| check.key.prefix(0) == domain_name(domain));
        let recorded = checks.len();
        // Of a long segment the record has a hash, which meets no pattern and no name.
        let drafted = draft.as_ref().and_then(|draft| draft.domain(domain));
        checks.retain(|check| {
            in_force.is_certain(&check.key) && drafted.is_none_or(|drafted| drafted.is_certain(&check.key))
        });
        let since = Instant::now();
        let replay = |policy: &Policy| {
            let replay = Replay::run(policy, domain, &checks, || since.elapsed() < MAX_TIME).map_err(rejected)?;
            replay.ok_or_else(|| too_long("retry with less to replay"))
        };
        let in_force = replay(&handle.policy)?;
        let draft = draft.as_ref().map(replay).transpose()?;
        let (keys, differing) = draft.as_ref().map(|draft| differing(&checks, &in_force, draft)).unwrap_or_default();
        let now_allowed = checks.iter().filter(|check| check.terms.allowed).count();
        Ok(json!({
            "recorded": true,
            "checks": checks.len(),
            "left_out": recorded - checks.len(),
            "one_of": one_of,
            "span_us": span(&checks),
            "then": { "allowed": now_allowed, "refused": checks.len() - now_allowed },
            "in_force": totals(&in_force),
            "draft": draft.as_ref().map(totals),
            "limits": limits(&in_force, draft.as_ref()),
            "differing": differing,
            "keys": keys,
        }))
    }
}

fn span(checks: &[RecordedCheck]) -> Micros {
    match (checks.first(), checks.last()) {
        (Some(first), Some(last)) => last.at - first.at,
        _ => 0,
    }
}

fn totals(replay: &Replay) -> Totals {
    let (allowed, refused) = replay.totals();
    Totals { allowed, refused }
}

fn limits<'a>(in_force: &'a Replay, draft: Option<&'a Replay>) -> Vec<ComparedLimit<'a>> {
    let (in_force, draft) = (in_force.limits.by_name(), draft.map(|draft| draft.limits.by_name()).unwrap_or_default());
    let names: BTreeSet<_> = in_force.keys().chain(draft.keys()).copied().collect();
    let of = |did: Option<&LimitTotals>| did.map(|did| Totals { allowed: did.allowed, refused: did.refused });
    let limit =
        |name: &'a Name| ComparedLimit { name: &name.1, in_force: of(in_force.get(name)), draft: of(draft.get(name)) };
    names.into_iter().map(limit).collect()
}

/// Returns the keys on which the draft decides differently, most frequent first, and the number of checks that it
/// refuses or allows, unlike the policy in force.
fn differing(
    checks: &[RecordedCheck],
    in_force: &Replay,
    draft: &Replay,
) -> (Vec<serde_json::Value>, serde_json::Value) {
    let (mut keys, mut all) = (HashMap::<&[u8], (&Key, Differs)>::new(), Differs::default());
    for (check, passed) in checks.iter().zip(in_force.passed.iter().zip(&draft.passed)) {
        let of_key = &mut keys.entry(check.key.prefix(check.key.depth())).or_insert((&check.key, Differs::default())).1;
        match passed {
            (Some(true), Some(false)) => (of_key.refused, all.refused) = (of_key.refused + 1, all.refused + 1),
            (Some(false), Some(true)) => (of_key.allowed, all.allowed) = (of_key.allowed + 1, all.allowed + 1),
            _ => {}
        }
    }
    let mut keys: Vec<_> = keys.into_values().filter(|(_, differs)| differs.refused + differs.allowed > 0).collect();
    keys.sort_by_key(|(_, differs)| std::cmp::Reverse(differs.refused + differs.allowed));
    let summary = json!({ "keys": keys.len(), "refused": all.refused, "allowed": all.allowed });
    let key = |(key, differs): (&Key, Differs)| {
        let (hashed, segments) = key_segments(key);
        json!({ "key": segments, "hashed": hashed, "refused": differs.refused, "allowed": differs.allowed })
    };
    (keys.into_iter().take(MAX_KEYS).map(key).collect(), summary)
}
