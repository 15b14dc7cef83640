//! The overrides that this replica knows.

use std::{collections::BTreeMap, sync::Arc};

use tracing::warn;
use weir_core::{algorithm::Bounds, domain::Micros};
use weir_policy::overrides::Override;
use weir_store::documents::{ChangeId, Changes};

use super::document;

/// The overrides as they were when the store was last asked.
#[derive(Default)]
pub(super) struct Known {
    /// The place in the log up to which all is known.
    pub since: Option<ChangeId>,
    /// Whether the store has been asked.
    pub is_read: bool,
    by_name: BTreeMap<String, Entry>,
    /// The next moment at which one starts or ends; `None`: none does.
    next_edge: Option<Micros>,
}

struct Entry {
    document: String,
    what: Arc<Override>,
}

impl Known {
    /// All of them, by domain and pattern.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Override>> {
        self.by_name.values().map(|entry| &entry.what)
    }

    /// The one of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Override>> {
        self.by_name.get(name).map(|entry| &entry.what)
    }

    /// Takes in what has changed; whether anything has.
    pub(super) fn apply(&mut self, changes: Changes, bounds: &Bounds) -> bool {
        let is_first = !std::mem::replace(&mut self.is_read, true);
        match changes {
            Changes::Some(changes) if changes.is_empty() => return is_first,
            Changes::Some(changes) => {
                for changed in changes {
                    self.since = Some(changed.id);
                    self.put(changed.name, changed.after, bounds);
                }
            }
            Changes::All(documents, since) => {
                self.since = since;
                self.by_name.clear();
                documents.into_iter().for_each(|(name, document)| self.put(name, Some(document), bounds));
            }
        }
        true
    }

    fn put(&mut self, name: String, document: Option<String>, bounds: &Bounds) {
        let read = document.map(|document| (document::read(&document, bounds), document));
        match read {
            Some((Ok(what), document)) => drop(self.by_name.insert(name, Entry { document, what })),
            None => drop(self.by_name.remove(&name)),
            Some((Err(error), _)) => {
                self.by_name.remove(&name);
                warn!(name, error = &error as &dyn std::error::Error, "a stored override is not in force");
            }
        }
    }

    /// Takes out those that have ended, by name and document. Whether one has started since, or ended, is told too.
    pub(super) fn pass_edges(&mut self, now: Micros) -> (bool, Vec<(String, String)>) {
        let has_passed = self.next_edge.is_some_and(|edge| edge <= now);
        let mut ended = Vec::new();
        if has_passed {
            self.by_name.retain(|name, Entry { document, what }| {
                let has_ended = what.end.is_some_and(|end| end <= now);
                if has_ended {
                    ended.push((name.clone(), document.clone()));
                }
                !has_ended
            });
        }
        (has_passed, ended)
    }

    /// Finds the next moment at which one starts or ends.
    pub(super) fn find_next_edge(&mut self, now: Micros) {
        let edges = self.all().flat_map(|one| [Some(one.start).filter(|start| *start > now), one.end]);
        self.next_edge = edges.flatten().min();
    }
}
