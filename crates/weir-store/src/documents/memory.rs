//! Documents of a service without a shared store: in memory, and in a file if configured.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::Arc,
};

use parking_lot::Mutex;

use super::{
    Change, ChangeError, ChangeId, Changed, Changes, MAX_DOCUMENTS, MAX_LOG,
    file::{FileError, LogFile},
};
use weir_core::domain::Clock;

/// Documents in this process.
pub struct MemoryDocuments {
    kept: Mutex<Kept>,
    /// Held for the whole of a change, which serializes changes. Locked before `kept`, which is never held during disk
    /// I/O, so that reads do not wait for the disk.
    file: Mutex<Option<LogFile>>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Kept {
    documents: BTreeMap<String, String>,
    log: VecDeque<Changed>,
}

impl MemoryDocuments {
    /// Creates an empty set of documents that does not survive a restart.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { kept: Mutex::default(), file: Mutex::default(), clock }
    }

    /// Loads the documents of a file, which need not exist, and writes changes to it before they are answered.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be used; for an invalid line, with its number.
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, FileError> {
        let mut kept = Kept::default();
        let log = LogFile::read(path)?;
        log.iter().for_each(|changed| kept.add(changed.clone()));
        let file = LogFile::open(path, &log, |changed| kept.needs(changed))?;
        Ok(Self { kept: Mutex::new(kept), file: Mutex::new(Some(file)), clock })
    }

    pub(super) fn change(&self, change: &Change) -> Result<Option<Changed>, ChangeError> {
        let mut file = self.file.lock();
        let (before, previous, count) = {
            let kept = self.kept.lock();
            let before = kept.documents.get(&change.name).cloned();
            (before, kept.log.back().map(|changed| changed.id), kept.documents.len())
        };
        let is_unexpected = change.expected.is_some() && before != change.expected;
        if is_unexpected || (before.is_none() && change.document.is_none()) {
            return Ok(None);
        }
        if before.is_none() && count >= MAX_DOCUMENTS {
            return Err(ChangeError::Full);
        }
        let changed = Changed {
            id: self.next_id(previous),
            previous,
            name: change.name.clone(),
            before,
            after: change.document.clone(),
            actor: change.actor.clone(),
        };
        if let Some(file) = &mut *file {
            file.append(&changed).map_err(ChangeError::File)?;
        }
        self.kept.lock().add(changed.clone());
        if let Some(file) = &mut *file {
            file.compact(|changed| self.kept.lock().needs(changed));
        }
        Ok(Some(changed))
    }

    fn next_id(&self, previous: Option<ChangeId>) -> ChangeId {
        let millis = self.clock.now().max(0).unsigned_abs() / 1_000;
        match previous {
            Some(before) if before.millis >= millis => ChangeId { number: before.number + 1, ..before },
            _ => ChangeId { millis, number: 0 },
        }
    }

    pub(super) fn changes(&self, since: Option<ChangeId>) -> Changes {
        let kept = self.kept.lock();
        let last = kept.log.back().map(|changed| changed.id);
        if since == last {
            return Changes::Some(Vec::new());
        }
        let place = since.and_then(|since| kept.log.binary_search_by_key(&since, |changed| changed.id).ok());
        match place {
            Some(place) => Changes::Some(kept.log.range(place + 1..).cloned().collect()),
            None => {
                let documents = kept.documents.clone().into_iter().collect();
                Changes::All { documents, since: last, is_lost: false }
            }
        }
    }

    pub(super) fn log(&self, before: Option<ChangeId>, most: usize) -> Vec<Changed> {
        let kept = self.kept.lock();
        let newest_first =
            kept.log.iter().rev().skip_while(|changed| before.is_some_and(|before| changed.id >= before));
        newest_first.take(most).cloned().collect()
    }
}

impl Kept {
    /// Whether a document is as this change made it.
    fn needs(&self, changed: &Changed) -> bool {
        changed.after.is_some() && self.documents.get(&changed.name) == changed.after.as_ref()
    }

    fn add(&mut self, changed: Changed) {
        match &changed.after {
            Some(document) => drop(self.documents.insert(changed.name.clone(), document.clone())),
            None => drop(self.documents.remove(&changed.name)),
        }
        if self.log.len() >= MAX_LOG {
            self.log.pop_front();
        }
        self.log.push_back(changed);
    }
}
