//! One line of an access log, by field.

use std::borrow::Cow;

use serde_json::Value;

use super::{common, envoy, text_fields::TextFields};

/// The default names of the time field in JSON; the first that exists is used.
const TIMES: &[&str] =
    &["time", "ts", "@timestamp", "timestamp", "msec", "time_iso8601", "time_local", "start_time", "StartUTC"];

/// A line.
#[derive(Debug)]
pub enum Record<'a> {
    /// Text in a known format.
    Text(TextFields<'a>),
    /// JSON, whose fields can have any names.
    Json(Value),
}

impl<'a> Record<'a> {
    /// Parses a line, whose first character determines the format.
    ///
    /// # Errors
    /// A message about the problem.
    pub fn parse(line: &'a str) -> Result<Self, String> {
        let (text, form) = match line.as_bytes().first() {
            Some(b'{') => {
                let json = serde_json::from_str(line).map(Self::Json);
                return json.map_err(|error| format!("invalid JSON: {error}"));
            }
            Some(b'[') => (envoy::read(line), "Envoy's format"),
            _ => (common::read(line), "the common or combined log format"),
        };
        text.map(Self::Text).ok_or_else(|| format!("not in {form}"))
    }

    /// Returns a value by its name; `None`: it does not exist. A null is an empty value.
    ///
    /// # Errors
    /// The value is a list or a map.
    pub fn get(&self, name: &str) -> Result<Option<Cow<'_, str>>, String> {
        match self {
            Self::Text(fields) => Ok(fields.get(name).map(Cow::Borrowed)),
            Self::Json(value) => find(value, name).map(|value| single(name, value)).transpose(),
        }
    }

    /// Returns the time; of JSON from the field `time_from`, if that is given.
    ///
    /// # Errors
    /// The line has no time.
    pub fn time(&self, time_from: Option<&str>) -> Result<Cow<'_, str>, String> {
        let value = match self {
            Self::Text(fields) => return Ok(Cow::Borrowed(fields.time)),
            Self::Json(value) => value,
        };
        if let Some(name) = time_from {
            return single(name, find(value, name).ok_or_else(|| format!("no field `{name}`"))?);
        }
        let found = TIMES.iter().find_map(|name| Some((name, value.get(name)?)));
        let (name, value) = found.ok_or("no time in a known field; name one with --time-from")?;
        single(name, value)
    }
}

/// Finds a field by its name, in which dots lead into maps unless they are part of a name.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let map = value.as_object()?;
    let into = |(dot, _): (usize, &str)| find(map.get(&name[..dot])?, &name[dot + 1..]);
    map.get(name).or_else(|| name.match_indices('.').find_map(into))
}

fn single<'a>(name: &str, value: &'a Value) -> Result<Cow<'a, str>, String> {
    match value {
        Value::Null => Ok(Cow::Borrowed("")),
        Value::String(text) => Ok(Cow::Borrowed(text)),
        Value::Bool(_) | Value::Number(_) => Ok(Cow::Owned(value.to_string())),
        Value::Array(_) | Value::Object(_) => Err(format!("`{name}` is not a single value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_names_find_nested_fields() {
        let record = Record::parse(r#"{"a":{"b":{"c":1},"b.c":2,"d":true},"e.f":{"g":"h"},"i":1.5}"#).unwrap();
        let got = |name| record.get(name).unwrap().map(Cow::into_owned);
        for (name, value) in [("a.b.c", "2"), ("e.f.g", "h"), ("a.d", "true"), ("i", "1.5")] {
            assert_eq!(got(name).as_deref(), Some(value), "{name}");
        }
        for name in ["a.x", "a.d.x", "x", "", ".", "a."] {
            assert_eq!(got(name), None, "{name}");
        }
    }
}
