//! YAML as envoyproxy/ratelimit reads it, with yaml.v2 of Go: YAML 1.1 semantics.

use std::collections::HashMap;

use weir_settings::document::{Entry, Node, Value};

/// Converts a document to what yaml.v2 reads: `<<` merges maps, the last of duplicate keys counts, `Null` is null.
pub(crate) fn as_yaml_v2(Node { mark, value, plain }: Node) -> Node {
    let value = match value {
        Value::Scalar(text) if plain && matches!(&*text, "Null" | "NULL") => Value::Null,
        Value::List(items) => Value::List(items.into_iter().map(as_yaml_v2).collect()),
        Value::Map(entries) => Value::Map(merged(entries)),
        value => value,
    };
    Node { mark, value, plain }
}

fn merged(entries: Vec<Entry>) -> Vec<Entry> {
    let mut map = Merged::default();
    for Entry { mark, key, value } in entries {
        let value = as_yaml_v2(value);
        match value.value {
            Value::Map(inner) if key == "<<" => inner.into_iter().for_each(|entry| map.put(entry)),
            // The first map takes precedence, so it is merged last.
            Value::List(items) if key == "<<" && items.iter().all(|item| matches!(item.value, Value::Map(_))) => {
                for item in items.into_iter().rev() {
                    let Value::Map(inner) = item.value else { continue };
                    inner.into_iter().for_each(|entry| map.put(entry));
                }
            }
            inner => map.put(Entry { mark, key, value: Node { value: inner, ..value } }),
        }
    }
    map.entries
}

/// Map entries where the last of duplicate keys counts; two maps under one key are merged, one level deep.
#[derive(Default)]
struct Merged {
    entries: Vec<Entry>,
    places: HashMap<String, usize>,
}

impl Merged {
    fn put(&mut self, entry: Entry) {
        let Some(place) = self.places.get(&entry.key) else {
            self.places.insert(entry.key.clone(), self.entries.len());
            return self.entries.push(entry);
        };
        let before = &mut self.entries[*place].value;
        match (&mut before.value, entry.value) {
            (Value::Map(below), Node { value: Value::Map(inner), .. }) => {
                let places = below.iter().enumerate().map(|(place, entry)| (entry.key.clone(), place)).collect();
                let mut both = Self { entries: std::mem::take(below), places };
                for Entry { mark, key, value } in inner {
                    match both.places.get(&key) {
                        Some(place) => both.entries[*place].value = value,
                        None => both.put(Entry { mark, key, value }),
                    }
                }
                *below = both.entries;
            }
            (_, value) => *before = value,
        }
    }
}

/// Parses a whole number: decimal, hexadecimal (`0x10`), octal (`017`, `0o17`) or binary (`0b1`), with `_` anywhere.
pub(super) fn integer(text: &str) -> Option<i64> {
    let text = text.replace('_', "");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(&text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let is_number = digits.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    is_number.then(|| i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()).flatten()
}

/// Parses a boolean in any YAML 1.1 spelling.
pub(super) fn truth(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::descriptors::tests::{limits, read, rule};

    #[test]
    fn yaml_is_read_with_the_habits_of_envoyproxy_ratelimit() {
        let text = "
domain: d
descriptors:
  - &base
    key: a
    shadow_mode: y
    rate_limit: &minute { unit: minute, requests_per_unit: 017 }
    metadata: { on_: Yes, off_: off, hex: 0x10, octal: 017, binary: 0b11, none: Null, grouped: 1_000, real: 1e3, text: '017', word: no_, seven: 08 }
  - { <<: *base, key: b, rate_limit: { <<: *minute, requests_per_unit: 0x10 } }
  - { key: c, <<: *base }
  - { <<: [{ key: d }, *base], rate_limit: { requests_per_unit: 3 } }
  - { key: e, key: f, shadow_mode: y, shadow_mode: N, value: Null, rate_limit: *minute }
    ";
        let domain = read(&text.replace("  - { key: c, <<: *base }\n", "")).unwrap();
        let shown = |key| limits(&domain, &[(key, "v")]).concat();
        let fifteen = |key| format!("{key}/*#fixed_window0 {{ count: 15, period: 1m, charge_denied: true }}");
        assert_eq!((shown("a"), shown("f"), shown("e")), (fifteen("a"), fifteen("f"), String::new()));
        assert_eq!(shown("b"), fifteen("b").replace("15", "16"));
        assert_eq!(shown("d"), fifteen("d").replace("15", "3"), "a map that is there is merged");
        let shadows = |key| rule(&domain, &[(key, "v")]).shadow;
        assert_eq!((shadows("a"), shadows("b"), shadows("f")), (true, true, false));
        assert_eq!(
            rule(&domain, &[("b", "v")]).metadata,
            Some(
                json!({ "on_": true, "off_": false, "hex": 16, "octal": 15, "binary": 3, "none": null, "grouped": 1000,
            "real": 1000.0, "text": "017", "word": "no_", "seven": 8.0 })
            )
        );
        // A merge applies at its position, so it overrides the keys before it.
        assert!(read(text).unwrap_err().contains("duplicate descriptor `a without a value`"));
        for text in ["domain: d\nschema: { a: {}, a: {} }", "domain: d\ncharge: independent\ncharge: independent"] {
            assert!(
                crate::parse(text, &crate::Rules::default()).unwrap_err().to_string().contains("duplicate key"),
                "{text}"
            );
        }
    }
}
