//! Reading of maps and single values. What is not valid becomes a problem.

use super::{
    Problems,
    document::{Entry, Node, Value},
    suggest,
};

/// Returns the entries of a map. Keys that are neither known nor ignored are problems.
pub fn read_entries<'a>(
    node: &'a Node,
    what: &str,
    known: &[&str],
    ignored: &[&str],
    problems: &mut Problems,
) -> Option<&'a [Entry]> {
    let Value::Map(entries) = &node.value else {
        problems.add(node.mark, "", format!("{what} must be a map with {}; this is {}", known.join(", "), node.kind()));
        return None;
    };
    for entry in entries {
        let key = entry.key.as_str();
        if !known.contains(&key) && !ignored.contains(&key) {
            problems.add(entry.mark, key, suggest::unknown("key", key, known));
        }
    }
    Some(entries)
}

/// Returns the text of a scalar.
pub fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(text) => Some(text),
        _ => None,
    }
}

/// Reads a single value. One that `parse` does not accept is a problem, whose message begins with `must`.
pub fn read_scalar<T>(
    node: &Node,
    field: &str,
    must: &str,
    problems: &mut Problems,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let value = scalar(node).and_then(parse);
    if value.is_none() {
        problems.add(node.mark, field, format!("{must}, not {}", node.shown()));
    }
    value
}
