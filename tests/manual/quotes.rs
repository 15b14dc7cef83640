//! Limits quoted in prose: each must be valid in a policy file.

use weir_core::algorithm::{Bounds, find, params::MAX_PERIOD};

use weir::proto;

/// Returns the names of limits quoted in a text as `name: { a: 1, b: 2s }`, which must all be valid. If this build has
/// no algorithm of a name, the API must have a message for it.
pub fn check(path: &str, text: &str) -> Vec<String> {
    // A quote may contain line breaks.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let quotes = text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(": { "));
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
    let quotes = quotes.filter(|(name, _)| is_name(name));
    quotes.map(|(name, fields)| check_one(path, name, fields)).collect()
}

fn check_one(path: &str, name: &str, fields: &str) -> String {
    let quote = format!("`{name}: {{ {fields}` in {path}");
    let fields = fields.strip_suffix(" }").unwrap_or_else(|| panic!("{quote} has no end"));
    let pairs: Option<Vec<_>> = fields.split(", ").map(|field| field.split_once(": ")).collect();
    let pairs = pairs.unwrap_or_else(|| panic!("{quote} is not of the form name: value"));
    match find(name) {
        Some(entry) => {
            for (field, _) in &pairs {
                assert!(entry.fields.contains(field), "{quote}: {field} is missing");
            }
            if let Err(error) = (entry.parse)(&pairs, &Bounds { max_period: MAX_PERIOD }) {
                panic!("{quote}: {error}");
            }
        }
        None => assert!(has_message(name), "{quote}: unknown algorithm {name}"),
    }
    name.to_owned()
}

/// Whether the API has a message with this name; a descriptor stores a name after its length.
fn has_message(name: &str) -> bool {
    let needle = [&[name.len() as u8], name.as_bytes()].concat();
    proto::DESCRIPTORS.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn invalid_quotes_are_detected() {
    for wrong in [
        "`gcra: { burst: 1, count: 0, period: 1s }`",
        "`gcra: { burst: 1, cuont: 1, period: 1s }`",
        "`gcar: { burst: 1 }`",
        "`gcra: { burst: 1`",
    ] {
        assert!(std::panic::catch_unwind(|| check("a test", wrong)).is_err(), "{wrong}");
    }
    assert_eq!(check("a test", "so `gcra: { burst: 1, count: 1, period: 1s }` and `{ max: 1 }`"), ["gcra"]);
}
