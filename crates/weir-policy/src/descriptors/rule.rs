//! The rules of a file of descriptors: its options in addition to the limits of the tree.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use crate::tree::{Domain, NodeId};
use weir_core::{domain::Key, plan::Limit};
use weir_settings::problem::{Problem, Problems};

/// The rules of a domain of descriptors.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    pub(super) rules: HashMap<NodeId, Rule, foldhash::fast::RandomState>,
    /// Whether every descriptor that is not unlimited counts as one with `quota_mode`.
    pub quota_mode: bool,
    /// Whether any rule has `share_threshold`.
    pub(super) shares: bool,
    /// Whether any rule has `detailed_metric` or `value_to_metric`.
    pub(super) shows_values: bool,
    /// Warnings with their positions.
    pub(super) notes: Problems,
}

/// One descriptor of a file.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The value, as the file writes it.
    pub value: ValuePattern,
    /// One for each `rate_limit`, in order: for the node's limits, or a single `unlimited` one.
    pub limits: Box<[RuleLimit]>,
    /// `unlimited`: explicitly without a limit.
    pub unlimited: bool,
    /// `shadow_mode`: its limits count but never refuse.
    pub shadow: bool,
    /// `quota_mode`: descriptors with it refuse a request only when all of them are over limit.
    pub quota: bool,
    /// `share_threshold`: all values that match the pattern share one count.
    pub share_threshold: bool,
    /// `detailed_metric`: metrics show the request's values of all entries.
    pub detailed_metric: bool,
    /// `value_to_metric`: metrics show the request's value of this entry, where the file has a pattern or no value.
    pub value_to_metric: bool,
    /// The metadata for responses, while the descriptor is not over limit.
    pub metadata: Option<serde_json::Value>,
    /// The limits in a plan over several descriptors, if they differ from the node's limits.
    pub(super) combined_limits: Option<Box<[Limit]>>,
}

/// The value of a descriptor, as a file writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValuePattern {
    /// No value: matches any.
    Any,
    /// An exact value.
    Exact(Box<str>),
    /// A value with `*`, each of which matches any text.
    Pattern(Box<str>),
}

/// One `rate_limit` of a descriptor, without its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleLimit {
    /// The name, if it has one.
    pub name: Option<Box<str>>,
    /// The name, or else the algorithm with its ordinal among the limits of that algorithm.
    pub kind: Box<str>,
    /// The names of limits that do not apply to requests that meet this one.
    pub replaces: Box<[Box<str>]>,
}

impl ValuePattern {
    /// Returns the value as names of limits show it.
    pub fn text(&self) -> &str {
        match self {
            Self::Any => "*",
            Self::Exact(text) | Self::Pattern(text) => text,
        }
    }
}

impl Rule {
    /// Whether both rules are the same, except for the parameters of limits.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let flags = |rule: &Self| {
            let Self { unlimited, shadow, quota, share_threshold, detailed_metric, value_to_metric, .. } = rule;
            [*unlimited, *shadow, *quota, *share_threshold, *detailed_metric, *value_to_metric]
        };
        let is_written_alike = self.value == other.value && self.limits == other.limits;
        is_written_alike && flags(self) == flags(other) && self.metadata == other.metadata
    }
}

impl Descriptors {
    /// Returns the rule of a node; `None` for the nodes of keys, between an entry and its values.
    pub fn rule(&self, node: NodeId) -> Option<&Rule> {
        self.rules.get(&node)
    }

    /// Returns the names of the limits.
    pub(crate) fn limit_names(&self) -> HashSet<&str> {
        self.rules.values().flat_map(|rule| &rule.limits).filter_map(|limit| limit.name.as_deref()).collect()
    }

    /// Whether a request may pass that exceeds one of its limits: one in shadow mode, or a quota among others.
    pub(crate) fn has_exceedable(&self) -> bool {
        self.rules.values().any(|rule| !rule.limits.is_empty() && (self.quota_mode || rule.shadow || rule.quota))
    }

    /// Returns the warnings, with their positions.
    pub(crate) fn notes(&self) -> &[Problem] {
        &self.notes.0
    }

    /// Sets the file of the notes that have none yet.
    pub(crate) fn noted_in(&mut self, file: &Path) {
        for note in self.notes.0.iter_mut().filter(|note| note.file.as_os_str().is_empty()) {
            note.file = file.to_owned();
        }
    }
}

impl Rule {
    /// Returns the pattern that replaces the value in the key (`share_threshold`).
    pub(crate) fn shared(&self) -> Option<&str> {
        match &self.value {
            ValuePattern::Pattern(pattern) if self.share_threshold => Some(pattern),
            _ => None,
        }
    }

    /// Returns the limits for a plan over several descriptors; `alone` are the limits of the node. The caller derives
    /// the refusal from the levels, so where each descriptor is charged on its own none of these limits is a shadow.
    /// Under `all_or_nothing` the limits of `quota_mode` descriptors are shadows too, since none of them refuses on
    /// its own.
    pub fn combined_limits<'a>(&'a self, alone: &'a [Limit]) -> &'a [Limit] {
        self.combined_limits.as_deref().unwrap_or(alone)
    }
}

impl Domain {
    /// Returns the key under which `key` is counted together with others (`share_threshold`); `None`: under `key`
    /// itself. Both keys reach the same nodes: a pattern matches itself, and an earlier pattern that matched it would
    /// match the value too.
    pub fn shared_key(&self, key: &Key) -> Option<Key> {
        let descriptors = self.descriptors.as_ref().filter(|descriptors| descriptors.shares)?;
        let (mut segments, mut shares) = (Vec::new(), false);
        let mut walk = self.walk(key).map(|(_, _, node)| descriptors.rule(node).and_then(Rule::shared));
        for segment in key.segments() {
            let shared = walk.next().flatten().filter(|pattern| pattern.as_bytes() != segment);
            shares |= shared.is_some();
            segments.push(shared.unwrap_or(std::str::from_utf8(segment).unwrap_or_default()));
        }
        if shares { Key::new(&self.name, &segments).ok() } else { None }
    }

    /// Whether keys with other segments count together with this one (`share_threshold`). An override that acts on it does
    /// not act on them.
    pub fn shares_counts<'s>(&self, segments: impl Iterator<Item = &'s [u8]>) -> bool {
        let Some(descriptors) = self.descriptors.as_ref().filter(|descriptors| descriptors.shares) else {
            return false;
        };
        self.walk_along(segments).any(|(_, _, node)| descriptors.rule(node).and_then(Rule::shared).is_some())
    }

    /// Gives the copies of limits the indexes of their originals.
    pub(crate) fn number_copies(&mut self) {
        let Some(mut descriptors) = self.descriptors.take() else { return };
        for (node, rule) in &mut descriptors.rules {
            for (copy, limit) in rule.combined_limits.iter_mut().flatten().zip(self.limits_at(*node)) {
                copy.index = limit.index;
            }
        }
        self.descriptors = Some(descriptors);
    }
}
