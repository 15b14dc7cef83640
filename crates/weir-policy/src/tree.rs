//! A compiled domain: a tree of nodes with limits, walked along a key.

mod build;
mod pattern;

use std::{collections::HashMap, ops::Range};

use super::descriptors::Descriptors;
pub(crate) use pattern::{Pattern, common_text};
use weir_core::{
    algorithm::ParamError,
    domain::{Charge, Key, OnStoreFailure},
    plan::{Level, Levels, Limit},
};

/// Default number of leading segments that determine where states are stored.
pub const DEFAULT_ANCHOR: u8 = 2;

/// A named policy.
#[derive(Clone, Debug)]
pub struct Domain {
    /// The name; empty for the default domain.
    pub name: Box<str>,
    /// The index among the domains of its policy.
    pub index: u32,
    /// Whether a refusal by one limit keeps the others from being charged.
    pub charge: Charge,
    /// The rule for decisions while the shared store is unavailable.
    pub on_store_failure: OnStoreFailure,
    /// Whether requests may have their own limits, if the domain sets it; see
    /// [`crate::Policy::allows_spec`].
    pub allows_spec: Option<bool>,
    /// Number of leading segments that determine where states are stored; above 0.
    pub anchor: u8,
    /// Whether its limits are decided and counted as usual, but every request passes.
    pub shadow: bool,
    /// Maximum jitter of `retry_after`, as a fraction of it.
    pub retry_jitter: f64,
    /// The rules of a file of descriptors. In such a domain only the limits of the last node of a key apply, and only
    /// if the whole key matches.
    pub descriptors: Option<Box<Descriptors>>,
    nodes: Vec<Node>,
    limits: Vec<Limit>,
}

/// The index of a node in its domain. The root is 0.
pub type NodeId = u32;

#[derive(Clone, Debug, Default)]
struct Node {
    children: HashMap<Box<[u8]>, NodeId, foldhash::fast::RandomState>,
    /// Whether a name among `children` is so long that keys have a hash of it.
    has_long_names: bool,
    patterns: Vec<(Pattern, NodeId)>,
    any: Option<NodeId>,
    limits: Range<u32>,
    /// Whether a factor of 0 lifts its limits.
    is_lifted: bool,
    /// Whether it has its own factor that divides limits: neither 0 nor 1.
    is_divided: bool,
}

/// The way in which a segment matched a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An exact name.
    Exact,
    /// A pattern.
    Pattern,
    /// `*`, which matches any segment.
    Any,
}

impl Domain {
    /// Whether it is one of descriptors in which every limit counts as one with `quota_mode`.
    pub fn is_in_quota_mode(&self) -> bool {
        self.descriptors.as_ref().is_some_and(|descriptors| descriptors.quota_mode)
    }

    /// Returns the settings, as the policy file names them. `default_spec` is the value of a `limit_spec` that is not
    /// set.
    pub fn settings(&self, default_spec: &str) -> [(&'static str, String); 6] {
        let spec = match self.allows_spec {
            None => default_spec,
            Some(true) => "allow",
            Some(false) => "deny",
        };
        [
            ("charge", self.charge.name().to_owned()),
            ("on_store_failure", self.on_store_failure.name().to_owned()),
            ("limit_spec", spec.to_owned()),
            ("anchor", self.anchor.to_string()),
            ("shadow", self.shadow.to_string()),
            ("retry_jitter", self.retry_jitter.to_string()),
        ]
    }

    /// Whether a factor of 0 lifts the limits of a node.
    pub fn is_lifted(&self, node: NodeId) -> bool {
        self.nodes[node as usize].is_lifted
    }

    /// Whether a node has its own factor that divides limits: neither 0 nor 1.
    pub(crate) fn is_divided(&self, node: NodeId) -> bool {
        self.nodes[node as usize].is_divided
    }

    /// Returns every limit.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter()
    }

    /// Returns the limits of one node.
    pub fn limits_at(&self, node: NodeId) -> &[Limit] {
        let Range { start, end } = self.nodes[node as usize].limits.clone();
        &self.limits[start as usize..end as usize]
    }

