//! From a path to a policy: one file, or a directory of them.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Domain, Policy, Problems, document, file};
use crate::algorithm::Bounds;

/// Largest policy file, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// What a path holds.
#[derive(Debug)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Entries of the directory that are no policy files.
    pub skipped: Vec<PathBuf>,
    /// Files that hold nothing, as one does while it is being written. They are valid, and bring no domain.
    pub empty: Vec<PathBuf>,
}

/// Reads a policy: a file, or every `*.yaml` and `*.yml` of a directory. Hidden entries are passed over, anything else
/// is told in [`Loaded::skipped`].
///
/// # Errors
/// All that is wrong in all files.
pub fn load(path: &Path, bounds: &Bounds) -> Result<Loaded, Problems> {
    let (files, skipped) = files(path).map_err(|error| Problems::of_file(path, error.to_string()))?;
    if files.is_empty() {
        return Err(Problems::of_file(path, "no policy file (*.yaml, *.yml) in this directory"));
    }
    let mut domains: HashMap<Box<str>, (Domain, PathBuf)> = HashMap::new();
    let (mut problems, mut empty) = (Problems::default(), Vec::new());
    for path in files {
        match read(&path, bounds) {
            Ok(domain) => {
                let Some(domain) = domain else {
                    empty.push(path);
                    continue;
                };
                if let Some((_, before)) = domains.get(&domain.name) {
                    let message =
                        format!("domain `{}` stands in {} too; one file a domain", domain.name, before.display());
                    problems.0.extend(Problems::of_file(&path, message).0);
                } else {
                    domains.insert(domain.name.clone(), (domain, path));
                }
            }
            Err(found) => problems.0.extend(found.0),
        }
    }
    if !problems.0.is_empty() {
        return Err(problems);
    }
    if domains.is_empty() {
        return Ok(Loaded { policy: Policy::empty(), skipped, empty });
    }
    Ok(Loaded { policy: Policy::new(domains.into_values().map(|(domain, _)| domain)), skipped, empty })
}

/// The domain of a file; `None` where the file holds nothing.
fn read(path: &Path, bounds: &Bounds) -> Result<Option<Domain>, Problems> {
    let text = text(path).map_err(|error| Problems::of_file(path, error.to_string()))?;
    let document = document::parse(&text).map_err(|problems| problems.in_file(path))?;
    document.map(|document| file::read(&document, bounds).map_err(|problems| problems.in_file(path))).transpose()
}

fn text(path: &Path) -> io::Result<String> {
    let bytes = fs::metadata(path)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("{bytes} bytes; a policy file has at most {MAX_FILE_BYTES}")));
    }
    String::from_utf8(fs::read(path)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        io::Error::other(format!("line {line}: not UTF-8"))
    })
}

/// The policy files at a path in the order of their names, and what is no policy file.
pub(super) fn files(path: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    if !fs::metadata(path)?.is_dir() {
        return Ok((vec![path.to_owned()], Vec::new()));
    }
    let mut entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    entries.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    entries.sort();
    Ok(entries.into_iter().partition(|path| {
        let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        yaml && path.is_file()
    }))
}
