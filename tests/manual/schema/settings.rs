//! The schema of the settings file: the defaults determine keys and types, as for the reader. The comments of
//! `config/weir.yaml` describe them.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use weir::config::{Flags, Settings};

use super::{DURATION, choices, root, with};
use crate::read;

pub fn schema() -> Value {
    let head = "The settings of `weir serve`. `weir config check` checks the rules that a schema cannot express.";
    let defaults = serde_json::to_value(Settings::default()).expect("JSON");
    root("Weir settings", head, section(&defaults, "", &comments(&read("config/weir.yaml"))))
}

fn section(defaults: &Value, above: &str, comments: &HashMap<String, String>) -> Value {
    let of = |(name, default): (&String, &Value)| {
        let key = format!("{above}{name}");
        let schema = match default {
            Value::Object(_) => section(default, &format!("{key}."), comments),
            _ => setting(&key, default),
        };
        let description = comments.get(&key).map_or(json!({}), |comment| json!({ "description": comment }));
        (name.clone(), with(description, schema))
    };
    let properties: Map<_, _> = defaults.as_object().expect("a section").iter().map(of).collect();
    // A key without a value keeps the default.
    json!({ "type": ["object", "null"], "properties": properties, "additionalProperties": false })
}

fn setting(key: &str, default: &Value) -> Value {
    let schema = match default {
        Value::Bool(_) => json!({ "enum": [true, false, "yes", "no", "on", "off", 1, 0, null] }),
        Value::Number(number) if number.is_f64() => json!({ "type": ["number", "null"] }),
        Value::Number(_) => json!({ "type": ["integer", "null"], "minimum": 0 }),
        Value::Array(_) => {
            json!({ "type": ["array", "string", "null"], "items": { "type": ["string", "number"] } })
        }
        _ => text(key),
    };
    with(schema, json!({ "default": default }))
}

/// Derives the schema of a text from the reader's error about an invalid value.
fn text(key: &str) -> Value {
    let variable = format!("WEIR_{}", key.to_uppercase().replace('.', "__"));
    let rejected = Settings::load(None, [(variable, "?".to_owned())], &Flags::default());
    let error = rejected.err().map(|error| error.to_string()).unwrap_or_default();
    match choices(&error, key) {
        Some(mut values) => {
            let mut values: Vec<_> = values.drain(..).map(Value::from).collect();
            values.push(Value::Null);
            json!({ "enum": values })
        }
        None if error.contains("is not a duration") => {
            json!({ "anyOf": [{ "type": ["integer", "null"], "minimum": 0 }, { "type": "string", "pattern": DURATION }] })
        }
        None => json!({ "type": ["string", "number", "null"] }),
    }
}

/// Returns the comment above each key of the settings file. Consecutive keys share one.
fn comments(yaml: &str) -> HashMap<String, String> {
    let (mut comments, mut path, mut above) = (HashMap::new(), Vec::new(), Vec::new());
    for line in yaml.lines() {
        let text = line.trim_start();
        let depth = (line.len() - text.len()) / 2;
        let comment = text.strip_prefix("# ");
        let key = comment.unwrap_or(text).split_once(':').filter(|(key, value)| is_key(key, value, comment.is_some()));
        match (key, text.strip_prefix('#')) {
            (Some((key, _)), _) => {
                path.truncate(depth);
                path.push(key);
                if !above.is_empty() {
                    comments.insert(path.join("."), described_by(&above));
                }
                if comment.is_none() && !text.contains(": ") {
                    above.clear();
                }
            }
            (None, Some(line)) => above.push(line),
            (None, None) => above.clear(),
        }
    }
    comments
}

/// Whether a line is a setting. A commented one must have a value.
fn is_key(key: &str, value: &str, is_comment: bool) -> bool {
    let is_name = key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    !key.is_empty() && is_name && (!is_comment || value.starts_with(' '))
}

/// Joins the lines of a comment to one paragraph. Lines with columns keep their breaks.
fn described_by(lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line)) {
        let break_or_space = if line.starts_with(' ') || text.ends_with(':') { '\n' } else { ' ' };
        text.push(break_or_space);
        text.push_str(line.trim_end());
    }
    text.trim().to_owned()
}

#[test]
fn descriptions_are_the_comments_above_a_key() {
    let yaml = "# Head: of the file\n\n# One,\n# two.\na:\n  # Three: four\n  # b: 1\n  # c: 2\n\n  # d: 3\n";
    let comments = comments(yaml);
    let of = |key: &str| comments.get(key).map(String::as_str);
    assert_eq!(
        [of("a"), of("a.b"), of("a.c"), of("a.d")],
        [Some("One, two."), Some("Three: four"), Some("Three: four"), None]
    );
}
