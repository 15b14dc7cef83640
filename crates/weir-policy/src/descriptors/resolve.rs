//! From a request's descriptor to the rule that it meets.

use smallvec::SmallVec;

use super::rule::{Descriptors, Rule};
use crate::tree::{Domain, NodeId};
use weir_core::{domain::Key, plan::Limit};

/// The match of a descriptor.
#[derive(Debug)]
pub struct Met<'a> {
    /// Its rule in the file.
    pub rule: &'a Rule,
    /// The node's limits, as they stand alone.
    pub limits: &'a [Limit],
}

/// One entry on the way of a descriptor through the tree.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The node that it leads to.
    pub node: NodeId,
    /// Its rule in the file.
    pub rule: &'a Rule,
}

/// The way of a descriptor through the tree, entry by entry, until none fits.
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
) -> Option<Met<'a>> {
    let (mut met, mut reached) = (None, 0);
    for step in steps(domain, descriptors, entries.clone()) {
        (met, reached) = (Some(step), reached + 1);
    }
    let Step { node, rule, .. } = met?;
    (entries.count() == reached).then(|| Met { rule, limits: domain.limits_at(node) })
}

/// The key of a descriptor's states: its own entries, but the pattern in place of a value that counts together with others.
/// The descriptor is one that meets a rule.
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

/// The way of a descriptor as metrics show it where the file asks for the request's values; `None` where it does not. The
/// descriptor is one that meets a rule.
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
