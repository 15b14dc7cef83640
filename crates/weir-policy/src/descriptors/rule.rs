//! The rules of a file of descriptors, beside the limits of its tree.

use std::{collections::HashMap, path::Path};

use crate::tree::{Domain, NodeId};
use weir_core::{domain::Key, plan::Limit};
use weir_settings::problem::{Problem, Problems};

/// The domain of a file of descriptors.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    pub(super) rules: HashMap<NodeId, Rule, foldhash::fast::RandomState>,
    /// Whether any state is shared by several values.
    pub(super) shares: bool,
    /// Whether metrics show any value of requests.
    pub(super) shows_values: bool,
    /// Warnings with their positions.
    pub(super) notes: Problems,
}

/// One descriptor of a file.
#[derive(Clone, Debug)]
pub struct Rule {
    /// How its value is written.
    pub value: Written,
    /// One for each `rate_limit`, in order: those of the node's limits, or the one that says `unlimited`.
    pub limits: Box<[RuleLimit]>,
    /// It has no limit, and says so.
    pub unlimited: bool,
    /// Its limits are counted, and what is over them passes.
    pub shadow: bool,
    /// A request is refused by such descriptors only when all of them are over.
    pub quota: bool,
    /// All values that its pattern fits count together.
    pub share_threshold: bool,
    /// Metrics show the values of the request.
    pub detailed_metric: bool,
    /// Metrics show the value of the request for this entry, where the file has a pattern or nothing.
    pub value_to_metric: bool,
    /// Its metadata in responses, when it is not over limit.
    pub metadata: Option<serde_json::Value>,
    /// The limits as they stand among those of other descriptors, where not as they stand alone.
    pub(super) among_others: Option<Box<[Limit]>>,
}

/// How a file writes a descriptor's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Not at all: any value.
    Any,
    /// As it is.
    Exact(Box<str>),
    /// With `*`, each standing for any text.
    Pattern(Box<str>),
}

/// One `rate_limit` of a descriptor, without its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleLimit {
    /// Its name, where it has one.
    pub name: Option<Box<str>>,
    /// The same, or else its algorithm with the ordinal among those of its kind.
    pub kind: Box<str>,
    /// The names of limits that do not count in requests that meet this one.
    pub replaces: Box<[Box<str>]>,
}

impl Written {
    /// As names of limits show it.
    pub fn text(&self) -> &str {
        match self {
            Self::Any => "*",
            Self::Exact(text) | Self::Pattern(text) => text,
        }
    }
}

impl Rule {
    /// Whether the files of both say the same here, but for the parameters of limits.
    pub(crate) fn says_the_same(&self, other: &Self) -> bool {
        let flags = |rule: &Self| {
            let Self { unlimited, shadow, quota, share_threshold, detailed_metric, value_to_metric, .. } = rule;
            [*unlimited, *shadow, *quota, *share_threshold, *detailed_metric, *value_to_metric]
        };
        let is_written_alike = self.value == other.value && self.limits == other.limits;
        is_written_alike && flags(self) == flags(other) && self.metadata == other.metadata
    }
}

impl Descriptors {
    /// The rule of a node; `None` for nodes between a key and its values.
    pub fn rule(&self, node: NodeId) -> Option<&Rule> {
        self.rules.get(&node)
    }

    /// Warnings with their positions.
    pub(crate) fn notes(&self) -> &[Problem] {
        &self.notes.0
    }

    /// Says that what was noted without a file stands in this one.
    pub(crate) fn noted_in(&mut self, file: &Path) {
        for note in self.notes.0.iter_mut().filter(|note| note.file.as_os_str().is_empty()) {
            note.file = file.to_owned();
        }
    }
}

impl Rule {
    /// What replaces its value in the key.
    pub(super) fn shared(&self) -> Option<&str> {
        match &self.value {
            Written::Pattern(pattern) if self.share_threshold => Some(pattern),
            _ => None,
        }
    }

    /// The limits as a plan over several descriptors has them: `alone` are those of the node. What refuses there is for
    /// whoever asks to say, so where each descriptor is charged for itself none of them is a shadow; where a refusal charges
    /// nothing, those of quotas are shadows too, as none of them refuses by itself.
    pub fn among_others<'a>(&'a self, alone: &'a [Limit]) -> &'a [Limit] {
        self.among_others.as_deref().unwrap_or(alone)
    }
}

impl Domain {
    /// The key under which `key` counts together with others; `None` where that is its own. It has the same way through the
    /// tree: a pattern fits itself, and one before it that did would have fitted the value.
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

    /// Gives the copies of limits the numbers of what they are copies of.
    pub(crate) fn number_copies(&mut self) {
        let Some(mut descriptors) = self.descriptors.take() else { return };
        for (node, rule) in &mut descriptors.rules {
            for (copy, limit) in rule.among_others.iter_mut().flatten().zip(self.limits_at(*node)) {
                copy.index = limit.index;
            }
        }
        self.descriptors = Some(descriptors);
    }
}
