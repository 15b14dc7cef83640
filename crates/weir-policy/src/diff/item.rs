//! The named items of a policy, which a diff compares.

use std::collections::BTreeMap;

use super::Effect;
use crate::{
    Policy,
    descriptors::Rule,
    lint::{PolicyNode, distinct_name, policy_nodes},
    tree::Domain,
};
use weir_core::{domain::time::format_duration, plan::Limit};

/// One item of a policy, with its node.
pub(super) struct Item<'a> {
    domain: &'a Domain,
    /// The segments of its node.
    pattern: Vec<&'a str>,
    kind: ItemKind<'a>,
}

enum ItemKind<'a> {
    /// The settings of the domain.
    Settings,
    Limit(&'a Limit),
    Rule(&'a Rule),
}

/// An item of each policy, to be compared; empty if a policy lacks it. Limits of one name at one node are compared
/// together.
pub(super) struct Pair<'a> {
    pub name: String,
    pub before: Vec<Item<'a>>,
    pub after: Vec<Item<'a>>,
}

/// Returns the items of two policies in pairs, sorted by name.
pub(super) fn pairs<'a>(old: &'a Policy, new: &'a Policy) -> Vec<Pair<'a>> {
    let mut groups = BTreeMap::<_, [Vec<_>; 2]>::new();
    for (side, policy) in [old, new].into_iter().enumerate() {
        // By the node too: `a/b` is also the name of a segment.
        let group = |item: &Item<'a>| {
            let is_unnamed = item.unnamed_limit().is_some();
            (item.group(), &*item.domain.name, item.pattern.clone(), is_unnamed)
        };
        each(policy, |item| groups.entry(group(&item)).or_default()[side].push(item));
    }
    let pairs = groups.into_iter().flat_map(|((name, _, _, is_unnamed), [before, after])| {
        if is_unnamed { pairs_of_unnamed(before, after) } else { vec![Pair { name, before, after }] }
    });
    pairs.collect()
}

/// Pairs the unnamed limits of one algorithm at one node, whose names are only their places in the file: equal ones, then
/// those with the same states, and the rest in order.
fn pairs_of_unnamed<'a>(mut before: Vec<Item<'a>>, after: Vec<Item<'a>>) -> Vec<Pair<'a>> {
    let new = |item: Item<'a>| Pair { name: item.name(), before: Vec::new(), after: vec![item] };
    let mut pairs: Vec<_> = after.into_iter().map(new).collect();
    for is_same in [Item::eq, Item::has_states_of, |_: &Item<'_>, _: &Item<'_>| true] {
        for pair in pairs.iter_mut().filter(|pair| pair.before.is_empty()) {
            let found = before.iter().position(|one| is_same(one, &pair.after[0]));
            pair.before.extend(found.map(|index| before.remove(index)));
        }
    }
    // Two differences of one name could not be told apart.
    for Pair { name, before, after } in &mut pairs {
        if let [Some(before), Some(after)] = [&*before, &*after].map(|items| items.first()?.unnamed_limit())
            && before.name != after.name
        {
            name.push_str(&format!(" (was {})", before.name));
        }
    }
    pairs.extend(before.into_iter().map(|item| Pair { name: item.name(), before: vec![item], after: Vec::new() }));
    pairs
}

/// Visits all items of a policy.
fn each<'a>(policy: &'a Policy, mut visit: impl FnMut(Item<'a>)) {
    for domain in policy.domains() {
        let item = |pattern: &[_], kind| Item { domain, pattern: pattern.to_vec(), kind };
        visit(item(&[], ItemKind::Settings));
        for PolicyNode { pattern, node } in policy_nodes(domain) {
            if let Some(rule) = domain.descriptors.as_ref().and_then(|all| all.rule(node)) {
                visit(item(&pattern, ItemKind::Rule(rule)));
            }
            domain.limits_at(node).iter().for_each(|limit| visit(item(&pattern, ItemKind::Limit(limit))));
        }
    }
}

impl<'a> Item<'a> {
    /// Returns the name: `api`, `api:user/*`, `api:user/*#per-user`, or `api:user/*#gcra0` for an unnamed limit.
    fn name(&self) -> String {
        let Some(limit) = self.unnamed_limit() else { return self.group() };
        format!("{}:{}", distinct_name(&self.domain.name), limit.name)
    }

    /// Returns the name, without the place of an unnamed limit: `api:user/*#gcra`.
    fn group(&self) -> String {
        let (domain, path) = (distinct_name(&self.domain.name), self.pattern.join("/"));
        match self.kind {
            ItemKind::Settings => domain,
            ItemKind::Rule(_) => format!("{domain}:{path}"),
            ItemKind::Limit(limit) if limit.is_named() => format!("{domain}:{path}#{}", limit.name),
            ItemKind::Limit(limit) => format!("{domain}:{path}#{}", limit.params.name()),
        }
    }

