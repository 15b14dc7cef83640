//! The format of the file: descriptors in descriptors. A key that their service knows may stand anywhere, as there, and
//! means nothing in a wrong place; lint tells of it.

use super::{
    metadata,
    rate_limit::{self, RateLimit},
    rule::{Descriptors, Rule, RuleLimit, Written},
};
use crate::{
    algorithm::Bounds,
    domain::{
        Charge, OnStoreFailure,
        ask::MAX_LEVELS,
        key::{MAX_SEGMENT_BYTES, MAX_SEGMENTS},
    },
    plan::{Limit, Origin},
    policy::{
        document::{Entry, Node, Value},
        limits::scalar,
        problem::{Mark, Problems},
        suggest,
        tree::{Domain, NodeId, Pattern},
    },
};

/// Deepest nesting: no key has more segments, two for each entry.
const MAX_ENTRIES: usize = MAX_SEGMENTS / 2;

const FILE_KEYS: &[&str] = &["domain", "descriptors", "charge", "on_store_failure", "anchor"];
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
/// What may stand anywhere.
const THEIR_KEYS: &[&str] = &[
    "domain",
    "descriptors",
    "key",
    "value",
    "rate_limit",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
];

/// Whether a document is in this format.
pub fn is_one(document: &Node) -> bool {
    find(document, "descriptors").is_some()
}

/// The domain that a document names.
pub fn domain_of(document: &Node) -> Option<&str> {
    scalar(&find(document, "domain")?.value)
}

fn find<'a>(document: &'a Node, key: &str) -> Option<&'a Entry> {
    let Value::Map(entries) = &document.value else { return None };
    entries.iter().find(|entry| entry.key == key)
}

/// Reads one file's document into its domain.
///
/// # Errors
/// All that is wrong with it, each with its place.
pub fn read(document: &Node, bounds: &Bounds) -> Result<Domain, Problems> {
    let mut domain = Domain::new(domain_of(document).unwrap_or_default());
    domain.descriptors = Some(Box::default());
    // No two limits of one key count together, so nothing is gained by keeping more than a key together.
    domain.anchor = MAX_SEGMENTS as u8;
    (domain.charge, domain.on_store_failure) = (Charge::Independent, OnStoreFailure::default());
    let mut reader = Reader::new(domain, bounds);
    reader.head(document, true);
    reader.finish(document)
}

/// Adds the descriptors of another file of the same domain, which says the same of the domain as a whole.
///
/// # Errors
/// All that is wrong with it, each with its place. Then the domain is of no use.
pub fn add(domain: Domain, document: &Node, bounds: &Bounds) -> Result<Domain, Problems> {
    let mut reader = Reader::new(domain, bounds);
    reader.head(document, false);
    reader.finish(document)
}

struct Reader {
    domain: Domain,
    rules: Descriptors,
    bounds: Bounds,
    problems: Problems,
}

/// The place of a list of descriptors.
struct Above<'a> {
    node: NodeId,
    pattern: &'a str,
    depth: usize,
}

impl Reader {
    fn new(mut domain: Domain, bounds: &Bounds) -> Self {
        let rules = domain.descriptors.take().map(|rules| *rules).unwrap_or_default();
        Self { domain, rules, bounds: *bounds, problems: Problems::default() }
    }

    fn finish(mut self, document: &Node) -> Result<Domain, Problems> {
        if let Some(entry) = find(document, "descriptors") {
            self.descriptors(&entry.value, &Above { node: 0, pattern: "", depth: 0 });
        }
        if !self.problems.0.is_empty() {
            return Err(self.problems);
        }
        self.rules.shares = self.rules.rules.values().any(|rule| rule.share_threshold);
        self.rules.shows_values = self.rules.rules.values().any(|rule| rule.detailed_metric || rule.value_to_metric);
        self.domain.descriptors = Some(Box::new(self.rules));
        Ok(self.domain)
    }

