//! The native format of policy files.

use std::collections::{HashMap, HashSet};

use super::{
    lease::{self, Lease},
    limits::{read_anchor, read_choice, read_flag, read_limits},
    tree::{Domain, NodeId},
};
use weir_core::{
    algorithm::Bounds,
    domain::{
        Charge, OnStoreFailure,
        key::{MAX_SEGMENT_BYTES, MAX_SEGMENTS},
        request::MAX_LEVELS,
    },
    plan::{Limit, Origin},
};
use weir_settings::{
    document::{Node, Value},
    fields::{read_entries, read_scalar},
    problem::{Mark, Problems},
};

/// The keys of a native policy file.
pub const FILE_KEYS: &[&str] = &[
    "domain",
    "charge",
    "on_store_failure",
    "limit_spec",
    "anchor",
    "lease",
    "shadow",
    "retry_jitter",
    "schema",
    "tests",
];
/// The keys of a node.
pub const NODE_KEYS: &[&str] = &["limits", "children", "factor"];

/// Reads one file's document into its domain.
///
/// # Errors
/// All problems of the document, each with its position.
pub fn read(document: &Node, bounds: &Bounds) -> Result<Domain, Problems> {
    let mut reader = Reader { domain: Domain::new(""), bounds: *bounds, lease: None, problems: Problems::default() };
    reader.file(document);
    if reader.problems.0.is_empty() { Ok(reader.domain) } else { Err(reader.problems) }
}

struct Reader {
    domain: Domain,
    bounds: Bounds,
    /// The default for limits without `lease`.
    lease: Lease,
    problems: Problems,
}

/// The state that a node inherits from its ancestors.
struct Inherited<'a> {
    node: NodeId,
    pattern: &'a str,
    depth: usize,
    limits: usize,
    factor: f64,
}

impl Reader {
    fn file(&mut self, document: &Node) {
        let Some(entries) = read_entries(document, "a policy file", FILE_KEYS, &[], &mut self.problems) else { return };
        for entry in entries {
            match entry.key.as_str() {
                "domain" => {
                    let must = format!("domain must be a string of at most {MAX_SEGMENT_BYTES} bytes");
                    let parse = |text: &str| (text.len() <= MAX_SEGMENT_BYTES).then(|| text.into());
                    self.domain.name = self.scalar(&entry.value, "domain", &must, parse).unwrap_or_default();
                }
                "charge" => {
                    let known = [Charge::AllOrNothing, Charge::Independent].map(|charge| (charge.name(), charge));
                    self.domain.charge = read_choice(entry, &known, &mut self.problems);
                }
                "on_store_failure" => {
                    let known = OnStoreFailure::ALL.map(|rule| (rule.name(), rule));
                    self.domain.on_store_failure = read_choice(entry, &known, &mut self.problems);
                }
                "limit_spec" => {
                    let known = [("allow", Some(true)), ("deny", Some(false))];
                    self.domain.allows_spec = read_choice(entry, &known, &mut self.problems);
                }
                "lease" => self.lease = lease::read(&entry.value, "lease", &mut self.problems),
                "shadow" => self.domain.shadow = read_flag(&entry.value, "shadow", &mut self.problems),
                "retry_jitter" => {
                    let must = "retry_jitter must be a number from 0 to 1";
                    let parse = |text: &str| text.parse().ok().filter(|jitter| (0.0..=1.0).contains(jitter));
                    self.domain.retry_jitter =
                        self.scalar(&entry.value, "retry_jitter", must, parse).unwrap_or_default();
                }
                "anchor" => self.domain.anchor = read_anchor(entry, &mut self.problems).unwrap_or(self.domain.anchor),
                _ => {}
            }
        }
        if self.domain.shadow && self.domain.on_store_failure == OnStoreFailure::Error {
            // A shadow domain lets every request pass.
            self.domain.on_store_failure = OnStoreFailure::Allow;
        }
        if let Some(schema) = entries.iter().find(|entry| entry.key == "schema") {
            let root = Inherited { node: 0, pattern: "", depth: 0, limits: 0, factor: 1.0 };
            self.children(&schema.value, "schema", &root);
        }
    }

