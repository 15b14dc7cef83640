//! The credentials file: clients, their tokens and certificates, and their roles.

use std::{collections::HashSet, path::Path, time::SystemTime};

use time::{Date, OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};
use weir_policy::limits::is_name;
use weir_server::tls::NamePattern;
use weir_settings::{
    Problems,
    document::{self, Entry, Node, Value},
    fields::{read_entries, scalar},
    file,
    problem::Mark,
    suggest,
};

use super::{Role, Roles, TokenHash, credentials::Credentials, token::PREFIX};

/// Maximum number of tokens, and of certificate names; a call may be compared with all of them.
pub const MAX_ENTRIES: usize = 1_000;
/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// `callers` is the name that 0.2 used.
const FILE_KEYS: [&str; 2] = ["clients", "callers"];
const CLIENT_KEYS: &[&str] = &["roles", "tokens", "certificates"];
const TOKEN_KEYS: &[&str] = &["sha256", "expires"];

/// Reads the credentials file.
///
/// # Errors
/// All problems, each with its position. No text that may be a token is shown.
pub fn load(path: &Path) -> Result<Credentials, Problems> {
    let text = file::read_text(path, MAX_FILE_BYTES).map_err(|error| Problems::of_file(path, error.to_string()))?;
    parse(&text).map_err(|problems| problems.in_file(path))
}

/// Parses the text of a credentials file.
///
/// # Errors
/// All problems, each with its position. No text that may be a token is shown.
pub fn parse(text: &str) -> Result<Credentials, Problems> {
    read(text).map_err(hidden)
}

/// Replaces messages that may contain a token.
fn hidden(mut problems: Problems) -> Problems {
    for problem in &mut problems.0 {
        if problem.message.contains(PREFIX) {
            problem.field.clear();
            problem.message = "this is a token; the file takes only the sha256 of tokens".to_owned();
        }
    }
    problems
}

fn read(text: &str) -> Result<Credentials, Problems> {
    let mut reader = Reader::default();
    match document::parse(text)? {
        None => {
            let message = "the file is empty; for no clients at all write `clients: {}`";
            reader.problem(Mark::default(), message);
        }
        Some(document) => reader.file(&document),
    }
    if reader.problems.0.is_empty() { Ok(reader.credentials) } else { Err(reader.problems) }
}

#[derive(Default)]
struct Reader {
    credentials: Credentials,
    problems: Problems,
    hashes: HashSet<String>,
    names: HashSet<NamePattern>,
}

impl Reader {
    fn problem(&mut self, mark: Mark, message: impl Into<String>) {
        self.problems.add(mark, "", message);
    }

    fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        match &node.value {
            Value::List(items) => items,
            _ => {
                self.problem(node.mark, format!("{what} must be a list, not {}", node.kind()));
                &[]
            }
        }
    }

    fn file(&mut self, document: &Node) {
        let entries = read_entries(document, "the file", &FILE_KEYS[..1], &FILE_KEYS[1..], &mut self.problems)
            .unwrap_or_default();
        let mut known = entries.iter().filter(|entry| FILE_KEYS.contains(&entry.key.as_str()));
        let Some(entry) = known.next() else { return self.problem(document.mark, "`clients` is missing") };
        if let Some(other) = known.next() {
            self.problem(other.mark, "`callers` is the former name of `clients`: use one of them");
        }
        let Value::Map(clients) = &entry.value.value else {
            let message = format!("{} must map names to maps with roles, not {}", entry.key, entry.value.kind());
            self.problem(entry.value.mark, message);
            return;
        };
        for client in clients {
            self.client(client);
        }
        if self.hashes.len().max(self.names.len()) > MAX_ENTRIES {
            self.problem(entry.mark, format!("at most {MAX_ENTRIES} tokens and as many names of certificates"));
        }
    }

    fn client(&mut self, client: &Entry) {
        if !is_name(&client.key) {
            self.problem(client.mark, "a client's name must be 1 to 256 bytes without control characters");
            return;
        }
        let (mut roles, mut tokens, mut certificates) = (None, Vec::new(), Vec::new());
        let entries = read_entries(&client.value, "a client", CLIENT_KEYS, &[], &mut self.problems);
        for entry in entries.unwrap_or_default() {
            match entry.key.as_str() {
                "roles" => roles = Some(self.roles(&entry.value)),
                "tokens" => {
                    let nodes = self.list(&entry.value, "tokens");
                    tokens = nodes.iter().filter_map(|node| self.token(node)).collect();
                }
                "certificates" => {
                    let nodes = self.list(&entry.value, "certificates");
                    certificates = nodes.iter().filter_map(|node| self.certificate(node)).collect();
                }
                _ => {}
            }
        }
        match roles {
            None => self.problem(client.mark, format!("a client must have roles: {}", role_names())),
            Some(roles) => self.credentials.add(&client.key, roles, tokens, certificates),
        }
    }

    fn roles(&mut self, node: &Node) -> Roles {
        let mut roles = Vec::new();
        let nodes = self.list(node, "roles");
        if matches!(node.value, Value::List(_)) && nodes.is_empty() {
            self.problem(node.mark, format!("a client must have roles: {}", role_names()));
        }
        for node in nodes {
            let name = scalar(node).unwrap_or_default();
            match Role::of_name(name) {
                Some(role) => roles.push(role),
                None => self.problem(node.mark, suggest::unknown("role", name, &Role::ALL.map(Role::name))),
            }
        }
        roles.into_iter().collect()
    }

    fn token(&mut self, node: &Node) -> Option<(TokenHash, Option<SystemTime>)> {
        let entries = read_entries(node, "a token", TOKEN_KEYS, &[], &mut self.problems)?;
        let mut end = None;
        if let Some(expires) = entries.iter().find(|entry| entry.key == "expires") {
            end = scalar(&expires.value).and_then(moment);
            if end.is_none() {
                let message = "expires must be a day (2027-01-31, at 00:00 UTC) or a time (2027-01-31T12:00:00Z)";
                self.problem(expires.value.mark, message);
            }
        }
        let Some(entry) = entries.iter().find(|entry| entry.key == "sha256") else {
            self.problem(node.mark, "a token must have its sha256, as `weir token` prints it");
            return None;
        };
        let text = scalar(&entry.value).unwrap_or_default();
        if text.starts_with(PREFIX) {
            self.problem(
                entry.value.mark,
                "this is a token itself; its sha256 belongs here, as `weir token` prints it",
            );
            return None;
        }
        let Some(hash) = TokenHash::parse(text) else {
            self.problem(entry.value.mark, "sha256 must have 64 hexadecimal digits");
            return None;
        };
        if !self.hashes.insert(hash.to_string()) {
            self.problem(entry.value.mark, "duplicate sha256");
        }
        Some((hash, end))
    }

    fn certificate(&mut self, node: &Node) -> Option<NamePattern> {
        let text = scalar(node).unwrap_or_default();
        match NamePattern::try_from(text.to_owned()) {
            Ok(pattern) => {
                if !self.names.insert(pattern.clone()) {
                    self.problem(node.mark, format!("duplicate certificate name `{pattern}`"));
                }
                Some(pattern)
            }
            Err(error) => {
                self.problem(node.mark, error);
                None
            }
        }
    }
}

fn role_names() -> String {
    Role::ALL.map(Role::name).join(", ")
}