    /// What the file says of its domain; `first`: before any other file.
    fn head(&mut self, document: &Node, first: bool) {
        let entries = self.map(document, "a file of descriptors", FILE_KEYS).unwrap_or_default();
        match domain_of(document) {
            None | Some("") => self.problem(document.mark, "domain", "a file of descriptors names its domain"),
            Some(name) if name.len() > MAX_SEGMENT_BYTES => {
                self.problem(document.mark, "domain", format!("domain is a text of at most {MAX_SEGMENT_BYTES} bytes"));
            }
            Some(_) => {}
        }
        let (mut charge, mut rule, mut anchor) = (Charge::Independent, OnStoreFailure::default(), MAX_SEGMENTS as u8);
        for entry in entries {
            let text = scalar(&entry.value);
            match entry.key.as_str() {
                "charge" => {
                    let known = &[("all_or_nothing", Charge::AllOrNothing), ("independent", Charge::Independent)];
                    charge = self.choice(entry, known);
                }
                "on_store_failure" => {
                    rule = self.choice(entry, &OnStoreFailure::ALL.map(|rule| (rule.name(), rule)));
                }
                "anchor" => match text.and_then(|text| text.parse().ok()) {
                    Some(segments) if (1..=MAX_SEGMENTS as u8).contains(&segments) => anchor = segments,
                    _ => {
                        let message = format!("anchor is a number of segments, 1 to {MAX_SEGMENTS}");
                        self.problem(entry.value.mark, "anchor", message);
                    }
                },
                _ => {}
            }
        }
        let said = (charge, rule, anchor);
        if first {
            (self.domain.charge, self.domain.on_store_failure, self.domain.anchor) = said;
        } else if said != (self.domain.charge, self.domain.on_store_failure, self.domain.anchor) {
            let message = "the files of one domain say the same charge, on_store_failure and anchor";
            self.problem(document.mark, "charge", message);
        }
    }

    fn descriptors(&mut self, node: &Node, above: &Above<'_>) {
        match &node.value {
            Value::Null => {}
            Value::List(items) => items.iter().for_each(|item| self.descriptor(item, above)),
            _ => {
                let message = format!("descriptors is a list of maps, not {}", node.kind());
                self.problem(node.mark, "descriptors", message);
            }
        }
    }

    fn descriptor(&mut self, node: &Node, above: &Above<'_>) {
        let Some(entries) = self.map(node, "a descriptor", DESCRIPTOR_KEYS) else { return };
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        let key = self.text(find("key"));
        let value = self.text(find("value"));
        let (Some(key), Some(value)) = (key, value) else { return };
        if key.is_empty() {
            return self.problem(node.mark, "key", "a descriptor has a key, and it is not empty");
        }
        if above.depth == MAX_ENTRIES {
            return self.problem(node.mark, "descriptors", format!("descriptors nest at most {MAX_ENTRIES} deep"));
        }
        if key.contains('*') {
            self.note(node.mark, format!("the key `{key}` is an exact one; only a value may be a pattern"));
        }
        let value = match value {
            "" => Written::Any,
            _ if value.contains('*') => Written::Pattern(value.into()),
            _ => Written::Exact(value.into()),
        };
        let slash = if above.depth > 0 { "/" } else { "" };
        let pattern = format!("{}{slash}{key}/{}", above.pattern, value.text());
        let Some(place) = self.add_node(above.node, key, &value) else {
            let shown = if value == Written::Any { format!("{key} without a value") } else { pattern.clone() };
            return self.problem(node.mark, "key", format!("the descriptor `{shown}` stands twice at this place"));
        };
        let rule = self.rule(node, entries, value, (place, &pattern));
        self.rules.rules.insert(place, rule);
        if let Some(entry) = find("descriptors") {
            self.descriptors(&entry.value, &Above { node: place, pattern: &pattern, depth: above.depth + 1 });
        }
    }

    /// The node of a descriptor; `None` where there is one already.
    fn add_node(&mut self, above: NodeId, key: &str, value: &Written) -> Option<NodeId> {
        let below = self.domain.add_exact(above, key);
        let node = match value {
            Written::Any => self.domain.add_any(below),
            Written::Exact(value) => self.domain.add_exact(below, value),
            Written::Pattern(value) if self.domain.has_pattern(below, value) => return None,
            Written::Pattern(value) => self.domain.add_pattern(below, Pattern::new(value)),
        };
        (!self.rules.rules.contains_key(&node)).then_some(node)
    }

    /// Reads what a descriptor says, and gives its node the limits.
    fn rule(&mut self, node: &Node, entries: &[Entry], value: Written, place: (NodeId, &str)) -> Rule {
        let find = |key: &str| entries.iter().find(|entry| entry.key == key);
        let mut flag = |key: &str| find(key).is_some_and(|entry| self.flag(entry));
        let (shadow, quota) = (flag("shadow_mode"), flag("quota_mode"));
        let (detailed_metric, value_to_metric) = (flag("detailed_metric"), flag("value_to_metric"));
        let share_threshold = flag("share_threshold");
        if share_threshold && !matches!(value, Written::Pattern(_)) {
            let message = format!("share_threshold is for values with a `*`; that of `{}` has none", place.1);
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
        let shadow_among_others = self.domain.charge == Charge::AllOrNothing && (shadow || quota);
        let copy = |limit: &Limit| {
            let mut copy = limit.clone();
            copy.shadow = shadow_among_others;
            copy
        };
        let among_others = (shadow_among_others != shadow).then(|| tree.iter().map(copy).collect());
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
            among_others,
        }
    }

