//! The sources of settings, for figment. The defaults determine which keys exist, and their types.

use std::{collections::HashMap, path::Path};

use figment::{
    Figment,
    providers::Serialized,
    util::nest,
    value::{Dict, Num, Value},
};
use weir_settings::{
    Problems,
    document::{self, Entry, Node, Value as Document},
    file as settings_file,
    problem::Mark,
    suggest,
};

use super::PATHS;
use crate::xds;

/// Maximum size of a settings file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The prefix of every environment variable.
const PREFIX: &str = "WEIR_";
/// The variable of the settings file.
pub const FILE_VARIABLE: &str = "WEIR_CONFIG";
/// Variables of the command line and of the example clients: the settings file, and how a client connects to a service.
const OF_COMMANDS: [&str; 6] =
    [FILE_VARIABLE, "WEIR_ADDR", "WEIR_TOKEN", "WEIR_TLS_CA", "WEIR_TLS_SERVER_NAME", "WEIR_DEADLINE_MS"];

/// The position where each setting was set last, for error messages: `weir.yaml:3:11`, a variable, or a flag.
#[derive(Default)]
pub struct SettingOrigins(HashMap<String, String>);

impl SettingOrigins {
    /// Records that `key` is set at `origin`.
    pub fn set(&mut self, key: &str, origin: impl Into<String>) {
        self.0.insert(key.to_owned(), origin.into());
    }

    /// Returns the position where `key` was set last.
    pub fn of(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Prefixes a message with the position of the first setting that it names and that is set, or else of the section
    /// of one.
    pub fn locate(&self, message: &str) -> String {
        let names = || message.split_whitespace().map(|word| word.trim_matches([':', ',', ';', '(', ')']));
        // A word without a dot counts as a setting only at the start.
        let settings = || names().enumerate().filter(|(at, name)| *at == 0 || name.contains('.')).map(|(_, name)| name);
        let section = |name: &str| self.0.get(name.rsplit_once('.')?.0);
        match settings().find_map(|name| self.0.get(name)).or_else(|| settings().find_map(section)) {
            Some(origin) => format!("{origin}: {message}"),
            None => message.to_owned(),
        }
    }
}

/// Reads the values of a YAML file.
pub(super) fn file(path: &Path, defaults: &Dict, origins: &mut SettingOrigins) -> Result<Dict, Problems> {
    let text =
        settings_file::read_text(path, MAX_FILE_BYTES).map_err(|error| Problems::of_file(path, error.to_string()))?;
    let mut values = Dict::new();
    let mut reader = Reader { path, defaults, origins, problems: Problems::default() };
    match document::parse(&text).map_err(|problems| problems.in_file(path))? {
        None => {}
        Some(Node { value: Document::Map(entries), .. }) => values = reader.map(&entries, "", defaults),
        Some(other) => reader.problem(other.mark, format!("settings must be a map, not {}", other.kind())),
    }
    if !reader.problems.0.is_empty() {
        return Err(reader.problems.in_file(path));
    }
    if let Some(folder) = path.parent() {
        for setting in &PATHS {
            from_folder(&mut values, setting.key, folder);
        }
    }
    Ok(values)
}

fn from_folder(values: &mut Dict, key: &str, folder: &Path) {
    let (key, below) = key.split_once('.').unwrap_or((key, ""));
    match values.get_mut(key) {
        Some(Value::Dict(_, values)) => from_folder(values, below, folder),
        Some(Value::String(_, path)) if !path.is_empty() && !path.starts_with(xds::SCHEME) => {
            *path = folder.join(&*path).to_string_lossy().into_owned()
        }
        _ => {}
    }
}

struct Reader<'a> {
    path: &'a Path,
    defaults: &'a Dict,
    origins: &'a mut SettingOrigins,
    problems: Problems,
}

