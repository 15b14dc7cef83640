//! The encoding of keys. The input is a text with a key per line, `domain/segment/segment`.

use weir_core::domain::key::{END, Key, MAX_SEGMENT_BYTES, MAX_SEGMENTS, domain_name, parts_end};

/// Maximum number of keys of one input.
const MAX_KEYS: usize = 8;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Path<'a> {
    domain: &'a str,
    segments: Vec<&'a str>,
}

/// Keys survive encoding; different keys never have the same name; the name of one is a prefix of another's exactly if
/// it is an ancestor.
pub fn key(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let paths: Vec<_> = text.lines().take(MAX_KEYS).filter_map(path).collect();
    for (index, one) in paths.iter().enumerate() {
        check_one(one);
        for other in &paths[index + 1..] {
            check_pair(one, other);
            check_pair(other, one);
        }
    }
}

fn path(line: &str) -> Option<Path<'_>> {
    let mut segments = line.split('/');
    let domain = segments.next()?;
    (domain.len() <= MAX_SEGMENT_BYTES).then(|| Path { domain, segments: segments.collect() })
}

fn name(path: &Path<'_>) -> Vec<u8> {
    Key::of_any(path.domain, path.segments.iter().copied()).prefix(usize::MAX).to_vec()
}

fn check_one(path: &Path<'_>) {
    let Path { domain, segments } = path;
    let any = Key::of_any(domain, segments.iter().copied());
    assert!(any.depth() <= MAX_SEGMENTS + 1);
    let length = |segment: &&str| (1..=MAX_SEGMENT_BYTES).contains(&segment.len());
    let valid = (1..=MAX_SEGMENTS).contains(&segments.len()) && segments.iter().all(length);
    let key = match Key::new(domain, segments) {
        Ok(key) => key,
        Err(error) => return assert!(!valid, "{error}"),
    };
    assert!(valid);
    assert_eq!(key.depth(), segments.len());
    assert!(key.segments().eq(segments.iter().map(|segment| segment.as_bytes())));
    assert_eq!(key.prefix(0), domain_name(domain));
    assert_eq!(key.prefix(usize::MAX), key.prefix(segments.len()));
    assert_eq!(key.prefix(usize::MAX), any.prefix(usize::MAX));
    let whole = [key.prefix(usize::MAX), &[END], b"behind it"].concat();
    for depth in 0..=segments.len() {
        let name = key.prefix(depth);
        assert_eq!(parts_end(&whole, 1 + depth), Some(name.len()));
        if depth > 0 {
            assert!(name.starts_with(key.prefix(depth - 1)) && name.len() > key.prefix(depth - 1).len());
            assert_eq!(Key::new(domain, &segments[..depth]).expect("a shorter key").prefix(depth), name);
        }
    }
}

fn check_pair(one: &Path<'_>, other: &Path<'_>) {
    let is_above = one.domain == other.domain && other.segments.starts_with(&one.segments);
    // Everything behind the maximum number of segments is one segment.
    let expected = if one.segments.len() > MAX_SEGMENTS { one == other } else { is_above };
    assert_eq!(name(other).starts_with(&name(one)), expected, "{one:?} and {other:?}");
}
