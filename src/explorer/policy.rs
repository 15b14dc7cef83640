//! The policy in force, as a tree.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use axum::{
    extract::{Request, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_core::plan::Limit;
use weir_policy::{Domain, Policy, tree::NodeId};

use super::{Explorer, Reply, json_reply, no_domain, read};
use crate::{limiter::PolicyHandle, transport::http::problem::Problem};

/// Maximum number of nodes in a reply.
const MAX_NODES: usize = 1_000;
/// Maximum number of nodes that a filter searches.
const MAX_SEARCHED: usize = 100_000;
/// Maximum number of domains in a reply.
const MAX_DOMAINS: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The domain; default: the first one.
    domain: Option<String>,
    /// The node whose descendants to list, and the version of the policy that it belongs to.
    below: Option<(NodeId, u64)>,
    /// Only nodes whose path or limits contain this text, and their ancestors.
    #[serde(default)]
    filter: String,
}

/// A node with its limits.
#[derive(Serialize)]
struct NodeView<'a> {
    id: NodeId,
    parent: Option<NodeId>,
    segment: &'a str,
    limits: Vec<Value>,
    /// Its attributes in the policy file except the limits.
    marks: Vec<&'static str>,
    /// Number of children left out because of `MAX_NODES` or the filter.
    hidden: usize,
}

/// Returns the domains, and the tree of one of them.
pub(super) async fn serve(State(explorer): State<Explorer>, request: Request) -> Reply {
    let wanted: Wanted = read(&explorer, request).await?;
    // The semaphore is never closed.
    let turn = Arc::clone(&explorer.0.searching).acquire_owned().await;
    let turn = turn.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, ""))?;
    explorer.run_apart(turn, move |service| wanted.find(&service.limiter.policy())).await
}

impl Wanted {
    fn find(&self, handle: &PolicyHandle) -> Reply {
        let policy = &handle.policy;
        let mut domains: Vec<_> = policy.domains().collect();
        domains.sort_by_key(|domain| domain.index);
        let domain = match &self.domain {
            Some(name) => policy.domain(name).ok_or_else(|| no_domain(name))?,
            None => *domains.first().ok_or_else(|| no_domain(""))?,
        };
        let start = match self.below {
            None => 0,
            Some((node, version)) if version == handle.version && (node as usize) < domain.node_count() => node,
            Some(_) => return Err(Problem::new(StatusCode::CONFLICT, "the policy has changed")),
        };
        let names: Vec<_> = domains.iter().take(MAX_DOMAINS).map(|domain| &*domain.name).collect();
        let matches = (!self.filter.is_empty()).then(|| Matches::new(domain, start, &self.filter.to_lowercase()));
        let (nodes, hidden) = nodes(domain, start, matches.as_ref(), &|limit| handle.counters.has_own_counters(limit));
        Ok(json_reply(&json!({
            "version": handle.version,
            "matches": matches.as_ref().map(|matches| matches.count),
            "searched_all": matches.as_ref().is_none_or(|matches| matches.searched_all),
            "limits": policy.limit_count(),
            "domains": names,
            "domains_hidden": domains.len() - names.len(),
            "domain": head(policy, domain),
            "nodes": nodes,
            "hidden": hidden,
        })))
    }
}

fn head(policy: &Policy, domain: &Domain) -> Value {
    json!({
        "name": domain.name,
        "format": if domain.descriptors.is_some() { "descriptors" } else { "native" },
        "settings": domain.settings(if policy.allows_spec(Some(domain)) { "allow" } else { "deny" }),
        "is_empty": policy.limit_count() == 0,
    })
}

/// The nodes that pass a filter.
struct Matches {
    /// Matching nodes and their ancestors.
    kept: HashSet<NodeId>,
    /// Number of matching nodes.
    count: usize,
    searched_all: bool,
}

impl Matches {
    /// Finds the nodes below `start` whose segment contains `text` or completes it in the path, or whose limits contain
    /// it. `text` must be in lower case.
    fn new(domain: &Domain, start: NodeId, text: &str) -> Self {
        let mut found = Self { kept: HashSet::new(), count: 0, searched_all: true };
        // A node, its path, and the nodes from `start` to it.
        let mut open = vec![(start, String::new(), Vec::new())];
        let mut searched = 0;
        while let Some((node, path, above)) = open.pop() {
            for (segment, id) in domain.children(node) {
                searched += 1;
                if searched > MAX_SEARCHED {
                    found.searched_all = false;
                    return found;
                }
                let segment = segment.to_lowercase();
                let own = if path.is_empty() { segment.clone() } else { format!("{path}/{segment}") };
                let ends_here = segment.contains(text) || (own.contains(text) && !path.contains(text));
                let mut way = above.clone();
                way.push(id);
                if ends_here || domain.limits_at(id).iter().any(|limit| limit_contains(limit, text)) {
                    found.count += 1;
                    found.kept.extend(&way);
                }
                open.push((id, own, way));
            }
        }
        found
    }
}

fn limit_contains(limit: &Limit, text: &str) -> bool {
    // The default name of a limit repeats the path.
    let name = limit.name.rsplit('/').next().unwrap_or_default();
    name.to_lowercase().contains(text)
}