impl Reader<'_> {
    /// Reads the entries of a section; `above` is its key with a trailing dot.
    fn map(&mut self, entries: &[Entry], above: &str, section: &Dict) -> Dict {
        let mut values = Dict::new();
        for entry in entries {
            let key = format!("{above}{}", entry.key);
            let Some(default) = section.get(&entry.key) else {
                self.problem(entry.mark, unknown_key(&entry.key, above, section, self.defaults));
                continue;
            };
            let Mark { line, column } =
                if let Document::Map(_) = entry.value.value { entry.mark } else { entry.value.mark };
            self.origins.set(&key, format!("{}:{line}:{column}", self.path.display()));
            let value = match (default, &entry.value.value) {
                // A key without a value keeps the default, like a section in which all lines are comments.
                (_, Document::Null) => continue,
                (Value::Dict(_, section), Document::Map(entries)) => {
                    Value::from(self.map(entries, &format!("{key}."), section))
                }
                (Value::Dict(_, section), _) => {
                    let known: Vec<_> = section.keys().map(String::as_str).collect();
                    // The text is not shown: it may be a URL with a password.
                    let found = entry.value.kind();
                    self.problem(
                        entry.value.mark,
                        format!("{key} must be a map with {}, not {found}", known.join(", ")),
                    );
                    continue;
                }
                (Value::Array(..), Document::List(items)) => self.list(items, &key),
                (_, Document::Scalar(text)) => match typed(text, default) {
                    Ok(value) => value,
                    Err(wanted) => {
                        self.problem(entry.value.mark, format!("{key} must be {wanted}, not {}", entry.value.shown()));
                        continue;
                    }
                },
                _ => {
                    let wanted = if matches!(default, Value::Array(..)) { "a list" } else { "a single value" };
                    self.problem(entry.value.mark, format!("{key} must be {wanted}, not {}", entry.value.kind()));
                    continue;
                }
            };
            values.insert(entry.key.clone(), value);
        }
        values
    }

    fn list(&mut self, items: &[Node], key: &str) -> Value {
        let mut texts = Vec::new();
        for item in items {
            match &item.value {
                Document::Scalar(text) => texts.push(text.clone()),
                _ => self.problem(item.mark, format!("{key} must have single values, not {}", item.kind())),
            }
        }
        Value::from(texts)
    }

    fn problem(&mut self, mark: Mark, message: String) {
        self.problems.add(mark, "", message);
    }
}

/// Formats the problem of an unknown key, with suggestions: similar keys in its section, or else settings of that name
/// elsewhere. It contains only the letters, digits, `_` and `-` at the start of the key.
fn unknown_key(key: &str, above: &str, section: &Dict, defaults: &Dict) -> String {
    // The text after the name may be a password.
    let end = key.find(|letter: char| !letter.is_ascii_alphanumeric() && !"_-".contains(letter));
    let (key, rest) = key.split_at(end.unwrap_or(key.len()));
    if rest.starts_with([':', '=']) {
        return format!("`{above}{key}` needs a colon and a space before its value: `{key}: …`");
    }
    let known: Vec<_> = section.keys().map(String::as_str).collect();
    let mut meant: Vec<_> = suggest::meant(key, &known).iter().map(|near| format!("{above}{near}")).collect();
    if meant.is_empty() {
        meant = named(key, defaults);
    }
    let known: Vec<_> = known.iter().map(|known| format!("{above}{known}")).collect();
    let cut = if rest.is_empty() { "" } else { "…" };
    unknown("key", &format!("{above}{key}{cut}"), &meant, &known)
}

fn unknown(what: &str, word: &str, meant: &[String], known: &[String]) -> String {
    let [meant, known] = [meant, known].map(|words| words.iter().map(String::as_str).collect::<Vec<_>>());
    suggest::unknown_or(what, word, &meant, &known)
}

/// Returns the settings whose last level has this name.
fn named(name: &str, defaults: &Dict) -> Vec<String> {
    let mut keys = keys(defaults);
    keys.retain(|key| key.rsplit('.').next() == Some(name));
    keys
}

/// Returns every setting, as in `grpc.tls.cert`.
fn keys(defaults: &Dict) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in defaults {
        match value {
            Value::Dict(_, below) => found.extend(keys(below).iter().map(|below| format!("{key}.{below}"))),
            _ => found.push(key.clone()),
        }
    }
    found
}

