//! Architecture rules: the order of the modules, read from their imports, maximum file length, and complete algorithms.

#![allow(clippy::expect_used)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The layers from the lowest up. A module may use those of lower layers, but not of its own.
const FLOORS: &[&[&str]] = &[
    &["telemetry", "dial"],
    &["limiter", "auth", "xds"],
    &["overrides"],
    &["transport", "monitoring"],
    &["config", "explorer"],
    &["app"],
    &["cli"],
];

/// The layers of `src/transport`, by the same rule.
const TRANSPORT_FLOORS: &[&[&str]] = &[
    &["calls", "status", "audit", "authentication", "observer", "digest", "fields", "headers", "decision_json"],
    &["message", "routes", "incomplete_calls"],
    &["guard", "hold_token", "idempotency", "limit_spec"],
    &["decode"],
    &["check_service", "json", "admin"],
    &["api", "rlqs"],
    &["http"],
    &["rls"],
    &["grpc", "http_port"],
];

/// Whether a module may use the generated messages.
fn may_use_messages(module: &str) -> bool {
    matches!(module, "transport" | "cli")
}

/// Maximum length of a code file, in lines.
const MOST_LINES: usize = 400;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn src() -> PathBuf {
    root().join("src")
}

/// Returns every file below a directory, with its relative path.
fn sources(top: &Path, extension: &str) -> Vec<(String, String)> {
    let (mut found, mut open) = (Vec::new(), vec![top.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let name = path.strip_prefix(top).expect("below the top").to_str().expect("a name").to_owned();
                found.push((name, fs::read_to_string(&path).expect("a text")));
            }
        }
    }
    assert!(!found.is_empty(), "no .{extension} below {}", top.display());
    found.sort();
    found
}

fn module_of(file: &str) -> &str {
    file.split('/').next().expect("a name").trim_end_matches(".rs")
}

fn floor(floors: &[&[&str]], module: &str) -> Option<usize> {
    floors.iter().position(|floor| floor.contains(&module))
}

