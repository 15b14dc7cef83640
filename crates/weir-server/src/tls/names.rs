//! The identity in a certificate: its names and its expiry.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

/// Maximum number of names that are read from one certificate.
const MAX_NAMES: usize = 128;
/// Maximum length of a name in a certificate or a pattern, in bytes.
const MAX_NAME_BYTES: usize = 2_048;
/// The separator that marks a URI; host names do not contain it.
const SCHEME_END: &str = "://";

/// The identity in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateIdentity {
    names: Vec<Name>,
    /// The time from which it is not valid any more.
    pub end: SystemTime,
}

/// One name: a host name or plain text, or a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Plain(String),
    Uri(String),
}

impl CertificateIdentity {
    /// Reads a certificate (DER). Its names are the DNS names and URIs of its subjectAltName; without that extension,
    /// the common name of its subject.
    ///
    /// # Errors
    /// A sentence, if it cannot be parsed.
    pub(crate) fn of(certificate: &[u8]) -> Result<Self, String> {
        let (_, certificate) =
            parse_x509_certificate(certificate).map_err(|error| format!("not an X.509 certificate: {error}"))?;
        let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default();
        // `not_after` is inclusive.
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.saturating_add(1));
        let alternative = certificate.subject_alternative_name();
        let mut names: Vec<_> = match alternative.map_err(|error| format!("invalid subjectAltName: {error}"))? {
            Some(names) => names.value.general_names.iter().filter_map(Name::of).take(MAX_NAMES).collect(),
            None => {
                let common = certificate.subject().iter_common_name();
                let names = common.filter_map(|name| name.as_str().ok());
                names.take(MAX_NAMES).map(Name::plain).collect()
            }
        };
        names.retain(|name| (1..=MAX_NAME_BYTES).contains(&name.text().len()));
        Ok(Self { names, end })
    }

    pub(crate) fn matches_any(&self, patterns: &[NamePattern]) -> bool {
        patterns.iter().any(|pattern| self.matches(pattern))
    }

    /// Whether one of its names matches this pattern.
    pub fn matches(&self, pattern: &NamePattern) -> bool {
        pattern.0 == PatternKind::All || self.names.iter().any(|name| pattern.0.matches(name))
    }
}

impl fmt::Display for CertificateIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.names.first() else { return f.write_str("a certificate without a name") };
        write!(f, "`{}`", first.text().escape_debug())?;
        match self.names.len() - 1 {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl Name {
    fn of(name: &GeneralName<'_>) -> Option<Self> {
        match name {
            GeneralName::DNSName(name) => Some(Self::plain(name)),
            GeneralName::URI(uri) => Some(Self::Uri((*uri).to_owned())),
            _ => None,
        }
    }

    fn plain(name: &str) -> Self {
        Self::Plain(name.to_ascii_lowercase())
    }

    fn text(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Uri(text) => text,
        }
    }
}

/// A pattern for names: `host.example` (case-insensitive), `*.example` (one label in place of the star),
/// `spiffe://example/service`, `spiffe://example/*` (all with this prefix), or `*` (every certificate).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NamePattern(PatternKind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PatternKind {
    All,
    Plain(String),
    /// The suffix, with the dot that follows the label.
    Label(String),
    Uri(String),
    Below(String),
}

impl PatternKind {
    fn matches(&self, name: &Name) -> bool {
        match (self, name) {
            (Self::All, _) => true,
            (Self::Plain(pattern), Name::Plain(name)) | (Self::Uri(pattern), Name::Uri(name)) => pattern == name,
            (Self::Label(behind), Name::Plain(name)) => {
                name.strip_suffix(behind.as_str()).is_some_and(|label| !label.is_empty() && !label.contains(['.', '*']))
            }
            (Self::Below(before), Name::Uri(name)) => name.len() > before.len() && name.starts_with(before.as_str()),
            _ => false,
        }
    }
}

