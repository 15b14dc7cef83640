//! Reading of one descriptor of a file, with its nested descriptors.

use super::{
    file::Reader,
    metadata,
    rate_limit::{self, RateLimit},
    rule::{Rule, RuleLimit, ValuePattern},
};
use crate::tree::{NodeId, Pattern};
use weir_core::{
    domain::{Charge, key::MAX_SEGMENTS, request::MAX_LEVELS},
    plan::{Limit, Origin},
};
use weir_settings::document::{Entry, Node, Value};

/// Maximum nesting depth: each entry is two segments of a key.
const MAX_ENTRIES: usize = MAX_SEGMENTS / 2;

const DESCRIPTOR_KEYS: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
/// The parent of a list of descriptors.
pub(super) struct Parent<'a> {
    node: NodeId,
    pattern: &'a str,
    depth: usize,
}

impl Parent<'_> {
    /// The parent of the top-level list of a file.
    pub(crate) const ROOT: Self = Self { node: 0, pattern: "", depth: 0 };
}

impl Reader {
    /// Reads a list of descriptors.
    pub(crate) fn descriptors(&mut self, node: &Node, parent: &Parent<'_>) {
        match &node.value {
            Value::Null => {}
            Value::List(items) => items.iter().for_each(|item| self.descriptor(item, parent)),
            _ => {
                let message = format!("descriptors must be a list of maps, not {}", node.kind());
                self.problem(node.mark, "descriptors", message);
            }
        }
    }

    fn descriptor(&mut self, node: &Node, parent: &Parent<'_>) {
        let Some(entries) = self.map(node, "a descriptor", DESCRIPTOR_KEYS) else { return };
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        let key = self.text(find("key"));
        let value = self.text(find("value"));
        let (Some(key), Some(value)) = (key, value) else { return };
        if key.is_empty() {
            return self.problem(node.mark, "key", "a descriptor needs a key that is not empty");
        }
        if parent.depth == MAX_ENTRIES {
            return self.problem(node.mark, "descriptors", format!("descriptors nest at most {MAX_ENTRIES} deep"));
        }
        if key.contains('*') {
            self.note(node.mark, format!("the key `{key}` cannot be a pattern; only a value can"));
        }
        let value = match value {
            "" => ValuePattern::Any,
            _ if value.contains('*') => ValuePattern::Pattern(value.into()),
            _ => ValuePattern::Exact(value.into()),
        };
        let slash = if parent.depth > 0 { "/" } else { "" };
        let pattern = format!("{}{slash}{key}/{}", parent.pattern, value.text());
        let Some(place) = self.add_node(parent.node, key, &value) else {
            let shown = if value == ValuePattern::Any { format!("{key} without a value") } else { pattern.clone() };
            return self.problem(node.mark, "key", format!("duplicate descriptor `{shown}`"));
        };
        let rule = self.rule(node, entries, value, (place, &pattern));
        self.rules.rules.insert(place, rule);
        if let Some(entry) = find("descriptors") {
            self.descriptors(&entry.value, &Parent { node: place, pattern: &pattern, depth: parent.depth + 1 });
        }
    }

    /// Adds the node of a descriptor; `None`: the descriptor is a duplicate.
    fn add_node(&mut self, parent: NodeId, key: &str, value: &ValuePattern) -> Option<NodeId> {
        let below = self.domain.add_exact(parent, key);
        let node = match value {
            ValuePattern::Any => self.domain.add_any(below),
            ValuePattern::Exact(value) => self.domain.add_exact(below, value),
            ValuePattern::Pattern(value) if self.domain.has_pattern(below, value) => return None,
            ValuePattern::Pattern(value) => self.domain.add_pattern(below, Pattern::new(value)),
        };
        (!self.rules.rules.contains_key(&node)).then_some(node)
    }

