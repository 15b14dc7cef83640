//! "Did you mean": suggestions for an unknown word.

/// Maximum number of typing errors in a word.
const MAX_ERRORS: usize = 3;
/// Maximum number of words in a suggestion.
const MAX_WORDS: usize = 3;

/// Formats ``unknown key `x`; did you mean `y`?``, or else the list of known words.
pub fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    unknown_or(what, word, &meant(word, known), known)
}

/// Like [`unknown`], where the caller has computed the words to suggest (`meant`).
pub fn unknown_or(what: &str, word: &str, meant: &[&str], known: &[&str]) -> String {
    match meant {
        [] => format!("unknown {what} `{word}`; known are {}", known.join(", ")),
        meant => format!("unknown {what} `{word}`; did you mean {}?", either(meant)),
    }
}

/// Formats ``charge must be `a` or `b`, not `c` ``; `found` is quoted already.
pub fn not_one_of(key: &str, known: &[&str], found: &str) -> String {
    format!("{key} must be {}, not {found}", either(known))
}

/// Returns the known word that is a few typing errors away, or else the known words that contain
/// the word, as `fixed_window` contains `window`.
pub fn meant<'a>(word: &str, known: &[&'a str]) -> Vec<&'a str> {
    let near = known.iter().filter_map(|known| Some((distance(word, known)?, *known)));
    if let Some((_, near)) = near.min_by_key(|(distance, _)| *distance) {
        return vec![near];
    }
    let has_part = |near: &&str| near.split('_').any(|part| part == word);
    let whole: Vec<_> = known.iter().copied().filter(has_part).collect();
    if whole.len() <= MAX_WORDS { whole } else { Vec::new() }
}

/// Returns the number of typing errors between a word and a known one; `None`: too many for a suggestion.
pub fn distance(word: &str, known: &str) -> Option<usize> {
    let distance = strsim::damerau_levenshtein(word, known);
    // With more errors `window` would match `shadow`.
    (distance <= (known.len().max(3) / 3).min(MAX_ERRORS)).then_some(distance)
}

fn either(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} or {last}", first.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_words_are_suggested() {
        let known = ["gcra", "fixed_window", "sliding_window", "name", "shadow"];
        for (word, expected) in [
            ("gcrra", &["gcra"][..]),
            ("shadwo", &["shadow"]),
            ("fixed-window", &["fixed_window"]),
            ("window", &["fixed_window", "sliding_window"]),
            ("rate", &[]),
            ("", &[]),
        ] {
            assert_eq!(meant(word, &known), expected, "{word}");
        }
    }

    #[test]
    fn words_are_listed_as_in_a_sentence() {
        assert_eq!(not_one_of("a", &["x", "y"], "`z`"), "a must be `x` or `y`, not `z`");
        assert_eq!(unknown_or("key", "z", &["a", "b", "c"], &[]), "unknown key `z`; did you mean `a`, `b` or `c`?");
        assert_eq!(unknown("key", "z", &["aaaa", "bbbb"]), "unknown key `z`; known are aaaa, bbbb");
    }
}