    fn unnamed_limit(&self) -> Option<&'a Limit> {
        match self.kind {
            ItemKind::Limit(limit) if !limit.is_named() => Some(limit),
            _ => None,
        }
    }

    /// Whether two limits have the same states.
    fn has_states_of(&self, other: &Self) -> bool {
        matches!((&self.kind, &other.kind), (ItemKind::Limit(one), ItemKind::Limit(other)) if one.ident() == other.ident())
    }

    /// Makes the item of a limit, without its node.
    pub(super) fn limit(domain: &'a Domain, limit: &'a Limit) -> Self {
        Self { domain, pattern: Vec::new(), kind: ItemKind::Limit(limit) }
    }
}

impl Item<'_> {
    pub(super) fn is_limit(&self) -> bool {
        matches!(self.kind, ItemKind::Limit(_))
    }

    /// Whether keys of its node meet a limit in this policy; always true in a domain of descriptors.
    pub(super) fn is_limited_in(&self, policy: &Policy) -> bool {
        let Some(domain) = policy.domain(&self.domain.name) else { return false };
        let mut node = 0;
        for segment in &self.pattern {
            let Some((_, child)) = domain.child(node, segment.as_bytes()) else { break };
            if !domain.limits_at(child).is_empty() {
                return true;
            }
            node = child;
        }
        domain.descriptors.is_some()
    }

    /// Formats the item in one line.
    pub(super) fn describe(&self) -> String {
        match self.kind {
            ItemKind::Settings => settings(self.domain).map(|(name, value)| format!("{name}: {value}")).join(", "),
            ItemKind::Limit(limit) => {
                let shadow = if limit.shadow { ", shadow" } else { "" };
                let leased = limit.lease().map(|ttl| format!(", lease {}", format_duration(ttl))).unwrap_or_default();
                format!("{} {}{shadow}{leased}", limit.params.name(), limit.params.describe())
            }
            ItemKind::Rule(rule) => {
                let flags = [
                    ("unlimited", rule.unlimited),
                    ("shadow_mode", rule.shadow),
                    ("quota_mode", rule.quota),
                    ("share_threshold", rule.share_threshold),
                    ("detailed_metric", rule.detailed_metric),
                    ("value_to_metric", rule.value_to_metric),
                ];
                let set = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned());
                let replacing = rule.limits.iter().filter(|limit| !limit.replaces.is_empty());
                let replaces = replacing.map(|limit| format!("replaces {}", limit.replaces.join(" and ")));
                let metadata = rule.metadata.iter().map(|metadata| format!("metadata {metadata}"));
                let parts: Vec<_> = set.chain(replaces).chain(metadata).collect();
                if parts.is_empty() { "a descriptor".to_owned() } else { format!("a descriptor: {}", parts.join(", ")) }
            }
        }
    }

    /// Describes the effect on keys of a change to `other`, a line each.
    pub(super) fn describe_change(&self, other: &Self) -> Vec<String> {
        match (&self.kind, &other.kind) {
            (ItemKind::Settings, ItemKind::Settings) => {
                let pairs = settings(self.domain).into_iter().zip(settings(other.domain));
                let differ = pairs.filter(|((_, before), (_, after))| before != after);
                differ.map(|((name, before), (_, after))| format!("{name}: {before} -> {after}")).collect()
            }
            (ItemKind::Limit(one), ItemKind::Limit(other)) => limit_changes(one, other),
            _ => Vec::new(),
        }
    }

    /// Returns the change of burst and rate, if the parameters of a limit differ.
    pub(super) fn effect_of(&self, other: &Self) -> Option<Effect> {
        match (&self.kind, &other.kind) {
            (ItemKind::Limit(one), ItemKind::Limit(other)) => {
                (one.params != other.params).then(|| Effect::of(&one.params, &other.params))
            }
            _ => None,
        }
    }
}

fn limit_changes(one: &Limit, other: &Limit) -> Vec<String> {
    let mut lines = Vec::new();
    if one.params != other.params {
        lines.push(Effect::of(&one.params, &other.params).to_string());
    }
    match (one.shadow, other.shadow) {
        (true, false) => lines.push("shadow is turned off: it refuses from now on".to_owned()),
        (false, true) => lines.push("shadow is turned on: it refuses nothing any more".to_owned()),
        _ => {}
    }
    if one.lease() != other.lease() {
        let lease = |limit: &Limit| limit.lease().map_or_else(|| "none".to_owned(), format_duration);
        lines.push(format!("lease: {} -> {}", lease(one), lease(other)));
    }
    lines
}

fn settings(domain: &Domain) -> [(&'static str, String); 6] {
    domain.settings("by default")
}

/// Equality of the values, not of the nodes.
impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (ItemKind::Settings, ItemKind::Settings) => {
                let (one, other) = (self.domain, other.domain);
                settings(one) == settings(other) && one.descriptors.is_some() == other.descriptors.is_some()
            }
            // Without `index`, which changes with the limits before it.
            (ItemKind::Limit(one), ItemKind::Limit(other)) => {
                (one.shadow, one.lease(), &one.params, one.written())
                    == (other.shadow, other.lease(), &other.params, other.written())
            }
            (ItemKind::Rule(one), ItemKind::Rule(other)) => one.is_same(other),
            _ => false,
        }
    }
}