/// Reads the variables that start with `WEIR_`; `__` separates the levels of a key.
///
/// figment's own `Env` is not suitable: it parses `0123` as the number 123 although the setting may be a password, and
/// skips a name with an empty level instead of rejecting it.
pub(super) fn environment(
    variables: impl IntoIterator<Item = (String, String)>,
    defaults: &Dict,
    origins: &mut SettingOrigins,
    problems: &mut Vec<String>,
) -> Figment {
    let mut values = Figment::new();
    for (name, text) in variables {
        let ignored = OF_COMMANDS.contains(&name.as_str()) || is_service_link(&name, &text);
        let Some(key) = name.strip_prefix(PREFIX).filter(|_| !ignored) else { continue };
        let levels: Vec<_> = key.to_lowercase().split("__").map(str::to_owned).collect();
        let key = levels.join(".");
        let value = match setting(&levels, defaults) {
            None => Err(unknown_variable(&name, &levels, defaults)),
            Some(Value::Array(..)) if is_yaml_list(&text) => yaml_list(&name, &text),
            Some(default) => {
                typed(&text, default).map_err(|wanted| format!("{name}: {key} must be {wanted}, not `{text}`"))
            }
        };
        match value {
            Ok(value) => {
                origins.set(&key, name);
                values = values.merge(Serialized::defaults(nest(&key, value)));
            }
            Err(problem) => problems.push(problem),
        }
    }
    values
}

/// Whether Kubernetes sets a variable for a Service whose name starts with weir (service links): `…_SERVICE_HOST`,
/// `…_SERVICE_PORT` and `…_SERVICE_PORT_NAME`; `…_PORT` with an address; `…_PORT_6379_TCP`, `…_PORT_6379_TCP_ADDR`.
fn is_service_link(name: &str, text: &str) -> bool {
    let is_number =
        |rest: &str| rest.strip_prefix('_').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let is_address = |rest: &str| rest.is_empty() && text.contains("://");
    let mut ports = name.match_indices("_PORT").map(|(at, found)| &name[at + found.len()..]);
    ["_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|part| name.contains(part))
        || ports.any(|rest| is_number(rest) || is_address(rest))
}

/// Returns the variable of a setting.
pub fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

fn unknown_variable(name: &str, levels: &[String], defaults: &Dict) -> String {
    let known: Vec<_> = keys(defaults).iter().map(|key| variable(key)).collect();
    let near: Vec<_> = known.iter().map(String::as_str).collect();
    let mut meant: Vec<_> = suggest::meant(name, &near).into_iter().map(str::to_owned).collect();
    if let (true, Some(last)) = (meant.is_empty(), levels.last()) {
        meant = named(last, defaults).iter().map(|key| variable(key)).collect();
    }
    if meant.is_empty() {
        return format!("unknown variable `{name}`; config/weir.yaml explains every setting");
    }
    unknown("variable", name, &meant, &[])
}

/// Whether a text is a list in YAML, or in JSON.
fn is_yaml_list(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('[') || text.starts_with("- ")
}

fn yaml_list(name: &str, text: &str) -> Result<Value, String> {
    let wrong = |why: &str| format!("{name} must be a list, `a, b` or `[a, b]`{why}");
    let Some(Node { value: Document::List(items), .. }) =
        document::parse(text).map_err(|problems| wrong(&format!(": {problems}")))?
    else {
        return Err(wrong(""));
    };
    let texts = items.into_iter().map(|item| match item.value {
        Document::Scalar(text) => Ok(text),
        _ => Err(format!("{name} must have single values, not {}", item.kind())),
    });
    Ok(Value::from(texts.collect::<Result<Vec<_>, _>>()?))
}

/// Returns the default of a setting; `None` if the setting does not exist.
fn setting<'d>(levels: &[String], defaults: &'d Dict) -> Option<&'d Value> {
    match (defaults.get(levels.first()?)?, &levels[1..]) {
        (Value::Dict(..), []) => None,
        (Value::Dict(_, below), rest) => setting(rest, below),
        (default, rest) => rest.is_empty().then_some(default),
    }
}

