//! Warnings about a valid policy, and the effect of a change on counts.

use super::{
    Policy,
    descriptors::{Descriptors, Rule, ValuePattern},
    tree::{DEFAULT_ANCHOR, Domain, Found, NodeId, common_text},
};
use weir_core::{
    domain::{Charge, key::domain_label},
    plan::Limit,
};

/// The name in metrics of domains and limits without their own series.
const OTHER: &str = "other";

/// A node of a domain, with its pattern.
pub struct PolicyNode<'a> {
    /// The segments from the root, with `*` for any name.
    pub pattern: Vec<&'a str>,
    /// The node.
    pub(crate) node: NodeId,
}

/// Returns every node of a domain except the root, sorted by pattern.
pub fn policy_nodes(domain: &Domain) -> Vec<PolicyNode<'_>> {
    let mut found = Vec::new();
    let mut open = vec![PolicyNode { pattern: Vec::new(), node: 0 }];
    while let Some(policy_node) = open.pop() {
        for (name, node) in domain.children(policy_node.node) {
            let mut pattern = policy_node.pattern.clone();
            pattern.push(name);
            open.push(PolicyNode { pattern, node });
        }
        if policy_node.node != 0 {
            found.push(policy_node);
        }
    }
    found.sort_by(|a, b| a.pattern.cmp(&b.pattern));
    found
}

/// Returns the warnings, sorted. In all domains: a name that metrics give to others, several unnamed limits of one
/// algorithm and time base at a node. In domains of descriptors: the notes of the reader, such as
/// ignored keys, what has no effect, and `over_limit_only` next to limits that admitted requests may exceed. In others:
/// names with a `*` that is not a pattern, factors that divide no limit, leases that cannot be
/// granted, concurrency limits whose slots cannot be taken, limits that never refuse because of
/// others, and limits above the anchor that have limits below them, which a Redis Cluster cannot
/// decide in one step.
pub fn warnings(policy: &Policy) -> Vec<String> {
    let mut warnings = Vec::new();
    for domain in policy.domains() {
        let shown = shown(&domain.name);
        let nodes = policy_nodes(domain);
        warnings.extend(shared_label(&domain.name).map(|shared| format!("{shown}: {shared}")));
        warnings.extend(
            nodes
                .iter()
                .filter_map(|policy_node| Some(format!("{shown}: {}", unnamed_of_one_kind(domain, policy_node)?))),
        );
        if let Some(descriptors) = &domain.descriptors {
            // Here a `*` in a value is a pattern, and a request meets only the limits of its last node.
            warnings.extend(descriptors.notes().iter().map(|note| format!("{shown}: {note}")));
            warnings.extend(without_effect(domain, descriptors, &nodes).iter().map(|note| format!("{shown}: {note}")));
            if domain.charge == Charge::OverLimitOnly && descriptors.has_exceedable() {
                warnings.push(format!(
                    "{shown}: with `charge: over_limit_only` a limit in shadow mode, or a quota, that is exceeded is charged \
                     alone, also by requests that pass"
                ));
            }
            continue;
        }
        for policy_node in &nodes {
            if let Some(name) = policy_node.pattern.last().filter(|name| name.len() > 1 && name.contains('*')) {
                warnings.push(format!("{shown}: `{name}` is an exact name here; only a `*` alone stands for any name"));
            }
        }
        warnings.extend(idle_factors(domain, &nodes).map(|factor| format!("{shown}: {factor}")));
        warnings.extend(not_leased(domain, &nodes).map(|limit| format!("{shown}: {limit}")));
        warnings.extend(not_reservable(domain, &nodes).map(|limit| format!("{shown}: {limit}")));
        if domain.charge == Charge::AllOrNothing {
            warnings.extend(implied_limits(domain, &nodes).iter().map(|limit| format!("{shown}: {limit}")));
        }
        // In this order the descendants of a node directly follow it.
        let limited: Vec<_> =
            nodes.iter().filter(|policy_node| !domain.limits_at(policy_node.node).is_empty()).collect();
        for pair in limited.windows(2) {
            let (above, below) = (&pair[0].pattern, &pair[1].pattern);
            if above.len() < usize::from(domain.anchor) && below.len() > above.len() && below.starts_with(above) {
                let (above, below, anchor) = (above.join("/"), below.join("/"), domain.anchor);
                warnings.push(format!(
                    "{shown}: `{above}` is above the anchor ({anchor} segments) of `{below}`; on a Redis Cluster they \
                     are not one step"
                ));
            }
        }
    }
    warnings.sort();
    warnings
}

