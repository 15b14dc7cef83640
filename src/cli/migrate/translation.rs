//! The translated settings, and the file that is printed.

use std::fmt;

use weir_settings::Secret;

use super::{
    environment::{Environment, from},
    table,
};

/// Settings with their origins, and notes.
#[derive(Default)]
pub(super) struct Translation {
    lines: Vec<Line>,
    /// Settings that are not printed.
    secrets: Vec<(&'static str, Secret)>,
    to_do: Vec<Step>,
    /// Variables without an equivalent, and why.
    pub unsupported: Vec<String>,
    /// Variables that are not needed, and why.
    pub not_needed: Vec<String>,
}

/// A manual step.
struct Step {
    text: String,
    kind: StepKind,
}

/// The kind of a manual step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepKind {
    /// Without it, this service would behave differently from envoyproxy/ratelimit.
    Required,
    /// Like [`Self::Required`], unless this setting is set.
    RequiredSetting(&'static str),
    /// Optional: the behaviour is the same without it.
    Advice,
    /// A secret, which is not printed.
    Secret,
}

struct Line {
    key: &'static str,
    /// `None`: the key is shown in a comment, but not set.
    value: Option<String>,
    remark: String,
}

/// The sections in the order of `config/weir.yaml`.
const SECTIONS: [&str; 11] =
    ["limits", "limits_allow_empty", "reset", "xds", "grpc", "http", "envoy", "store", "metrics", "tracing", "log"];

impl Translation {
    /// Sets a key, with a remark on the origin of its value.
    pub(super) fn set(&mut self, key: &'static str, value: impl Into<String>, remark: impl Into<String>) {
        self.lines.push(Line { key, value: Some(value.into()), remark: remark.into() });
    }

    /// Sets the settings of these variables to their values, if they are set.
    pub(super) fn copy(&mut self, environment: &Environment, names: &[&str]) {
        for name in names {
            if let (Some(key), Some(value)) = (table::setting(name), environment.text(name)) {
                self.set(key, value, from(environment, &[name]));
            }
        }
    }

    /// Sets the settings of these boolean variables to `true`, if they are.
    ///
    /// # Errors
    /// The name of a variable whose value is not a boolean.
    pub(super) fn switch(&mut self, environment: &Environment, names: &[&str]) -> Result<(), String> {
        for name in names {
            if let (true, Some(key)) = (environment.is_on(name)?, table::setting(name)) {
                self.set(key, "true", from(environment, &[name]));
            }
        }
        Ok(())
    }

    /// Shows a key that stays unset, with a remark on its value.
    pub(super) fn show(&mut self, key: &'static str, remark: impl Into<String>) {
        self.lines.push(Line { key, value: None, remark: remark.into() });
    }

    /// Adds a step without which this service would behave differently from envoyproxy/ratelimit.
    pub(super) fn require(&mut self, step: impl Into<String>) {
        self.to_do.push(Step { text: step.into(), kind: StepKind::Required });
    }

    /// Like [`Self::require`], for a step that sets this setting, which no variable of envoyproxy/ratelimit has.
    pub(super) fn require_setting(&mut self, key: &'static str, step: impl Into<String>) {
        self.to_do.push(Step { text: step.into(), kind: StepKind::RequiredSetting(key) });
    }

    /// Returns an address without a user and password, which would be printed; if it has any, a step says so.
    pub(super) fn without_login(&mut self, name: &str, address: &str) -> String {
        let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
        let path = rest.find('/').unwrap_or(rest.len());
        let Some(at) = rest[..path].rfind('@') else { return address.to_owned() };
        self.require(format!("{name}: the user and password in it are left out"));
        let separator = if scheme.is_empty() { "" } else { "://" };
        format!("{scheme}{separator}{}", &rest[at + 1..])
    }

    /// Adds an optional step.
    pub(super) fn advise(&mut self, step: impl Into<String>) {
        self.to_do.push(Step { text: step.into(), kind: StepKind::Advice });
    }

    /// Sets a key to a value that is not printed; the step describes how else to set it.
    pub(super) fn hide(&mut self, key: &'static str, value: &str, step: impl Into<String>) {
        self.secrets.push((key, Secret::from(value.to_owned())));
        self.to_do.push(Step { text: step.into(), kind: StepKind::Secret });
    }