    /// Reads the options and limits of a descriptor, and sets the limits of its node.
    fn rule(&mut self, node: &Node, entries: &[Entry], value: ValuePattern, place: (NodeId, &str)) -> Rule {
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        let mut flag = |key: &str| find(key).is_some_and(|entry| self.flag(entry));
        let (shadow, quota) = (flag("shadow_mode"), flag("quota_mode"));
        let (detailed_metric, value_to_metric) = (flag("detailed_metric"), flag("value_to_metric"));
        let share_threshold = flag("share_threshold");
        if share_threshold && !matches!(value, ValuePattern::Pattern(_)) {
            let message = format!("share_threshold is for values with a `*`; the value of `{}` has none", place.1);
            self.problem(node.mark, "share_threshold", message);
        }
        let metadata = find("metadata").and_then(|entry| match metadata::read(&entry.value) {
            Ok(metadata) => metadata,
            Err((mark, message)) => {
                self.problem(mark, "metadata", message);
                None
            }
        });
        let read = find("rate_limit").map(|entry| self.rate_limits(entry)).unwrap_or_default();
        let unlimited = read.iter().any(|limit| limit.params.is_none());
        let (limits, tree): (Vec<_>, Vec<_>) = self.limits(read, place.1, shadow).into_iter().unzip();
        let tree: Vec<_> = tree.into_iter().flatten().collect();
        let combined_shadow = self.domain.charge == Charge::AllOrNothing && (shadow || quota || self.rules.quota_mode);
        let copy = |limit: &Limit| {
            let mut copy = limit.clone();
            copy.shadow = combined_shadow;
            copy
        };
        let combined_limits = (combined_shadow != shadow).then(|| tree.iter().map(copy).collect());
        self.domain.set_limits(place.0, tree);
        Rule {
            value,
            limits: limits.into(),
            unlimited,
            shadow,
            quota,
            share_threshold,
            detailed_metric,
            value_to_metric,
            metadata,
            combined_limits,
        }
    }

    fn rate_limits(&mut self, entry: &Entry) -> Vec<RateLimit> {
        let node = &entry.value;
        let items = match &node.value {
            Value::Null => return Vec::new(),
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let charge_denied = self.domain.charge != Charge::AllOrNothing;
        let mut found = Vec::new();
        for item in items {
            if let Some(limit) = rate_limit::read(item, charge_denied, &self.bounds, &mut self.problems) {
                if limit.lacks_count {
                    self.note(item.mark, "requests_per_unit is missing: nothing is allowed");
                }
                self.misplaced(item, rate_limit::KEYS);
                found.push(limit);
            }
        }
        if found.len() > 1 && found.iter().any(|limit| limit.params.is_none()) {
            self.problem(node.mark, "rate_limit", "an unlimited descriptor cannot have a limit");
        }
        if found.len() > MAX_LEVELS {
            let message = format!("{} limits on one descriptor; at most {MAX_LEVELS}", found.len());
            self.problem(node.mark, "rate_limit", message);
        }
        let names: Vec<_> = found.iter().filter_map(|limit| limit.name.clone()).collect();
        for limit in &found {
            if limit.replaces.iter().any(|name| names.contains(name)) {
                self.problem(limit.mark, "replaces", "a limit cannot replace one of its own descriptor");
            }
        }
        found
    }

    /// Returns the rule of each `rate_limit`, with its limit unless it is unlimited.
    fn limits(&mut self, read: Vec<RateLimit>, pattern: &str, shadow: bool) -> Vec<(RuleLimit, Option<Limit>)> {
        let mut made: Vec<(RuleLimit, Option<Limit>)> = Vec::new();
        let mut algorithms = Vec::new();
        for RateLimit { mark, name, replaces, params, .. } in read {
            let Some(params) = params else {
                made.push((RuleLimit { name, kind: "unlimited".into(), replaces }, None));
                continue;
            };
            let ordinal = algorithms.iter().filter(|name| **name == params.name()).count();
            algorithms.push(params.name());
            let kind = name.clone().unwrap_or_else(|| format!("{}{ordinal}", params.name()).into());
            if made.iter().any(|(other, _)| other.kind == kind) {
                self.problem(mark, "name", format!("duplicate limit name `{kind}` in one descriptor"));
            }
            let limit = Limit::new(Origin::Policy, name.as_deref(), pattern, ordinal, shadow, params);
            made.push((RuleLimit { name, kind, replaces }, Some(limit)));
        }
        made
    }
}
