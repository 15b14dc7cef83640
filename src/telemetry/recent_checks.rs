//! A record of the checks of the last minutes, of bounded size: their keys, costs, times and results.
//!
//! While there is capacity, it has all checks. Otherwise it has the checks of a part of the keys, selected by a hash of
//! their first two segments: every check of a recorded key is kept, so that the decisions of another limit can be
//! computed.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    mem,
    sync::atomic::{AtomicU32, Ordering},
};

use parking_lot::Mutex;
use weir_core::domain::{Clock, Key, Micros, key::END, time::SECOND};
use weir_store::SystemClock;

/// The time span of the record.
const WINDOW: Micros = 300 * SECOND;
/// The number of leading segments by which keys are selected: keys with the same ones are recorded together.
const SEGMENTS: usize = 2;
/// Maximum of the sample shift: the record has at least one of 2 to the power of this keys.
const MAX_SAMPLE_SHIFT: u32 = 30;
/// Maximum length of a recorded key, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// A check's parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The units to charge; negative: a refund.
    pub cost: i64,
    /// The longest wait that the client accepts.
    pub max_wait: Option<Micros>,
    /// Divides the limits.
    pub factor: f64,
    /// Whether the check was allowed.
    pub allowed: bool,
}

/// A recorded check.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedCheck {
    /// The time, in microseconds since 1970.
    pub at: Micros,
    /// The key; long segments are hashed.
    pub key: Key,
    /// Its parameters.
    pub terms: Terms,
}

/// The checks of the last minutes.
pub struct RecentChecks {
    hasher: RandomState,
    /// Continues when the wall clock is set: the ring is in order, and a step would drop all of it.
    clock: SystemClock,
    /// One of 2 to the power of this keys is recorded.
    sample_shift: AtomicU32,
    ring: Mutex<Ring>,
    /// Held by the reader, which has taken the records out of the ring.
    reading: Mutex<()>,
}

struct Ring {
    max_bytes: usize,
    /// Records, the oldest first: the length of the key's name, the sample shift at that time, the terms, and the name.
    bytes: VecDeque<u8>,
}

/// The header of a record, before the key's name.
struct Head {
    name_bytes: u16,
    sample_shift: u8,
    at: Micros,
    terms: Terms,
}

impl Head {
    const BYTES: usize = 2 + 1 + 1 + 4 * 8;

    fn write(&self) -> [u8; Self::BYTES] {
        let Terms { cost, max_wait, factor, allowed } = self.terms;
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&self.name_bytes.to_le_bytes());
        (bytes[2], bytes[3]) = (self.sample_shift, u8::from(allowed));
        let words =
            [self.at.to_le_bytes(), cost.to_le_bytes(), max_wait.unwrap_or(-1).to_le_bytes(), factor.to_le_bytes()];
        bytes[4..].copy_from_slice(words.as_flattened());
        bytes
    }

    fn read(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[4 + 8 * index..][..8]);
            word
        };
        let max_wait = Some(Micros::from_le_bytes(word(2))).filter(|wait| *wait >= 0);
        let (cost, factor) = (i64::from_le_bytes(word(1)), f64::from_le_bytes(word(3)));
        let terms = Terms { cost, max_wait, factor, allowed: bytes[3] == 1 };
        let at = Micros::from_le_bytes(word(0));
        Self { name_bytes: u16::from_le_bytes([bytes[0], bytes[1]]), sample_shift: bytes[2], at, terms }
    }
}

