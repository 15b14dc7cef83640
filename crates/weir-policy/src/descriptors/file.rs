//! Reading of a file of descriptors. As in envoyproxy/ratelimit, a known key is accepted in every map and ignored
//! where it is misplaced; lint reports it.

use super::{descriptor::Parent, rate_limit, rule::Descriptors};
use crate::{
    Rules,
    limits::{read_anchor, read_choice},
    tree::Domain,
};
use weir_core::{
    algorithm::Bounds,
    domain::{
        Charge, OnStoreFailure,
        key::{MAX_SEGMENT_BYTES, MAX_SEGMENTS},
    },
};
use weir_settings::{
    document::{Entry, Node, Value},
    fields::{read_entries, scalar},
    problem::{Mark, Problems},
};

const FILE_KEYS: &[&str] = &["domain", "descriptors", "charge", "on_store_failure", "anchor"];
/// Keys of envoyproxy/ratelimit, accepted in every map.
const ENVOY_KEYS: &[&str] = &[
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

/// Whether a document is in this format: it has `descriptors`, or only keys of envoyproxy/ratelimit. A file of `domain`
/// alone is for limits that Envoy's requests have.
pub(crate) fn is_descriptor_file(document: &Node) -> bool {
    let Value::Map(entries) = &document.value else { return false };
    let is_envoys = !entries.is_empty() && entries.iter().all(|entry| is_envoy_key(&entry.key));
    is_envoys || find(document, "descriptors").is_some()
}

/// Returns the domain name in a document.
pub(crate) fn domain_of(document: &Node) -> Option<&str> {
    scalar(&find(document, "domain")?.value)
}

fn find<'a>(document: &'a Node, key: &str) -> Option<&'a Entry> {
    let Value::Map(entries) = &document.value else { return None };
    entries.iter().find(|entry| entry.key == key)
}

/// Reads one file's document into its domain.
///
/// # Errors
/// All problems of the document, each with its position.
pub fn read(document: &Node, rules: &Rules) -> Result<Domain, Problems> {
    let mut domain = Domain::new(domain_of(document).unwrap_or_default());
    domain.descriptors = Some(Box::default());
    // Only the limits of the last entry's node apply to a key, so a shorter anchor has no benefit.
    domain.anchor = MAX_SEGMENTS as u8;
    let mut reader = Reader::new(domain, rules);
    reader.head(document, true);
    reader.finish(document)
}

/// Adds the descriptors of another file of the same domain. The settings of the domain must be the same in both files.
///
/// # Errors
/// All problems of the document, each with its position. The domain is dropped.
pub fn add(domain: Domain, document: &Node, rules: &Rules) -> Result<Domain, Problems> {
    let mut reader = Reader::new(domain, rules);
    reader.head(document, false);
    reader.finish(document)
}

/// The reader of one file into a domain.
pub(super) struct Reader {
    pub(crate) domain: Domain,
    pub(crate) rules: Descriptors,
    pub(crate) bounds: Bounds,
    /// The `charge` of a file that does not set it.
    charge: Charge,
    /// The `on_store_failure` of a file that does not set it.
    on_store_failure: OnStoreFailure,
    pub(crate) problems: Problems,
}

impl Reader {
    fn new(mut domain: Domain, rules: &Rules) -> Self {
        let (bounds, charge) = (rules.bounds, rules.descriptors_charge.unwrap_or(Charge::Independent));
        let on_store_failure = rules.descriptors_on_store_failure;
        let quota_mode = rules.descriptors_quota_mode;
        let rules = domain.descriptors.take().map(|rules| *rules).unwrap_or_default();
        let rules = Descriptors { quota_mode, ..rules };
        Self { domain, rules, bounds, charge, on_store_failure, problems: Problems::default() }
    }

