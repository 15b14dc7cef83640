//! Keys that meet limits by a `*` in one policy, and none in another one, where a node takes precedence over the `*`.

use super::item::Item;
use crate::{
    Policy,
    lint::distinct_name,
    tree::{Domain, Found, NodeId},
};

/// The keys of a node, with the limits that they meet in only one of the policies.
pub(super) struct Hidden<'a> {
    /// The name, such as `api:user/root`.
    pub name: String,
    pub limits: Vec<Item<'a>>,
}

/// Returns the keys that meet limits in `one`, and in `other` a node that hides these limits and has none. Domains of
/// descriptors are skipped: each of their descriptors is compared.
pub(super) fn hidden<'a>(one: &'a Policy, other: &Policy) -> Vec<Hidden<'a>> {
    let mut found = Vec::new();
    for domain in one.domains().filter(|domain| domain.descriptors.is_none()) {
        if let Some(other) = other.domain(&domain.name).filter(|other| other.descriptors.is_none()) {
            let path = Path { names: Vec::new(), is_hidden: false };
            Descent { one: domain, other, found: &mut found }.visit(0, Some(0), &path);
        }
    }
    found
}

/// A walk through both trees in parallel.
struct Descent<'a, 'f> {
    one: &'a Domain,
    other: &'f Domain,
    found: &'f mut Vec<Hidden<'a>>,
}

#[derive(Clone)]
struct Path<'p> {
    names: Vec<&'p str>,
    /// Whether a `*` of `one` matches a name that is a node in `other`.
    is_hidden: bool,
}

impl<'a, 'f> Descent<'a, 'f> {
    fn visit<'p>(&mut self, node: NodeId, other: Option<NodeId>, path: &Path<'p>)
    where
        'a: 'p,
        'f: 'p,
    {
        let (one, other_domain) = (self.one, self.other);
        if other.is_some_and(|other| !other_domain.limits_at(other).is_empty()) {
            return;
        }
        let limits = one.limits_at(node);
        if path.is_hidden && !limits.is_empty() {
            let name = format!("{}:{}", distinct_name(&one.name), path.names.join("/"));
            self.found.push(Hidden { name, limits: limits.iter().map(|limit| Item::limit(one, limit)).collect() });
        }
        for (name, child) in other.into_iter().flat_map(|other| other_domain.children(other)) {
            if let Some((found, in_one)) = one.child(node, name.as_bytes()) {
                self.visit(in_one, Some(child), &path.with(name, !is_by_name(found, name)));
            }
        }
        // If nothing is hidden, a limit of `one` at a node that `other` lacks is a difference with
        // its own name.
        for (name, child) in one.children(node).filter(|_| path.is_hidden) {
            let in_other = other.and_then(|other| other_domain.child(other, name.as_bytes()));
            if !in_other.is_some_and(|(found, _)| is_by_name(found, name)) {
                self.visit(child, in_other.map(|(_, id)| id), &path.with(name, false));
            }
        }
    }
}

fn is_by_name(found: Found, name: &str) -> bool {
    matches!(found, Found::Exact) || name == "*"
}

impl<'p> Path<'p> {
    fn with(&self, name: &'p str, is_hidden: bool) -> Self {
        let mut names = self.names.clone();
        names.push(name);
        Self { names, is_hidden: self.is_hidden || is_hidden }
    }
}
