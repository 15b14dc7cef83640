//! The environment variables to migrate: of this process, of a file of lines, or of a container's YAML.

use std::collections::{BTreeMap, BTreeSet};

use weir_settings::document::{self, Node, Value};

use super::table;

/// Variables by name.
#[derive(Debug, Default)]
pub(super) struct Environment {
    variables: BTreeMap<String, VariableValue>,
    /// The keys of the YAML that name further sources of variables, which are not read.
    further: BTreeSet<&'static str>,
}

/// Keys that name further sources of variables, in Kubernetes and Compose.
const FURTHER: [&str; 2] = ["envFrom", "env_file"];

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VariableValue {
    Text(String),
    /// Defined elsewhere, such as in a Secret.
    External,
}

impl Environment {
    /// Takes those variables of a process that envoyproxy/ratelimit defines; the others belong to other programs.
    pub(super) fn of_process(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let known = variables.into_iter().filter(|(name, _)| table::find(name).is_some());
        let variables = known.map(|(name, text)| (name, VariableValue::Text(text))).collect();
        Self { variables, further: BTreeSet::new() }
    }

    /// Parses a text: lines `NAME=value`, or YAML with a list `env`, as in a container of Kubernetes, or a map or list
    /// `environment`, as in Compose.
    ///
    /// # Errors
    /// The problem of the text, without any value of a variable.
    pub(super) fn of_text(text: &str) -> Result<Self, String> {
        let mut environment = Self::default();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines: Vec<_> = text.lines().map(str::trim).enumerate().filter(|(_, line)| is_significant(line)).collect();
        // YAML may have lines that look like an assignment, such as of a shell script.
        if lines.first().is_some_and(|(_, line)| assignment(line).is_some()) {
            for (number, line) in lines {
                let Some((name, value)) = assignment(line) else {
                    return Err(format!("line {}: not NAME=value", number + 1));
                };
                environment.add(name, VariableValue::Text(unquoted(value).to_owned()))?;
            }
            return Ok(environment);
        }
        let document = document::parse(text).map_err(|problems| match problems.0.first() {
            Some(problem) => format!("line {}: neither NAME=value nor YAML: {}", problem.mark.line, problem.message),
            None => "neither NAME=value nor YAML".to_owned(),
        })?;
        let lists = document.map_or(Ok(0), |node| environment.search(&node))?;
        if lists == 0 {
            return Err("neither lines NAME=value nor YAML with a list `env` or `environment`".to_owned());
        }
        Ok(environment)
    }

    /// Returns the text of a variable; an empty one counts as unset.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.variables.get(name) {
            Some(VariableValue::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Returns the keys that name further sources of variables, which were not read.
    pub(super) fn further(&self) -> impl Iterator<Item = &str> {
        self.further.iter().copied()
    }

    /// Whether the value is defined elsewhere and not available.
    pub(super) fn is_external(&self, name: &str) -> bool {
        self.variables.get(name) == Some(&VariableValue::External)
    }

    /// Parses a boolean as envoyproxy/ratelimit does; `false` if unset.
    ///
    /// # Errors
    /// The value is not a boolean.
    pub(super) fn is_on(&self, name: &str) -> Result<bool, String> {
        self.text(name)
            .map_or(Ok(false), |text| switch(text).ok_or_else(|| format!("{name} is neither true nor false")))
    }

    /// Returns the names of all variables that are set.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.variables
            .iter()
            .filter(|(_, value)| **value != VariableValue::Text(String::new()))
            .map(|(name, _)| name.as_str())
    }

    fn add(&mut self, name: &str, value: VariableValue) -> Result<(), String> {
        // Names are printed in comments, which a line break would end.
        if !is_name(name) {
            return Err("the name of a variable has letters, digits and `_`, `-` and `.`".to_owned());
        }
        match self.variables.get(name) {
            Some(before) if *before != value => {
                Err(format!("{name} has two values; cut out the one container that is meant"))
            }
            _ => {
                self.variables.insert(name.to_owned(), value);
                Ok(())
            }
        }
    }

    /// Adds the variables of all lists, at any depth, and returns the number of lists.
    fn search(&mut self, node: &Node) -> Result<usize, String> {
        let mut lists = 0;
        match &node.value {
            Value::List(items) => {
                for item in items {
                    lists += self.search(item)?;
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.further.extend(FURTHER.into_iter().find(|key| **key == *entry.key));
                    lists += match entry.key.as_str() {
                        "env" | "environment" if self.take(&entry.value)? => 1,
                        _ => self.search(&entry.value)?,
                    };
                }
            }
            Value::Null | Value::Scalar(_) => {}
        }
        Ok(lists)
    }

