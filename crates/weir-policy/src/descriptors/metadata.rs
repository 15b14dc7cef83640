//! The `metadata` of a descriptor, which responses return.

use serde_json::{Map, Number, Value as Json};

use weir_settings::{
    document::{Node, Value},
    problem::Mark,
};

use super::yaml::{integer, truth};

/// Converts a map to JSON; `None` for null.
///
/// # Errors
/// The position and a message, where the node is a list or a single value.
pub(crate) fn read(node: &Node) -> Result<Option<Json>, (Mark, String)> {
    match &node.value {
        Value::Null => Ok(None),
        Value::Map(_) => Ok(Some(json(node))),
        _ => Err((node.mark, format!("metadata must be a map, not {}", node.kind()))),
    }
}

fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Scalar(text) if node.plain => plain(text),
        Value::Scalar(text) => Json::String(text.clone()),
        Value::List(items) => Json::Array(items.iter().map(json).collect()),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.clone(), json(&entry.value))).collect::<Map<_, _>>())
        }
    }
}

/// Converts an unquoted scalar.
fn plain(text: &str) -> Json {
    if let Some(truth) = truth(text) {
        return Json::Bool(truth);
    }
    let is_number = text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+' | '.'));
    let real = || text.replace('_', "").parse().ok().and_then(Number::from_f64);
    match integer(text) {
        Some(number) if is_number => Json::Number(number.into()),
        None if is_number => real().map_or_else(|| Json::from(text), Json::Number),
        _ => Json::from(text),
    }
}
