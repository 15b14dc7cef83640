//! Envoy's default format, and that of Istio, which has three more words after the flags:
//! `[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0"
//! "locations" "tcp://10.0.2.1:80"`.

use super::text_fields::{FIELDS_CAPACITY, TextFields, quoted};

/// The fields after the request in the default format.
const NAMES: [&str; 11] = [
    "status",
    "response_flags",
    "bytes_received",
    "bytes",
    "duration",
    "upstream_service_time",
    "x_forwarded_for",
    "user_agent",
    "request_id",
    "host",
    "upstream_host",
];
/// Position and number of Istio's additional words.
const ISTIO: (usize, usize) = (2, 3);

/// Parses a line. Further fields are ignored.
pub(super) fn read(line: &str) -> Option<TextFields<'_>> {
    let (time, rest) = line.strip_prefix('[')?.split_once("] \"")?;
    let (request, rest) = quoted(rest)?;
    let mut words = words(rest)?;
    // The last of Istio's words is the transport failure reason of the upstream, in quotes.
    if words.get(ISTIO.0 + ISTIO.1 - 1).is_some_and(|(_, is_quoted)| *is_quoted) {
        words.drain(ISTIO.0..ISTIO.0 + ISTIO.1);
    }
    if words.len() < NAMES.len() {
        return None;
    }
    let mut fields = TextFields { time, values: Vec::with_capacity(FIELDS_CAPACITY) };
    fields.push_request(request);
    fields.values.extend(NAMES.into_iter().zip(words.into_iter().map(|(word, _)| word)));
    // The last one is the address that Envoy saw; the others are claimed by the client.
    let forwarded = fields.values.iter().find(|(name, _)| *name == "x_forwarded_for").map_or("", |(_, value)| value);
    let last = forwarded.rsplit(',').next().unwrap_or_default().trim();
    fields.values.push(("remote_addr", last));
    Some(fields)
}

/// Splits a line into its words, each with whether it is quoted.
fn words(mut rest: &str) -> Option<Vec<(&str, bool)>> {
    let mut words = Vec::with_capacity(NAMES.len() + ISTIO.1);
    loop {
        rest = rest.trim_start_matches(' ');
        if rest.is_empty() {
            return Some(words);
        }
        let is_quoted = rest.starts_with('"');
        let (word, behind) = if is_quoted { quoted(&rest[1..])? } else { rest.split_once(' ').unwrap_or((rest, "")) };
        words.push((word, is_quoted));
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 7 226 100 "9.9.9.9, 10.0.35.28" "nsq2http" "cc21d9b0" "locations" "tcp://10.0.2.1:80""#;
    const ISTIO_LINE: &str = r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0-DEV" "84961386" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin default"#;

    fn got(line: &str, names: &[&str]) -> Vec<String> {
        let fields = read(line).unwrap();
        let value = |name: &&str| fields.values.iter().find(|(known, _)| known == name).unwrap().1.to_owned();
        names.iter().map(value).collect()
    }

    #[test]
    fn default_envoy_lines_are_parsed() {
        let names = ["method", "path", "status", "bytes_received", "bytes", "user_agent", "host", "remote_addr"];
        let values = ["POST", "/api/v1/locations", "204", "154", "7", "nsq2http", "locations", "10.0.35.28"];
        assert_eq!(got(DEFAULT, &names), values);
        assert_eq!(read(DEFAULT).unwrap().time, "2016-04-15T20:17:00.310Z");
    }

    #[test]
    fn istio_lines_are_parsed() {
        let names = ["path", "status", "bytes", "duration", "user_agent", "host", "upstream_host", "remote_addr"];
        let values = ["/status/418", "418", "135", "3", "curl/7.73.0-DEV", "httpbin:8000", "127.0.0.1:80", "-"];
        assert_eq!(got(ISTIO_LINE, &names), values);
    }

    #[test]
    fn lines_in_other_formats_are_rejected() {
        for line in
            ["[", "[x] \"GET / HTTP/2\"", "[x] \"GET /", "[x] \"GET / HTTP/2\" 204 - 154 0 226 100 \"a", "[x] y"]
        {
            assert!(read(line).is_none(), "{line}");
        }
    }
}
