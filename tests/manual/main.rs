//! The manual of the algorithms, generated from their folders: `docs/algorithms.md`, and a picture for each.
//!
//! `config/*.schema.json` describe policies and settings as their readers do, `deploy/helm/weir/values.schema.json` the chart's `settings`.
//!
//! `./manual` writes the files that the first test compares.

#![allow(clippy::expect_used)]

mod links;
mod page;
mod picture;
mod quotes;
mod readme;
mod schema;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs, io,
    path::Path,
};

use weir_core::algorithm::rates;

use readme::Readme;

/// The page, and the directory of its pictures.
const PAGE: &str = "docs/algorithms.md";
const PICTURES: &str = "docs/algorithms";

/// Set by `./manual`: write the files instead of comparing them.
const WRITE: &str = "MANUAL_WRITE";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn readme_path(name: &str) -> String {
    format!("crates/weir-core/src/algorithm/{name}/README.md")
}

fn readme(name: &str) -> Readme {
    let path = readme_path(name);
    Readme::parse(name, &read(&path)).unwrap_or_else(|wrong| panic!("{path}: {wrong}"))
}

fn readmes() -> Vec<Readme> {
    rates().map(|entry| readme(entry.name)).collect()
}

/// Generates every file of the manual, by path.
fn manual() -> BTreeMap<String, String> {
    let pictures = rates().map(|entry| {
        let path = format!("{PICTURES}/{}.svg", entry.name);
        (path, picture::draw(entry, &trace::replay(entry)))
    });
    let page = page::compose(&read(page::TEMPLATE), &readmes());
    let schemas = schema::all().map(|(path, schema)| (path.to_owned(), schema::text(&schema)));
    pictures.chain([(PAGE.to_owned(), page)]).chain(schemas).collect()
}

/// Reads every file of the manual, by path.
fn found() -> BTreeMap<String, String> {
    let pictures = match fs::read_dir(root().join(PICTURES)) {
        Ok(entries) => entries.map(|entry| entry.expect("an entry").file_name()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => panic!("{PICTURES}: {error}"),
    };
    let pictures = pictures.into_iter().map(|name| format!("{PICTURES}/{}", name.to_str().expect("a name")));
    let files =
        [PAGE, schema::POLICY, schema::SETTINGS, schema::VALUES].into_iter().filter(|path| root().join(path).exists());
    let paths = pictures.chain(files.map(str::to_owned));
    paths.map(|path| (path.clone(), read(&path))).collect()
}

fn write(manual: &BTreeMap<String, String>) {
    fs::create_dir_all(root().join(PICTURES)).expect("a folder for the pictures");
    for stale in found().keys().filter(|path| !manual.contains_key(*path)) {
        fs::remove_file(root().join(stale)).unwrap_or_else(|error| panic!("{stale}: {error}"));
    }
    for (path, text) in manual {
        fs::write(root().join(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

#[test]
fn the_manual_is_up_to_date() {
    let manual = manual();
    if env::var_os(WRITE).is_some() {
        write(&manual);
    }
    let found = found();
    let paths: BTreeSet<_> = manual.keys().chain(found.keys()).collect();
    let wrong: Vec<_> = paths.into_iter().filter(|path| manual.get(*path) != found.get(*path)).collect();
    assert!(wrong.is_empty(), "out of date: {wrong:?}; run ./manual and commit its output");
}

#[test]
fn a_readme_documents_every_parameter_in_order() {
    for (entry, readme) in rates().zip(readmes()) {
        assert_eq!(readme.parameters, entry.fields, "the parameter table of {}", entry.name);
    }
}

#[test]
fn the_skeleton_has_a_valid_readme() {
    assert_eq!(readme("skeleton").parameters, ["count", "period"]);
}

#[test]
fn the_size_of_every_state_is_listed() {
    let template = read(page::TEMPLATE);
    let sizes =
        template.split("## What a state takes").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("sizes");
    let listed: Vec<_> = sizes.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let names: Vec<_> = rates().map(|entry| entry.name).collect();
    assert_eq!(listed, names, "{}: add the output of `cargo bench --bench states NAME`", page::TEMPLATE);
}

#[test]
fn quoted_limits_are_valid() {
    for (path, text) in [page::TEMPLATE].map(|path| (path, read(path))) {
        quotes::check(path, &text);
    }
    for entry in rates() {
        let path = readme_path(entry.name);
        let text = read(&path);
        assert_eq!(
            quotes::check(&path, &text).first().map(String::as_str),
            Some(entry.name),
            "{path} opens with another"
        );
    }
}

#[test]
fn pictures_are_small_and_self_contained() {
    for (path, svg) in manual().iter().filter(|(path, _)| path.ends_with(".svg")) {
        assert!(svg.len() < 20_000, "{path} has {} bytes", svg.len());
        for outside in ["<script", "<style", "<image", "href", "url(", "@"] {
            assert!(!svg.contains(outside), "{path} has {outside}");
        }
    }
}
