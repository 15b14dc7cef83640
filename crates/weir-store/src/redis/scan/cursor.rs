//! The cursor of a scan.

use rmp::{
    decode::{read_array_len, read_bin_len, read_int},
    encode::{write_array_len, write_bin, write_uint},
};

/// Most bytes of pending hash names in a cursor. A page continues until fewer are pending; only very long keys exceed
/// it.
const MAX_WAITING_BYTES: usize = 32 << 10;
/// Most servers, and most hashes, accepted in a cursor.
const MAX_READ: u32 = 4_096;

/// The kinds of cursors with a single hash, and with a first hash that has moved.
const ONE_HASH: u64 = 1;
const ELSEWHERE: u64 = 2;

/// The position of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The scan reads a single hash, without scanning servers.
    is_one_hash: bool,
    /// Ids of the servers that are done.
    done: Vec<u64>,
    /// Id of the server being scanned; for a single hash, a fingerprint of all servers.
    server: Option<u64>,
    /// Its `SCAN` cursor; `None`: the end is reached.
    at: Option<u64>,
    /// Hashes that were found and not read yet, each with its `HSCAN` cursor.
    pub hashes: Vec<(Vec<u8>, u64)>,
    /// The first hash has moved to another server, where its cursor is valid.
    pub is_first_elsewhere: bool,
}

impl Cursor {
    /// Creates the cursor of the first page: for this hash, or for all servers.
    pub(super) fn start(hash: Option<Vec<u8>>) -> Self {
        Self {
            is_one_hash: hash.is_some(),
            hashes: hash.into_iter().map(|hash| (hash, 0)).collect(),
            ..Self::default()
        }
    }

    /// Adapts the cursor to the current servers. A removed server's keys are now on other servers, which are scanned
    /// instead.
    pub(super) fn resume(&mut self, ids: &[u64]) {
        if self.is_one_hash {
            let all = ids.iter().fold(0, |all, id| all ^ id);
            if self.server.replace(all) != Some(all) {
                self.hashes.iter_mut().for_each(|(_, at)| *at = 0);
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
    pub(super) fn server(&mut self, ids: &[u64]) -> Option<(usize, u64)> {
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
        self.hashes = hashes.into_iter().map(|hash| (hash, 0)).collect();
    }

    /// Records the next cursor of the first hash; 0: the end.
    pub(super) fn read_hash(&mut self, next: u64) {
        match self.hashes.first_mut() {
            Some((_, at)) if next != 0 => *at = next,
            Some(_) => {
                self.hashes.remove(0);
                self.is_first_elsewhere = false;
            }
            None => {}
        }
    }

    /// Whether the pending hashes are short enough for a cursor.
    pub(super) fn fits(&self) -> bool {
        self.hashes.iter().map(|(hash, _)| hash.len()).sum::<usize>() <= MAX_WAITING_BYTES
    }

    /// Encodes the cursor.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let kind = match (self.is_one_hash, self.is_first_elsewhere) {
            (true, _) => ONE_HASH,
            (false, true) => ELSEWHERE,
            (false, false) => 0,
        };
        let [has_server, has_at] = [self.server.is_some(), self.at.is_some()].map(u64::from);
        let numbers = [kind, has_server, has_at, self.server.unwrap_or_default(), self.at.unwrap_or_default()];
        // Writing to memory cannot fail.
        numbers.into_iter().for_each(|number| drop(write_uint(&mut out, number)));
        let _ = write_array_len(&mut out, self.done.len() as u32);
        self.done.iter().for_each(|server| drop(write_uint(&mut out, *server)));
        let _ = write_array_len(&mut out, self.hashes.len() as u32);
        for (hash, at) in &self.hashes {
            let _ = write_bin(&mut out, hash);
            let _ = write_uint(&mut out, *at);
        }
        out
    }

    /// Decodes a cursor; `None`: invalid.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let mut number = || read_int::<u64, _>(from).ok();
        let (kind, has_server, has_at) = (number()?, number()? == 1, number()? == 1);
        let (is_one_hash, is_first_elsewhere) = (kind == ONE_HASH, kind == ELSEWHERE);
        let (server, at) = (number()?, number()?);
        let length = |from: &mut &[u8]| read_array_len(from).ok().filter(|length| *length <= MAX_READ);
        let done = (0..length(from)?).map(|_| read_int(from).ok()).collect::<Option<_>>()?;
        let hash = |from: &mut &[u8]| {
            let length = read_bin_len(from).ok()?;
            let (hash, rest) = from.split_at_checked(length as usize)?;
            *from = rest;
            Some((hash.to_vec(), read_int(from).ok()?))
        };
        let hashes = (0..length(from)?).map(|_| hash(from)).collect::<Option<_>>()?;
        let (server, at) = (has_server.then_some(server), has_at.then_some(at));
        from.is_empty().then_some(Self { is_one_hash, done, server, at, hashes, is_first_elsewhere })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cursor() -> impl Strategy<Value = Cursor> {
        let hashes = prop::collection::vec((prop::collection::vec(any::<u8>(), 0..40), any::<u64>()), 0..9);
        let servers = prop::collection::vec(any::<u64>(), 0..5);
        let kinds = prop::sample::select(&[(false, false), (true, false), (false, true)][..]);
        (kinds, servers, any::<Option<u64>>(), any::<Option<u64>>(), hashes).prop_map(
            |((is_one_hash, is_first_elsewhere), done, server, at, hashes)| Cursor {
                is_one_hash,
                done,
                server,
                at,
                hashes,
                is_first_elsewhere,
            },
        )
    }

    proptest! {
        #[test]
        fn cursors_round_trip_and_truncated_ones_are_rejected(cursor in cursor()) {
            let bytes = cursor.write();
            prop_assert_eq!(Cursor::read(&bytes), Some(cursor));
            for cut in 0..bytes.len() {
                prop_assert_eq!(Cursor::read(&bytes[..cut]), None);
            }
        }

        #[test]
        fn any_bytes_are_a_cursor_or_none(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            let _ = Cursor::read(&bytes);
        }
    }

    #[test]
    fn each_server_is_scanned_once_and_a_new_one_from_its_beginning() {
        let mut cursor = Cursor::start(None);
        cursor.resume(&[7, 8]);
        assert_eq!(cursor.server(&[7, 8]), Some((0, 0)));
        cursor.scanned(5, vec![b"a".to_vec(), b"b".to_vec()]);
        cursor.read_hash(3);
        assert_eq!(cursor.hashes, [(b"a".to_vec(), 3), (b"b".to_vec(), 0)]);
        // The server was restarted.
        cursor.resume(&[9, 8]);
        assert_eq!((cursor.server(&[9, 8]), cursor.hashes.len()), (Some((0, 0)), 0));
        cursor.scanned(0, vec![b"a".to_vec()]);
        assert_eq!(cursor.server(&[9, 8]), Some((0, 0)), "its hashes wait");
        cursor.read_hash(0);
        assert_eq!(cursor.server(&[9, 8]), Some((1, 0)));
        cursor.scanned(0, Vec::new());
        assert_eq!(cursor.server(&[9, 8]), None);
    }

    #[test]
    fn one_hash_is_read_from_its_beginning_where_a_server_is_new() {
        let mut cursor = Cursor::start(Some(b"h".to_vec()));
        cursor.resume(&[7]);
        cursor.read_hash(4);
        cursor.resume(&[7]);
        assert_eq!((cursor.hashes[0].1, cursor.server(&[7])), (4, None));
        cursor.resume(&[8]);
        assert_eq!(cursor.hashes[0].1, 0);
    }
}
