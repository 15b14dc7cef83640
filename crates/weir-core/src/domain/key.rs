//! The key: a path of segments within a domain, encoded once and then compared and hashed as bytes.

use smallvec::SmallVec;
use thiserror::Error;

/// Maximum number of segments of a key.
pub const MAX_SEGMENTS: usize = 32;
/// Maximum bytes of a segment, and of a domain's name.
pub const MAX_SEGMENT_BYTES: usize = 1_024;

/// Longest segment, in bytes, that a state's name contains verbatim. A longer one is replaced by its hash, so that
/// clients cannot choose how large a state's name is.
pub const MAX_PLAIN_BYTES: usize = 64;

/// The byte before a segment's hash in the name of a state, and the length of the hash in bytes.
const HASHED: u8 = 0xfe;
const HASH_BYTES: usize = 16;

/// A byte that starts no encoded segment. A store appends it to a key's encoding to mark its end, so that a prefix of
/// one key is never mistaken for another.
pub const END: u8 = 0xff;

/// A domain and a path within it, in one injective encoding: for the domain and then each segment, its length in one
/// byte if below 128, else in two (`0x80 | high`, `low`), then its bytes. The encoding of a prefix of the path is a
/// prefix of the encoding, so the keys below a key start with its bytes.
///
/// Keys of up to 112 bytes need no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    written: Encoding,
    /// The encoding with a hash in place of every segment of over 64 bytes, if there is one: 128 bits of BLAKE3, the
    /// same in every process.
    short: Option<Box<Encoding>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Encoding {
    bytes: SmallVec<[u8; 112]>,
    /// The offsets at which the domain and then each segment end in `bytes`.
    ends: SmallVec<[u16; 12]>,
}

/// The reason why a path is not a valid key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// No segment, or more than [`MAX_SEGMENTS`].
    #[error("a key must have 1 to {MAX_SEGMENTS} segments, not {0}")]
    Segments(usize),
    /// The segment at this index is empty.
    #[error("segment {0} is empty")]
    Empty(usize),
    /// The segment at this index is longer than [`MAX_SEGMENT_BYTES`].
    #[error("segment {index} has {bytes} bytes, more than {MAX_SEGMENT_BYTES}")]
    Long {
        /// The index of the segment.
        index: usize,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The domain's name is longer than [`MAX_SEGMENT_BYTES`].
    #[error("the domain has {0} bytes, more than {MAX_SEGMENT_BYTES}")]
    Domain(usize),
}

impl KeyError {
    /// Returns the invalid field of the request: `domain`, `key` or `key[3]`.
    pub fn field(&self) -> String {
        match self {
            Self::Segments(_) => "key".to_owned(),
            Self::Empty(index) | Self::Long { index, .. } => format!("key[{index}]"),
            Self::Domain(_) => "domain".to_owned(),
        }
    }
}

impl Key {
    /// Encodes `segments` under `domain`.
    ///
    /// # Errors
    /// [`KeyError`] for other than 1 to 32 segments of 1 to 1,024 bytes each, or a domain of over 1,024 bytes.
    pub fn new<S: AsRef<str>>(domain: &str, segments: &[S]) -> Result<Self, KeyError> {
        if domain.len() > MAX_SEGMENT_BYTES {
            return Err(KeyError::Domain(domain.len()));
        }
        if segments.is_empty() || segments.len() > MAX_SEGMENTS {
            return Err(KeyError::Segments(segments.len()));
        }
        let mut written = Encoding::default();
        written.push(domain.as_bytes());
        for (index, segment) in segments.iter().enumerate() {
            match segment.as_ref().len() {
                0 => return Err(KeyError::Empty(index)),
                bytes if bytes > MAX_SEGMENT_BYTES => return Err(KeyError::Long { index, bytes }),
                _ => written.push(segment.as_ref().as_bytes()),
            }
        }
        let short = written.has_long_parts().then(|| Box::new(written.shortened()));
        Ok(Self { written, short })
    }