/// Warns of a domain whose name is also a label of other domains.
fn shared_label(domain: &str) -> Option<String> {
    let others = match domain {
        OTHER => "domains without their own series",
        _ if !domain.is_empty() && domain == domain_label("") => "the default domain, whose name is empty,",
        _ => return None,
    };
    Some(format!("metrics and logs call {others} `{domain}` too; give this domain another name"))
}

/// Returns the descriptors that no request meets, since a pattern that takes precedence matches all their values, and
/// the names in `replaces` that no limit has.
fn without_effect(domain: &Domain, rules: &Descriptors, nodes: &[PolicyNode<'_>]) -> Vec<String> {
    let (names, mut found) = (rules.limit_names(), Vec::new());
    for key in nodes {
        let pattern = key.pattern.join("/");
        let shown = |rule: &Rule| match &rule.value {
            ValuePattern::Any => format!("`{pattern}` without a value"),
            value => format!("`{pattern}/{}`", value.text()),
        };
        for (node, rule) in domain.children(key.node).filter_map(|(_, node)| Some((node, rules.rule(node)?))) {
            // Only a pattern that matches every value matches the empty one.
            let value = if rule.value == ValuePattern::Any { "" } else { rule.value.text() };
            let met = domain.child(key.node, value.as_bytes()).filter(|(_, met)| *met != node);
            if let Some(met) = met.and_then(|(_, met)| rules.rule(met)) {
                found.push(format!("no request meets {}: {} takes precedence", shown(rule), shown(met)));
            }
            let unknown = rule.limits.iter().flat_map(|limit| &limit.replaces).filter(|name| !names.contains(&***name));
            found.extend(unknown.map(|name| format!("{} replaces `{name}`, and no limit has this name", shown(rule))));
        }
    }
    found
}

/// Returns the node of a pattern.
fn node_at<'d>(nodes: &'d [PolicyNode<'d>], pattern: &[&str]) -> Option<&'d PolicyNode<'d>> {
    let found = nodes.binary_search_by(|policy_node| policy_node.pattern.as_slice().cmp(pattern));
    found.ok().map(|index| &nodes[index])
}

/// Returns the nodes above a node, without the root, from above.
fn ancestors<'d>(nodes: &'d [PolicyNode<'d>], own: &'d PolicyNode<'d>) -> impl Iterator<Item = &'d PolicyNode<'d>> {
    (1..own.pattern.len()).filter_map(|depth| node_at(nodes, &own.pattern[..depth]))
}

/// Returns a node and those below it, which directly follow it in the order of the nodes.
fn subtree<'d>(nodes: &'d [PolicyNode<'d>], index: usize) -> impl Iterator<Item = &'d PolicyNode<'d>> {
    let own = &nodes[index].pattern;
    nodes[index..].iter().take_while(move |other| other.pattern.starts_with(own))
}

/// Returns the limits that never refuse: each request that one is charged for is also charged to another limit, at
/// its node or above, that admits no more. A shadow limit refuses nothing, so it does not count as the other one.
fn implied_limits(domain: &Domain, nodes: &[PolicyNode<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for policy_node in nodes {
        let own = domain.limits_at(policy_node.node);
        let above: Vec<_> = ancestors(nodes, policy_node).flat_map(|above| domain.limits_at(above.node)).collect();
        for (index, limit) in own.iter().enumerate() {
            // If two limits admit the same, the second one is implied.
            let beside = own.iter().enumerate().filter(|(other, beside)| {
                *other != index && (*other < index || !beside.params.is_implied_by(&limit.params))
            });
            let mut others = above.iter().copied().chain(beside.map(|(_, beside)| beside));
            if let Some(tighter) = others.find(|other| !other.shadow && limit.params.is_implied_by(&other.params)) {
                let [own, other] =
                    [limit, tighter].map(|limit| format!("`{}` {}", limit.name, limit.params.describe()));
                found.push(format!(
                    "{own} never refuses: {other}, which is charged for the same requests, admits no more"
                ));
            }
        }
    }
    found
}

/// Returns the nodes with a factor that divides no limit. Often an exact name was meant to keep the limits of the `*`
/// that it replaces.
fn idle_factors<'d>(domain: &'d Domain, nodes: &'d [PolicyNode<'_>]) -> impl Iterator<Item = String> + 'd {
    nodes.iter().enumerate().filter(|(_, own)| domain.is_divided(own.node)).filter_map(|(index, own)| {
        let within = || subtree(nodes, index);
        if within().any(|other| !domain.limits_at(other.node).is_empty()) {
            return None;
        }
        let is_any_lifted = within().any(|other| domain.is_lifted(other.node));
        let none = if is_any_lifted { "a factor of 0 lifts all of them" } else { "there are none" };
        let has_any_beside = own
            .pattern
            .split_last()
            .is_some_and(|(name, above)| *name != "*" && node_at(nodes, &[above, &["*"]].concat()).is_some());
        let beside = if has_any_beside { " (limits of a sibling `*` do not apply to it)" } else { "" };
        let own = own.pattern.join("/");
        Some(format!(
            "the factor of `{own}` changes nothing: it divides limits at this node and below, and {none}{beside}"
        ))
    })
}

