//! The fields of a text line.

/// Capacity for the fields of a text line.
pub(super) const FIELDS_CAPACITY: usize = 16;

/// The fields of a text line.
#[derive(Debug)]
pub struct TextFields<'a> {
    /// The time.
    pub time: &'a str,
    /// The values, by name.
    pub values: Vec<(&'static str, &'a str)>,
}

impl<'a> TextFields<'a> {
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Splits a request line; one that is not valid has an empty method and path.
    pub fn push_request(&mut self, request: &'a str) {
        let (rest, protocol) = request
            .rsplit_once(" HTTP/")
            .map_or((request, ""), |(rest, version)| (rest, &request[request.len() - version.len() - "HTTP/".len()..]));
        let parts = rest.split_once(' ').filter(|(method, _)| method.bytes().all(|byte| byte.is_ascii_alphabetic()));
        let (method, path) = parts.unwrap_or_default();
        self.values.extend([("request", request), ("method", method), ("path", path), ("protocol", protocol)]);
    }
}

/// Splits at the next quote that is not escaped, which is in neither part.
pub(super) fn quoted(text: &str) -> Option<(&str, &str)> {
    let (bytes, mut at) = (text.as_bytes(), 0);
    while *bytes.get(at)? != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    Some((&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_quotes_do_not_end_a_string() {
        assert_eq!(quoted(r#"a\"b\\" c"#), Some((r#"a\"b\\"#, " c")));
        assert_eq!(quoted(r#"" c"#), Some(("", " c")));
        for text in ["", "abc", r#"abc\"#, r#"\""#] {
            assert_eq!(quoted(text), None, "{text}");
        }
    }

    #[test]
    fn malformed_request_lines_give_empty_fields() {
        for (request, expected) in [
            ("GET /a?b HTTP/1.1", ["GET", "/a?b", "HTTP/1.1"]),
            ("GET /a b HTTP/2.0", ["GET", "/a b", "HTTP/2.0"]),
            ("GET /a", ["GET", "/a", ""]),
            ("-", ["", "", ""]),
            ("", ["", "", ""]),
            (r"\x16\x03 \x01", ["", "", ""]),
        ] {
            let mut fields = TextFields { time: "", values: Vec::new() };
            fields.push_request(request);
            assert_eq!(["method", "path", "protocol"].map(|name| fields.get(name).unwrap()), expected, "{request}");
        }
    }
}
