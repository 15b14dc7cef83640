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

/// Returns all items of a policy by name. Limits of one name at one node share an entry.
pub(super) fn items(policy: &Policy) -> BTreeMap<String, Vec<Item<'_>>> {
    let mut items = BTreeMap::<_, Vec<_>>::new();
    for domain in policy.domains() {
        let shown = distinct_name(&domain.name);
        let item = |pattern: &[_], kind| Item { domain, pattern: pattern.to_vec(), kind };
        items.entry(shown.clone()).or_default().push(item(&[], ItemKind::Settings));
        for policy_node in policy_nodes(domain) {
            let rule = domain.descriptors.as_ref().and_then(|all| all.rule(policy_node.node));
            if let Some(rule) = rule {
                let path = format!("{shown}:{}", policy_node.pattern.join("/"));
                items.entry(path).or_default().push(item(&policy_node.pattern, ItemKind::Rule(rule)));
            }
            for limit in domain.limits_at(policy_node.node) {
                let limit_item = item(&policy_node.pattern, ItemKind::Limit(limit));
                items.entry(name(&shown, &policy_node, limit)).or_default().push(limit_item);
            }
        }
    }
    items
}

/// Returns the name of a limit: `api:user/*#per-user`, or `api:user/*#gcra0` for an unnamed one.
fn name(domain: &str, policy_node: &PolicyNode<'_>, limit: &Limit) -> String {
    if limit.is_named() {
        format!("{domain}:{}#{}", policy_node.pattern.join("/"), limit.name)
    } else {
        format!("{domain}:{}", limit.name)
    }
}

impl<'a> Item<'a> {
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