    /// Returns the notes on everything that is not in the settings: headings with entries.
    pub(super) fn notes(&self) -> [(&'static str, Vec<&str>); 3] {
        fn texts(entries: &[String]) -> Vec<&str> {
            entries.iter().map(String::as_str).collect()
        }
        [
            ("To be done by hand:", self.to_do.iter().map(|step| step.text.as_str()).collect()),
            ("Without an equivalent:", texts(&self.unsupported)),
            ("Not needed:", texts(&self.not_needed)),
        ]
    }

    /// Returns the steps without which this service would behave differently from envoyproxy/ratelimit, if only the
    /// settings for which `is_set` is true are set in addition.
    pub(super) fn required(&self, is_set: impl Fn(&str) -> bool) -> impl Iterator<Item = &str> {
        self.steps(move |kind| match kind {
            StepKind::Required => true,
            StepKind::RequiredSetting(key) => !is_set(key),
            StepKind::Advice | StepKind::Secret => false,
        })
    }

    /// Returns the optional steps.
    pub(super) fn advice(&self) -> impl Iterator<Item = &str> {
        self.steps(|kind| kind == StepKind::Advice)
    }

    fn steps(&self, is_wanted: impl Fn(StepKind) -> bool) -> impl Iterator<Item = &str> {
        self.to_do.iter().filter(move |step| is_wanted(step.kind)).map(|step| step.text.as_str())
    }

    /// Returns all settings, including those that are not printed.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.lines.iter().filter_map(|line| Some((line.key, line.value.as_deref()?)));
        lines.chain(self.secrets.iter().map(|(key, secret)| (*key, secret.reveal())))
    }

    fn write_settings(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<_> = self.lines.iter().collect();
        let section = |line: &&Line| SECTIONS.iter().position(|name| line.key.split('.').next() == Some(name));
        // Keys with the same parents are grouped; the order within a group is kept.
        lines.sort_by_key(|line| (section(line), line.key.rsplit_once('.').map(|(parents, _)| parents)));
        let mut open: Vec<&str> = Vec::new();
        for line in lines {
            let mut parents: Vec<_> = line.key.split('.').collect();
            let key = parents.pop().unwrap_or_default();
            let same = open.iter().zip(&parents).take_while(|(before, now)| before == now).count();
            open.truncate(same);
            for parent in &parents[same..] {
                writeln!(out, "{}{parent}:", indent(open.len()))?;
                open.push(parent);
            }
            let indent = indent(open.len());
            for remark in line.remark.lines() {
                writeln!(out, "{indent}# {remark}")?;
            }
            match &line.value {
                Some(value) => writeln!(out, "{indent}{key}: {}", scalar(value))?,
                None => writeln!(out, "{indent}# {key}: …")?,
            }
        }
        Ok(())
    }
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

/// Formats a text as a YAML scalar.
fn scalar(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let inside = |byte: u8| plain(byte) || b":@,+=?%[]".contains(&byte);
    let bytes = text.as_bytes();
    let fits =
        bytes.first().is_some_and(|byte| plain(*byte) && *byte != b'-') && bytes.iter().all(|byte| inside(*byte));
    if fits && !text.ends_with(':') && text != "null" {
        return text.to_owned();
    }
    // A JSON string is also a YAML string.
    serde_json::Value::from(text).to_string()
}

impl fmt::Display for Translation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "# Settings of `weir serve --config FILE`, from the variables of envoyproxy/ratelimit.")?;
        writeln!(out, "# What is not set here keeps its default; config/weir.yaml explains every key.\n")?;
        self.write_settings(out)?;
        for (heading, entries) in self.notes() {
            if !entries.is_empty() {
                writeln!(out, "\n# {heading}")?;
            }
            for entry in entries {
                writeln!(out, "#   {entry}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_settings::document::{Value, parse};

    #[test]
    fn values_round_trip_through_the_file() {
        for text in [
            "plain",
            "",
            "null",
            "~",
            "- a",
            "a: b",
            "a:",
            "#a",
            "[::]:80",
            "a #b",
            "\"q\" \\",
            "\u{1}\u{7f}\u{85}\u{2028}é",
            "0123",
            "a\nb",
            "'a'",
            "{a}",
            "*a",
            "&a",
            "a@b:1,c:2/m",
            "%40",
        ] {
            let node = parse(&format!("a: {}", scalar(text))).unwrap().unwrap();
            let Value::Map(entries) = node.value else { panic!() };
            let Value::Scalar(read) = &entries[0].value.value else { panic!("{text:?}: {entries:?}") };
            assert_eq!(read, text);
        }
    }

    #[test]
    fn an_address_is_printed_without_its_login() {
        for (address, expected, steps) in [
            ("http://u:secret@h:1/a@b", "http://h:1/a@b", 1),
            ("u:se@cret@h:1", "h:1", 1),
            ("https://h/a@b", "https://h/a@b", 0),
            ("h:1", "h:1", 0),
        ] {
            let mut translation = Translation::default();
            assert_eq!(translation.without_login("X", address), expected);
            assert_eq!(translation.required(|_| false).count(), steps, "{address}");
        }
    }

    #[test]
    fn keys_are_written_in_their_sections() {
        let mut translation = Translation::default();
        translation.set("log.level", "warn", "from LOG_LEVEL");
        translation.set("store.redis.tls.ca", "/ca", "");
        translation.set("store.url", "memory", "two\nlines");
        translation.show("store.redis.password_file", "here");
        translation.set("limits", "/l", "");
        let text = translation.to_string();
        let settings = text.split_once("\n\n").unwrap().1;
        let expected = "limits: /l\nstore:\n  # two\n  # lines\n  url: memory\n  redis:\n    # here\n    \
            # password_file: …\n    tls:\n      ca: /ca\nlog:\n  # from LOG_LEVEL\n  level: warn\n";
        assert_eq!(settings, expected);
    }
}