/// Parses a text to the type of its default. Lists are separated by commas; if neither a number nor a boolean is
/// expected the text stays as it is, so that a password of digits stays one. The error is the expected type.
fn typed(text: &str, default: &Value) -> Result<Value, String> {
    let word = text.trim();
    match default {
        Value::Array(..) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Ok(Value::from(parts.map(str::to_owned).collect::<Vec<_>>()))
        }
        Value::Bool(..) => match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(Value::from(true)),
            "false" | "no" | "off" | "0" => Ok(Value::from(false)),
            _ => Err("true or false".to_owned()),
        },
        Value::Num(_, Num::F32(_) | Num::F64(_)) => {
            let number = word.parse().ok().filter(|number: &f64| number.is_finite());
            number.map(Value::from).ok_or_else(|| "a number".to_owned())
        }
        Value::Num(_, Num::U32(_)) => {
            let number = word.parse::<u32>().map(Value::from);
            number.map_err(|_| format!("a whole number, 0 to {}", u32::MAX))
        }
        Value::Num(..) => word.parse::<u64>().map(Value::from).map_err(|_| "a whole number from 0".to_owned()),
        _ => Ok(Value::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Flags, Settings, tests::load};

    #[test]
    fn an_invalid_value_is_reported_with_its_place() {
        for (yaml, variable, text) in [
            (
                "grpc:\n  listen: 8081",
                None,
                "weir.yaml:2:11: grpc.listen: `8081` is not an address; write host:port, such as 127.0.0.1:8081, or unix:PATH",
            ),
            ("\nmax_period: 400d", None, "weir.yaml:2:13: max_period must be 1us to 366d"),
            ("grpc: { workers: 1.5 }", None, "weir.yaml:1:18: grpc.workers must be a whole number from 0, not `1.5`"),
            (
                "grpc: { max_streams: -1 }",
                None,
                "weir.yaml:1:22: grpc.max_streams must be a whole number, 0 to 4294967295, not `-1`",
            ),
            (
                "http: { ui: { enabled: maybe } }",
                None,
                "weir.yaml:1:24: http.ui.enabled must be true or false, not `maybe`",
            ),
            (
                "tracing: { sample_ratio: half }",
                None,
                "weir.yaml:1:26: tracing.sample_ratio must be a number, not `half`",
            ),
            ("limit_spec: perhaps", None, "weir.yaml:1:13: limit_spec must be `allow` or `deny`, not `perhaps`"),
            (
                "grpc: { tls: { client_auth: maybe } }",
                None,
                "weir.yaml:1:29: grpc.tls.client_auth must be `required` or `optional`, not `maybe`",
            ),
            (
                "http: { tls: { client_names: [a, '*b'] } }",
                None,
                "weir.yaml:1:30: http.tls.client_names: `*b` may have a `*` only in",
            ),
            ("log: {}\nlog: {}", None, "weir.yaml:2:1: duplicate key `log`; the first one is at line 1, column 1"),
            (
                "store: 'redis://:secret@h'",
                None,
                "weir.yaml:1:8: store must be a map with max_keys, near_cache, redis,",
            ),
            // Behind the name may be a password.
            (
                "store: { redis: { username: u, password:secret } }",
                None,
                "weir.yaml:1:32: `store.redis.password` needs a colon and a space before its value: `password: …`",
            ),
            ("store: { redis: { password=secret } }", None, "weir.yaml:1:19: `store.redis.password` needs a colon and"),
            (
                "store: { redis: { pasword secret: 1 } }",
                None,
                "weir.yaml:1:19: unknown key `store.redis.pasword…`; did you mean `store.redis.password`?",
            ),
            // The position where it was set last.
            ("max_period: 7d", Some(("WEIR_MAX_PERIOD", "400d")), "WEIR_MAX_PERIOD: max_period must be 1us to 366d"),
            ("grpc: { tls: { key: k } }", None, "weir.yaml:1:9: grpc.tls.cert and key: either both are set or none"),
        ] {
            let error = load(yaml, variable.as_slice()).unwrap_err();
            assert!(error.starts_with(text) && !error.contains("secret"), "{error}");
        }
        let flags = Flags { store: Some("redis".to_owned()), ..Flags::default() };
        let error = Settings::load(None, [], &flags).unwrap_err().to_string();
        assert!(error.starts_with("--store: store.url: "), "{error}");
    }
}
