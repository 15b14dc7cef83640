//! From a path to a policy: one file, or a directory of them.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Domain, Policy, descriptors, file};
use weir_core::algorithm::Bounds;
use weir_settings::{
    Problems,
    document::{self, Node},
};

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
    load_merging(path, bounds, false)
}

/// The same; with `merge_domains` several files of descriptors may be of one domain, to which each adds its own.
///
/// # Errors
/// All that is wrong in all files.
pub fn load_merging(path: &Path, bounds: &Bounds, merge_domains: bool) -> Result<Loaded, Problems> {
    let (files, skipped) = files(path).map_err(|error| Problems::of_file(path, error.to_string()))?;
    if files.is_empty() {
        return Err(Problems::of_file(path, "no policy file (*.yaml, *.yml) in this directory"));
    }
    let mut domains = Domains { found: HashMap::new(), bounds: *bounds, merge: merge_domains };
    let (mut problems, mut empty) = (Problems::default(), Vec::new());
    for path in files {
        match read(&path) {
            Ok(None) => empty.push(path),
            Ok(Some(document)) => {
                problems.0.extend(domains.add(path, &document).err().into_iter().flat_map(|found| found.0))
            }
            Err(found) => problems.0.extend(found.0),
        }
    }
    if !problems.0.is_empty() {
        return Err(problems);
    }
    if domains.found.is_empty() {
        return Ok(Loaded { policy: Policy::empty(), skipped, empty });
    }
    Ok(Loaded { policy: Policy::new(domains.found.into_values().map(|(domain, _)| domain)), skipped, empty })
}

/// Reads the text of one policy file, in either format.
///
/// # Errors
/// All that is wrong with it, each with its place.
pub fn parse(text: &str, bounds: &Bounds) -> Result<Policy, Problems> {
    match document::parse(text)? {
        None => Ok(Policy::empty()),
        Some(document) => Ok(Policy::new([domain_of(&document, bounds)?])),
    }
}

fn domain_of(document: &Node, bounds: &Bounds) -> Result<Domain, Problems> {
    if descriptors::file::is_one(document) {
        descriptors::file::read(document, bounds)
    } else {
        file::read(document, bounds)
    }
}

/// The domains of the files read so far, each with the first that defines it.
struct Domains {
    found: HashMap<Box<str>, (Domain, PathBuf)>,
    bounds: Bounds,
    merge: bool,
}

impl Domains {
    fn add(&mut self, path: PathBuf, document: &Node) -> Result<(), Problems> {
        let in_file = |problems: Problems| problems.in_file(&path);
        let is_theirs = descriptors::file::is_one(document);
        let (mut domain, first) = match is_theirs.then(|| self.take_for_merge(document)).flatten() {
            Some((before, first)) => (descriptors::file::add(before, document, &self.bounds).map_err(in_file)?, first),
            None => (domain_of(document, &self.bounds).map_err(in_file)?, path.clone()),
        };
        if let Some((other, before)) = self.found.get(&domain.name) {
            let name = &domain.name;
            let hint = if is_theirs && other.descriptors.is_some() { " (or set envoy.merge_domains)" } else { "" };
            let message = format!("domain `{name}` stands in {} too; one file a domain{hint}", before.display());
            return Err(Problems::of_file(&path, message));
        }
        if let Some(descriptors) = &mut domain.descriptors {
            descriptors.noted_in(&path);
        }
        self.found.insert(domain.name.clone(), (domain, first));
        Ok(())
    }

    /// The domain that a document of descriptors adds to, taken out.
    fn take_for_merge(&mut self, document: &Node) -> Option<(Domain, PathBuf)> {
        let name = descriptors::file::domain_of(document)?;
        let is_theirs = self.found.get(name).is_some_and(|(domain, _)| domain.descriptors.is_some());
        if self.merge && is_theirs { self.found.remove(name) } else { None }
    }
}

/// The document of a file; `None` where the file holds nothing.
fn read(path: &Path) -> Result<Option<Node>, Problems> {
    let text = text(path).map_err(|error| Problems::of_file(path, error.to_string()))?;
    document::parse(&text).map_err(|problems| problems.in_file(path))
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