impl RecentChecks {
    /// Creates a record of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        // Pages that have not been written to take no memory.
        let ring = Ring { max_bytes, bytes: VecDeque::with_capacity(max_bytes) };
        Self {
            hasher: RandomState::new(),
            clock: SystemClock::new(),
            sample_shift: AtomicU32::new(0),
            ring: Mutex::new(ring),
            reading: Mutex::default(),
        }
    }

    /// Records a decided check, if its key is selected.
    #[inline]
    pub fn record(&self, key: &Key, terms: &Terms) {
        if self.is_sampled(key, self.sample_shift.load(Ordering::Relaxed)) {
            self.append(key, terms);
        }
    }

    #[inline]
    fn is_sampled(&self, key: &Key, sample_shift: u32) -> bool {
        sample_shift == 0
            || self.hasher.hash_one(key.prefix(SEGMENTS.min(key.depth()))) & ((1 << sample_shift) - 1) == 0
    }

    fn append(&self, key: &Key, terms: &Terms) {
        let name = key.prefix(key.depth());
        if name.len() >= MAX_NAME_BYTES {
            return;
        }
        // Waits, as a check that was left out would change the decisions of a replay.
        let mut ring = self.ring.lock();
        let sample_shift = self.sample_shift.load(Ordering::Relaxed);
        let next = ring.push(self.clock.now(), sample_shift, name, terms);
        if next != sample_shift {
            self.sample_shift.store(next, Ordering::Relaxed);
        }
    }

    /// Copies the records. Meanwhile they are out of the ring, so that no check waits for the copy.
    fn copy(&self) -> VecDeque<u8> {
        let _reading = self.reading.lock();
        let taken = mem::take(&mut self.ring.lock().bytes);
        let copy = taken.clone();
        self.ring.lock().put_back(taken);
        copy
    }

    /// Returns the checks of the last minutes, the oldest first, and `n`: the record has one of `n` keys.
    pub fn read(&self) -> (Vec<RecordedCheck>, u64) {
        let since = self.clock.now() - WINDOW;
        let mut bytes = self.copy();
        let bytes = &*bytes.make_contiguous();
        let records = || Records(bytes).filter(|(head, _)| head.at >= since);
        let sample_shift = records().map(|(head, _)| head.sample_shift).max().unwrap_or(0).into();
        let read = |(head, name): (Head, &[u8])| {
            let key = Key::of_name(name).filter(|key| self.is_sampled(key, sample_shift))?;
            Some(RecordedCheck { at: head.at, key, terms: head.terms })
        };
        (records().filter_map(read).collect(), 1 << sample_shift)
    }
}

impl Ring {
    /// Adds a record, and returns the sample shift for the next ones.
    fn push(&mut self, now: Micros, sample_shift: u32, name: &[u8], terms: &Terms) -> u32 {
        let (mut next, size) = (sample_shift, Head::BYTES + name.len() + 1);
        while let Some(oldest) = self.oldest() {
            let is_over = oldest.at < now - WINDOW;
            if !is_over && self.bytes.len() + size <= self.max_bytes {
                // Small enough to have capacity for twice as many keys, from now on.
                let is_alike = u32::from(oldest.sample_shift) == sample_shift && oldest.at < now - WINDOW / 2;
                if is_alike && self.bytes.len() < self.max_bytes / 4 {
                    next = sample_shift.saturating_sub(1);
                }
                break;
            }
            // Records from before the last increase are removed first.
            if !is_over && u32::from(oldest.sample_shift) == sample_shift {
                next = (sample_shift + 1).min(MAX_SAMPLE_SHIFT);
            }
            self.remove(&oldest);
        }
        if size <= self.max_bytes {
            let name_bytes = name.len() as u16 + 1;
            let head = Head { name_bytes, sample_shift: sample_shift as u8, at: now, terms: *terms };
            self.bytes.extend(head.write());
            self.bytes.extend(name);
            // As in the names of states in the store.
            self.bytes.push_back(END);
        }
        next
    }

    /// Puts records back that were taken out, before those that were added meanwhile.
    fn put_back(&mut self, taken: VecDeque<u8>) {
        let mut added = mem::replace(&mut self.bytes, taken);
        while self.bytes.len() + added.len() > self.max_bytes
            && let Some(oldest) = self.oldest()
        {
            self.remove(&oldest);
        }
        self.bytes.append(&mut added);
    }

    fn oldest(&self) -> Option<Head> {
        let mut bytes = [0; Head::BYTES];
        let mut first = self.bytes.iter();
        for byte in &mut bytes {
            *byte = *first.next()?;
        }
        Some(Head::read(&bytes))
    }

    /// Removes the oldest record.
    fn remove(&mut self, oldest: &Head) {
        self.bytes.drain(..Head::BYTES + usize::from(oldest.name_bytes));
    }
}

/// The records of a ring.
struct Records<'r>(&'r [u8]);

impl<'r> Iterator for Records<'r> {
    type Item = (Head, &'r [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_first_chunk()?;
        let head = Head::read(head);
        let (name, rest) = rest.split_at_checked(head.name_bytes.into())?;
        self.0 = rest;
        Some((head, name))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ops::Range, thread};