/// Returns the limits with a lease that cannot be leased, with the reason. A request is decided from leases only if
/// all its limits can be leased.
fn not_leased<'d>(domain: &'d Domain, nodes: &'d [PolicyNode<'_>]) -> impl Iterator<Item = String> + 'd {
    let limits = nodes.iter().flat_map(|policy_node| domain.limits_at(policy_node.node));
    limits.filter(|limit| limit.lease().is_some()).filter_map(|limit| {
        let reason = match domain.charge {
            Charge::AllOrNothing => limit.leasable().err()?,
            _ => "charge is independent, so a request may be charged by some of its limits alone",
        };
        Some(format!("`{}` cannot be leased: {reason}; requests that meet it are decided by the store", limit.name))
    })
}

/// Returns the concurrency limits whose slots cannot be taken, with the reason. A slot is a reservation of all limits
/// on the path, and some limits cannot be reserved.
fn not_reservable<'d>(domain: &'d Domain, nodes: &'d [PolicyNode<'_>]) -> impl Iterator<Item = String> + 'd {
    let limits =
        nodes.iter().enumerate().flat_map(|(index, it)| domain.limits_at(it.node).iter().map(move |it| (index, it)));
    limits.filter(|(_, limit)| limit.params.as_concurrency().is_some()).filter_map(move |(index, limit)| {
        let reason = match domain.charge {
            Charge::Independent | Charge::OverLimitOnly => format!("charge is {}", domain.charge.name()),
            Charge::AllOrNothing => {
                let met = ancestors(nodes, &nodes[index]).chain(subtree(nodes, index));
                let mut others = met.flat_map(|other| domain.limits_at(other.node));
                let (other, reason) = others.find_map(|other| Some((other, other.params.holdable().err()?)))?;
                format!("keys that meet `{}` cannot be reserved: {reason}", other.name)
            }
        };
        Some(format!("no slot of `{}` can be taken: {reason}", limit.name))
    })
}

