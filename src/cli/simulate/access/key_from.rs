//! The template that makes a key of a log line: `ip/{remote_addr}/{path:1}`.

use std::borrow::Cow;

use weir_core::domain::key::{MAX_SEGMENT_BYTES, MAX_SEGMENTS};

use super::record::Record;

/// The replacement of an empty value, as logs write it.
const EMPTY: &str = "-";

/// The template of a key, segment by segment. Values are inserted after it was split, so a value is never more than one
/// segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFrom(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Field(Field),
}

/// A field of a line: `name`, `name:path`, `name:2`, and `name?` if a line may lack it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: String,
    part: Part,
    may_lack: bool,
}

/// The part of a value that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Whole,
    /// The path of a URL, without its query.
    Path,
    /// A segment of the path, from 1.
    PathSegment(usize),
}

impl KeyFrom {
    /// Parses the template of a key.
    ///
    /// # Errors
    /// A message about the segment that is not valid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let segments: Vec<_> = text.split('/').collect();
        if segments.len() > MAX_SEGMENTS {
            return Err(format!("a key can have at most {MAX_SEGMENTS} segments, not {}", segments.len()));
        }
        let read = |(index, text): (usize, &str)| {
            Segment::parse(text).map_err(|why| format!("segment {} `{text}`: {why}", index + 1))
        };
        segments.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the key of a line.
    ///
    /// # Errors
    /// A message about a value that the line lacks, or that is not a single value.
    pub fn key(&self, record: &Record<'_>) -> Result<Vec<String>, String> {
        self.0.iter().map(|segment| segment.fill(record)).collect()
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, String> {
        let field = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        match (text, field) {
            ("", _) => Err("is empty".to_owned()),
            (_, Some(field)) => Field::parse(field).map(Self::Field),
            _ if text.contains(['{', '}']) => Err("must be a string without braces or one {field}".to_owned()),
            _ if text.len() > MAX_SEGMENT_BYTES => Err(format!("is longer than {MAX_SEGMENT_BYTES} bytes")),
            _ => Ok(Self::Literal(text.to_owned())),
        }
    }

    fn fill(&self, record: &Record<'_>) -> Result<String, String> {
        match self {
            Self::Literal(text) => Ok(text.clone()),
            Self::Field(field) => field.value(record).map(Cow::into_owned),
        }
    }
}

impl Field {
    /// Parses the text between braces.
    ///
    /// # Errors
    /// A message about the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (text, may_lack) = text.strip_suffix('?').map_or((text, false), |text| (text, true));
        let (name, part) = match text.rsplit_once(':') {
            None if text == "path" => (text, Part::Path),
            None => (text, Part::Whole),
            Some((name, "path")) => (name, Part::Path),
            Some((name, number)) => {
                let number = number.parse().ok().filter(|number| *number > 0);
                let number = number.ok_or("behind the colon comes `path` or the number of a path segment, from 1")?;
                (name, Part::PathSegment(number))
            }
        };
        if name.is_empty() || name.contains(['{', '}']) {
            return Err("names no field".to_owned());
        }
        Ok(Self { name: name.to_owned(), part, may_lack })
    }

    /// Returns the value in a line; an empty one is `-`.
    ///
    /// # Errors
    /// The line lacks it, or it is not a single value.
    pub fn value<'a>(&self, record: &'a Record<'_>) -> Result<Cow<'a, str>, String> {
        let value = match record.get(&self.name)? {
            Some(value) => value,
            None if self.may_lack => Cow::Borrowed(EMPTY),
            None => return Err(format!("no field `{}`", self.name)),
        };
        let part = match value {
            Cow::Borrowed(value) => Cow::Borrowed(self.part.of(value)),
            Cow::Owned(value) => Cow::Owned(self.part.of(&value).to_owned()),
        };
        Ok(if part.is_empty() { Cow::Borrowed(EMPTY) } else { part })
    }

    /// Returns the name of the field.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Part {
    fn of(self, value: &str) -> &str {
        match self {
            Self::Whole => value,
            Self::Path => path(value),
            Self::PathSegment(number) => {
                path(value).split('/').filter(|segment| !segment.is_empty()).nth(number - 1).unwrap_or_default()
            }
        }
    }
}

/// Returns the path of a URL or of a request target.
fn path(url: &str) -> &str {
    let url = &url[..url.find(['?', '#']).unwrap_or(url.len())];
    match url.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(form: &str, record: &str) -> Result<Vec<String>, String> {
        KeyFrom::parse(form).unwrap().key(&Record::parse(record).unwrap())
    }

    #[test]
    fn a_value_is_always_a_single_segment() {
        let record = r#"{"user":"a/b/{c}","path":"/x/y?z=/w","n":{"m":7}}"#;
        assert_eq!(key("user/{user}/{n.m}", record).unwrap(), ["user", "a/b/{c}", "7"]);
        assert_eq!(key("{path}/{path:1}/{path:2}/{path:3}", record).unwrap(), ["/x/y", "x", "y", "-"]);
    }

    #[test]
    fn missing_fields_are_errors_unless_optional() {
        let record = r#"{"user":"","none":null,"list":[1]}"#;
        assert_eq!(key("{user}/{none}/{gone?}", record).unwrap(), ["-", "-", "-"]);
        assert_eq!(key("{gone}", record).unwrap_err(), "no field `gone`");
        assert_eq!(key("{list?}", record).unwrap_err(), "`list` is not a single value");
    }

    #[test]
    fn paths_are_extracted_from_urls() {
        for (url, expected) in [
            ("/a/b?c", "/a/b"),
            ("/a#b", "/a"),
            ("http://host/a?b", "/a"),
            ("http://host", "/"),
            ("*", "*"),
            ("/to?url=http://host/a", "/to"),
            ("/to/http://host/a", "/to/http://host/a"),
            ("host:443", "host:443"),
        ] {
            assert_eq!(path(url), expected, "{url}");
        }
    }

    #[test]
    fn invalid_templates_are_rejected_with_the_segment() {
        for (form, expected) in [
            ("", "segment 1 ``: is empty"),
            ("/ip", "segment 1 ``: is empty"),
            ("a//b", "segment 2 ``: is empty"),
            ("a/u-{user}", "segment 2 `u-{user}`: must be a string without braces"),
            ("{a}{b}", "names no field"),
            ("{a", "must be a string without braces"),
            ("{}", "names no field"),
            ("{?}", "names no field"),
            ("{:1}", "names no field"),
            ("{path:0}", "from 1"),
            ("{path:x}", "from 1"),
            (&"a/".repeat(40), "at most 32 segments, not 41"),
            (&"a".repeat(1_025), "longer than 1024 bytes"),
        ] {
            let error = KeyFrom::parse(form).unwrap_err();
            assert!(error.contains(expected), "{form}: {error}");
        }
    }
}
