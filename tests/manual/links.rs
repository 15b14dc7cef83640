//! Links between the documents: each must lead to an existing file, and to a heading in it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Component, Path, PathBuf},
};

use super::{page, root};

/// Directories with documents of other projects.
const FOREIGN: [&str; 2] = ["target", "node_modules"];
/// Pages that must link every document of their directory. The summary is the table of contents of the book.
const INDEXES: [(&str, &str); 3] =
    [("docs/README.md", "docs"), ("docs/SUMMARY.md", "docs"), ("docs/SUMMARY.md", "docs/decisions")];

/// Returns the paths of all documents, relative to the root.
fn documents() -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root().to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && !FOREIGN.contains(&name) {
                open.push(path);
            } else if name.ends_with(".md") && !path.ends_with(page::TEMPLATE) {
                found.push(path.strip_prefix(root()).expect("below the root").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Returns the lines of a document outside code blocks.
fn prose(document: &Path) -> String {
    let text = fs::read_to_string(root().join(document)).expect("a text");
    text.split("```").step_by(2).collect::<Vec<_>>().join("\n")
}

/// Returns the targets of links within the repository.
fn links(prose: &str) -> impl Iterator<Item = &str> {
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// Returns the anchor of a heading, as GitHub generates it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(prose: &str) -> BTreeSet<String> {
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Returns the path to which a link of a document leads, without `.` and `..`.
fn target(document: &Path, path: &str) -> PathBuf {
    let mut target = document.parent().expect("a directory").to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            Component::CurDir => {}
            part => target.push(part),
        }
    }
    target
}

#[test]
fn every_link_has_a_target() {
    let mut wrong = Vec::new();
    for document in documents() {
        for link in links(&prose(&document)) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.clone() } else { target(&document, path) };
            let is_there = root().join(&target).exists();
            if !is_there || (!heading.is_empty() && !anchors(&prose(&target)).contains(heading)) {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn the_indexes_list_every_document() {
    for (index, folder) in INDEXES {
        let index = Path::new(index);
        let text = prose(index);
        let named: BTreeSet<_> = links(&text).map(|link| target(index, link)).collect();
        let in_folder =
            documents().into_iter().filter(|path| path.parent() == Some(Path::new(folder)) && path != index);
        let missing: Vec<_> = in_folder.filter(|path| !named.contains(path)).collect();
        assert!(missing.is_empty(), "{} does not name {missing:?}", index.display());
    }
}