    /// Adds the variables of one list or map; `false`: the node is neither.
    fn take(&mut self, node: &Node) -> Result<bool, String> {
        match &node.value {
            Value::List(items) => {
                for item in items {
                    match &item.value {
                        Value::Scalar(line) => match assignment(line) {
                            Some((name, value)) => self.add(name, Format::Compose.expand(value))?,
                            None => self.add(line, VariableValue::External)?,
                        },
                        Value::Map(entries) => {
                            let field =
                                |key: &str| entries.iter().find(|entry| entry.key == key).map(|it| &it.value.value);
                            let Some(Value::Scalar(name)) = field("name") else {
                                return Err(format!("line {}: a variable has no name", item.mark.line));
                            };
                            let is_external = field("valueFrom").is_some();
                            self.add(name, value_of(field("value"), is_external, Format::Kubernetes))?;
                        }
                        Value::Null | Value::List(_) => return Ok(false),
                    }
                }
                Ok(true)
            }
            Value::Map(entries) => {
                for entry in entries {
                    self.add(&entry.key, value_of(Some(&entry.value.value), false, Format::Compose))?;
                }
                Ok(true)
            }
            Value::Null | Value::Scalar(_) => Ok(false),
        }
    }
}

fn value_of(value: Option<&Value>, is_external: bool, format: Format) -> VariableValue {
    match value {
        Some(Value::Scalar(text)) => format.expand(text),
        _ if is_external => VariableValue::External,
        _ => VariableValue::Text(String::new()),
    }
}

/// The format of YAML with variables, which decides the meaning of a `$`.
#[derive(Clone, Copy)]
enum Format {
    /// A list of names and values, where `$(NAME)` refers to another variable, and `${NAME}` to one that is replaced
    /// before Kubernetes reads it.
    Kubernetes,
    /// A map, or a list of lines, where `${NAME}` and `$NAME` refer to other variables.
    Compose,
}

impl Format {
    /// Returns a value as the container has it: `$$` is a dollar sign. One that refers to another variable is not
    /// available.
    fn expand(self, text: &str) -> VariableValue {
        let begins_reference = |rest: &str| {
            let name = rest.trim_start_matches(['(', '{']);
            let is_name = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
            is_name && (matches!(self, Self::Compose) || name.len() < rest.len())
        };
        let (mut expanded, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, after)) = rest.split_once('$') {
            let escaped = after.strip_prefix('$');
            if escaped.is_none() && begins_reference(after) {
                return VariableValue::External;
            }
            expanded.push_str(before);
            expanded.push('$');
            rest = escaped.unwrap_or(after);
        }
        expanded.push_str(rest);
        VariableValue::Text(expanded)
    }
}