    /// Encodes segments of any number and length, empty ones included, so that no path is rejected. A path of up to
    /// [`MAX_SEGMENTS`] has the same names as if made by [`Key::new`]. In a longer path, everything after them is one
    /// more segment, a hash, so that every prefix of up to [`MAX_SEGMENTS`] is named as it would be alone.
    ///
    /// For naming states: long segments are replaced by their hashes. The domain's name must be one that [`Key::new`]
    /// accepts.
    pub fn of_any<'s>(domain: &str, segments: impl IntoIterator<Item = &'s str>) -> Self {
        let mut written = Encoding::default();
        written.push_short(domain.as_bytes());
        let mut segments = segments.into_iter();
        segments.by_ref().take(MAX_SEGMENTS).for_each(|segment| written.push_short(segment.as_bytes()));
        let mut rest = segments.peekable();
        if rest.peek().is_some() {
            let mut hasher = blake3::Hasher::new();
            for segment in rest {
                hasher.update(&(segment.len() as u64).to_le_bytes()).update(segment.as_bytes());
            }
            written.push_hash(&hasher.finalize());
        }
        Self { written, short: None }
    }

    /// Parses a state's name, which is a [`Key::prefix`], [`END`] and any bytes after it; `None` for another form.
    /// Hashed segments stay hashed, and every prefix of the key has the same name as in `name`.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let end = parts_end(name, usize::MAX).filter(|end| name.get(*end) == Some(&END))?;
        let (mut written, mut start) = (Encoding::default(), 0);
        while start < end {
            let part = &name[start..start + parts_end(&name[start..], 1)?];
            written.bytes.extend_from_slice(part);
            start += part.len();
            written.ends.push(u16::try_from(start).ok()?);
        }
        Some(Self { written, short: None })
    }

    /// Returns the domain's name as written. In keys from [`Key::of_name`] and [`Key::of_any`], a long one is its
    /// hash.
    pub fn domain(&self) -> &[u8] {
        self.written.part(0)
    }

    /// Whether the segment at this index is a hash, in a key of [`Key::of_name`] or [`Key::of_any`].
    pub fn is_hashed(&self, index: usize) -> bool {
        self.written.bytes.get(self.written.end(index)) == Some(&HASHED) && index < self.depth()
    }

    /// Returns the number of segments.
    pub fn depth(&self) -> usize {
        self.written.ends.len() - 1
    }

    /// Returns the segment at `index`, from 0, as written, or nothing beyond the path's end. In keys from
    /// [`Key::of_name`] and [`Key::of_any`], a long one is its hash.
    pub fn segment(&self, index: usize) -> &[u8] {
        self.written.part(index + 1)
    }

    /// Returns the segments in order, as bytes.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> + Clone {
        (0..self.depth()).map(|index| self.segment(index))
    }

    /// Returns the state name of the domain and the first `depth` segments, or of all segments if there are fewer.
    /// Each part takes at most 65 bytes.
    pub fn prefix(&self, depth: usize) -> &[u8] {
        let encoding = self.short.as_deref().unwrap_or(&self.written);
        &encoding.bytes[..encoding.end(depth)]
    }
}

/// Returns the offset at which the first `parts` parts of a state's name end, counting the domain as one part and
/// each segment as another, or the offset of [`END`] if there are fewer. The name is a [`Key::prefix`], [`END`] and
/// any bytes after it; `None` for another form.
pub fn parts_end(name: &[u8], parts: usize) -> Option<usize> {
    let mut end = 0;
    for _ in 0..parts {
        end += match *name.get(end)? {
            END if end > 0 => return Some(end),
            HASHED => 1 + HASH_BYTES,
            length if usize::from(length) <= MAX_PLAIN_BYTES => 1 + usize::from(length),
            _ => return None,
        };
    }
    (end <= name.len()).then_some(end)
}

/// Returns the name of a domain in metrics, logs and spans: `default` for the default domain, whose name is empty.
pub fn domain_label(domain: &str) -> &str {
    if domain.is_empty() { "default" } else { domain }
}

/// Returns the prefix of all state names of a domain: [`Key::prefix`] without segments.
pub fn domain_name(domain: &str) -> Vec<u8> {
    let mut written = Encoding::default();
    written.push(domain.as_bytes());
    let name = if written.has_long_parts() { written.shortened() } else { written };
    name.bytes.to_vec()
}

impl Encoding {
    /// Appends a part that is within bounds, so its length fits 11 bits and every end fits 16.
    fn push(&mut self, part: &[u8]) {
        if part.len() < 0x80 {
            self.bytes.push(part.len() as u8);
        } else {
            self.bytes.extend_from_slice(&[0x80 | (part.len() >> 8) as u8, part.len() as u8]);
        }
        self.bytes.extend_from_slice(part);
        self.ends.push(self.bytes.len() as u16);
    }

    fn end(&self, part: usize) -> usize {
        usize::from(self.ends[part.min(self.ends.len() - 1)])
    }

    fn part(&self, part: usize) -> &[u8] {
        let start = if part == 0 { 0 } else { self.end(part - 1) };
        let bytes = &self.bytes[start..self.end(part)];
        let header = 1 + usize::from(bytes.first().is_some_and(|first| first & 0x80 != 0 && *first != HASHED));
        bytes.get(header..).unwrap_or_default()
    }

    fn has_long_parts(&self) -> bool {
        // A shortcut for most keys: no part is longer than the whole encoding.
        self.bytes.len() > MAX_PLAIN_BYTES && (0..self.ends.len()).any(|part| self.part(part).len() > MAX_PLAIN_BYTES)
    }

    fn shortened(&self) -> Self {
        let mut short = Self::default();
        (0..self.ends.len()).for_each(|part| short.push_short(self.part(part)));
        short
    }

    /// Appends a part, or its hash if it is long.
    fn push_short(&mut self, part: &[u8]) {
        if part.len() <= MAX_PLAIN_BYTES { self.push(part) } else { self.push_hash(&blake3::hash(part)) }
    }

