//! Hints for keys and domains that a policy does not define.

use std::fs;

use tonic::{Code, Status};
use weir_policy::Suggestion;
use weir_settings::suggest;

use super::{Failure, client::Service, key_rows::joined, out::print_error};
use crate::proto::{SuggestRequest, SuggestResponse, rate_limiter_client::RateLimiterClient};

/// Maximum number of hidden files of a directory that are skipped.
const MAX_HIDDEN: usize = 100;
/// Maximum number of domains in a hint: one less than a suggestion has at most, which reveals that there are more.
const MAX_DOMAINS: usize = 9;

/// How a key is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyForm {
    /// An argument for each segment.
    Arguments,
    /// One argument, its segments separated by slashes.
    Slashes,
}

impl KeyForm {
    /// Formats a key as shell arguments.
    fn shown(self, key: &[String]) -> String {
        match self {
            Self::Arguments => shown(key),
            Self::Slashes => quoted(&joined(key)),
        }
    }

    /// Formats a pattern of keys.
    fn pattern(self, pattern: &[String]) -> String {
        match self {
            Self::Arguments => pattern.join(" "),
            Self::Slashes => joined(pattern),
        }
    }

    /// Says where a segment ends.
    fn rule(self) -> &'static str {
        match self {
            Self::Arguments => "each segment is an argument",
            Self::Slashes => r"segments end at `/`, not at `\/`",
        }
    }
}

/// Warns on standard error if the service says that no limit applies to a key. An older service, or one that does not
/// permit this client to ask, does not say.
pub(super) async fn warn_if_unlimited(service: &mut RateLimiterClient<Service>, domain: &str, key: &[String]) {
    if let Some(suggestion) = suggested(service, domain, key).await.filter(|suggestion| !suggestion.limited) {
        warn(key, Some(suggestion), KeyForm::Arguments);
    }
}

/// Warns on standard error that no limit applies to a key, with a suggestion of the service if it makes one, unless a
/// factor lifted the key's limits.
pub(super) async fn warn_of_unlimited(
    service: &mut RateLimiterClient<Service>,
    domain: &str,
    key: &[String],
    form: KeyForm,
) {
    let suggestion = suggested(service, domain, key).await;
    if suggestion.as_ref().is_none_or(|suggestion| !suggestion.limited) {
        warn(key, suggestion, form);
    }
}

fn warn(key: &[String], suggestion: Option<SuggestResponse>, form: KeyForm) {
    let suggestion = suggestion.map(|suggestion| {
        let patterns = suggestion.patterns.into_iter().map(|pattern| pattern.segments).collect();
        Suggestion { key: suggestion.key, patterns }
    });
    print_error(format_args!("weir: warning: {}", unlimited(key, suggestion.as_ref(), form)));
}

async fn suggested(service: &mut RateLimiterClient<Service>, domain: &str, key: &[String]) -> Option<SuggestResponse> {
    let request = SuggestRequest { domain: domain.to_owned(), key: key.to_vec() };
    service.suggest(request).await.ok().map(tonic::Response::into_inner)
}

/// Formats the warning that no limit applies to a key, with a suggestion.
pub(super) fn unlimited(key: &[String], suggestion: Option<&Suggestion>, form: KeyForm) -> String {
    let warning = format!("no limit applies to `{}`", form.shown(key));
    match suggestion {
        None => warning,
        Some(suggestion) if suggestion.key.len() > key.len() => {
            format!("{warning}: {}; did you mean `{}`?", form.rule(), form.shown(&suggestion.key))
        }
        Some(suggestion) if !suggestion.key.is_empty() => {
            format!("{warning}; did you mean `{}`?", form.shown(&suggestion.key))
        }
        Some(suggestion) if suggestion.patterns.is_empty() => format!("{warning}: its domain has no limits"),
        Some(suggestion) => {
            let patterns: Vec<_> =
                suggestion.patterns.iter().map(|pattern| format!("`{}`", form.pattern(pattern))).collect();
            format!("{warning}; limits apply to {}", patterns.join(", "))
        }
    }
}

/// Returns the suggestion that follows the error that a domain is not defined.
pub(super) async fn after(
    error: &Status,
    service: &mut RateLimiterClient<Service>,
    domain: &str,
    key: &[String],
) -> Option<String> {
    if error.code() != Code::NotFound {
        return None;
    }
    let known = suggested(service, domain, key).await?.domains;
    Some(domains(domain, &known))
}

/// Formats a suggestion of domains, of those that are defined, nearest first.
pub(super) fn domains<T: AsRef<str>>(domain: &str, known: &[T]) -> String {
    let name = |known: &T| match known.as_ref() {
        "" => "the default domain (without --domain)".to_owned(),
        known => format!("--domain {}", quoted(known)),
    };
    match known {
        [] => String::new(),
        [only] => format!("; did you mean {}?", name(only)),
        [near, ..] if suggest::distance(domain, near.as_ref()).is_some() => format!("; did you mean {}?", name(near)),
        all => {
            let names: Vec<_> = all.iter().take(MAX_DOMAINS).map(name).collect();
            let others = if all.len() > MAX_DOMAINS { ", and others" } else { "" };
            format!("; there are {}{others}", names.join(", "))
        }
    }
}

/// Rejects a key in which a shell seems to have expanded a `*` to the names of files.
///
/// # Errors
/// The key contains the names of all files of this directory, and there are at least two.
pub(super) fn check_expansion(key: &[String]) -> Result<(), Failure> {
    reject_expansion(key, "A key has the names of one request; `*` is for policies")
}

/// Rejects a pattern in which a shell seems to have expanded a `*`, as [`check_expansion`] does.
///
/// # Errors
/// The pattern contains the names of all files of this directory, and there are at least two.
pub(super) fn check_pattern_expansion(pattern: &[String]) -> Result<(), Failure> {
    reject_expansion(pattern, "Quote it: '*'")
}

fn reject_expansion(key: &[String], advice: &str) -> Result<(), Failure> {
    let Ok(files) = fs::read_dir(".") else { return Ok(()) };
    let names = files.take(key.len() + MAX_HIDDEN).filter_map(|file| file.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort_unstable();
    let is_expanded = names.len() > 1 && names.iter().all(|name| key.contains(name));
    if !is_expanded {
        return Ok(());
    }
    Err(Failure(format!(
        "the key has the names of all files in this directory (`{}`, …): the shell replaces an unquoted `*`. {advice}",
        names[0]
    )))
}

/// Formats a key as shell arguments.
pub(super) fn shown(key: &[String]) -> String {
    key.iter().map(|segment| quoted(segment)).collect::<Vec<_>>().join(" ")
}

/// Quotes one shell argument.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./:@%+=,".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_as_it_is_typed() {
        let key = ["a/b", "", "it's", "x y", "*", "ü"].map(str::to_owned);
        assert_eq!(shown(&key), r"a/b '' 'it'\''s' 'x y' '*' ü");
    }

    #[test]
    fn a_hint_says_if_there_are_more_domains() {
        let names: Vec<_> = (0..MAX_DOMAINS + 1).map(|n| format!("d{n:02}")).collect();
        let hint = domains("elsewhere", &names);
        assert!(
            hint.starts_with("; there are --domain d00, ") && hint.ends_with(", --domain d08, and others"),
            "{hint}"
        );
        let hint = domains("elsewhere", &names[..MAX_DOMAINS]);
        assert!(hint.ends_with(", --domain d08"), "{hint}");
    }
}
