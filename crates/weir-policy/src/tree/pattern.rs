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
}