/// Warns about several unnamed limits of one algorithm and time base at a node.
fn unnamed_of_one_kind(domain: &Domain, policy_node: &PolicyNode<'_>) -> Option<String> {
    let limits = domain.limits_at(policy_node.node);
    let of_one_kind = |limit: &&Limit| limits.iter().filter(|other| other.would_share_state(limit)).count() > 1;
    let of_one_kind: Vec<_> = limits.iter().filter(of_one_kind).map(|limit| format!("`{}`", limit.name)).collect();
    (!of_one_kind.is_empty()).then(|| {
        format!(
            "{} have no names, so their counts may move between them when one is added, removed, or gets another period",
            of_one_kind.join(" and ")
        )
    })
}

/// The effect of a new policy on the counts of the old one.
#[derive(Debug, Default)]
pub struct Changes {
    /// Counts that no limit continues, or that another limit takes over.
    pub forgotten: Vec<String>,
    /// Counts that continue with other parameters, or under another limit.
    pub moved: Vec<String>,
}

impl Changes {
    /// Computes the changes from `old` to `new`.
    pub fn between(old: &Policy, new: &Policy) -> Self {
        let mut changes = Self::default();
        for before in old.domains() {
            for policy_node in policy_nodes(before) {
                for limit in before.limits_at(policy_node.node) {
                    changes.of(before, &policy_node, limit, new);
                }
            }
        }
        for name in old.domains().chain(new.domains()).map(|domain| &domain.name) {
            let anchor = |policy: &Policy| policy.domain(name).map_or(DEFAULT_ANCHOR, |domain| domain.anchor);
            let (from, to) = (anchor(old), anchor(new));
            if from != to && [old, new].iter().all(|policy| policy.allows_spec(policy.domain(name))) {
                changes.forgotten.push(format!(
                    "{}: limits in requests (`limit_spec`) deeper than {}: anchor changes from {from} to {to}, so their counts are kept elsewhere",
                    shown(name),
                    from.min(to)
                ));
            }
        }
        for lines in [&mut changes.forgotten, &mut changes.moved] {
            lines.sort();
            lines.dedup();
        }
        changes
    }

    fn of(&mut self, before: &Domain, policy_node: &PolicyNode<'_>, limit: &Limit, new: &Policy) {
        let line = |text: String| format!("{}: `{}`: {text}", shown(&before.name), limit.name);
        let Some(after) = new.domain(&before.name) else {
            self.forgotten.push(line("its domain was removed".to_owned()));
            return;
        };
        let reached = reached(before, after, policy_node);
        if let Some(why) = why_forgotten([before, after], policy_node, limit, &reached) {
            self.forgotten.push(line(why));
            return;
        }
        for Reached { node, .. } in reached {
            let siblings = node.map_or(&[][..], |node| after.limits_at(node));
            let Some(heir) = siblings.iter().find(|other| other.ident() == limit.ident()) else { continue };
            if heir.written() == limit.written() && heir.name == limit.name {
                continue;
            }
            let [from, to] = [limit, heir].map(|limit| limit.written().describe());
            self.moved.push(line(format!("{from} continues as `{}` {to}", heir.name)));
            let is_still_there = |other: &&Limit| other.would_share_state(limit) && other.written() == limit.written();
            if heir.written() != limit.written() && siblings.iter().any(|other| is_still_there(&other)) {
                self.forgotten.push(line(format!("`{}` {to} takes over its count", heir.name)));
            }
        }
    }
}