    fn push_hash(&mut self, hash: &blake3::Hash) {
        self.bytes.push(HASHED);
        self.bytes.extend_from_slice(&hash.as_bytes()[..HASH_BYTES]);
        self.ends.push(self.bytes.len() as u16);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_segments_are_hashed_in_names_and_kept_for_policies() {
        let long = "x".repeat(1_024);
        let key = Key::new(&long, &vec![long.clone(); 32]).unwrap();
        assert_eq!(key.prefix(32).len(), 33 * 17);
        assert_eq!(key.segment(31), long.as_bytes());
        assert!(key.prefix(2).starts_with(key.prefix(1)));
    }

    #[test]
    fn parts_end_finds_the_end_of_each_part() {
        for (domain, segments) in
            [("", vec!["a".to_owned(), "b".repeat(64), "c".repeat(65)]), ("api", vec!["é".repeat(500)])]
        {
            let key = Key::new(domain, &segments).unwrap();
            let name = [key.prefix(9), &[END], b"pgcra#0".as_slice()].concat();
            for depth in 0..5 {
                assert_eq!(parts_end(&name, 1 + depth), Some(key.prefix(depth).len()), "{depth} of {key:?}");
            }
            assert_eq!(parts_end(&name, usize::MAX), Some(key.prefix(9).len()));
            for cut in 1..key.prefix(9).len() {
                assert_eq!(parts_end(&name[..cut], usize::MAX), None, "{cut} bytes of {key:?}");
            }
        }
        for no_name in [&[][..], &[END], &[0], &[65, END], &[0x80, 1, END], &[3, 1, 2]] {
            assert_eq!(parts_end(no_name, usize::MAX), None, "{no_name:?}");
        }
    }

    #[test]
    fn keys_are_read_back_from_names() {
        let long = "l".repeat(65);
        for (domain, segments) in
            [("", vec!["a"]), ("api", vec!["user", "älex", &long, "trade"]), (&long, vec![&long; 32])]
        {
            let key = Key::new(domain, &segments).unwrap();
            let read = Key::of_name(&[key.prefix(99), &[END], b"pgcra#0"].concat()).unwrap();
            assert_eq!(read.depth(), key.depth());
            for depth in 0..=key.depth() {
                assert_eq!(read.prefix(depth), key.prefix(depth));
            }
            for (index, segment) in segments.iter().enumerate() {
                let is_long = segment.len() > MAX_PLAIN_BYTES;
                assert_eq!(read.is_hashed(index), is_long);
                assert!(is_long || read.segment(index) == segment.as_bytes());
            }
            assert!(!read.is_hashed(segments.len()) && (domain == long || read.domain() == domain.as_bytes()));
        }
        let of_any = Key::of_any("d", vec!["a"; 99]);
        assert_eq!(Key::of_name(&[of_any.prefix(99), &[END]].concat()).map(|key| key.depth()), Some(33));
        for no_name in [&b""[..], &[END], &[0], b"held", b"probe", &[0, 1], &[0, 1, b'a']] {
            assert_eq!(Key::of_name(no_name), None, "{no_name:?}");
        }
    }

    #[test]
    fn of_any_accepts_any_segments_and_matches_valid_keys() {
        let long = "l".repeat(100);
        let usual = ["user", "älex", &long];
        assert_eq!(Key::of_any("api", usual).prefix(9), Key::new("api", &usual).unwrap().prefix(9));
        let huge = "h".repeat(1 << 20);
        let names = [
            vec![],
            vec![""],
            vec!["", ""],
            vec!["a", ""],
            vec!["", "a"],
            vec![&huge],
            vec![&huge[1..]],
            vec!["a"; 32],
            vec!["a"; 33],
            vec!["a"; 34],
            [vec!["a"; 32], vec!["aa"]].concat(),
            [vec!["a"; 32], vec!["", "a"]].concat(),
            vec!["a"; 100_000],
        ]
        .map(|segments| Key::of_any("d", segments));
        for (i, one) in names.iter().enumerate() {
            assert!(one.depth() <= MAX_SEGMENTS + 1 && one.prefix(99).len() < 65 * 34);
            let name = [one.prefix(99), &[END]].concat();
            assert_eq!(parts_end(&name, usize::MAX), Some(name.len() - 1), "{one:?}");
            names[i + 1..].iter().for_each(|other| assert_ne!(one.prefix(99), other.prefix(99)));
        }
        assert_eq!(names[9].prefix(32), Key::new("d", &["a"; 32]).unwrap().prefix(32));
        assert_eq!(names[5].segment(0).len(), HASH_BYTES);
    }

    #[test]
    fn no_encoded_segment_starts_with_the_end_marker() {
        for length in 1..=MAX_SEGMENT_BYTES {
            let key = Key::new("", &["y".repeat(length)]).unwrap();
            assert_ne!(key.prefix(1)[1], END);
        }
    }

    #[test]
    fn errors_name_the_field() {
        let field = |segments: &[String]| Key::new("", segments).unwrap_err().field();
        assert_eq!(field(&[]), "key");
        assert_eq!(field(&vec!["a".to_owned(); 33]), "key");
        assert_eq!(field(&["a".to_owned(), String::new()]), "key[1]");
        assert_eq!(field(&["a".to_owned(), "b".repeat(2_048)]), "key[1]");
        assert_eq!(Key::new(&"d".repeat(1_025), &["a"]).unwrap_err().field(), "domain");
    }
}