    fn rate_limits(&mut self, entry: &Entry) -> Vec<RateLimit> {
        let node = &entry.value;
        let items = match &node.value {
            Value::Null => return Vec::new(),
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let charge_denied = self.domain.charge == Charge::Independent;
        let mut found = Vec::new();
        for item in items {
            if let Some(limit) = rate_limit::read(item, charge_denied, &self.bounds, &mut self.problems) {
                if limit.says_no_number {
                    self.note(item.mark, "requests_per_unit is not said, so nothing passes");
                }
                self.misplaced(item, rate_limit::KEYS);
                found.push(limit);
            }
        }
        if found.len() > 1 && found.iter().any(|limit| limit.params.is_none()) {
            self.problem(node.mark, "rate_limit", "a descriptor that is unlimited has no other limit");
        }
        if found.len() > MAX_LEVELS {
            let message = format!("{} limits on one descriptor; at most {MAX_LEVELS}", found.len());
            self.problem(node.mark, "rate_limit", message);
        }
        let names: Vec<_> = found.iter().filter_map(|limit| limit.name.clone()).collect();
        for limit in &found {
            if limit.replaces.iter().any(|name| names.contains(name)) {
                self.problem(limit.mark, "replaces", "a limit does not replace one of its own descriptor");
            }
        }
        found
    }

    /// What is said of each limit, and the limit itself where it is one.
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
                self.problem(mark, "name", format!("two limits of one descriptor are named `{kind}`"));
            }
            let limit = Limit::new(Origin::Policy, name.as_deref(), pattern, ordinal, shadow, params);
            made.push((RuleLimit { name, kind, replaces }, Some(limit)));
        }
        made
    }

    fn flag(&mut self, entry: &Entry) -> bool {
        rate_limit::flag(entry, &mut self.problems)
    }

    /// The text of a key that may be missing or hold nothing; `None` where it is no single value.
    fn text<'a>(&mut self, entry: Option<&'a Entry>) -> Option<&'a str> {
        let Some(entry) = entry else { return Some("") };
        match &entry.value.value {
            Value::Null => Some(""),
            Value::Scalar(text) => Some(text),
            _ => {
                let message = format!("{} is a text, not {}", entry.key, entry.value.kind());
                self.problem(entry.value.mark, &entry.key, message);
                None
            }
        }
    }

    fn choice<T: Copy>(&mut self, entry: &Entry, known: &[(&str, T)]) -> T {
        let text = scalar(&entry.value);
        if let Some((_, value)) = known.iter().find(|(name, _)| Some(*name) == text) {
            return *value;
        }
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        let message = suggest::unknown(&format!("value of {}:", entry.key), text.unwrap_or_default(), &names);
        self.problem(entry.value.mark, &entry.key, message);
        known[0].1
    }

    /// The entries of a map; its unknown keys are told, and noted those that mean nothing here.
    fn map<'a>(&mut self, node: &'a Node, what: &str, known: &[&str]) -> Option<&'a [Entry]> {
        let Value::Map(entries) = &node.value else {
            self.problem(node.mark, "", format!("{what} is a map with {}; this is {}", known.join(", "), node.kind()));
            return None;
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            if !THEIR_KEYS.contains(&entry.key.as_str()) {
                self.problem(entry.mark, &entry.key, suggest::unknown("key", &entry.key, known));
            }
        }
        self.misplaced(node, known);
        Some(entries)
    }

    fn misplaced(&mut self, node: &Node, known: &[&str]) {
        let Value::Map(entries) = &node.value else { return };
        let wrong = |entry: &&Entry| THEIR_KEYS.contains(&entry.key.as_str()) && !known.contains(&entry.key.as_str());
        for entry in entries.iter().filter(wrong) {
            self.note(entry.mark, format!("`{}` means nothing here", entry.key));
        }
    }

    fn note(&mut self, mark: Mark, message: impl Into<String>) {
        self.rules.notes.add(mark, "", message);
    }

    fn problem(&mut self, mark: Mark, field: &str, message: impl Into<String>) {
        self.problems.add(mark, field, message);
    }
}

/// Whether a key that their service knows may stand anywhere.
pub(super) fn is_theirs(key: &str) -> bool {
    THEIR_KEYS.contains(&key)
}
