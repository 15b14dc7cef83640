//! Loading a snapshot: first the checksum of the whole file, then the states one by one.

use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read, Seek},
    path::Path,
    sync::atomic::Ordering,
};

use super::{CHECKSUM, END_OF_STATES, MAGIC, SnapshotError, VERSION, VERSION_WITHOUT_HOLDS, holds};
use crate::MemoryStore;
use weir_core::{
    algorithm::{self, State},
    domain::{Clock, Micros, key::parts_end, time::MAX_MOMENT},
};
use weir_settings::file;

/// Bytes per read.
const BUFFER: usize = 128 << 10;

/// A file with a valid checksum, ready to be loaded.
pub struct Snapshot {
    from: io::Take<BufReader<File>>,
    version: u32,
    clock: Micros,
    algorithms: Vec<String>,
}

/// The outcome of loading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// States in the file.
    pub states: u64,
    /// States dropped because they had expired.
    pub expired: u64,
    /// States for which the store had no capacity.
    pub left_out: u64,
}

impl Snapshot {
    /// Opens a file and verifies its checksum by reading it once. Returns `None` if there is no file.
    ///
    /// # Errors
    /// [`SnapshotError`] for a file that is not a complete snapshot of this version or an earlier one.
    pub fn open(path: &Path) -> Result<Option<Self>, SnapshotError> {
        let mut file = match file::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SnapshotError::Io(error)),
        };
        check_version(&mut file)?;
        file.rewind().map_err(SnapshotError::Io)?;
        let content = checked_length(&mut file)?;
        file.rewind().map_err(SnapshotError::Io)?;
        let mut from = BufReader::with_capacity(BUFFER, file).take(content);
        bytes::<{ MAGIC.len() }>(&mut from)?;
        let version = u32::from_le_bytes(bytes(&mut from)?);
        let clock = Micros::from_le_bytes(bytes(&mut from)?);
        if !(0..=MAX_MOMENT).contains(&clock) {
            return Err(SnapshotError::Nonsense(0));
        }
        let [count] = bytes(&mut from)?;
        let mut algorithms = Vec::new();
        for _ in 0..count {
            let [length] = bytes(&mut from)?;
            let mut name = Vec::new();
            read_into(&mut from, &mut name, length.into())?;
            algorithms.push(String::from_utf8_lossy(&name).into_owned());
        }
        Ok(Some(Self { from, version, clock, algorithms }))
    }

    /// Returns the clock of the store that was saved. The clock of the loading store must not be behind it.
    pub fn clock(&self) -> Micros {
        self.clock
    }

    /// Adds the unexpired states to a store that serves no requests yet, as far as they fit. `anchor_of` returns the
    /// anchor of a domain, given as [`weir_core::domain::key::domain_name`].
    ///
    /// # Errors
    /// [`SnapshotError`] for unknown algorithms and invalid content. The store may then have some of the states.
    pub fn load_into<C: Clock>(
        mut self,
        store: &MemoryStore<C>,
        anchor_of: impl Fn(&[u8]) -> u8,
    ) -> Result<Loaded, SnapshotError> {
        let now = store.clock.now();
        let mut loaded = Loaded::default();
        let (mut words, mut name) = (Vec::new(), Vec::new());
        loop {
            let nonsense = || SnapshotError::Nonsense(loaded.states);
            let [number] = bytes(&mut self.from)?;
            if number == END_OF_STATES {
                break;
            }
            let algorithm = self.algorithms.get(usize::from(number) - 1).ok_or_else(nonsense)?;
            words.clear();
            for _ in 0..u16::from_le_bytes(bytes(&mut self.from)?) {
                words.push(f64::from_le_bytes(bytes(&mut self.from)?));
            }
            let expires = Micros::from_le_bytes(bytes(&mut self.from)?);
            let length = u16::from_le_bytes(bytes(&mut self.from)?);
            read_into(&mut self.from, &mut name, length.into())?;
            if algorithm::find(algorithm).is_none() {
                return Err(SnapshotError::UnknownAlgorithm(algorithm.clone()));
            }
            let state = State::decode(algorithm, &words).ok_or_else(nonsense)?;
            let parts = Parts::of(&name, &anchor_of).ok_or_else(nonsense)?;
            loaded.states += 1;
            if expires <= now {
                loaded.expired += 1;
            } else if !store.put_back(&parts, state, words.len(), expires) {
                loaded.left_out += 1;
                store.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.version > VERSION_WITHOUT_HOLDS {
            let left_out = holds::load(&mut self.from, store, &anchor_of, now, loaded.states)?;
            store.left_out.fetch_add(left_out, Ordering::Relaxed);
            loaded.left_out += left_out as u64;
        }
        let said = u64::from_le_bytes(bytes(&mut self.from)?);
        if said != loaded.states || self.from.limit() > 0 {
            return Err(SnapshotError::Nonsense(loaded.states));
        }
        Ok(loaded)
    }
}

/// A state's name, split into its parts.
pub(in crate::memory) struct Parts<'a> {
    pub path: &'a [u8],
    pub anchor_end: usize,
    pub ident: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(super) fn of(name: &'a [u8], anchor_of: impl Fn(&[u8]) -> u8) -> Option<Self> {
        let (path, ident) = name.split_at_checked(parts_end(name, usize::MAX)?)?;
        let domain = path.get(..parts_end(name, 1)?)?;
        let anchor_end = parts_end(name, 1 + usize::from(anchor_of(domain)))?;
        Some(Self { path, anchor_end, ident })
    }
}

