//! The cursor of a scan.

use prost::Message;

/// Most bytes of pending hash names in a cursor. A page continues until fewer are pending; only very long keys exceed
/// it.
const MAX_WAITING_BYTES: usize = 32 << 10;
/// Most entries of a list in a cursor from a client: more than [`MAX_WAITING_BYTES`] of names make.
const MAX_ENTRIES: usize = 4 << 10;

/// The position of a scan.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Cursor {
    /// The scan reads a single hash, without scanning servers.
    #[prost(bool, tag = "1")]
    is_one_hash: bool,
    /// Ids of the servers that are done.
    #[prost(fixed64, repeated, tag = "2")]
    done: Vec<u64>,
    /// Id of the server being scanned; for a single hash, a fingerprint of all servers.
    #[prost(fixed64, optional, tag = "3")]
    server: Option<u64>,
    /// Its `SCAN` cursor; `None`: the end is reached.
    #[prost(uint64, optional, tag = "4")]
    at: Option<u64>,
    /// Hashes that were found and not read yet.
    #[prost(message, repeated, tag = "5")]
    pub hashes: Vec<Pending>,
    /// The first hash has moved to another server, where its cursor is valid.
    #[prost(bool, tag = "6")]
    pub is_first_elsewhere: bool,
}

/// A hash to read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Pending {
    #[prost(bytes = "vec", tag = "1")]
    pub hash: Vec<u8>,
    /// Its `HSCAN` cursor.
    #[prost(uint64, tag = "2")]
    pub at: u64,
}

impl Cursor {
    /// Creates the cursor of the first page: for this hash, or for all servers.
    pub(super) fn start(hash: Option<Vec<u8>>) -> Self {
        Self {
            is_one_hash: hash.is_some(),
            hashes: hash.into_iter().map(|hash| Pending { hash, at: 0 }).collect(),
            ..Self::default()
        }
    }

    /// Reads a cursor of an earlier page. `None`: it is none.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let read = Self::decode(bytes).ok()?;
        (read.hashes.len().max(read.done.len()) <= MAX_ENTRIES).then_some(read)
    }

    /// Adapts the cursor to the current servers. A removed server's keys are now on other servers, which are scanned
    /// instead.
    pub(super) fn resume(&mut self, ids: &[u64]) {
        if self.is_one_hash {
            let all = ids.iter().fold(0, |all, id| all ^ id);
            if self.server.replace(all) != Some(all) {
                self.hashes.iter_mut().for_each(|pending| pending.at = 0);
            }
            return;
        }
        if self.server.is_some_and(|server| !ids.contains(&server)) {
            (self.server, self.at, self.hashes, self.is_first_elsewhere) = (None, None, Vec::new(), false);
        }
        self.done.retain(|server| ids.contains(server));
    }

    /// Returns the index and cursor of the server to scan, or whose hashes are pending; the next server if that one is
    /// done. `None`: all are done.
    pub(super) fn next_server(&mut self, ids: &[u64]) -> Option<(usize, u64)> {
        if self.is_one_hash {
            return None;
        }
        if self.at.is_none() && self.hashes.is_empty() {
            self.done.extend(self.server.take());
        }
        let server = match self.server {
            Some(server) => server,
            None => {
                let next = ids.iter().copied().find(|id| !self.done.contains(id))?;
                (self.server, self.at) = (Some(next), Some(0));
                next
            }
        };
        Some((ids.iter().position(|id| *id == server)?, self.at.unwrap_or_default()))
    }

    /// Records the hashes found on a server and its next cursor; 0: the end.
    pub(super) fn scanned(&mut self, next: u64, hashes: Vec<Vec<u8>>) {
        self.at = (next != 0).then_some(next);
        self.hashes = hashes.into_iter().map(|hash| Pending { hash, at: 0 }).collect();
    }

    /// Records the next cursor of the first hash; 0: the end.
    pub(super) fn read_hash(&mut self, next: u64) {
        match self.hashes.first_mut() {
            Some(first) if next != 0 => first.at = next,
            Some(_) => {
                self.hashes.remove(0);
                self.is_first_elsewhere = false;
            }
            None => {}
        }
    }

    /// Whether the pending hashes are short enough for a cursor.
    pub(super) fn fits(&self) -> bool {
        self.hashes.iter().map(|pending| pending.hash.len()).sum::<usize>() <= MAX_WAITING_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(hash: &[u8], at: u64) -> Pending {
        Pending { hash: hash.to_vec(), at }
    }

    #[test]
    fn each_server_is_scanned_once_and_a_new_one_from_its_beginning() {
        let mut cursor = Cursor::start(None);
        cursor.resume(&[7, 8]);
        assert_eq!(cursor.next_server(&[7, 8]), Some((0, 0)));
        cursor.scanned(5, vec![b"a".to_vec(), b"b".to_vec()]);
        cursor.read_hash(3);
        assert_eq!(cursor.hashes, [pending(b"a", 3), pending(b"b", 0)]);
        // The server was restarted.
        cursor.resume(&[9, 8]);
        assert_eq!((cursor.next_server(&[9, 8]), cursor.hashes.len()), (Some((0, 0)), 0));
        cursor.scanned(0, vec![b"a".to_vec()]);
        assert_eq!(cursor.next_server(&[9, 8]), Some((0, 0)), "its hashes wait");
        cursor.read_hash(0);
        assert_eq!(cursor.next_server(&[9, 8]), Some((1, 0)));
        cursor.scanned(0, Vec::new());
        assert_eq!(cursor.next_server(&[9, 8]), None);
    }

    #[test]
    fn cursors_of_clients_are_bounded() {
        for (entries, is_read) in [(MAX_ENTRIES, true), (MAX_ENTRIES + 1, false)] {
            let hashes = Cursor { hashes: vec![pending(b"", 0); entries], ..Cursor::default() };
            let done = Cursor { done: vec![0; entries], ..Cursor::default() };
            for cursor in [hashes, done] {
                assert_eq!(Cursor::read(&cursor.encode_to_vec()), is_read.then_some(cursor));
            }
        }
        assert_eq!(Cursor::read(&[0xff]), None);
    }

    #[test]
    fn one_hash_is_read_from_its_beginning_where_a_server_is_new() {
        let mut cursor = Cursor::start(Some(b"h".to_vec()));
        cursor.resume(&[7]);
        cursor.read_hash(4);
        cursor.resume(&[7]);
        assert_eq!((cursor.hashes[0].at, cursor.next_server(&[7])), (4, None));
        cursor.resume(&[8]);
        assert_eq!(cursor.hashes[0].at, 0);
    }
}