    fn finish(mut self, document: &Node) -> Result<Domain, Problems> {
        if let Some(entry) = find(document, "descriptors") {
            self.descriptors(&entry.value, &Parent::ROOT);
        }
        if !self.problems.0.is_empty() {
            return Err(self.problems);
        }
        self.rules.shares = self.rules.rules.values().any(|rule| rule.share_threshold);
        self.rules.shows_values = self.rules.rules.values().any(|rule| rule.detailed_metric || rule.value_to_metric);
        self.domain.descriptors = Some(Box::new(self.rules));
        Ok(self.domain)
    }

    /// Reads the settings of the domain; `first`: from its first file.
    fn head(&mut self, document: &Node, first: bool) {
        let entries = self.map(document, "a file of descriptors", FILE_KEYS).unwrap_or_default();
        match domain_of(document) {
            None | Some("") => self.problem(document.mark, "domain", "descriptors need their domain's name"),
            Some(name) if name.len() > MAX_SEGMENT_BYTES => {
                self.problem(
                    document.mark,
                    "domain",
                    format!("domain must be a string of at most {MAX_SEGMENT_BYTES} bytes"),
                );
            }
            Some(_) => {}
        }
        let (mut charge, mut rule, mut anchor) = (self.charge, self.on_store_failure, MAX_SEGMENTS as u8);
        for entry in entries {
            match entry.key.as_str() {
                "charge" => {
                    charge = read_choice(entry, &Charge::ALL.map(|charge| (charge.name(), charge)), &mut self.problems);
                }
                "on_store_failure" => {
                    rule = read_choice(entry, &OnStoreFailure::ALL.map(|rule| (rule.name(), rule)), &mut self.problems);
                }
                "anchor" => anchor = read_anchor(entry, &mut self.problems).unwrap_or(anchor),
                _ => {}
            }
        }
        let settings = (charge, rule, anchor);
        if first {
            (self.domain.charge, self.domain.on_store_failure, self.domain.anchor) = settings;
        } else if settings != (self.domain.charge, self.domain.on_store_failure, self.domain.anchor) {
            let message = "the files of one domain must have the same charge, on_store_failure and anchor";
            self.problem(document.mark, "charge", message);
        }
    }

    pub(crate) fn flag(&mut self, entry: &Entry) -> bool {
        rate_limit::flag(entry, &mut self.problems)
    }

    /// Returns the text of an entry, empty where the entry is missing or null; `None`, with a problem, for a list or
    /// a map.
    pub(crate) fn text<'a>(&mut self, entry: Option<&'a Entry>) -> Option<&'a str> {
        let Some(entry) = entry else { return Some("") };
        match &entry.value.value {
            Value::Null => Some(""),
            Value::Scalar(text) => Some(text),
            _ => {
                let message = format!("{} must be a string, not {}", entry.key, entry.value.kind());
                self.problem(entry.value.mark, &entry.key, message);
                None
            }
        }
    }

    /// Returns the entries of a map. Unknown keys are problems, misplaced ones are noted.
    pub(crate) fn map<'a>(&mut self, node: &'a Node, what: &str, known: &[&str]) -> Option<&'a [Entry]> {
        let entries = read_entries(node, what, known, ENVOY_KEYS, &mut self.problems)?;
        self.misplaced(node, known);
        Some(entries)
    }

    pub(crate) fn misplaced(&mut self, node: &Node, known: &[&str]) {
        let Value::Map(entries) = &node.value else { return };
        let wrong = |entry: &&Entry| ENVOY_KEYS.contains(&entry.key.as_str()) && !known.contains(&entry.key.as_str());
        for entry in entries.iter().filter(wrong) {
            self.note(entry.mark, format!("`{}` is ignored here", entry.key));
        }
    }

    pub(crate) fn note(&mut self, mark: Mark, message: impl Into<String>) {
        self.rules.notes.add(mark, "", message);
    }

    pub(crate) fn problem(&mut self, mark: Mark, field: &str, message: impl Into<String>) {
        self.problems.add(mark, field, message);
    }
}

/// Whether envoyproxy/ratelimit accepts this key in every map.
pub(super) fn is_envoy_key(key: &str) -> bool {
    ENVOY_KEYS.contains(&key)
}
