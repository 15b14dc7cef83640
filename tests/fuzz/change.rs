//! Random mutations of inputs. proptest shrinks them one by one when an input fails.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::Index};

/// Maximum input length in bytes.
const MAX_BYTES: usize = 1 << 16;
/// Maximum number of mutations of one input.
const MAX_CHANGES: usize = 6;
/// Maximum length of a part that is copied, repeated or removed, and the maximum number of repetitions.
const MAX_PART: usize = 64;
const MAX_TIMES: usize = 200;
/// Words that are interesting in any text.
const WORDS: [&str; 14] = [
    "0",
    "-1",
    "1.5",
    "1e308",
    "NaN",
    "null",
    "true",
    "*",
    "\"",
    "\\u0000",
    "4294967296",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551616",
];
/// Numbers that are interesting in binary input.
const NUMBERS: [u64; 8] = [0, 1, 0x7f, 0x80, 0x7fff_ffff, 1 << 53, i64::MAX as u64, u64::MAX];

/// The source of inputs and of their mutations.
pub struct Corpus {
    entries: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize, usize),
    Number(Index, Vec<u8>),
    Word(Index, Index),
    Copy { from: Index, at: Index, length: usize, to: Index },
}

impl Corpus {
    pub fn new(entries: Vec<Vec<u8>>) -> Self {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let found = entries.iter().flat_map(|entry| entry.split(|byte| !is_word(byte)));
        let mut words: Vec<_> = found.filter(|word| (2..=MAX_PART).contains(&word.len())).map(<[u8]>::to_vec).collect();
        words.extend(WORDS.map(|word| word.as_bytes().to_vec()));
        words.sort();
        words.dedup();
        Self { entries, words }
    }
}

/// Generates mutated entries of a corpus.
pub fn changed(corpus: Arc<Corpus>) -> impl Strategy<Value = Vec<u8>> {
    (any::<Index>(), vec(change(), 1..=MAX_CHANGES)).prop_map(move |(entry, changes)| {
        let mut bytes = entry.get(&corpus.entries).clone();
        for change in changes {
            change.apply(&mut bytes, &corpus);
            bytes.truncate(MAX_BYTES);
        }
        bytes
    })
}

fn change() -> impl Strategy<Value = Change> {
    let number = (prop::sample::select(NUMBERS.to_vec()), 0..4_usize, any::<bool>()).prop_map(|(number, size, big)| {
        let size = 1 << size;
        if big { number.to_be_bytes()[8 - size..].to_vec() } else { number.to_le_bytes()[..size].to_vec() }
    });
    let part = 1..=MAX_PART;
    prop_oneof![
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<Index>(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<Index>(), part.clone()).prop_map(|(at, length)| Change::Remove(at, length)),
        (any::<Index>(), part.clone(), 1..=MAX_TIMES).prop_map(|(at, length, times)| Change::Repeat(at, length, times)),
        (any::<Index>(), number).prop_map(|(at, bytes)| Change::Number(at, bytes)),
        (any::<Index>(), any::<Index>()).prop_map(|(at, word)| Change::Word(at, word)),
        (any::<Index>(), any::<Index>(), part, any::<Index>()).prop_map(|(from, at, length, to)| Change::Copy {
            from,
            at,
            length,
            to
        }),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, corpus: &Corpus) {
        match self {
            Self::Flip(at, bit) => {
                let at = place(at, bytes);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
            }
            Self::Set(at, new) => put(bytes, at, 1, &[*new]),
            Self::Insert(at, new) => put(bytes, at, 0, new),
            Self::Remove(at, length) => put(bytes, at, *length, &[]),
            Self::Repeat(at, length, times) => {
                let repeated = part(bytes, at, *length).repeat(*times);
                put(bytes, at, *length, &repeated);
            }
            Self::Number(at, number) => put(bytes, at, number.len(), number),
            Self::Word(at, word) => {
                let rest = part(bytes, at, MAX_PART);
                let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                put(bytes, at, length, word.get::<Vec<u8>>(&corpus.words));
            }
            Self::Copy { from, at, length, to } => {
                put(bytes, to, 0, part(from.get::<Vec<u8>>(&corpus.entries), at, *length));
            }
        }
    }
}

/// Returns a position in the bytes, or the end, so that there always is one.
fn place(at: &Index, bytes: &[u8]) -> usize {
    at.index(bytes.len() + 1)
}

fn part<'b>(bytes: &'b [u8], at: &Index, length: usize) -> &'b [u8] {
    let rest = &bytes[place(at, bytes)..];
    &rest[..rest.len().min(length)]
}

/// Replaces `length` bytes.
fn put(bytes: &mut Vec<u8>, at: &Index, length: usize, new: &[u8]) {
    let at = place(at, bytes);
    let end = bytes.len().min(at + length);
    bytes.splice(at..end, new.iter().copied());
}
