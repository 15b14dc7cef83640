//! Resolution of a request's descriptor to its rule.

use smallvec::SmallVec;

use super::rule::{Descriptors, Rule};
use crate::tree::{Domain, NodeId};
use weir_core::{domain::Key, plan::Limit};

/// The match of a descriptor.
#[derive(Debug)]
pub struct Match<'a> {
    /// Its rule in the file.
    pub rule: &'a Rule,
    /// The limits of its node, for a request with this descriptor alone; see [`Rule::combined_limits`].
    pub limits: &'a [Limit],
}

/// A matched entry of a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The node of its value.
    pub node: NodeId,
    /// Its rule in the file.
    pub rule: &'a Rule,
}

/// Walks the tree along the entries of a descriptor, up to the first entry without a match.
pub fn steps<'a>(
    domain: &'a Domain,
    descriptors: &'a Descriptors,
    entries: impl Iterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = Step<'a>> {
    let mut node = 0;
    entries.map_while(move |(key, value)| {
        let (_, below) = domain.child(node, key.as_bytes())?;
        let (_, id) = domain.child(below, value.as_bytes())?;
        node = id;
        Some(Step { node, rule: descriptors.rule(id)? })
    })
}

/// Resolves a descriptor: every entry must match, and the limits of the last one apply. `None`: no match.
pub fn resolve<'a>(
    domain: &'a Domain,
    descriptors: &'a Descriptors,
    entries: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Option<Match<'a>> {
    let (mut last, mut reached) = (None, 0);
    for step in steps(domain, descriptors, entries.clone()) {
        (last, reached) = (Some(step), reached + 1);
    }
    let Step { node, rule, .. } = last?;
    (entries.count() == reached).then(|| Match { rule, limits: domain.limits_at(node) })
}

/// Returns the key of a descriptor's states: its entries, with the pattern in place of a value that shares its count
/// (`share_threshold`). The descriptor must match a rule.
pub fn key<'a>(
    domain: &'a Domain,
    descriptors: &'a Descriptors,
    entries: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Key {
    if !descriptors.shares {
        return Key::of_any(&domain.name, entries.flat_map(|(key, value)| [key, value]));
    }
    let values = steps(domain, descriptors, entries.clone()).zip(entries);
    let segments = values.flat_map(|(step, (key, value))| [key, step.rule.shared().unwrap_or(value)]);
    Key::of_any(&domain.name, segments)
}

/// Returns the segments of a descriptor that all values with its counts (`share_threshold`) have in common, with an empty
/// one, which no name is, in place of such a value; `None` if it shares none.
pub fn common_segments<'a>(
    domain: &'a Domain,
    descriptors: &'a Descriptors,
    entries: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Option<Vec<&'a str>> {
    let is_shared = |step: &Step<'_>| step.rule.shared().is_some();
    if !descriptors.shares || !steps(domain, descriptors, entries.clone()).any(|step| is_shared(&step)) {
        return None;
    }
    let values = steps(domain, descriptors, entries.clone()).zip(entries);
    let segments = values.flat_map(|(step, (key, value))| [key, if is_shared(&step) { "" } else { value }]);
    Some(segments.collect())
}

/// Returns a descriptor's path for metrics, where the file exposes request values (`detailed_metric`,
/// `value_to_metric`); else `None`. The descriptor must match a rule.
pub fn values_in_metrics<'a>(
    domain: &'a Domain,
    descriptors: &'a Descriptors,
    entries: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Option<String> {
    if !descriptors.shows_values {
        return None;
    }
    let steps: SmallVec<[Step<'_>; 4]> = steps(domain, descriptors, entries.clone()).collect();
    let in_full = steps.last()?.rule.detailed_metric;
    if !in_full && !steps.iter().any(|step| step.rule.value_to_metric) {
        return None;
    }
    let mut path = String::new();
    for (Step { rule, .. }, (key, value)) in steps.iter().zip(entries) {
        // Values that share a count share a name.
        let value = match rule.shared() {
            Some(pattern) => pattern,
            None if in_full || rule.value_to_metric => value,
            None => rule.value.text(),
        };
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(key);
        path.push('/');
        path.push_str(value);
    }
    Some(path)
}
