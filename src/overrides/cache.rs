//! The overrides that this replica has read.

use std::{collections::BTreeMap, sync::Arc};

use tracing::{info, warn};
use weir_core::{algorithm::Bounds, domain::Micros};
use weir_policy::overrides::Override;
use weir_store::documents::{ChangeId, Changes};
use weir_telemetry::Causes;

use super::{AUDIT, StoredOverride, document};

/// The overrides as of the last read of the store.
pub(super) struct OverrideCache {
    /// The position in the log up to which all changes have been read; `None`: the log was empty.
    pub since: Option<ChangeId>,
    by_name: BTreeMap<String, Entry>,
    /// Overrides that are not in force, as they cannot be read.
    unreadable: BTreeMap<String, StoredOverride>,
    /// Overrides that have ended and may still be in the store. At most as many as the store has.
    ended: BTreeMap<String, Entry>,
    /// The approximate time of the store at the last read.
    read_at: Micros,
    /// The time of the last [`Self::apply_transitions`].
    applied_at: Micros,
    /// The next time at which an override may start or end; `None`: there is none.
    next_transition: Option<Micros>,
}

struct Entry {
    document: String,
    value: Arc<Override>,
}

impl Entry {
    fn has_ended(&self, now: Micros) -> bool {
        self.value.end.is_some_and(|end| end <= now)
    }
}

/// A change to the overrides in force.
pub(super) enum Edit {
    Put(Arc<Override>),
    Removed(Arc<Override>),
}

impl Default for OverrideCache {
    /// At a position that no log has, so that the first read returns all overrides, also if the log is missing.
    fn default() -> Self {
        Self {
            since: Some(ChangeId::default()),
            by_name: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            ended: BTreeMap::new(),
            read_at: 0,
            applied_at: 0,
            next_transition: None,
        }
    }
}

impl OverrideCache {
    /// Returns all overrides that have not ended, in no particular order.
    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = &Arc<Override>> {
        self.by_name.values().map(|entry| &entry.value)
    }

    /// Returns [`Self::all`], and those that cannot be read.
    pub(super) fn stored(&self) -> impl Iterator<Item = StoredOverride> {
        self.all().cloned().map(StoredOverride::Readable).chain(self.unreadable.values().cloned())
    }

    pub(super) fn get(&self, name: &str) -> Option<StoredOverride> {
        let readable = self.by_name.get(name).map(|entry| StoredOverride::Readable(Arc::clone(&entry.value)));
        readable.or_else(|| self.unreadable.get(name).cloned())
    }

    /// Applies the changes read from the store.
    pub(super) fn apply(&mut self, changes: Changes, bounds: &Bounds, now: Micros) -> Vec<Edit> {
        let mut edits = Vec::new();
        match changes {
            Changes::Some(changes) => {
                for changed in changes {
                    self.since = Some(changed.id);
                    self.put(changed.name, changed.after, bounds, &mut edits);
                }
            }
            Changes::All { documents, since, is_lost } => {
                self.since = since;
                self.ended.clear();
                self.unreadable.clear();
                let before = std::mem::take(&mut self.by_name);
                edits.extend(before.values().map(|entry| Edit::Removed(Arc::clone(&entry.value))));
                documents.into_iter().for_each(|(name, document)| self.put(name, Some(document), bounds, &mut edits));
                let gone = before.keys().filter(|name| !self.by_name.contains_key(*name)).count();
                if is_lost && gone > 0 {
                    warn!("the store lost its overrides: {gone} of them were in force here");
                }
            }
        }
        for edit in &edits {
            if let Edit::Put(one) = edit {
                self.next_transition = self.next_transition.into_iter().chain(transitions(one, now)).min();
            }
        }
        edits
    }

    fn put(&mut self, name: String, document: Option<String>, bounds: &Bounds, edits: &mut Vec<Edit>) {
        // The store has another override of this name now, or none.
        self.ended.remove(&name);
        self.unreadable.remove(&name);
        let read = document.map(|document| (document::read(&document, bounds), document));
        let before = match read {
            Some((Ok(value), document)) => {
                edits.push(Edit::Put(Arc::clone(&value)));
                self.by_name.insert(name, Entry { document, value });
                return;
            }
            None => self.by_name.remove(&name),
            Some((Err(error), document)) => {
                // Both the name and the JSON error contain the keys, which only the audit log may.
                warn!(id = document::id(&document), %error, "a stored override is not in force");
                info!(target: AUDIT, name, error = %Causes(&error), "override not in force");
                let before = self.by_name.remove(&name);
                self.unreadable.insert(name.clone(), StoredOverride::unreadable(&name, &document));
                before
            }
        };
        edits.extend(before.map(|entry| Edit::Removed(entry.value)));
    }

    /// Moves overrides that have ended to `ended`, and moves back those that had ended only by the clock of a machine
    /// that ran ahead while the store was unreachable. `None`: no override has started or ended since the last call.
    pub(super) fn apply_transitions(&mut self, now: Micros, is_of_store: bool) -> Option<Vec<Edit>> {
        if is_of_store {
            self.read_at = now;
        }
        if now < std::mem::replace(&mut self.applied_at, now) {
            // Overrides that had started by a clock that ran ahead start again.
            self.next_transition = self.transition_after(now);
        }
        let back = move_those(&mut self.ended, &mut self.by_name, |entry| !entry.has_ended(now));
        if back.is_empty() && self.next_transition.is_none_or(|next| next > now) {
            return None;
        }
        let ended = move_those(&mut self.by_name, &mut self.ended, |entry| entry.has_ended(now));
        let edits = back.into_iter().map(Edit::Put).chain(ended.into_iter().map(Edit::Removed)).collect();
        self.next_transition = self.transition_after(now);
        Some(edits)
    }

    /// Returns the next time at which an override starts or ends.
    fn transition_after(&self, now: Micros) -> Option<Micros> {
        self.all().flat_map(|one| transitions(one, now)).min()
    }

    /// Whether overrides have ended since the store was last read.
    pub(super) fn needs_store_read(&self) -> bool {
        self.ended.values().any(|entry| !entry.has_ended(self.read_at))
    }

    /// Returns some of the overrides that can be removed from the store, as they have ended by its clock too: name and
    /// document.
    pub(super) fn ended(&self, most: usize) -> Vec<(String, String)> {
        let ended = self.ended.iter().filter(|(_, entry)| entry.has_ended(self.read_at));
        ended.take(most).map(|(name, entry)| (name.clone(), entry.document.clone())).collect()
    }

    /// Drops an ended override, as the store no longer has this document.
    pub(super) fn forget_ended(&mut self, name: &str, document: &str) {
        if self.ended.get(name).is_some_and(|kept| kept.document == document) {
            self.ended.remove(name);
        }
    }
}

/// Moves the entries for which `are_so` holds, and returns their overrides.
fn move_those(
    from: &mut BTreeMap<String, Entry>,
    to: &mut BTreeMap<String, Entry>,
    are_so: impl Fn(&Entry) -> bool,
) -> Vec<Arc<Override>> {
    let names: Vec<_> = from.iter().filter(|(_, entry)| are_so(entry)).map(|(name, _)| name.clone()).collect();
    let entries = names.into_iter().filter_map(|name| from.remove_entry(&name));
    let moved = entries.map(|(name, entry)| {
        let value = Arc::clone(&entry.value);
        to.insert(name, entry);
        value
    });
    moved.collect()
}

/// Returns the start of an override, if it is yet to come, and its end.
fn transitions(one: &Override, now: Micros) -> impl Iterator<Item = Micros> {
    [Some(one.start).filter(|start| *start > now), one.end].into_iter().flatten()
}
