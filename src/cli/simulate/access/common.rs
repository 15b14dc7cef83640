//! The common log format of nginx and Apache, and the combined one, each optionally after the name of a virtual host:
//! `127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326`, and then
//! `"http://www.example.com/start.html" "Mozilla/4.08"`.

use std::net::IpAddr;

use super::text_fields::{FIELDS_CAPACITY, TextFields, quoted};

/// Parses a line. Further fields are ignored.
pub(super) fn read(line: &str) -> Option<TextFields<'_>> {
    let (who, rest) = line.split_once(" [")?;
    let (time, rest) = rest.split_once("] \"")?;
    let (request, rest) = quoted(rest)?;
    let mut rest = rest.trim_start().splitn(3, ' ');
    let (status, bytes) = (rest.next()?, rest.next()?);
    let mut fields = TextFields { time, values: Vec::with_capacity(FIELDS_CAPACITY) };
    push_who(who, &mut fields)?;
    fields.push_request(request);
    fields.values.extend([("status", status), ("bytes", bytes)]);
    push_combined(rest.next().unwrap_or_default(), &mut fields);
    Some(fields)
}

fn push_who<'a>(who: &'a str, fields: &mut TextFields<'a>) -> Option<()> {
    let (mut first, mut rest) = who.split_once(' ')?;
    if is_host_with_port(first) {
        fields.values.push(("host", first));
        (first, rest) = rest.split_once(' ')?;
    }
    // The name of a user may contain spaces.
    let (ident, user) = rest.split_once(' ')?;
    fields.values.extend([("remote_addr", first), ("ident", ident), ("remote_user", user)]);
    Some(())
}

fn is_host_with_port(word: &str) -> bool {
    let port = word.rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| port.parse::<u16>().is_ok()) && word.parse::<IpAddr>().is_err()
}

fn push_combined<'a>(rest: &'a str, fields: &mut TextFields<'a>) {
    let next = |text: &'a str| text.trim_start().strip_prefix('"').and_then(quoted);
    let Some((referer, rest)) = next(rest) else { return };
    fields.values.push(("referer", referer));
    if let Some((user_agent, _)) = next(rest) {
        fields.values.push(("user_agent", user_agent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_and_combined_lines_are_parsed() {
        let common = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326"#;
        let who = [("remote_addr", "127.0.0.1"), ("ident", "-"), ("remote_user", "frank")];
        let what = [
            ("request", "GET /a?b HTTP/1.0"),
            ("method", "GET"),
            ("path", "/a?b"),
            ("protocol", "HTTP/1.0"),
            ("status", "200"),
            ("bytes", "2326"),
        ];
        let fields = read(common).unwrap();
        assert_eq!(fields.time, "10/Oct/2000:13:55:36 -0700");
        assert_eq!(fields.values[..], [&who[..], &what].concat());
        let combined = format!(r#"{common} "http://a/?\"" "Moz \"illa\" 4" "behind it" 0.3"#);
        let more = [("referer", r#"http://a/?\""#), ("user_agent", r#"Moz \"illa\" 4"#)];
        assert_eq!(read(&combined).unwrap().values[..], [&who[..], &what, &more].concat());
        let hosted = format!("example.com:443 {combined}");
        let host = [("host", "example.com:443")];
        assert_eq!(read(&hosted).unwrap().values[..], [&host[..], &who, &what, &more].concat());
    }

    #[test]
    fn users_can_have_spaces_and_addresses_colons() {
        let fields = read(r#"::1 - john r. doe [10/Oct/2000:13:55:36 -0700] "-" 408 -"#).unwrap();
        assert_eq!(fields.values[..3], [("remote_addr", "::1"), ("ident", "-"), ("remote_user", "john r. doe")]);
    }

    #[test]
    fn lines_in_other_formats_are_rejected() {
        for line in [
            "",
            "rubbish",
            "127.0.0.1 - frank",
            "127.0.0.1 [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 2326",
            "127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0",
            "127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200",
            "127.0.0.1 - - [10/Oct/2000:13:55:36 -0700 GET / HTTP/1.0 200 1",
        ] {
            assert!(read(line).is_none(), "{line}");
        }
    }
}