    /// Returns the child for a segment: by its name, else by the first pattern that matches, else `*`.
    pub(crate) fn child(&self, node: NodeId, segment: &[u8]) -> Option<(Found, NodeId)> {
        let node = &self.nodes[node as usize];
        if let Some(id) = node.children.get(segment) {
            return Some((Found::Exact, *id));
        }
        if let Some((_, id)) = node.patterns.iter().find(|(pattern, _)| pattern.matches(segment)) {
            return Some((Found::Pattern, *id));
        }
        node.any.map(|id| (Found::Any, id))
    }

    /// Walks the tree along a key, up to the first segment without a match, without backtracking. Yields the depth,
    /// the kind of match and the node.
    pub fn walk(&self, key: &Key) -> impl Iterator<Item = (usize, Found, NodeId)> {
        self.walk_along(key.segments())
    }

    /// Whether a key whose long segments are hashes ([`Key::of_name`]) certainly reaches the same nodes as the
    /// original key.
    pub fn is_certain(&self, key: &Key) -> bool {
        let mut node = 0;
        for index in 0..key.depth() {
            let here = &self.nodes[node as usize];
            if key.is_hashed(index) && (here.has_long_names || !here.patterns.is_empty()) {
                return false;
            }
            let Some((_, next)) = self.child(node, key.segment(index)) else { break };
            node = next;
        }
        true
    }

