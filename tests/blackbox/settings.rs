//! Settings as an operator meets them: what is unknown is refused by name, what Kubernetes injects is not ours.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use weir::config::{Flags, Settings};

use crate::support::{Run, finish, server::Setup, weir};

/// Tries to serve with settings that are expected to be refused.
fn refused(file: Option<&str>, variables: &[(&str, &str)]) -> Run {
    let dir = tempfile::tempdir().expect("a directory");
    let mut serve = weir();
    serve.args(["serve", "--allow-all"]).envs(variables.iter().copied());
    if let Some(text) = file {
        let path = dir.path().join("weir.yaml");
        fs::write(&path, text).expect("written");
        serve.arg("--config").arg(path);
    }
    finish(&mut serve)
}

#[test]
fn unknown_settings_are_rejected_with_a_suggestion() {
    for (file, variables, expected) in [
        (
            None,
            &[("WEIR_GRPC__LISTN", "127.0.0.1:0")][..],
            "unknown variable `WEIR_GRPC__LISTN`; did you mean `WEIR_GRPC__LISTEN`?",
        ),
        (None, &[("WEIR_GRPC", "x")], "unknown variable `WEIR_GRPC`"),
        (
            None,
            &[("WEIR_LISTEN", "x")],
            "unknown variable `WEIR_LISTEN`; did you mean `WEIR_GRPC__LISTEN`, `WEIR_HTTP__LISTEN` or `WEIR_METRICS__LISTEN`?",
        ),
        (
            Some("listen: 8081\n"),
            &[],
            "weir.yaml:1:1: unknown key `listen`; did you mean `grpc.listen`, `http.listen` or `metrics.listen`?",
        ),
        (None, &[("WEIR_", "x")], "unknown variable `WEIR_`"),
        (Some("grcp: {}\n"), &[], "weir.yaml:1:1: unknown key `grcp`; did you mean `grpc`?"),
        (Some("grpc:\n  lisen: x\n"), &[], "weir.yaml:2:3: unknown key `grpc.lisen`; did you mean `grpc.listen`?"),
        (Some("grpc: 7\n"), &[], "weir.yaml:1:7: grpc is a map"),
        (Some("grpc: [\n"), &[], "weir.yaml:2:1: not valid YAML"),
        (None, &[("WEIR_CONFIG", "/nowhere/weir.yaml")], "/nowhere/weir.yaml"),
    ] {
        let run = refused(file, variables);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{run:?}");
        assert!(run.err.contains(expected), "{expected} is missing: {}", run.err);
    }
}

#[test]
fn invalid_values_are_rejected_with_their_key() {
    for (name, value, expected) in [
        ("WEIR_GRPC__LISTEN", "nowhere", "grpc.listen"),
        ("WEIR_GRPC__WORKERS", "many", "WEIR_GRPC__WORKERS: grpc.workers is a whole number from 0, not `many`"),
        ("WEIR_GRPC__RUNTIME", "fast", "grpc.runtime"),
        ("WEIR_LIMIT_SPEC", "forbid", "WEIR_LIMIT_SPEC: limit_spec is `allow` or `deny`, not `forbid`"),
        ("WEIR_SHUTDOWN__DELAY", "soon", "shutdown.delay"),
        ("WEIR_MAX_PERIOD", "400d", "max_period"),
        ("WEIR_LOG__FORMAT", "xml", "log.format"),
        ("WEIR_LOG__LEVEL", "weir=loud", "log.level"),
        ("WEIR_LOG__LEVEL", "verbose", "log.level"),
        ("WEIR_STORE__URL", "rdis://:geheim@h", "unknown store `rdis`"),
        ("WEIR_STORE__URL", "redis://:geheim@h/db", "store.url: the database is not a number"),
        ("WEIR_STORE__MAX_KEYS", "0", "store.max_keys"),
        ("WEIR_STORE__WHEN_FULL", "forget", "store.when_full"),
        ("WEIR_STORE__SNAPSHOT__EVERY", "999ms", "store.snapshot.every"),
        ("WEIR_STORE__SNAPSHOT__EVERY", "25h", "store.snapshot.every"),
        ("WEIR_GRPC__LISTEN", "192.0.2.1:1", "cannot listen on grpc.listen 192.0.2.1:1"),
    ] {
        let run = refused(None, &[(name, value)]);
        assert_eq!(run.code, 2, "{name}={value}: {run:?}");
        assert!(run.err.contains(expected), "{expected} is missing: {}", run.err);
        assert!(!run.err.contains("geheim"), "{}", run.err);
    }
}