fn is_significant(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

/// Splits `NAME=value`, with or without `export` before it.
fn assignment(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).trim_start().split_once('=')?;
    is_name(name).then_some((name, value))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// Removes the quotes around a value.
fn unquoted(value: &str) -> &str {
    let value = value.trim();
    let inside = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    inside.unwrap_or(value)
}

/// Parses a boolean like Go's `strconv.ParseBool`.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Formats a remark on which of these variables are set.
pub(super) fn from(environment: &Environment, names: &[&str]) -> String {
    let set: Vec<_> = names.iter().copied().filter(|name| environment.text(name).is_some()).collect();
    if set.is_empty() {
        format!("the default where {} is not set", names[0])
    } else {
        format!("from {}", set.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn env_files_and_yaml_give_the_same_variables() {
        let lines = "# a comment\nREDIS_URL=h:1\n\nexport LOG_LEVEL=\"debug\"\n  PORT = 1\n";
        assert_eq!(Environment::of_text(lines).unwrap_err(), "line 5: not NAME=value");
        let pod = "spec:\n  containers:\n    - name: ratelimit\n      env:\n        - name: REDIS_URL\n          value: h:1\n        \
            - { name: LOG_LEVEL, value: debug }\n        - name: REDIS_AUTH\n          \
            valueFrom: { secretKeyRef: { name: s, key: k } }\n";
        let compose = "services: { a: { environment: { REDIS_URL: 'h:1', LOG_LEVEL: debug, REDIS_AUTH: } } }";
        let compose_list = "environment:\n  - REDIS_URL=h:1\n  - LOG_LEVEL=debug\n  - REDIS_AUTH\n";
        for text in ["REDIS_URL=h:1\nLOG_LEVEL='debug'", pod, compose, compose_list] {
            let environment = Environment::of_text(text).unwrap();
            assert_eq!((environment.text("REDIS_URL"), environment.text("LOG_LEVEL")), (Some("h:1"), Some("debug")));
            assert_eq!(environment.text("REDIS_AUTH"), None);
        }
        assert!(Environment::of_text(pod).unwrap().is_external("REDIS_AUTH"));
    }

    #[test]
    fn lines_of_a_script_in_yaml_are_not_variables() {
        let pod = "spec:\n  containers:\n    - args:\n        - |\n          export GOMAXPROCS=2\n          MODE=x\n      \
                   env: [{ name: REDIS_URL, value: 'h:1' }]\n";
        let environment = Environment::of_text(pod).unwrap();
        assert_eq!(environment.names().collect::<Vec<_>>(), ["REDIS_URL"]);
    }

    #[test]
    fn values_that_are_elsewhere_are_external() {
        let yaml = "spec:\n  envFrom: [{ configMapRef: { name: c } }]\n  env:\n    - { name: REDIS_URL, value: '$(HOST):1' }\n    \
            - { name: REDIS_AUTH, value: '${AUTH:-x}' }\n    - { name: CACHE_KEY_PREFIX, value: 'a$$(b)$' }\n    \
            - { name: LOG_LEVEL, value: debug }";
        let environment = Environment::of_text(yaml).unwrap();
        assert!(environment.is_external("REDIS_URL") && environment.is_external("REDIS_AUTH"));
        assert_eq!(environment.text("CACHE_KEY_PREFIX"), Some("a$(b)$"));
        assert_eq!(environment.text("LOG_LEVEL"), Some("debug"));
        assert_eq!(environment.further().collect::<Vec<_>>(), ["envFrom"]);
        let compose = Environment::of_text("a: { env_file: .env, environment: { REDIS_URL: 'h:1' } }").unwrap();
        assert_eq!(compose.further().collect::<Vec<_>>(), ["env_file"]);
        for (text, of_kubernetes, of_compose) in [
            ("a$$b", Some("a$b"), Some("a$b")),
            ("p$x", Some("p$x"), None),
            ("$$(X)$$$$", Some("$(X)$$"), Some("$(X)$$")),
            ("$$$(X)", None, None),
            ("$$${X}", None, None),
            ("5$ $5 $", Some("5$ $5 $"), Some("5$ $5 $")),
        ] {
            for (yaml, expected) in [
                (format!("env: [{{ name: REDIS_AUTH, value: '{text}' }}]"), of_kubernetes),
                (format!("environment: {{ REDIS_AUTH: '{text}' }}"), of_compose),
                (format!("environment: ['REDIS_AUTH={text}']"), of_compose),
            ] {
                let environment = Environment::of_text(&yaml).unwrap();
                let is_external = environment.is_external("REDIS_AUTH");
                assert_eq!((environment.text("REDIS_AUTH"), is_external), (expected, expected.is_none()), "{yaml}");
            }
        }
        let lines = Environment::of_text("\u{feff}REDIS_URL=h:1\nREDIS_AUTH=a$(b)").unwrap();
        assert_eq!((lines.text("REDIS_URL"), lines.text("REDIS_AUTH")), (Some("h:1"), Some("a$(b)")));
    }

    #[test]
    fn errors_do_not_contain_values() {
        for (text, expected) in [
            ("a: 1", "neither lines NAME=value nor YAML with a list `env` or `environment`"),
            ("", "neither lines NAME=value nor YAML with a list `env` or `environment`"),
            ("a: [geheim", "line 2: neither NAME=value nor YAML"),
            ("A=1\nA=geheim", "A has two values"),
            ("A=1\ngeheim", "line 2: not NAME=value"),
            ("env: [{ name: \"A\\nlimits: geheim\" }]", "the name of a variable has"),
            ("env: [{ value: geheim }]", "line 1: a variable has no name"),
        ] {
            let error = Environment::of_text(text).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn unknown_variables_of_the_process_are_ignored() {
        let variables = [("HOME", "x"), ("LOG_LEVEL", "debug"), ("REDIS_PERSECOND_URL", "h"), ("SHADOW_MODE", "")];
        let environment = Environment::of_process(variables.map(|(name, text)| (name.to_owned(), text.to_owned())));
        assert_eq!(environment.names().collect::<Vec<_>>(), ["LOG_LEVEL", "REDIS_PERSECOND_URL"]);
        assert_eq!(environment.is_on("SHADOW_MODE"), Ok(false));
        assert!(environment.is_on("LOG_LEVEL").unwrap_err().starts_with("LOG_LEVEL is neither"));
    }
}
