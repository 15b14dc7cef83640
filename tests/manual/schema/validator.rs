//! The subset of JSON Schema that these schemas use.

use serde_json::Value;

use super::DURATION;

/// Whether the schema's document accepts a value.
pub fn accepts(document: &Value, value: &Value) -> bool {
    Validator { document }.accepts(document, value)
}

struct Validator<'a> {
    document: &'a Value,
}

impl Validator<'_> {
    fn accepts(&self, schema: &Value, value: &Value) -> bool {
        match schema {
            Value::Bool(accepts) => *accepts,
            Value::Object(keywords) => keywords.iter().all(|(keyword, says)| self.holds(schema, keyword, says, value)),
            _ => panic!("no schema: {schema}"),
        }
    }

    fn holds(&self, schema: &Value, keyword: &str, says: &Value, value: &Value) -> bool {
        let list = |value: &Value| value.as_array().expect("an array").clone();
        let count = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("in memory");
        let accepted = |schemas: &Value| list(schemas).iter().filter(|schema| self.accepts(schema, value)).count();
        match (keyword, value) {
            ("$schema" | "$defs" | "title" | "description" | "default" | "then" | "else", _) => true,
            ("if", _) => {
                let branch = if self.accepts(says, value) { "then" } else { "else" };
                schema.get(branch).is_none_or(|branch| self.accepts(branch, value))
            }
            ("$ref", _) => {
                let pointer = says.as_str().and_then(|name| name.strip_prefix('#')).expect("a definition");
                self.accepts(self.document.pointer(pointer).expect("defined"), value)
            }
            ("type", _) => match says {
                Value::Array(kinds) => kinds.iter().any(|kind| is_of(value, kind)),
                kind => is_of(value, kind),
            },
            ("enum", _) => list(says).contains(value),
            ("anyOf", _) => accepted(says) > 0,
            ("oneOf", _) => accepted(says) == 1,
            ("required", Value::Object(fields)) => {
                list(says).iter().all(|name| fields.contains_key(name.as_str().expect("a name")))
            }
            ("properties", Value::Object(fields)) => {
                fields.iter().all(|(name, value)| says.get(name).is_none_or(|schema| self.accepts(schema, value)))
            }
            ("additionalProperties", Value::Object(fields)) => {
                let known = |name: &str| schema.get("properties").is_some_and(|known| known.get(name).is_some());
                fields.iter().all(|(name, value)| known(name) || self.accepts(says, value))
            }
            ("propertyNames", Value::Object(fields)) => {
                fields.keys().all(|name| self.accepts(says, &Value::from(name.as_str())))
            }
            ("items", Value::Array(items)) => items.iter().all(|item| self.accepts(says, item)),
            ("prefixItems", Value::Array(items)) => {
                list(says).iter().zip(items).all(|(schema, item)| self.accepts(schema, item))
            }
            ("minItems", Value::Array(items)) => items.len() >= count(says),
            ("maxItems", Value::Array(items)) => items.len() <= count(says),
            ("minLength", Value::String(text)) => text.len() >= count(says),
            ("maxLength", Value::String(text)) => text.len() <= count(says),
            ("pattern", Value::String(text)) => {
                assert_eq!(says, DURATION);
                let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
                unit.len() < text.len() && ["", "us", "ms", "s", "m", "h", "d"].contains(&unit)
            }
            ("minimum", Value::Number(number)) => number.as_f64() >= says.as_f64(),
            ("maximum", Value::Number(number)) => number.as_f64() <= says.as_f64(),
            // These keywords do not constrain values of other types.
            (
                "required"
                | "properties"
                | "additionalProperties"
                | "propertyNames"
                | "items"
                | "prefixItems"
                | "minItems"
                | "maxItems"
                | "minLength"
                | "maxLength"
                | "pattern"
                | "minimum"
                | "maximum",
                _,
            ) => true,
            _ => panic!("the keyword {keyword} is not known here"),
        }
    }
}

fn is_of(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("a name") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type: {other}"),
    }
}
