//! Where settings come from, as figment takes them. The defaults tell which keys there are and of what kind.

use std::path::Path;

use figment::{
    Figment, Metadata, Profile, Provider,
    util::nest,
    value::{Dict, Map, Value},
};
use weir_settings::{
    Problems,
    document::{self, Entry, Node, Value as Document},
    file as settings_file, suggest,
};

/// Longest file of settings in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The prefix of every variable.
const PREFIX: &str = "WEIR_";
/// Variables that Kubernetes sets for a Service named weir.
const NOT_SETTINGS: [&str; 2] = ["WEIR_PORT", "WEIR_SERVICE_"];
/// The variables of the command line and of the example clients: the file's name, and how a caller gets to a service.
const OF_COMMANDS: [&str; 6] =
    ["WEIR_CONFIG", "WEIR_ADDR", "WEIR_TOKEN", "WEIR_TLS_CA", "WEIR_TLS_SERVER_NAME", "WEIR_DEADLINE_MS"];

/// A set of values from one place.
pub struct Values {
    place: String,
    values: Dict,
}

impl Values {
    /// Values that were set in `place`.
    pub fn new(place: &str, values: Dict) -> Self {
        Self { place: place.to_owned(), values }
    }
}

impl Provider for Values {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.place.clone())
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// The settings that are paths. A relative one in a file is meant from where that file stands; an empty one is not set.
const PATHS: [&[&str]; 15] = [
    &["limits"],
    &["auth", "file"],
    &["grpc", "tls", "cert"],
    &["grpc", "tls", "key"],
    &["grpc", "tls", "client_ca"],
    &["http", "tls", "cert"],
    &["http", "tls", "key"],
    &["http", "tls", "client_ca"],
    &["store", "snapshot", "path"],
    &["store", "redis", "password_file"],
    &["store", "redis", "tls", "ca"],
    &["store", "redis", "tls", "cert"],
    &["store", "redis", "tls", "key"],
    &["store", "redis", "sentinel", "password_file"],
    &["tracing", "ca"],
];

/// The values of a YAML file.
pub fn file(path: &Path, defaults: &Dict) -> Result<Values, Problems> {
    let text =
        settings_file::read_text(path, MAX_FILE_BYTES).map_err(|error| Problems::of_file(path, error.to_string()))?;
    let mut values = Dict::new();
    let mut problems = Problems::default();
    match document::parse(&text).map_err(|problems| problems.in_file(path))? {
        None => {}
        Some(Node { value: Document::Map(entries), .. }) => values = map(&entries, "", defaults, &mut problems),
        Some(other) => problems.add(other.mark, "", format!("settings are a map; this is {}", other.kind())),
    }
    if !problems.0.is_empty() {
        return Err(problems.in_file(path));
    }
    if let Some(folder) = path.parent() {
        for keys in PATHS {
            from_folder(&mut values, keys, folder);
        }
    }
    Ok(Values::new(&path.display().to_string(), values))
}

fn from_folder(values: &mut Dict, keys: &[&str], folder: &Path) {
    let [key, below @ ..] = keys else { return };
    match values.get_mut(*key) {
        Some(Value::Dict(_, values)) => from_folder(values, below, folder),
        Some(Value::String(_, path)) if !path.is_empty() => *path = folder.join(&*path).to_string_lossy().into_owned(),
        _ => {}
    }
}

fn map(entries: &[Entry], above: &str, defaults: &Dict, problems: &mut Problems) -> Dict {
    let mut values = Dict::new();
    for entry in entries {
        let key = format!("{above}{}", entry.key);
        match (defaults.get(&entry.key), &entry.value.value) {
            (None, _) => {
                let known: Vec<_> = defaults.keys().map(|known| format!("{above}{known}")).collect();
                let known: Vec<_> = known.iter().map(String::as_str).collect();
                problems.add(entry.mark, "", suggest::unknown("key", &key, &known));
            }
            // A key without a value leaves the default, as a section does whose lines are all commented.
            (Some(_), Document::Null) => {}
            (Some(Value::Dict(_, defaults)), Document::Map(entries)) => {
                values.insert(entry.key.clone(), Value::from(map(entries, &format!("{key}."), defaults, problems)));
            }
            (Some(default), Document::Scalar(text)) if !matches!(default, Value::Dict(..)) => {
                values.insert(entry.key.clone(), typed(text, default));
            }
            (Some(Value::Array(..)), Document::List(items)) => {
                values.insert(entry.key.clone(), list(items, &key, problems));
            }
            (Some(default), _) => {
                let wanted = match default {
                    Value::Dict(..) => "a map",
                    Value::Array(..) => "a list",
                    _ => "a single value",
                };
                problems.add(entry.value.mark, "", format!("{key} is {wanted}, not {}", entry.value.kind()));
            }
        }
    }
    values
}

