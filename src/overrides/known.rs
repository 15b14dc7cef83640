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
    by_name: BTreeMap<String, Entry>,
    /// Those that have ended and may still be in the store. At most as many as the store has.
    ended: BTreeMap<String, Entry>,
    /// About the store's time when it was last asked.
    asked_at: Micros,
    /// The time of the last [`Self::pass_edges`].
    passed_at: Micros,
    /// The next moment at which one may start or end; `None`: none does.
    next_edge: Option<Micros>,
}

struct Entry {
    document: String,
    what: Arc<Override>,
}

impl Entry {
    fn has_ended(&self, now: Micros) -> bool {
        self.what.end.is_some_and(|end| end <= now)
    }
}

/// What has become of an override.
pub(super) enum Edit {
    Put(Arc<Override>),
    Removed(Arc<Override>),
}

impl Known {
    /// All of them, by domain and pattern.
    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = &Arc<Override>> {
        self.by_name.values().map(|entry| &entry.what)
    }

    /// The one of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Override>> {
        self.by_name.get(name).map(|entry| &entry.what)
    }

    /// Takes in what has changed.
    pub(super) fn apply(&mut self, changes: Changes, bounds: &Bounds, now: Micros) -> Vec<Edit> {
        let mut edits = Vec::new();
        match changes {
            Changes::Some(changes) => {
                for changed in changes {
                    self.since = Some(changed.id);
                    self.put(changed.name, changed.after, bounds, &mut edits);
                }
            }
            Changes::All(documents, since) => {
                // The log does not go back by itself.
                let is_older = since < self.since;
                self.since = since;
                self.ended.clear();
                let before = std::mem::take(&mut self.by_name);
                edits.extend(before.values().map(|entry| Edit::Removed(Arc::clone(&entry.what))));
                documents.into_iter().for_each(|(name, document)| self.put(name, Some(document), bounds, &mut edits));
                let gone = before.keys().filter(|name| !self.by_name.contains_key(*name)).count();
                if is_older && gone > 0 {
                    warn!("the stored overrides were lost: {gone} are no longer in force");
                }
            }
        }
        for edit in &edits {
            if let Edit::Put(one) = edit {
                self.next_edge = self.next_edge.into_iter().chain(edges(one, now)).min();
            }
        }
        edits
    }

    fn put(&mut self, name: String, document: Option<String>, bounds: &Bounds, edits: &mut Vec<Edit>) {
        // The store has another one now, or none.
        self.ended.remove(&name);
        let read = document.map(|document| (document::read(&document, bounds), document));
        let before = match read {
            Some((Ok(what), document)) => {
                edits.push(Edit::Put(Arc::clone(&what)));
                self.by_name.insert(name, Entry { document, what });
                return;
            }
            None => self.by_name.remove(&name),
            Some((Err(error), _)) => {
                warn!(name, error = &error as &dyn std::error::Error, "a stored override is not in force");
                self.by_name.remove(&name)
            }
        };
        edits.extend(before.map(|entry| Edit::Removed(entry.what)));
    }

    /// Takes out those that have ended, and keeps them as [`Self::ended`]. Those that had ended only by a machine's clock that ran
    /// ahead while the store was away are back. `None`: none has started or ended since this was last asked.
    pub(super) fn pass_edges(&mut self, now: Micros, is_of_store: bool) -> Option<Vec<Edit>> {
        if is_of_store {
            self.asked_at = now;
        }
        if now < std::mem::replace(&mut self.passed_at, now) {
            // What has started by a clock ahead starts once more.
            self.next_edge = self.edge_after(now);
        }
        let back = move_those(&mut self.ended, &mut self.by_name, |entry| !entry.has_ended(now));
        if back.is_empty() && self.next_edge.is_none_or(|edge| edge > now) {
            return None;
        }
        let ended = move_those(&mut self.by_name, &mut self.ended, |entry| entry.has_ended(now));
        let edits = back.into_iter().map(Edit::Put).chain(ended.into_iter().map(Edit::Removed)).collect();
        self.next_edge = self.edge_after(now);
        Some(edits)
    }

    /// The next moment at which one starts or ends.
    fn edge_after(&self, now: Micros) -> Option<Micros> {
        self.all().flat_map(|one| edges(one, now)).min()
    }

    /// Whether some have ended that the store has not been asked about since.
    pub(super) fn awaits_store(&self) -> bool {
        self.ended.values().any(|entry| !entry.has_ended(self.asked_at))
    }

    /// Some of those that may be removed from the store, as they have ended by its own time too: name and document.
    pub(super) fn ended(&self, most: usize) -> Vec<(String, String)> {
        let ended = self.ended.iter().filter(|(_, entry)| entry.has_ended(self.asked_at));
        ended.take(most).map(|(name, entry)| (name.clone(), entry.document.clone())).collect()
    }

    /// The store does not have this document any more.
    pub(super) fn forget_ended(&mut self, name: &str, document: &str) {
        if self.ended.get(name).is_some_and(|kept| kept.document == document) {
            self.ended.remove(name);
        }
    }
}

/// Moves those that are so, and returns them.
fn move_those(
    from: &mut BTreeMap<String, Entry>,
    to: &mut BTreeMap<String, Entry>,
    are_so: impl Fn(&Entry) -> bool,
) -> Vec<Arc<Override>> {
    let names: Vec<_> = from.iter().filter(|(_, entry)| are_so(entry)).map(|(name, _)| name.clone()).collect();
    let entries = names.into_iter().filter_map(|name| from.remove_entry(&name));
    let moved = entries.map(|(name, entry)| {
        let what = Arc::clone(&entry.what);
        to.insert(name, entry);
        what
    });
    moved.collect()
}

/// When an override starts and ends, of what is to come.
fn edges(one: &Override, now: Micros) -> impl Iterator<Item = Micros> {
    [Some(one.start).filter(|start| *start > now), one.end].into_iter().flatten()
}