fn check_version(file: &mut File) -> Result<(), SnapshotError> {
    let mut begin = Vec::new();
    file.take((MAGIC.len() + size_of::<u32>()) as u64).read_to_end(&mut begin).map_err(SnapshotError::Io)?;
    match begin.split_first_chunk::<{ MAGIC.len() }>() {
        Some((magic, version)) if magic == MAGIC => match version.try_into().map(u32::from_le_bytes) {
            Ok(version) if version > VERSION => Err(SnapshotError::Newer(version)),
            Ok(VERSION_WITHOUT_HOLDS..=VERSION) => Ok(()),
            _ => Err(SnapshotError::Damaged),
        },
        _ if MAGIC.starts_with(&begin) => Err(SnapshotError::Damaged),
        _ => Err(SnapshotError::Foreign),
    }
}

/// Verifies the checksum and returns the length of the content before it.
fn checked_length(file: &mut File) -> Result<u64, SnapshotError> {
    let length = file.metadata().map_err(SnapshotError::Io)?.len();
    let content = length.checked_sub(CHECKSUM as u64).ok_or(SnapshotError::Damaged)?;
    let (mut hasher, mut buffer, mut left) = (blake3::Hasher::new(), vec![0; BUFFER], content);
    while left > 0 {
        let most = usize::try_from(left).map_or(BUFFER, |left| left.min(BUFFER));
        let read = file.read(&mut buffer[..most]).map_err(SnapshotError::Io)?;
        if read == 0 {
            return Err(SnapshotError::Damaged);
        }
        hasher.update(&buffer[..read]);
        left -= read as u64;
    }
    let said: [u8; CHECKSUM] = bytes(file)?;
    if hasher.finalize() == said { Ok(content) } else { Err(SnapshotError::Damaged) }
}

pub(super) fn bytes<const N: usize>(from: &mut impl Read) -> Result<[u8; N], SnapshotError> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map_err(ended)?;
    Ok(bytes)
}

pub(super) fn read_into(from: &mut impl Read, into: &mut Vec<u8>, length: usize) -> Result<(), SnapshotError> {
    into.clear();
    into.resize(length, 0);
    from.read_exact(into).map_err(ended)
}

fn ended(error: io::Error) -> SnapshotError {
    if error.kind() == ErrorKind::UnexpectedEof { SnapshotError::Damaged } else { SnapshotError::Io(error) }
}