/// Parses a date, which means its start in UTC, or an RFC 3339 timestamp.
fn moment(text: &str) -> Option<SystemTime> {
    let day = || Date::parse(text, format_description!("[year]-[month]-[day]")).ok();
    let moment = OffsetDateTime::parse(text, &Rfc3339).ok();
    moment.or_else(|| Some(day()?.midnight().assume_utc())).map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auth::{Access, AuthError};

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn errors(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn clients_have_their_roles_until_they_expire() {
        let text = format!(
            "clients:\n  ops:\n    roles: [reset, metrics]\n    tokens:\n    - sha256: {HASH}\n      expires: 2027-01-31\n    \
             - {{ sha256: {} , expires: '2027-01-31T01:00:00+01:00' }}\n  gone: {{ roles: [check], tokens: [] }}\n",
            HASH.replace('b', "c")
        );
        let credentials = parse(&text).unwrap();
        assert_eq!(credentials.count(), 2);
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_801_353_600);
        let (token, before) = (TokenHash::of(b"abc"), end - Duration::from_micros(1));
        let principal = credentials.authenticate(Some(&token), None, before).unwrap();
        assert_eq!(principal.end, Some(end));
        for (role, allowed) in [(Role::Check, false), (Role::Reset, true), (Role::Metrics, true)] {
            assert_eq!(principal.allows(Access::Role(role), || before).is_ok(), allowed, "{role:?}");
        }
        assert_eq!(principal.allows(Access::Authenticated, || end), Err(AuthError::Expired));
        let other = TokenHash::parse(&HASH.replace('b', "c")).unwrap();
        assert_eq!(credentials.authenticate(Some(&other), None, before).unwrap().end, Some(end));
        assert_eq!(credentials.authenticate(Some(&token), None, end), Err(AuthError::Expired));
        assert_eq!(credentials.authenticate(Some(&TokenHash::of(b"abd")), None, before), Err(AuthError::Unknown));
        assert_eq!(credentials.authenticate(None, None, before), Err(AuthError::Missing));
        assert_eq!(parse("clients: {}").unwrap().count(), 0);
        assert_eq!(parse("callers: { a: { roles: [check] } }").unwrap().count(), 1, "the former name");
    }

    #[test]
    fn errors_have_their_position() {
        for (text, expected) in [
            ("", "the file is empty; for no clients at all write `clients: {}`"),
            ("cliens: {}", "unknown key `cliens`; did you mean `clients`?"),
            ("{}", "`clients` is missing"),
            ("{ clients: {}, callers: {} }", "`callers` is the former name of `clients`: use one of them"),
            ("clients: [a]", "clients must map names to maps with roles, not a list"),
            ("clients: { a: {} }", "a client must have roles: check, reset, metrics, admin"),
            ("clients: { a: { roles: [] } }", "a client must have roles: check, reset, metrics, admin"),
            ("clients: { a: { roles: check } }", "roles must be a list, not a single value"),
            ("clients: { a: { roles: [chek] } }", "unknown role `chek`; did you mean `check`?"),
            ("clients: { a: { role: [check] } }", "unknown key `role`; did you mean `roles`?"),
            (
                "clients: { a: { roles: [check], tokens: [abc] } }",
                "a token must be a map with sha256, expires; this is a single value",
            ),
            (
                "clients: { a: { roles: [check], tokens: [{}] } }",
                "a token must have its sha256, as `weir token` prints it",
            ),
            ("clients: { a: { roles: [check], tokens: [{ sha256: abc }] } }", "sha256 must have 64 hexadecimal digits"),
            (
                "clients: { a: { roles: [check], tokens: [{ sha256: weir_abc }] } }",
                "this is a token itself; its sha256 belongs here, as `weir token` prints it",
            ),
            (
                "clients: { '': { roles: [check] } }",
                "a client's name must be 1 to 256 bytes without control characters",
            ),
            ("clients: { a: { roles: [check], certificates: ['*a'] } }", "`*a` may have a `*` only in"),
            ("clients: { a: { roles: [check], certificates: [b, b] } }", "duplicate certificate name `b`"),
            ("clients: { a: { roles: [check], tokens: [{ sha256: HASH, expires: soon }] } }", "expires must be a day"),
            ("clients: { a: { roles: [check], tokens: [{ sha256: HASH }, { sha256: HASH }] } }", "duplicate sha256"),
        ] {
            let error = errors(&text.replace("HASH", HASH));
            assert!(error.contains(expected), "{text}: {error}");
        }
        let problems = parse("clients:\n  a:\n    roles: [check]\n    tokens:\n    - sha256: abc\n").unwrap_err();
        assert_eq!(problems.0[0].mark, Mark { line: 5, column: 15 });
    }

    #[test]
    fn errors_never_contain_possible_tokens() {
        for text in [
            "clients: { a: { roles: [check], tokens: [{ sha256: weir_geheim }] } }",
            "clients: { a: { roles: [check], tokens: [{ weir_geheim: a }] } }",
            "clients: { weir_geheim: {}, weir_geheim: {} }",
            "clients: { a: { roles: [weir_geheim] } }",
            "clients: { a: { roles: [check], certificates: ['weir_geheim *'] } }",
            "clients: { a: { roles: [check], tokens: [{ sha256: ba7816bf_geheim }] } }",
        ] {
            let problems = parse(text).unwrap_err();
            assert!(!format!("{problems:?}").contains("geheim"), "{problems:?}");
        }
    }

    #[test]
    fn tokens_and_names_of_certificates_are_bounded() {
        for (key, entry) in [("certificates", "NUMBER"), ("tokens", "{ sha256: NUMBER }")] {
            let parsed = |count: usize| {
                let entry = |number| entry.replace("NUMBER", &format!("{number:064x}"));
                let all = (0..count).map(entry).collect::<Vec<_>>().join(", ");
                parse(&format!("clients: {{ a: {{ roles: [check], {key}: [{all}] }} }}"))
            };
            assert!(parsed(MAX_ENTRIES).is_ok(), "{key}");
            let error = parsed(MAX_ENTRIES + 1).unwrap_err().to_string();
            assert!(error.contains("at most 1000 tokens and as many names of certificates"), "{key}: {error}");
        }
    }
}