#[test]
fn a_list_in_a_variable_is_comma_separated_or_yaml() {
    let hosts = |text: &str| {
        let variable = [("WEIR_HTTP__UI__HOSTS".to_owned(), text.to_owned())];
        Settings::load(None, variable, &Flags::default()).map(|settings| settings.http.ui.hosts)
    };
    for text in ["a,b", " a , b ", "[a, b]", r#"["a", "b"]"#, "- a\n- b", r#" ["a","b"] "#] {
        assert_eq!(hosts(text).expect("a list"), ["a", "b"], "{text}");
    }
    assert_eq!(hosts("[]").expect("a list"), [""; 0]);
    for text in ["[a", r#"["a"], b"#, "[[a]]", "[{ a: b }]"] {
        let error = hosts(text).expect_err("no list").to_string();
        assert!(error.contains("WEIR_HTTP__UI__HOSTS"), "{text}: {error}");
    }
}

#[test]
fn kubernetes_service_variables_are_ignored() {
    let server = Setup::new()
        .env("WEIR_PORT", "tcp://10.0.0.1:8081")
        .env("WEIR_PORT_8081_TCP_ADDR", "10.0.0.1")
        .env("WEIR_SERVICE_HOST", "10.0.0.1")
        .env("WEIR_SERVICE_PORT_GRPC", "8081")
        .start();
    assert_eq!(server.get("/readyz").0, 200);
}

#[test]
fn flags_override_variables_which_override_the_file() {
    let setup = Setup::new();
    let config = setup.path("weir.yaml");
    fs::write(&config, "limits: file.yaml\nstore: { max_keys: 7 }\ngrpc: { workers: 1 }\n").expect("written");
    for (name, count) in [("file.yaml", 1), ("flag.yaml", 3)] {
        let triples = vec!["[1, 1, 1]"; count].join(", ");
        fs::write(setup.path(name), format!("schema: {{ a: {{ limits: [{triples}] }} }}")).expect("written");
    }
    let flag = setup.path("flag.yaml");
    let config = config.to_str().expect("a path");
    let server = setup.env("WEIR_CONFIG", config).env("WEIR_GRPC__WORKERS", "2").limits(flag).start();
    assert_eq!(server.log_lines("serving")[0]["workers"], 2);
    assert_eq!(server.log_lines("policy loaded")[0]["limits"], 3);

    let setup = Setup::new();
    let server = setup.env("WEIR_CONFIG", config).env("WEIR_ALLOW_ALL", "false").start();
    assert_eq!(
        server.log_lines("policy loaded")[0]["limits"],
        1,
        "a path in the file is meant from where the file stands"
    );
}

/// A line of the settings file without the sign that makes a comment of a setting.
fn uncommented(line: &str) -> String {
    let is_key = |text: &str| text.split_once(": ").is_some_and(|(key, _)| is_name(key));
    match line.split_once("# ").filter(|(indent, text)| indent.trim().is_empty() && is_key(text)) {
        Some((indent, text)) => format!("{indent}{text}\n"),
        None => format!("{line}\n"),
    }
}

fn is_name(key: &str) -> bool {
    key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// The settings in a YAML text of nested maps with a key a line.
fn keys_of(yaml: &str) -> BTreeSet<String> {
    let (mut path, mut keys) = (Vec::new(), BTreeSet::new());
    for line in yaml.lines() {
        let text = line.trim_start();
        let Some((key, value)) = text.split_once(':').filter(|(key, _)| is_name(key)) else { continue };
        path.truncate((line.len() - text.len()) / 2);
        path.push(key);
        if !value.is_empty() {
            keys.insert(path.join("."));
        }
    }
    keys
}

fn add_leaves(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                add_leaves(value, &path, keys);
            }
        }
        _ => drop(keys.insert(path.to_owned())),
    }
}

#[test]
fn the_sample_settings_file_has_every_setting_with_its_default() {
    let file = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/weir.yaml")).expect("a file");
    let text: String = file.lines().map(uncommented).collect();
    let mut settings = BTreeSet::new();
    add_leaves(&serde_json::to_value(Settings::default()).expect("JSON"), "", &mut settings);
    assert_eq!(keys_of(&text), settings);

    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("weir.yaml");
    fs::write(&path, text.replace("\nlimits: limits.yaml\n", "\n")).expect("written");
    assert_eq!(Settings::load(Some(&path), [], &Flags::default()).expect("valid"), Settings::default());
}