    /// Walks the tree along the segments of a key; see [`Self::walk`].
    pub fn walk_along<'s>(
        &self,
        segments: impl Iterator<Item = &'s [u8]>,
    ) -> impl Iterator<Item = (usize, Found, NodeId)> {
        let mut node = 0;
        segments.enumerate().map_while(move |(index, segment)| {
            let (found, id) = self.child(node, segment)?;
            node = id;
            Some((index + 1, found, id))
        })
    }

    /// Returns the limits that a request meets, root first, without those that a factor of 0 lifts. Allocates nothing
    /// for a factor of 1 and up to four limits.
    ///
    /// # Errors
    /// [`ParamError`] when `factor` takes a limit beyond its bounds.
    pub fn levels<'a>(&'a self, key: &'a Key, cost: i64, factor: f64) -> Result<Levels<'a>, ParamError> {
        let mut levels = Levels::new();
        self.add_levels(&mut levels, key, cost, factor)?;
        Ok(levels)
    }

    /// Adds the limits that a request meets to `levels`; see [`Self::levels`].
    ///
    /// # Errors
    /// As for [`Self::levels`].
    #[inline]
    pub fn add_levels<'a>(
        &'a self,
        levels: &mut Levels<'a>,
        key: &'a Key,
        cost: i64,
        factor: f64,
    ) -> Result<(), ParamError> {
        if self.descriptors.is_some() {
            return self.add_levels_of_last(levels, key, cost, factor);
        }
        for (depth, _, node) in self.walk(key) {
            for limit in self.limits_at(node) {
                let level = Level::new(key, depth as u8, self.anchor, limit, cost);
                match factor {
                    1.0 => levels.push(level),
                    _ => levels.extend(level.under_factor(factor)?),
                }
            }
        }
        Ok(())
    }

    /// Whether a key meets any limit, including one that a factor of 0 lifts (the policy's or the request's), or a
    /// descriptor with `unlimited`.
    pub fn is_matched(&self, key: &Key) -> bool {
        self.are_matched(key.segments(), key.depth())
    }

    /// Like [`Self::is_matched`], for the segments of a key.
    pub(crate) fn are_matched<'s>(&self, segments: impl Iterator<Item = &'s [u8]>, depth: usize) -> bool {
        let mut walk = self.walk_along(segments);
        match &self.descriptors {
            None => walk.any(|(.., node)| self.decides_at(node)),
            Some(_) => walk.last().is_some_and(|(last, _, node)| last == depth && self.decides_at(node)),
        }
    }

    /// Whether a node has limits, or is explicitly without.
    fn decides_at(&self, node: NodeId) -> bool {
        let rule = self.descriptors.as_deref().and_then(|descriptors| descriptors.rule(node));
        let is_unlimited = rule.is_some_and(|rule| rule.unlimited);
        is_unlimited || self.is_lifted(node) || !self.limits_at(node).is_empty()
    }

    /// Adds the limits that a request meets in a domain of descriptors.
    fn add_levels_of_last<'a>(
        &'a self,
        levels: &mut Levels<'a>,
        key: &'a Key,
        cost: i64,
        factor: f64,
    ) -> Result<(), ParamError> {
        let shared = self.shared_key(key);
        let last = self.walk(key).last().filter(|(depth, ..)| *depth == key.depth());
        for limit in last.map_or(&[][..], |(_, _, node)| self.limits_at(node)) {
            let level = Level::new(key, key.depth() as u8, self.anchor, limit, cost);
            let level = match &shared {
                None => level,
                Some(shared) => level.counted_under(shared.clone()),
            };
            levels.extend(level.under_factor(factor)?);
        }
        Ok(())
    }

    /// Returns the number of nodes; their ids count from 0 without gaps.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the children of a node with their names.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = (&str, NodeId)> {
        let node = &self.nodes[node as usize];
        let exact = node.children.iter().filter_map(|(name, id)| Some((std::str::from_utf8(name).ok()?, *id)));
        let patterns = node.patterns.iter().map(|(pattern, id)| (&*pattern.0, *id));
        exact.chain(patterns).chain(node.any.map(|id| ("*", id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_beats_pattern_beats_any_without_backtracking() {
        let mut domain = Domain::new("");
        let any = domain.add_child(0, "*");
        let first = domain.add_pattern(0, Pattern::new("a*"));
        domain.add_pattern(0, Pattern::new("*x"));
        let exact = domain.add_child(0, "abc");
        domain.add_child(any, "below");
        let find = |segment: &str| domain.child(0, segment.as_bytes());
        assert_eq!(find("abc"), Some((Found::Exact, exact)));
        assert_eq!(find("ax"), Some((Found::Pattern, first)));
        assert_eq!(find("zzz"), Some((Found::Any, any)));
        let key = Key::new("", &["abc", "below"]).unwrap();
        assert_eq!(domain.walk(&key).count(), 1);
    }

    #[test]
    fn a_hashed_segment_matches_unless_its_text_could_matter() {
        let mut domain = Domain::new("");
        let [any, pattern, _, exact, alone] =
            ["any", "pattern", "none", "exact", "alone"].map(|name| domain.add_child(0, name));
        domain.add_child(any, "short");
        domain.add_pattern(pattern, Pattern::new("a*"));
        domain.add_child(exact, &"l".repeat(65));
        domain.add_pattern(alone, Pattern::new("a*"));
        for node in [any, pattern, exact] {
            domain.add_any(node);
        }
        let cases = [("any", true), ("pattern", false), ("none", true), ("exact", false), ("alone", false)];
        for (first, long_is_certain) in cases {
            for (segment, expected) in [("short".to_owned(), true), ("l".repeat(65), long_is_certain)] {
                let key = Key::new("", &[first, &segment]).unwrap();
                let stored = Key::of_name(&[key.prefix(2), &[weir_core::domain::key::END]].concat()).unwrap();
                assert_eq!(domain.is_certain(&stored), expected, "{first} {segment}");
            }
        }
    }

    #[test]
    fn a_key_is_matched_by_a_limit_or_by_what_lifts_it() {
        let text = "schema: { user: { limits: [1, 1, 1] }, internal: { factor: 0, limits: [1, 1, 1] }, open: { children: { a: } } }";
        let policy = crate::parse(text, &crate::Rules::default()).unwrap();
        let domain = policy.domain("").unwrap();
        let matched = |key: &[&str]| domain.is_matched(&Key::new("", key).unwrap());
        assert!(matched(&["user"]) && matched(&["user", "alex"]) && matched(&["internal", "any"]));
        assert!(!matched(&["open"]) && !matched(&["open", "a"]) && !matched(&["usr"]));
    }
}
