//! The policy in force, as a tree.

use std::collections::VecDeque;

use axum::{
    extract::{Request, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_core::{domain::Charge, plan::Limit};
use weir_policy::{Domain, Policy, tree::NodeId};

use super::{Asked, Reply, no_domain, read, told};
use crate::transport::http::problem::Problem;

/// Most nodes that are told at once.
const MAX_NODES: usize = 1_000;
/// Most domains that are told.
const MAX_DOMAINS: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The domain; without it the first.
    domain: Option<String>,
    /// The node below which to begin, with the version of the policy that it is from.
    below: Option<(NodeId, u64)>,
}

/// A node with the limits there.
#[derive(Serialize)]
struct Place<'a> {
    id: NodeId,
    parent: Option<NodeId>,
    segment: &'a str,
    limits: Vec<Value>,
    /// What its file says of it beside the limits.
    marks: Vec<&'static str>,
    /// Children that are not told for want of room.
    hidden: usize,
}

/// The domains, and the tree of one.
pub async fn tell(State(explorer): Asked, request: Request) -> Reply {
    let wanted: Wanted = read(&explorer, request).await?;
    let handle = explorer.0.limiter.policy_handle();
    let policy = &handle.policy;
    let mut domains: Vec<_> = policy.domains().collect();
    domains.sort_by_key(|domain| domain.index);
    let domain = match &wanted.domain {
        Some(name) => policy.domain(name).ok_or_else(|| no_domain(name))?,
        None => *domains.first().ok_or_else(|| no_domain(""))?,
    };
    let start = match wanted.below {
        None => 0,
        Some((node, version)) if version == handle.version && (node as usize) < domain.node_count() => node,
        Some(_) => return Err(Problem::new(StatusCode::CONFLICT, "the policy is not the same any more")),
    };
    let names: Vec<_> = domains.iter().take(MAX_DOMAINS).map(|domain| &*domain.name).collect();
    Ok(told(&json!({
        "version": handle.version,
        "limits": policy.limit_count(),
        "domains": names,
        "domains_hidden": domains.len() - names.len(),
        "domain": head(policy, domain),
        "nodes": nodes(domain, start, &|limit| handle.meters.counts_apart(limit)),
    })))
}

fn head(policy: &Policy, domain: &Domain) -> Value {
    json!({
        "name": domain.name,
        "format": if domain.descriptors.is_some() { "descriptors" } else { "native" },
        "charge": if domain.charge == Charge::Independent { "independent" } else { "all_or_nothing" },
        "on_store_failure": domain.on_store_failure.name(),
        "limit_spec": if policy.allows_spec(Some(domain)) { "allow" } else { "deny" },
        "anchor": domain.anchor,
        "is_empty": policy.limit_count() == 0,
    })
}

/// The nodes below one, near ones first, each behind its parent.
fn nodes<'d>(domain: &'d Domain, start: NodeId, counts_apart: &dyn Fn(u32) -> bool) -> Vec<Place<'d>> {
    let mut found: Vec<Place<'d>> = Vec::new();
    // A parent that is told itself, by its place in `found`.
    let mut open = VecDeque::from([(start, None)]);
    while let Some((node, place)) = open.pop_front() {
        let (children, hidden) = children(domain, node, MAX_NODES - found.len());
        for (segment, id) in children {
            open.push_back((id, Some(found.len())));
            found.push(Place {
                id,
                parent: place.map(|_: usize| node),
                segment,
                limits: domain.limits_at(id).iter().map(|one| limit(one, counts_apart(one.index))).collect(),
                marks: marks(domain, id),
                hidden: 0,
            });
        }
        if let Some(place) = place {
            found[place].hidden = hidden;
        }
    }
    found
}

/// The first children of a node by their names, `*` last, and how many more there are.
fn children(domain: &Domain, node: NodeId, most: usize) -> (Vec<(&str, NodeId)>, usize) {
    let mut children: Vec<_> = domain.children(node).collect();
    let count = children.len();
    let order = |one: &(&str, NodeId), other: &(&str, NodeId)| (one.0 == "*", one.0).cmp(&(other.0 == "*", other.0));
    if count > most {
        children.select_nth_unstable_by(most, order);
        children.truncate(most);
    }
    children.sort_by(order);
    let hidden = count - children.len();
    (children, hidden)
}

fn limit(limit: &Limit, counts_apart: bool) -> Value {
    json!({
        "index": limit.index,
        "name": limit.name,
        "algorithm": limit.params.name(),
        "parameters": limit.params.describe(),
        "shadow": limit.shadow,
        "counted_as": limit.ident_text(),
        "counts_apart": counts_apart,
    })
}

fn marks(domain: &Domain, node: NodeId) -> Vec<&'static str> {
    let Some(rule) = domain.descriptors.as_deref().and_then(|descriptors| descriptors.rule(node)) else {
        return Vec::new();
    };
    let flags = [
        ("unlimited", rule.unlimited),
        ("quota", rule.quota),
        ("shared by all values", rule.share_threshold),
        ("counted by value in /metrics", rule.detailed_metric || rule.value_to_metric),
    ];
    flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::algorithm::Bounds;

    #[test]
    fn near_nodes_come_first_and_what_has_no_room_is_counted() {
        let many: String = (0..1_500).map(|n| format!("      k{n:04}: {{ limits: [[1, 1, 1]] }}\n")).collect();
        let text = format!(
            "schema:\n  a:\n    children:\n{many}  b: {{ children: {{ '*': {{ limits: [[1, 1, 1], [2, 2, 2]] }}, c: {{}} }} }}\n"
        );
        let policy = weir_policy::parse(&text, &Bounds::default()).unwrap();
        let domain = policy.domain("").unwrap();
        let all = nodes(domain, 0, &|_| true);
        assert_eq!(all.len(), MAX_NODES);
        let shown: Vec<_> = all[..3].iter().map(|node| (node.segment, node.parent, node.hidden)).collect();
        assert_eq!(shown, [("a", None, 502), ("b", None, 2), ("k0000", Some(all[0].id), 0)]);
        let below = nodes(domain, all[1].id, &|_| true);
        let shown: Vec<_> = below.iter().map(|node| (node.segment, node.parent, node.limits.len())).collect();
        assert_eq!(shown, [("c", None, 0), ("*", None, 2)]);
    }
}
