//! JSON Schemas of policies and settings, for editors: generated from the readers' declarations, with descriptions from
//! the documentation. The schema of the chart's values has a copy of the one of settings.

mod policy;
mod settings;
mod tests;
mod validator;

use serde_json::{Value, json};

use crate::read;

pub const POLICY: &str = "config/policy.schema.json";
pub const SETTINGS: &str = "config/settings.schema.json";

/// Helm resolves no reference to another file, so `settings` has a copy.
pub const VALUES: &str = "deploy/helm/weir/values.schema.json";

/// The pattern of a duration in files.
const DURATION: &str = "^[0-9]+(us|ms|s|m|h|d)?$";

/// Returns the schemas, with their paths.
pub fn all() -> [(&'static str, Value); 3] {
    let settings = settings::schema();
    [(POLICY, policy::schema()), (VALUES, values(&settings)), (SETTINGS, settings)]
}

/// Returns the schema of the chart's values with the current schema of settings.
fn values(settings: &Value) -> Value {
    let mut values: Value = serde_json::from_str(&read(VALUES)).expect("JSON");
    let mut settings = settings.clone();
    // The chart's schema has another draft; both know the keywords in use.
    settings.as_object_mut().expect("an object").retain(|key, _| !["$schema", "title"].contains(&key.as_str()));
    values["properties"]["settings"]["allOf"][0] = settings;
    values
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
