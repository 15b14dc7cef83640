//! Which field of a JSON message is at fault. It is looked for only once a message could not be read.

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value, json};
use weir_settings::suggest;

use crate::limiter::Invalid;

/// Most characters of a field's name that are told, and that known names are compared with.
const MAX_SHOWN: usize = 64;

/// Finds the field of `text`, JSON that is no message of this kind, by trying one after the other.
pub fn find(message: &MessageDescriptor, text: &str, error: &serde_json::Error) -> Invalid {
    match serde_json::from_str(text) {
        Ok(value) => in_message(message, &value, String::new(), error),
        Err(error) => Invalid::field_error("", format!("the JSON cannot be read: {error}")),
    }
}

/// What is said of a field that there is not.
pub fn unknown_field(name: &str, known: &[&str]) -> String {
    if shown(name).len() < name.len() {
        return format!("unknown field `{}…`", shown(name));
    }
    suggest::unknown("field", name, known)
}

/// A name as far as it is told.
pub fn shown(name: &str) -> &str {
    name.char_indices().nth(MAX_SHOWN).map_or(name, |(end, _)| &name[..end])
}

fn in_message(message: &MessageDescriptor, value: &Value, path: String, error: &serde_json::Error) -> Invalid {
    let Value::Object(fields) = value else { return Invalid::field_error(path, "a message is an object") };
    for (name, value) in fields {
        let known = message.get_field_by_json_name(name).or_else(|| message.get_field_by_name(name));
        let Some(field) = known else {
            let known: Vec<_> = message.fields().map(|field| field.name().to_owned()).collect();
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            return Invalid::field_error(join(&path, shown(name)), unknown_field(name, &known));
        };
        if !reads(&field, value.clone()) {
            return in_field(&field, value, join(&path, field.name()), error);
        }
    }
    // Each field for itself is as it should be, so they do not go together.
    Invalid::field_error(path, error.to_string())
}

fn in_field(field: &FieldDescriptor, value: &Value, path: String, error: &serde_json::Error) -> Invalid {
    if !field.is_list() {
        return in_value(field, value, path, error);
    }
    let Value::Array(items) = value else { return Invalid::field_error(path, "a list is wanted") };
    let mut items = items.iter().enumerate();
    match items.find(|(_, item)| !reads(field, json!([item]))) {
        Some((index, item)) => in_value(field, item, format!("{path}[{index}]"), error),
        None => Invalid::field_error(path, error.to_string()),
    }
}

fn in_value(field: &FieldDescriptor, value: &Value, path: String, error: &serde_json::Error) -> Invalid {
    match field.kind() {
        Kind::Message(inner) if value.is_object() && !is_text(&inner) => in_message(&inner, value, path, error),
        kind => Invalid::field_error(path, format!("{} is wanted", wanted(&kind))),
    }
}

/// Whether a message that has this field alone can be read.
fn reads(field: &FieldDescriptor, value: Value) -> bool {
    let alone = Value::Object(Map::from_iter([(field.json_name().to_owned(), value)]));
    DynamicMessage::deserialize(field.parent_message().clone(), alone).is_ok()
}

fn is_text(message: &MessageDescriptor) -> bool {
    message.full_name() == "google.protobuf.Duration"
}

/// What a value of this kind is written as.
fn wanted(kind: &Kind) -> String {
    match kind {
        Kind::Double | Kind::Float => "a number".to_owned(),
        Kind::Bool => "true or false".to_owned(),
        Kind::String | Kind::Bytes => "a text".to_owned(),
        Kind::Message(message) if is_text(message) => "a length of time in seconds, such as \"1.5s\",".to_owned(),
        Kind::Message(_) => "an object".to_owned(),
        Kind::Enum(names) => {
            let names: Vec<_> = names.values().map(|value| value.name().to_owned()).collect();
            format!("one of {}", names.join(", "))
        }
        Kind::Uint64 | Kind::Fixed64 => "a whole number from 0 to 2^64 - 1, or a text of its digits,".to_owned(),
        Kind::Uint32 | Kind::Fixed32 => "a whole number from 0 to 2^32 - 1".to_owned(),
        _ => "a whole number, or a text of its digits,".to_owned(),
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
