//! JSON Schemas of policies and settings, for editors: generated from the readers' declarations, with descriptions from
//! the documentation.

mod policy;
mod settings;
mod tests;
mod validator;

use serde_json::{Value, json};

pub const POLICY: &str = "config/policy.schema.json";
pub const SETTINGS: &str = "config/settings.schema.json";

/// The pattern of a duration in files.
const DURATION: &str = "^[0-9]+(us|ms|s|m|h|d)?$";

/// Returns both schemas, with their paths.
pub fn all() -> [(&'static str, Value); 2] {
    [(POLICY, policy::schema()), (SETTINGS, settings::schema())]
}

/// Writes a schema as the text of its file.
pub fn text(schema: &Value) -> String {
    format!("{schema:#}\n")
}

/// Makes a schema with this title and these further fields.
fn root(title: &str, description: &str, rest: Value) -> Value {
    let head = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
    });
    with(head, rest)
}

/// Adds the fields of another object.
fn with(mut first: Value, second: Value) -> Value {
    if let (Value::Object(first), Value::Object(second)) = (&mut first, second) {
        first.extend(second);
    }
    first
}

fn described(schema: Value, description: &str) -> Value {
    with(json!({ "description": description }), schema)
}

/// Extracts the values that an error such as ``charge must be `a` or `b`, not `?` `` names for `key`.
fn choices(error: &str, key: &str) -> Option<Vec<String>> {
    let (_, rest) = error.split_once(&format!("{key} must be `"))?;
    let (names, _) = rest.split_once("`, not ")?;
    Some(names.split('`').step_by(2).map(str::to_owned).collect())
}