impl NamePattern {
    /// Returns a number that is greater for patterns that match fewer names.
    pub fn precision(&self) -> usize {
        match &self.0 {
            PatternKind::All => 0,
            PatternKind::Label(part) | PatternKind::Below(part) => part.len(),
            PatternKind::Plain(_) | PatternKind::Uri(_) => usize::MAX,
        }
    }
}

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("`{}` {why}", text.escape_debug()));
        if text == "*" {
            return Ok(Self(PatternKind::All));
        }
        if !(1..=MAX_NAME_BYTES).contains(&text.len()) || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(format!("a name must have 1 to {MAX_NAME_BYTES} bytes and no space"));
        }
        if text.contains(SCHEME_END) {
            return match text.strip_suffix("/*") {
                Some(before) if before.contains('*') => wrong("has more than one `*`"),
                Some(before) if before.ends_with('/') => wrong("has no host before the `*`"),
                Some(before) => Ok(Self(PatternKind::Below(format!("{before}/")))),
                None if text.contains('*') => wrong("may have a `*` only in `/*` at the end"),
                None => Ok(Self(PatternKind::Uri(text))),
            };
        }
        let text = text.to_ascii_lowercase();
        match text.strip_prefix('*') {
            Some(behind) if !behind.starts_with('.') || behind.len() < 2 || behind.contains('*') => {
                wrong("may have a `*` only in `*.` at the beginning")
            }
            Some(behind) => Ok(Self(PatternKind::Label(behind.to_owned()))),
            None if text.contains('*') => wrong("may have a `*` only in `*.` at the beginning"),
            None => Ok(Self(PatternKind::Plain(text))),
        }
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PatternKind::All => f.write_str("*"),
            PatternKind::Plain(text) | PatternKind::Uri(text) => f.write_str(text),
            PatternKind::Label(behind) => write!(f, "*{behind}"),
            PatternKind::Below(before) => write!(f, "{before}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn pattern(text: &str) -> NamePattern {
        NamePattern::try_from(text.to_owned()).unwrap()
    }

    fn identity(common: &str, names: Vec<SanType>) -> CertificateIdentity {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = names;
        params.not_after = rcgen::date_time_ymd(2100, 1, 1);
        CertificateIdentity::of(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der()).unwrap()
    }

    #[test]
    fn the_common_name_is_used_only_without_subject_alt_names() {
        let uri = || SanType::URI("spiffe://example.org/pay".try_into().unwrap());
        let dns = || SanType::DnsName("Pay.Example.org".try_into().unwrap());
        let address = || SanType::IpAddress([127, 0, 0, 1].into());
        for (names, known, unknown) in [
            (vec![], &["cn", "CN", "*"][..], &["pay.example.org"][..]),
            (
                vec![dns()],
                &["pay.example.org", "*.example.org", "*"],
                &["cn", "*.org", "example.org", "*.pay.example.org"],
            ),
            (vec![uri()], &["spiffe://example.org/pay", "spiffe://example.org/*"], &["cn", "spiffe://example.org/PAY"]),
            (vec![uri()], &["*"], &["spiffe://example.org/pay/*", "spiffe://example.or/*", "spiffe://example.org"]),
            (vec![address()], &["*"], &["cn", "127.0.0.1"]),
            (vec![dns(), uri()], &["pay.example.org", "spiffe://example.org/*"], &["cn"]),
        ] {
            let identity = identity("cn", names);
            known.iter().for_each(|name| assert!(identity.matches(&pattern(name)), "{name} is {identity:?}"));
            unknown.iter().for_each(|name| assert!(!identity.matches(&pattern(name)), "{name} is {identity:?}"));
        }
        let pretender = identity("spiffe://example.org/pay", Vec::new());
        assert!(!pretender.matches(&pattern("spiffe://example.org/pay")), "a common name is no URI");
        assert_eq!(pretender.end, SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_801));
        assert!(CertificateIdentity::of(b"nonsense").unwrap_err().contains("not an X.509 certificate"));
    }

    #[test]
    fn name_patterns_round_trip() {
        for text in ["*", "a.example", "*.example", "spiffe://example/a", "spiffe://example/*"] {
            assert_eq!(pattern(text).to_string(), text);
        }
        for text in ["", "a b", "a.*", "*a.example", "**.a", "*.", "spiffe://*/a", "spiffe://a/*/*", "spiffe:///*"] {
            assert!(NamePattern::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