/// Removes comments and string literals from code.
fn bare(code: &str) -> String {
    let mut bare = String::new();
    let mut rest = code;
    while let Some(at) = rest.find(['/', '"', '\'']) {
        bare.push_str(&rest[..at]);
        rest = &rest[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with('"') {
            end_of_text(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("'/'") {
            3
        } else {
            bare.push_str(&rest[..1]);
            1
        };
        rest = &rest[skipped..];
    }
    bare + rest
}

fn end_of_text(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Returns the names that a file has after a parent such as `crate::`, one by one or in braces.
fn used(code: &str, parent: &str) -> BTreeSet<String> {
    let code = bare(code);
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices(parent) {
        let rest = &code[at + parent.len()..];
        match rest.strip_prefix('{') {
            Some(group) => used.extend(heads(group)),
            None => used.extend(name(rest)),
        }
    }
    used
}

/// Returns the first name of each path in a group, after its opening brace.
fn heads(group: &str) -> Vec<String> {
    let (mut depth, mut start, mut heads) = (0, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                heads.extend(name(group[start..at].trim_start()));
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    heads
}

fn name(path: &str) -> Option<String> {
    let end = path.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(path.len());
    (end > 0).then(|| path[..end].to_owned())
}

/// Returns the modules of `src/transport` that one of its files names.
fn used_in_transport(file: &str, code: &str) -> BTreeSet<String> {
    let mut used_names = used(code, "transport::");
    if !file.trim_end_matches("/mod.rs").contains('/') {
        used_names.extend(used(code, "super::"));
    }
    used_names.retain(|name| floor(TRANSPORT_FLOORS, name).is_some());
    used_names
}

/// Returns the reason why this file must not use that module; `None` if it may.
fn objection(file: &str, other: &str) -> Option<&'static str> {
    let module = module_of(file);
    if other == "proto" {
        return (!may_use_messages(module)).then_some("the messages are not for this floor");
    }
    objection_by(FLOORS, module, other)
}

fn objection_by(floors: &[&[&str]], module: &str, other: &str) -> Option<&'static str> {
    if module == other {
        return None;
    }
    let Some(own) = floor(floors, module) else { return Some("the module has no floor; give it one in this test") };
    match floor(floors, other) {
        None => Some("what is used has no floor; give it one in this test"),
        Some(below) if below < own => None,
        Some(same) if same == own => Some("siblings do not see each other"),
        Some(_) => Some("upward"),
    }
}

#[test]
fn imports_only_go_to_lower_layers() {
    let mut wrong = Vec::new();
    for (file, code) in sources(&src(), "rs") {
        if matches!(file.as_str(), "lib.rs" | "main.rs") {
            continue;
        }
        for other in used(&code, "crate::") {
            wrong.extend(objection(&file, &other).map(|why| format!("src/{file} uses crate::{other}: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn imports_within_transport_only_go_to_lower_layers() {
    let mut wrong = Vec::new();
    for (file, code) in sources(&src().join("transport"), "rs") {
        // A test may use any module.
        if file == "mod.rs" || file.ends_with("tests.rs") {
            continue;
        }
        let module = module_of(&file);
        if floor(TRANSPORT_FLOORS, module).is_none() {
            wrong.push(format!("src/transport/{file} has no floor; give it one in this test"));
        }
        for other in used_in_transport(&file, &code) {
            let why = objection_by(TRANSPORT_FLOORS, module, &other);
            wrong.extend(why.map(|why| format!("src/transport/{file} uses transport::{other}: {why}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn lib_lists_the_modules_from_the_lowest_layer_up() {
    let lib = bare(&fs::read_to_string(src().join("lib.rs")).expect("lib.rs"));
    let modules = lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let floors: Vec<_> = modules.map(|module| (floor(FLOORS, module), module)).collect();
    assert!(
        floors.iter().all(|(floor, _)| floor.is_some()) && floors.is_sorted_by_key(|(floor, _)| *floor),
        "{floors:?}"
    );
    assert_eq!(floors.len(), FLOORS.iter().map(|floor| floor.len()).sum::<usize>());
}

#[test]
fn source_files_are_at_most_the_maximum_length() {
    let below = |top: &str| root().join(top);
    let tops = [(src(), "rs"), (below("crates"), "rs"), (below("crates"), "lua"), (below("clients/rust"), "rs")];
    let long: Vec<_> = tops
        .into_iter()
        .flat_map(|(top, extension)| sources(&top, extension))
        .map(|(file, code)| (file, code.lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .collect();
    assert!(long.is_empty(), "over {MOST_LINES} lines: {long:?}");
}

#[test]
fn every_algorithm_folder_is_listed_and_complete() {
    let listed: BTreeSet<_> = weir_core::algorithm::LIST.iter().map(|entry| entry.name.to_owned()).collect();
    let folder = root().join("crates/weir-core/src/algorithm");
    let entries = fs::read_dir(&folder).expect("a directory").map(|entry| entry.expect("an entry").path());
    let folders: BTreeSet<_> = entries
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().expect("a name").to_str().expect("a name").to_owned())
        // Tests over the list, and the template of an algorithm.
        .filter(|name| !["properties", "skeleton"].contains(&name.as_str()))
        .collect();
    assert_eq!(listed, folders);
    for name in folders {
        for part in ["mod.rs", "spec.rs", "README.md", &format!("{name}.lua")] {
            let text = fs::read_to_string(folder.join(&name).join(part)).unwrap_or_default();
            assert!(!text.trim().is_empty(), "algorithm/{name} has no {part}");
        }
    }
}

#[test]
fn imports_are_parsed_from_use_and_paths() {
    let code = r#"
        //! crate::commented
        use crate::{
            a::{self, b, c::{d}},
            e, // crate::comment
            f as g,
        };
        pub(crate) use crate::h::i;
        fn j() -> crate::k::L { "crate::text \" crate::more"; '"'; crate::m::n() }
    "#;
    let expected = ["a", "e", "f", "h", "k", "m"].map(str::to_owned);
    assert_eq!(used(code, "crate::"), BTreeSet::from(expected));
    let code = "use super::{api::{answer, batch}, Named}; use crate::{a, transport::{http::Sites, rls}};";
    let modules = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(used_in_transport("grpc/mod.rs", code), modules(&["api", "http", "rls"]));
    assert_eq!(used_in_transport("grpc/stream.rs", code), modules(&["http", "rls"]));
}

#[test]
fn forbidden_imports_are_detected() {
    for (file, other) in [
        ("limiter/mod.rs", "proto"),
        ("telemetry/metrics.rs", "limiter"),
        ("transport/grpc.rs", "monitoring"),
        ("limiter/mod.rs", "app"),
        ("new.rs", "telemetry"),
        ("cli/mod.rs", "new"),
    ] {
        assert!(objection(file, other).is_some(), "{file} may use {other}");
    }
    assert!(objection_by(TRANSPORT_FLOORS, "api", "grpc").is_some());
    for (file, other) in [("limiter/mod.rs", "telemetry"), ("transport/grpc.rs", "proto"), ("cli/mod.rs", "app")] {
        assert_eq!(objection(file, other), None, "{file} must not use {other}");
    }
}
