//! Patterns of segments.

/// A segment with `*`, each of which matches any bytes.
#[derive(Clone, Debug)]
pub(crate) struct Pattern(pub(super) Box<str>);

impl Pattern {
    /// Makes a pattern from its text.
    pub(crate) fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Whether it matches the whole segment.
    pub(crate) fn matches(&self, segment: &[u8]) -> bool {
        let mut parts = self.0.as_bytes().split(|byte| *byte == b'*');
        let Some(mut rest) = parts.next().and_then(|first| segment.strip_prefix(first)) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        // A part between two `*` in a row is empty.
        for part in parts.filter(|part| !part.is_empty()) {
            let Some(at) = rest.windows(part.len()).position(|window| window == part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

/// Whether the bytes are equal up to a `*` in either.
fn agree<'a>(mut pairs: impl Iterator<Item = (&'a u8, &'a u8)>) -> bool {
    pairs.find(|(one, other)| one != other || **one == b'*').is_none_or(|(one, other)| [*one, *other].contains(&b'*'))
}

/// Returns a text that both patterns match, with a `*` where both match any text. A name without `*` matches only itself.
pub(crate) fn common_text(one: &str, other: &str) -> Option<Vec<u8>> {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let (first, last) = (one.iter().zip(other), one.iter().rev().zip(other.iter().rev()));
    // Most patterns differ before their first `*` or after their last one.
    if !agree(first) || !agree(last) {
        return None;
    }
    let at = |i: usize, j: usize| (one.get(i).copied(), other.get(j).copied());
    let index = |i: usize, j: usize| i * (other.len() + 2) + j;
    // Whether the parts from these positions on have a common text; false beyond the ends.
    let mut meet = vec![false; index(one.len() + 2, 0)];
    for (i, j) in (0..=one.len()).rev().flat_map(|i| (0..=other.len()).rev().map(move |j| (i, j))) {
        meet[index(i, j)] = match at(i, j) {
            (None, None) => true,
            (Some(b'*'), _) | (_, Some(b'*')) => meet[index(i + 1, j)] || meet[index(i, j + 1)],
            (one, other) => one == other && meet[index(i + 1, j + 1)],
        };
    }
    if !meet[0] {
        return None;
    }
    let (mut text, mut i, mut j) = (Vec::new(), 0, 0);
    loop {
        let (taken, next) = match at(i, j) {
            (None, None) => return Some(text),
            // A `*` matches as much of the other pattern as possible.
            (Some(b'*'), taken) if meet[index(i, j + 1)] => (taken, (i, j + 1)),
            (taken, Some(b'*')) if meet[index(i + 1, j)] => (taken, (i + 1, j)),
            (Some(b'*'), _) => (None, (i + 1, j)),
            (_, Some(b'*')) => (None, (i, j + 1)),
            (taken, _) => (taken, (i + 1, j + 1)),
        };
        text.extend(taken);
        (i, j) = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_segments() {
        for (pattern, fits, fails) in [
            ("img/*", &["img/", "img/a"][..], &["img", "ximg/a"][..]),
            ("*a*b*", &["ab", "xaxbx", "aab"], &["ba", "a"]),
            ("a*a", &["aa", "aba"], &["a", "ab"]),
            ("a**b", &["ab", "axb"], &["a"]),
        ] {
            let pattern = Pattern::new(pattern);
            assert!(fits.iter().all(|segment| pattern.matches(segment.as_bytes())), "{pattern:?}");
            assert!(!fails.iter().any(|segment| pattern.matches(segment.as_bytes())), "{pattern:?}");
        }
    }

    #[test]
    fn the_common_text_is_matched_by_both_patterns() {
        for (one, other, expected) in [
            ("*", "v*", Some("v*")),
            ("v*", "v1", Some("v1")),
            ("v*", "v1*", Some("v1*")),
            ("v*", "v*", Some("v*")),
            ("a*", "*b", Some("a*b")),
            ("ab*", "*bc", Some("ab*bc")),
            ("*a*", "*b*", Some("*b*a*")),
            ("a*a", "a", None),
            ("a*", "b*", None),
            ("a", "b", None),
            ("", "*", Some("")),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                let text = common_text(one, other);
                assert_eq!(text.is_some(), expected.is_some(), "{one} {other}");
                let Some(text) = text else { continue };
                assert!([one, other].iter().all(|pattern| Pattern::new(pattern).matches(&text)), "{one} {other}");
                assert_eq!(text.len(), expected.unwrap_or_default().len(), "{one} {other}: {text:?}");
            }
        }
    }
}
