//! The limit format of `@o1s/rate-limiter`: maps without an algorithm's name. Each is a `sliding_buckets` with other
//! key names, and plain numbers are seconds, as in that package.

use weir_core::algorithm::{self, Bounds, Params};
use weir_settings::{document::Entry, fields::scalar, problem::Problems};

/// The algorithm of such a limit.
const ALGORITHM: &str = "sliding_buckets";
/// Every key, with its parameter. The package spells the first one with one `c`.
pub const KEYS: [(&str, &str); 4] = [
    ("maxOcurrences", "count"),
    ("maxOccurrences", "count"),
    ("limitDuration", "period"),
    ("durationResolution", "resolution"),
];

/// Returns the parameter of a key; `None`: not a key of this format.
pub(crate) fn known(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|(spelling, _)| *spelling == key).map(|(_, name)| *name)
}

/// Returns the package's key for a parameter.
fn key_of(parameter: &str) -> &'static str {
    KEYS.iter().find(|(_, name)| *name == parameter).map_or("", |(spelling, _)| spelling)
}

/// Returns a hint for a key of this format among the parameters of `sliding_buckets`.
pub(crate) fn misplaced(algorithm: &algorithm::Entry, key: &str) -> Option<String> {
    let name = known(key).filter(|_| algorithm.name == ALGORITHM)?;
    Some(format!("`{key}` is `{name}` within {ALGORITHM}; it stands in a limit without an algorithm's name"))
}

/// Reads the entries of a limit map. At least one key must be [`known`].
pub(crate) fn read(entries: &[&Entry], field: &str, bounds: &Bounds, problems: &mut Problems) -> Option<Params> {
    let before = problems.0.len();
    for (index, entry) in entries.iter().enumerate() {
        let field = format!("{field}.{}", entry.key);
        let duplicate = entries[..index].iter().find(|other| known(&other.key) == known(&entry.key));
        if known(&entry.key).is_none() {
            let message =
                format!("`{}` cannot be combined with maxOcurrences, limitDuration and durationResolution", entry.key);
            problems.add(entry.mark, field, message);
        } else if let Some(duplicate) = duplicate {
            problems.add(entry.mark, field, format!("`{}` is given twice, also as `{}`", entry.key, duplicate.key));
        } else if scalar(&entry.value).is_none() {
            let message = format!("{} must be a single value, not {}", entry.key, entry.value.kind());
            problems.add(entry.value.mark, field, message);
        }
    }
    if problems.0.len() > before {
        return None;
    }
    let renamed: Vec<_> = entries.iter().filter_map(|entry| known(&entry.key).zip(scalar(&entry.value))).collect();
    let parsed = (algorithm::find(ALGORITHM)?.parse)(&renamed, bounds);
    parsed
        .map_err(|error| {
            let entry = entries.iter().find(|entry| known(&entry.key) == Some(&error.field));
            let key = entry.map_or_else(|| key_of(&error.field), |entry| &entry.key);
            let mark = entry.map_or(entries[0].mark, |entry| entry.value.mark);
            problems.add(mark, format!("{field}.{key}"), format!("{key}: as a {ALGORITHM}: {}", error.reason));
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use crate::limits::testing::{assert_problem, translated};

    #[test]
    fn the_names_of_o1s_make_sliding_buckets() {
        for (map, expected) in [
            ("maxOcurrences: 1, limitDuration: 5, durationResolution: 1", "{ count: 1, period: 5s, resolution: 1s }"),
            (
                "maxOccurrences: 5, limitDuration: 1h, durationResolution: 600, name: hourly, shadow: true",
                "{ count: 5, period: 1h, resolution: 10m }",
            ),
        ] {
            assert_eq!(translated(map), [format!("sliding_buckets {expected}")], "{map}");
        }
    }

    #[test]
    fn errors_have_their_position_and_field() {
        for (map, place, field, message) in [
            ("maxOcurrences: 1, limitDuration: 5", "maxOcu", "durationResolution", "resolution is missing"),
            (
                "maxOcurrences: 0, limitDuration: 5, durationResolution: 1",
                "0,",
                "maxOcurrences",
                "count must be 1 to 2^32",
            ),
            ("limitDuration: 5, size: 3", "size", "size", "`size` cannot be combined with maxOcurrences"),
            ("limitDuration: [5]", "[5]", "limitDuration", "limitDuration must be a single value, not a list"),
            (
                "maxOcurrences: 1, maxOccurrences: 1",
                "maxOcc",
                "maxOccurrences",
                "is given twice, also as `maxOcurrences`",
            ),
            ("limitDuraton: 5", "limitDuraton", "limitDuraton", "did you mean `limitDuration`?"),
            (
                "gcra: { burst: 1, count: 1, period: 1s }, limitDuration: 5",
                "limitD",
                "limitDuration",
                "cannot be combined with",
            ),
            (
                "sliding_buckets: { maxOcurrences: 1 }",
                "maxOcu",
                "sliding_buckets.maxOcurrences",
                "`maxOcurrences` is `count` within sliding_buckets",
            ),
        ] {
            assert_problem(map, place, field, message);
        }
    }
}