    fn children(&mut self, node: &Node, what: &str, above: &Inherited<'_>) {
        let entries = match &node.value {
            Value::Null => return,
            Value::Map(entries) => entries,
            _ => {
                self.problem(node.mark, what, format!("{what} must map names to nodes, not {}", node.shown()));
                return;
            }
        };
        for entry in entries {
            let depth = above.depth + 1;
            if depth > MAX_SEGMENTS {
                let message = format!("no key is that deep: at most {MAX_SEGMENTS} segments");
                self.problem(entry.mark, what, message);
            } else if entry.key.is_empty() || entry.key.len() > MAX_SEGMENT_BYTES {
                self.problem(entry.mark, what, format!("a segment must have 1 to {MAX_SEGMENT_BYTES} bytes"));
            } else {
                let slash = if depth > 1 { "/" } else { "" };
                let pattern = format!("{}{slash}{}", above.pattern, entry.key);
                let node = self.domain.add_child(above.node, &entry.key);
                self.node(&entry.value, &Inherited { node, pattern: &pattern, depth, ..*above });
            }
        }
    }

    fn node(&mut self, node: &Node, inherited: &Inherited<'_>) {
        if matches!(node.value, Value::Null) {
            return;
        }
        let Some(entries) = read_entries(node, "a node", NODE_KEYS, &[], &mut self.problems) else { return };
        let find = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
        let factor = find("factor").map_or(inherited.factor, |node| self.factor(node, inherited.factor));
        if factor == 0.0 {
            self.domain.lift(inherited.node);
        } else if factor != inherited.factor {
            self.domain.divide(inherited.node);
        }
        let mut limits = inherited.limits;
        if let Some(node) = find("limits") {
            let compiled = self.limits(node, inherited, factor);
            limits += compiled.len();
            if limits > MAX_LEVELS {
                self.problem(node.mark, "limits", format!("{limits} limits on the path to here; at most {MAX_LEVELS}"));
            }
            self.domain.set_limits(inherited.node, compiled);
        }
        if let Some(children) = find("children") {
            self.children(children, "children", &Inherited { limits, factor, ..*inherited });
        }
    }

    fn limits(&mut self, node: &Node, inherited: &Inherited<'_>, factor: f64) -> Vec<Limit> {
        let parsed = read_limits(node, "limits", false, &self.bounds, &mut self.problems);
        let (mut ordinals, mut seen) = (HashMap::new(), HashSet::new());
        let mut limits = Vec::with_capacity(parsed.len());
        for parsed in parsed {
            let ordinal = ordinals.entry(parsed.params.name()).or_insert(0);
            let name = parsed.name.as_deref();
            let limit = Limit::new(Origin::Policy, name, inherited.pattern, *ordinal, parsed.shadow, parsed.params);
            let lease = parsed.lease.unwrap_or(self.lease);
            *ordinal += 1;
            if !seen.insert(limit.name.clone()) {
                self.problem(parsed.mark, "name", format!("two limits of one node are named `{}`", limit.name));
                continue;
            }
            match limit.under_policy_factor(factor) {
                Ok(limit) => limits.extend(limit.map(|limit| limit.with_lease(lease))),
                Err(error) => self.problem(parsed.mark, "factor", format!("under factor {factor}: {}", error.reason)),
            }
        }
        limits
    }

    /// Returns the factor of a node: its own times `above`, the product of its ancestors' factors.
    fn factor(&mut self, node: &Node, above: f64) -> f64 {
        let own = |text: &str| text.parse().ok().filter(|own: &f64| *own >= 0.0);
        let factor = |text: &str| own(text).map(|own| own * above).filter(|factor| factor.is_finite());
        self.scalar(node, "factor", "factor must be a number from 0", factor).unwrap_or(1.0)
    }

    fn scalar<T>(&mut self, node: &Node, field: &str, must: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        read_scalar(node, field, must, &mut self.problems, parse)
    }

    fn problem(&mut self, mark: Mark, field: &str, message: impl Into<String>) {
        self.problems.add(mark, field, message);
    }
}