/// Returns the descendants of a node that `matches` keeps, in breadth-first order, and the number of its own children
/// that are left out because of `MAX_NODES`.
fn nodes<'d>(
    domain: &'d Domain,
    start: NodeId,
    matches: Option<&Matches>,
    counts_apart: &dyn Fn(u32) -> bool,
) -> (Vec<NodeView<'d>>, usize) {
    let (mut found, mut start_hidden) = (Vec::<NodeView<'d>>::new(), 0);
    // Nodes to expand, each with its index in `found`; `None` for `start`.
    let mut open = VecDeque::from([(start, None)]);
    while let Some((node, place)) = open.pop_front() {
        let (children, unmatched, beyond) = children(domain, node, matches, MAX_NODES - found.len());
        for (segment, id) in children {
            open.push_back((id, Some(found.len())));
            found.push(NodeView {
                id,
                parent: place.map(|_: usize| node),
                segment,
                limits: domain.limits_at(id).iter().map(|one| limit(one, counts_apart(one.index))).collect(),
                marks: marks(domain, id),
                hidden: 0,
            });
        }
        match place {
            Some(place) => found[place].hidden = unmatched + beyond,
            None => start_hidden = beyond,
        }
    }
    (found, start_hidden)
}

/// Returns the first `most` children of a node that `matches` keeps, ordered by name with `*` last, and the numbers of
/// children that it does not keep, and that are beyond `most`.
fn children<'d>(
    domain: &'d Domain,
    node: NodeId,
    matches: Option<&Matches>,
    most: usize,
) -> (Vec<(&'d str, NodeId)>, usize, usize) {
    let mut children: Vec<_> = domain.children(node).collect();
    let count = children.len();
    children.retain(|(_, id)| matches.is_none_or(|matches| matches.kept.contains(id)));
    let kept = children.len();
    let order = |one: &(&str, NodeId), other: &(&str, NodeId)| (one.0 == "*", one.0).cmp(&(other.0 == "*", other.0));
    if children.len() > most {
        children.select_nth_unstable_by(most, order);
        children.truncate(most);
    }
    children.sort_by(order);
    let beyond = kept - children.len();
    (children, count - kept, beyond)
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
    if domain.is_lifted(node) {
        return vec!["unlimited: factor 0"];
    }
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

    #[test]
    fn shallow_nodes_are_listed_first_and_hidden_ones_are_counted() {
        let many: String = (0..1_500).map(|n| format!("      k{n:04}: {{ limits: [[1, 1, 1]] }}\n")).collect();
        let text = format!(
            "schema:\n  a:\n    children:\n{many}  b: {{ children: {{ '*': {{ limits: [[1, 1, 1], [2, 2, 2]] }}, c: {{}} }} }}\n"
        );
        let policy = weir_policy::parse(&text, &weir_policy::Rules::default()).unwrap();
        let domain = policy.domain("").unwrap();
        let (all, hidden) = nodes(domain, 0, None, &|_| true);
        assert_eq!((all.len(), hidden), (MAX_NODES, 0));
        let shown: Vec<_> = all[..3].iter().map(|node| (node.segment, node.parent, node.hidden)).collect();
        assert_eq!(shown, [("a", None, 502), ("b", None, 2), ("k0000", Some(all[0].id), 0)]);
        let (children, hidden) = nodes(domain, all[0].id, None, &|_| true);
        assert_eq!((children.len(), hidden), (MAX_NODES, 500));
        let filtered = Matches::new(domain, all[0].id, "k00");
        let (children, hidden) = nodes(domain, all[0].id, Some(&filtered), &|_| true);
        assert_eq!((children.len(), hidden), (100, 0), "those that do not match are not hidden");
        let (below, _) = nodes(domain, all[1].id, None, &|_| true);
        let shown: Vec<_> = below.iter().map(|node| (node.segment, node.parent, node.limits.len())).collect();
        assert_eq!(shown, [("c", None, 0), ("*", None, 2)]);
    }

    #[test]
    fn a_filter_leaves_matches_and_what_is_above_them() {
        let text = "
            schema:
              user:
                children:
                  Alex: { limits: [[1, 1, 1]], children: { trade: { limits: [[1, 1, 1]] }, other: {} } }
                  '*': { limits: [{ gcra: { burst: 1, count: 1, period: 1s }, name: per-user }] }
              site: { children: { alexandria: {} } }";
        let policy = weir_policy::parse(text, &weir_policy::Rules::default()).unwrap();
        let domain = policy.domain("").unwrap();
        for (filter, count, expected) in [
            ("alex", 2, &[("site", 0), ("user", 1), ("alexandria", 0), ("Alex", 2)][..]),
            ("user/al", 1, &[("user", 1), ("Alex", 2)]),
            ("alex/tr", 1, &[("user", 1), ("Alex", 1), ("trade", 0)]),
            ("per-u", 1, &[("user", 1), ("*", 0)]),
            ("nothing", 0, &[]),
        ] {
            let matches = Matches::new(domain, 0, filter);
            let (found, _) = nodes(domain, 0, Some(&matches), &|_| true);
            let shown: Vec<_> = found.iter().map(|node| (node.segment, node.hidden)).collect();
            assert_eq!((matches.count, &*shown), (count, expected), "{filter}");
        }
    }

    #[test]
    fn a_factor_of_0_is_marked_with_all_below() {
        let text = "schema: { a: { factor: 0, limits: [[1, 1, 1]], children: { b: { limits: [[1, 1, 1]] } } }, c: { limits: [[1, 1, 1]] } }";
        let policy = weir_policy::parse(text, &weir_policy::Rules::default()).unwrap();
        let (nodes, _) = nodes(policy.domain("").unwrap(), 0, None, &|_| true);
        let shown: Vec<_> = nodes.iter().map(|node| (node.segment, node.limits.len(), &*node.marks)).collect();
        let unlimited = &["unlimited: factor 0"][..];
        assert_eq!(shown, [("a", 0, unlimited), ("c", 1, &[]), ("b", 0, unlimited)]);
    }
}