    use super::*;

    const TERMS: Terms = Terms { cost: 3, max_wait: None, factor: 1.0, allowed: true };

    fn key(name: &str) -> Key {
        Key::new("d", &["user", name, "trade"]).unwrap()
    }

    #[test]
    fn checks_are_read_as_they_were_recorded() {
        let recent = RecentChecks::new(1 << 16);
        let terms = Terms { max_wait: Some(7), factor: 0.5, allowed: false, ..TERMS };
        recent.record(&key("a"), &TERMS);
        recent.record(&key("b"), &terms);
        let (checks, one_of) = recent.read();
        assert_eq!((checks.len(), one_of, checks[0].terms, checks[1].terms), (2, 1, TERMS, terms));
        assert_eq!((checks[1].key.domain(), checks[1].key.segment(1)), (&b"d"[..], &b"b"[..]));
        assert!(checks[0].at <= checks[1].at && recent.clock.now() - checks[1].at < WINDOW);
    }

    #[test]
    fn concurrent_checks_are_all_recorded_also_while_they_are_read() {
        const EACH: usize = 20_000;
        let recent = RecentChecks::new(16 << 20);
        let done = AtomicU32::new(0);
        thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let (recent, done) = (&recent, &done);
                scope.spawn(move || {
                    (0..EACH).for_each(|_| recent.record(&key(name), &TERMS));
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            while done.load(Ordering::Relaxed) < 3 {
                recent.read();
            }
        });
        let (checks, one_of) = recent.read();
        assert_eq!((checks.len(), one_of), (3 * EACH, 1));
        assert!(checks.is_sorted_by_key(|check| check.at), "the oldest first");
    }

    #[test]
    fn records_that_are_put_back_make_room_for_those_that_were_added() {
        let mut ring = Ring { max_bytes: 256, bytes: VecDeque::new() };
        let name = key("a");
        let add = |ring: &mut Ring, times: Range<Micros>| {
            for at in times {
                ring.push(at, 0, name.prefix(3), &TERMS);
            }
        };
        add(&mut ring, 0..3);
        let taken = mem::take(&mut ring.bytes);
        add(&mut ring, 3..6);
        ring.put_back(taken);
        assert!(ring.bytes.len() <= ring.max_bytes);
        let times: Vec<_> = Records(ring.bytes.make_contiguous()).map(|(head, _)| head.at).collect();
        assert_eq!(*times, (6 - times.len() as Micros..6).collect::<Vec<_>>());
        assert!(times.len() > 3, "{times:?}");
    }

    #[test]
    fn excess_checks_are_sampled_by_key() {
        let recent = RecentChecks::new(1 << 14);
        for round in 0..50 {
            for number in 0..200 {
                recent.record(&key(&number.to_string()), &TERMS);
            }
            assert!(recent.ring.lock().bytes.len() <= 1 << 14, "{round}");
        }
        let (checks, one_of) = recent.read();
        assert!(one_of >= 8 && !checks.is_empty(), "{one_of}");
        let recorded: BTreeSet<_> = checks.iter().map(|check| check.key.segment(1).to_vec()).collect();
        assert!(recorded.len() <= 200 * 4 / one_of as usize + 4, "{recorded:?} of {one_of}");
        // Equally many of each key, except for the one with which the record starts or ends.
        let times = |name: &[u8]| checks.iter().filter(|check| check.key.segment(1) == name).count();
        let times: Vec<_> = recorded.iter().map(|name| times(name)).collect();
        assert!(times.iter().max().unwrap() - times.iter().min().unwrap() <= 1, "{times:?}");
        // After the load has dropped.
        let (mut ring, sample_shift) = (recent.ring.lock(), recent.sample_shift.load(Ordering::Relaxed));
        let name = key("calm");
        let later = |ring: &mut Ring, at| ring.push(recent.clock.now() + at, sample_shift, name.prefix(3), &TERMS);
        assert_eq!(later(&mut ring, 2 * WINDOW), sample_shift);
        assert_eq!(later(&mut ring, 2 * WINDOW + WINDOW / 2 + 1), sample_shift - 1);
    }
}
