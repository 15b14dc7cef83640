//! "Did you mean": the known word nearest to an unknown one.

/// ``unknown key `x`; did you mean `y`?``, or else the list of what is known.
pub fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("unknown {what} `{word}`; did you mean `{near}`?"),
        None => format!("unknown {what} `{word}`; known are {}", known.join(", ")),
    }
}

/// The known word that is few typing errors away, if any.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().filter_map(|known| Some((distance(word, known)?, *known)));
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// How many typing errors are between a word and a known one; `None`: too many for it to be meant.
pub fn distance(word: &str, known: &str) -> Option<usize> {
    let distance = strsim::damerau_levenshtein(word, known);
    (distance <= known.len().max(3) / 2).then_some(distance)
}
