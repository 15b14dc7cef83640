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
    let distance = |near: &&str| strsim::damerau_levenshtein(word, near);
    known.iter().copied().min_by_key(distance).filter(|near| distance(near) <= near.len().max(3) / 2)
}