fn why_forgotten(
    [before, after]: [&Domain; 2],
    policy_node: &PolicyNode<'_>,
    limit: &Limit,
    reached: &[Reached],
) -> Option<String> {
    let depth = policy_node.pattern.len();
    let at = |anchor: u8| depth.min(usize::from(anchor));
    if at(before.anchor) != at(after.anchor) {
        return Some(format!(
            "anchor changes from {} to {}, so its count is kept elsewhere",
            before.anchor, after.anchor
        ));
    }
    let goes_on = |one: &&Reached| {
        one.node.is_some_and(|node| after.limits_at(node).iter().any(|other| other.ident() == limit.ident()))
    };
    if let Some(Reached { path, .. }) = reached.iter().filter(goes_on).find(|one| one.is_shared_otherwise) {
        return Some(format!("keys of `{path}` share a count with other keys than before (share_threshold)"));
    }
    let Reached { path, node, .. } = reached.iter().find(|one| !goes_on(one))?;
    if node.is_none() {
        return Some(format!("`{path}` was removed"));
    }
    Some(no_limit_goes_on(path, limit))
}

fn no_limit_goes_on(path: &str, limit: &Limit) -> String {
    let ident = limit.ident_text();
    format!(
        "no limit at `{path}` continues its count (`{ident}`: algorithm, time base, then its name, or its place among the unnamed)"
    )
}

/// A node of a new domain that keys of a node of the old one reach.
struct Reached {
    path: String,
    /// `None`: they reach none.
    node: Option<NodeId>,
    /// Whether these keys share a count (`share_threshold`) with other keys than before.
    is_shared_otherwise: bool,
}

/// Returns the nodes of `after` that keys of a node of `before` reach. Keys of a `*` or a pattern also reach names and
/// patterns that only `after` has; for names and earlier patterns that `before` has too, they are keys of other nodes.
fn reached(before: &Domain, after: &Domain, policy_node: &PolicyNode<'_>) -> Vec<Reached> {
    let shared = |domain: &Domain, node| Some(domain.descriptors.as_deref()?.rule(node)?.shared()?.to_owned());
    let mut ends = vec![Reached { path: String::new(), node: Some(0), is_shared_otherwise: false }];
    let mut old = 0;
    for segment in &policy_node.pattern {
        // A pattern matches itself, unless an earlier one matches whatever it does.
        let Some((found, next_old)) = before.child(old, segment.as_bytes()) else { return Vec::new() };
        let shared_before = shared(before, next_old);
        let mut next = Vec::new();
        for end in ends {
            let mut reach = |name: &str, node: Option<NodeId>| {
                let slash = if end.path.is_empty() { "" } else { "/" };
                let is_other = node.is_some_and(|node| shared(after, node) != shared_before);
                let is_shared_otherwise = end.is_shared_otherwise || is_other;
                next.push(Reached { path: format!("{}{slash}{name}", end.path), node, is_shared_otherwise });
            };
            let same = end.node.and_then(|new| after.child(new, segment.as_bytes())).map(|(_, node)| node);
            reach(segment, same);
            let Some(new) = end.node.filter(|_| found != Found::Exact) else { continue };
            let is_reached = |(name, node): &(&str, NodeId)| {
                let text = common_text(segment, name).filter(|_| Some(*node) != same);
                let [was, is] =
                    [(before, old), (after, new)].map(|(domain, above)| domain.child(above, text.as_deref()?));
                was.is_some_and(|(_, was)| was == next_old) && is.is_some_and(|(_, is)| is == *node)
            };
            let mut others: Vec<_> = after.children(new).filter(is_reached).collect();
            others.sort_unstable();
            others.into_iter().for_each(|(name, node)| reach(name, Some(node)));
        }
        (ends, old) = (next, next_old);
    }
    if old == policy_node.node { ends } else { Vec::new() }
}

/// Returns the name of a domain in comparisons. Unlike its label in metrics, it differs from the
/// names of other domains.
pub(crate) fn distinct_name(domain: &str) -> String {
    let is_shared = !domain.is_empty() && domain == domain_label("");
    if is_shared { format!("domain {domain}") } else { domain_label(domain).to_owned() }
}

/// Returns a domain as messages name it.
pub fn shown(domain: &str) -> String {
    if domain.is_empty() { "default domain".to_owned() } else { format!("domain `{domain}`") }
}