fn list(items: &[Node], key: &str, problems: &mut Problems) -> Value {
    let mut texts = Vec::new();
    for item in items {
        match &item.value {
            Document::Scalar(text) => texts.push(text.clone()),
            _ => problems.add(item.mark, "", format!("{key} has single values, not {}", item.kind())),
        }
    }
    Value::from(texts)
}

/// The values of the variables that begin with `WEIR_`; `__` stands between the levels of a key.
///
/// figment's own `Env` does not serve: it reads `0123` as the number 123 although the setting may be a password, and
/// skips a name with an empty level instead of refusing it.
pub fn environment(variables: impl IntoIterator<Item = (String, String)>, defaults: &Dict) -> Result<Figment, String> {
    let mut values = Figment::new();
    for (name, text) in variables {
        let ignored =
            OF_COMMANDS.contains(&name.as_str()) || NOT_SETTINGS.iter().any(|prefix| name.starts_with(prefix));
        let Some(key) = name.strip_prefix(PREFIX).filter(|_| !ignored) else { continue };
        let levels: Vec<_> = key.to_lowercase().split("__").map(str::to_owned).collect();
        let Some(default) = setting(&levels, defaults) else {
            let mut known = Vec::new();
            names(PREFIX, defaults, &mut known);
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            return Err(suggest::unknown("variable", &name, &known));
        };
        let value = match default {
            Value::Array(..) if is_yaml_list(&text) => yaml_list(&name, &text)?,
            _ => typed(&text, default),
        };
        let value = nest(&levels.join("."), value);
        values = values.merge(Values::new("the environment", value.into_dict().unwrap_or_default()));
    }
    Ok(values)
}

/// Whether a text is a list in YAML, or in JSON.
fn is_yaml_list(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('[') || text.starts_with("- ")
}

fn yaml_list(name: &str, text: &str) -> Result<Value, String> {
    let mut problems = Problems::default();
    let value = match document::parse(text) {
        Ok(Some(Node { value: Document::List(items), .. })) => list(&items, name, &mut problems),
        Ok(_) => return Err(format!("{name} is a list: `a, b` or `[a, b]`")),
        Err(problems) => return Err(format!("{name} is a list, `a, b` or `[a, b]`: {problems}")),
    };
    if problems.0.is_empty() { Ok(value) } else { Err(problems.to_string()) }
}

/// The default of a setting; `None` where there is no such setting.
fn setting<'d>(levels: &[String], defaults: &'d Dict) -> Option<&'d Value> {
    match (defaults.get(levels.first()?)?, &levels[1..]) {
        (Value::Dict(..), []) => None,
        (Value::Dict(_, below), rest) => setting(rest, below),
        (default, rest) => rest.is_empty().then_some(default),
    }
}

fn names(prefix: &str, defaults: &Dict, known: &mut Vec<String>) {
    for (key, value) in defaults {
        let name = format!("{prefix}{}", key.to_uppercase());
        match value {
            Value::Dict(_, below) => names(&format!("{name}__"), below, known),
            _ => known.push(name),
        }
    }
}

/// A text as it is, so that a password of digits stays one (figment makes numbers and switches of texts where those are
/// wanted), and what is between commas as a list.
fn typed(text: &str, default: &Value) -> Value {
    match default {
        Value::Array(..) => {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            Value::from(parts.map(str::to_owned).collect::<Vec<_>>())
        }
        _ => Value::from(text),
    }
}
