//! The metadata of a descriptor, for readers of the response.

use serde_json::{Map, Number, Value as Json};
use weir_settings::{
    document::{Node, Value},
    problem::Mark,
};

/// A map of anything, as JSON; `None` where it holds nothing.
///
/// # Errors
/// Where something else stands in its place.
pub(crate) fn read(node: &Node) -> Result<Option<Json>, (Mark, String)> {
    match &node.value {
        Value::Null => Ok(None),
        Value::Map(_) => Ok(Some(json(node))),
        _ => Err((node.mark, format!("metadata is a map, not {}", node.kind()))),
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

/// The value of an unquoted scalar.
fn plain(text: &str) -> Json {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+' | '.'));
    match text {
        "true" | "True" | "TRUE" => Json::Bool(true),
        "false" | "False" | "FALSE" => Json::Bool(false),
        _ => match (text.parse::<i64>(), text.parse::<f64>().ok().and_then(Number::from_f64)) {
            (Ok(number), _) if is_number => Json::Number(number.into()),
            (Err(_), Some(number)) if is_number => Json::Number(number),
            _ => Json::String(text.to_owned()),
        },
    }
}
