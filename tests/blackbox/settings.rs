//! Settings: invalid ones fail the start, and the sample file has every setting.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use weir::config::{Flags, Settings};

use crate::support::{Folder, Run, finish, server::Setup, weir};

/// Tries to serve with settings that must be rejected.
fn refused(file: Option<&str>, variables: &[(&str, &str)]) -> Run {
    let dir = Folder::new();
    let mut serve = weir();
    serve.args(["serve", "--allow-all"]).envs(variables.iter().copied());
    if let Some(text) = file {
        serve.args(["--config", &dir.write("weir.yaml", text)]);
    }
    finish(&mut serve)
}

/// `config::tests::errors_name_the_key_and_its_position` tests the other errors.
#[test]
fn invalid_settings_are_rejected_with_their_place() {
    for (file, variables, expected) in [
        (
            None,
            &[("WEIR_GRPC__LISTN", "127.0.0.1:0")][..],
            "unknown variable `WEIR_GRPC__LISTN`; did you mean `WEIR_GRPC__LISTEN`?",
        ),
        (
            Some("listen: 8081\n"),
            &[],
            "weir.yaml:1:1: unknown key `listen`; did you mean `grpc.listen`, `http.listen` or `metrics.listen`?",
        ),
        (None, &[("WEIR_CONFIG", "/nowhere/weir.yaml")], "/nowhere/weir.yaml"),
        (None, &[("WEIR_STORE__URL", "rdis://:geheim@h")], "unknown store `rdis`"),
        (None, &[("WEIR_GRPC__LISTEN", "192.0.2.1:1")], "cannot listen on grpc.listen 192.0.2.1:1"),
    ] {
        let run = refused(file, variables);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{run:?}");
        assert!(run.err.contains(expected), "{expected} is missing: {}", run.err);
        assert!(!run.err.contains("geheim"), "{}", run.err);
    }
}

#[test]
fn an_empty_variable_names_no_settings_file() {
    let run = |args: &[&str]| finish(weir().args(args).env("WEIR_CONFIG", ""));
    for args in [&["config", "check", "--allow-all"][..], &["token", "alex"]] {
        let run = run(args);
        assert_eq!((run.code, &*run.err), (0, ""), "{args:?}");
    }
    let empty = run(&["config", "check", "--allow-all", "--config", ""]);
    assert!(empty.code == 2 && empty.err.contains("a value is required for '--config <FILE>'"), "{empty:?}");
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

/// Uncomments a setting in a line of the settings file.
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

/// Returns the settings in a YAML text of nested maps, one key a line.
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

    let dir = Folder::new();
    let path = dir.write("weir.yaml", text.replace("\nlimits: limits.yaml\n", "\n"));
    assert_eq!(Settings::load(Some(path.as_ref()), [], &Flags::default()).expect("valid"), Settings::default());
}
