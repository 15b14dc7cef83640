//! Loading of a policy from a file or a directory.

use std::{
    collections::HashMap,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use super::{Domain, Policy, descriptors, file, lint};
use weir_core::{
    algorithm::Bounds,
    domain::{Charge, OnStoreFailure},
};
use weir_settings::{
    Problems,
    document::{self, Node, Value},
    fields::scalar,
    file as settings_file,
};

/// Maximum size of all files of a policy together, in bytes.
const MAX_POLICY_BYTES: u64 = 64 << 20;
/// Maximum number of entries of a policy directory.
const MAX_ENTRIES: usize = 100_000;
/// The last line of a complete file, where `require_end_marker` is set: YAML's end of a document.
const END_MARKER: &str = "...";
/// The problem of a file that is empty, or has comments only.
pub const HOLDS_NOTHING: &str = "the file has no content; to lift all limits write `schema: {}`";

/// A loaded policy.
#[derive(Debug)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Entries of the directory that are not policy files.
    pub skipped: Vec<PathBuf>,
    /// Empty files, such as one that is being written, where the rules allow them. They define no domain.
    pub empty: Vec<PathBuf>,
    /// The tests in its files, in the order of the files.
    pub tests: Vec<Tests>,
    /// Hash of the text, 16 hexadecimal digits: the same wherever the same files are read in the same order.
    pub hash: String,
}

/// The section `tests` of a file: checks with their expected decisions, not parsed yet.
#[derive(Debug)]
pub struct Tests {
    /// The file.
    pub path: PathBuf,
    /// Its domain.
    pub domain: Box<str>,
    /// The content of the section.
    pub node: Node,
}

impl Tests {
    fn of(path: &Path, document: &Node) -> Option<Self> {
        let Value::Map(entries) = &document.value else { return None };
        let find = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
        let domain = find("domain").and_then(scalar).unwrap_or_default();
        let node = find("tests").filter(|_| !descriptors::file::is_descriptor_file(document))?;
        Some(Self { path: path.to_owned(), domain: domain.into(), node: node.clone() })
    }
}

impl Loaded {
    /// Makes the policy of no files: [`Policy::empty`].
    pub fn none(rules: &Rules) -> Self {
        Self::of(Policy::empty().under(rules), TextHash::default())
    }

    /// Makes the policy before the first one is received: without any domain.
    pub fn awaited(rules: &Rules) -> Self {
        Self::of(Policy::new([]).under(rules), TextHash::default())
    }

    /// Compiles a policy from documents that are not files, each with a name for its problems. `text` is the hash of
    /// their sources.
    ///
    /// # Errors
    /// All problems of all documents.
    pub fn compile(
        documents: impl IntoIterator<Item = (PathBuf, Node)>,
        rules: &Rules,
        text: TextHash,
    ) -> Result<Self, Problems> {
        let (mut domains, mut problems) = (Domains::new(rules), Problems::default());
        for (name, document) in documents {
            problems.0.extend(domains.add(name, &document).err().into_iter().flat_map(|found| found.0));
        }
        if problems.0.is_empty() { Ok(Self::of(domains.policy(), text)) } else { Err(problems) }
    }

    fn of(policy: Policy, text: TextHash) -> Self {
        Self { policy, skipped: Vec::new(), empty: Vec::new(), tests: Vec::new(), hash: text.finish() }
    }
}

/// Rules for policy files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Bounds on the parameters of limits.
    pub bounds: Bounds,
    /// Whether several files of descriptors may define one domain together.
    pub merge_domains: bool,
    /// The `charge` of files of descriptors that do not set it; `None`: `independent`.
    pub descriptors_charge: Option<Charge>,
    /// The `on_store_failure` of files of descriptors that do not set it.
    pub descriptors_on_store_failure: OnStoreFailure,
    /// Whether every limit of files of descriptors counts as one with `quota_mode`.
    pub descriptors_quota_mode: bool,
    /// Whether each file must end with a line `...`, so that a half-written file is rejected.
    pub require_end_marker: bool,
    /// Whether limits of requests are rejected, in domains that do not set `limit_spec`.
    pub denies_specs: bool,
    /// Whether a directory without policy files and a file without content are valid, as an empty policy.
    pub allows_empty: bool,
}

/// Reads a policy: a file, or every `*.yaml` and `*.yml` of a directory. Hidden entries are ignored, other entries
/// are listed in [`Loaded::skipped`]. Blocks on file I/O.
///
/// # Errors
/// All problems of all files.
pub fn load(path: &Path, rules: &Rules) -> Result<Loaded, Problems> {
    let (files, skipped) = files(path).map_err(|error| Problems::of_file(path, error.to_string()))?;
    if files.is_empty() && !rules.allows_empty {
        return Err(Problems::of_file(path, "the directory contains no policy file (*.yaml, *.yml)"));
    }
    let mut domains = Domains::new(rules);
    let mut reader = Reader::new(rules.require_end_marker);
    let (mut problems, mut empty) = (Problems::default(), Vec::new());
    let mut tests = Vec::new();
    for path in files {
        match reader.read(&path) {
            Ok(None) if rules.allows_empty => empty.push(path),
            Ok(None) => problems.0.extend(Problems::of_file(&path, HOLDS_NOTHING).0),
            Ok(Some(document)) => {
                tests.extend(Tests::of(&path, &document));
                problems.0.extend(domains.add(path, &document).err().into_iter().flat_map(|found| found.0))
            }
            Err(found) => problems.0.extend(found.0),
        }
    }
    if !problems.0.is_empty() {
        return Err(problems);
    }
    Ok(Loaded { policy: domains.policy(), skipped, empty, tests, hash: reader.text.finish() })
}

/// Reads the text of one policy file, in either format.
///
/// # Errors
/// All problems, each with its position.
pub fn parse(text: &str, rules: &Rules) -> Result<Policy, Problems> {
    match document_of(text)? {
        None => Ok(Policy::empty()),
        Some(document) => Ok(Policy::new([domain_of(&document, rules)?]).under(rules)),
    }
}

/// Parses the document of a file: strictly, except for descriptors, which are read as envoyproxy/ratelimit reads them.
pub(crate) fn document_of(text: &str) -> Result<Option<Node>, Problems> {
    let Some((document, duplicates)) = document::parse_lenient(text)? else { return Ok(None) };
    if descriptors::file::is_descriptor_file(&document) {
        return Ok(Some(descriptors::yaml::as_yaml_v2(document)));
    }
    if duplicates.0.is_empty() { Ok(Some(document)) } else { Err(duplicates) }
}

fn domain_of(document: &Node, rules: &Rules) -> Result<Domain, Problems> {
    if descriptors::file::is_descriptor_file(document) {
        descriptors::file::read(document, rules)
    } else {
        file::read(document, &rules.bounds)
    }
}

/// The domains of the files read so far, each with the first file that defines it.
struct Domains {
    found: HashMap<Box<str>, (Domain, PathBuf)>,
    rules: Rules,
}

impl Domains {
    fn new(rules: &Rules) -> Self {
        Self { found: HashMap::new(), rules: *rules }
    }

    fn policy(self) -> Policy {
        let policy = if self.found.is_empty() {
            Policy::empty()
        } else {
            Policy::new(self.found.into_values().map(|(domain, _)| domain))
        };
        policy.under(&self.rules)
    }

    fn add(&mut self, path: PathBuf, document: &Node) -> Result<(), Problems> {
        let in_file = |problems: Problems| problems.in_file(&path);
        let is_descriptor_file = descriptors::file::is_descriptor_file(document);
        let (mut domain, first) = match is_descriptor_file.then(|| self.take_for_merge(document)).flatten() {
            Some((before, first)) => (descriptors::file::add(before, document, &self.rules).map_err(in_file)?, first),
            None => (domain_of(document, &self.rules).map_err(in_file)?, path.clone()),
        };
        if let Some((other, before)) = self.found.get(&domain.name) {
            let name = lint::shown(&domain.name);
            let hint =
                if is_descriptor_file && other.descriptors.is_some() { " (or set envoy.merge_domains)" } else { "" };
            let message = format!("{name} is also defined in {}; define it once{hint}", before.display());
            return Err(Problems::of_file(&path, message));
        }
        if let Some(descriptors) = &mut domain.descriptors {
            descriptors.noted_in(&path);
        }
        self.found.insert(domain.name.clone(), (domain, first));
        Ok(())
    }

    /// Removes the domain that a document of descriptors is to be merged with, and returns it.
    fn take_for_merge(&mut self, document: &Node) -> Option<(Domain, PathBuf)> {
        let name = descriptors::file::domain_of(document)?;
        let is_descriptor_file = self.found.get(name).is_some_and(|(domain, _)| domain.descriptors.is_some());
        if self.rules.merge_domains && is_descriptor_file { self.found.remove(name) } else { None }
    }
}

/// The reader of the files of a policy, one after the other.
struct Reader {
    /// The rest of [`MAX_POLICY_BYTES`].
    bytes_left: u64,
    require_end_marker: bool,
    text: TextHash,
}

impl Reader {
    fn new(require_end_marker: bool) -> Self {
        Self { bytes_left: MAX_POLICY_BYTES, require_end_marker, text: TextHash::default() }
    }

    /// Reads the document of a file; `None` for a file without content.
    fn read(&mut self, path: &Path) -> Result<Option<Node>, Problems> {
        let wrong = |what: String| Problems::of_file(path, what);
        let text = settings_file::read_text(path, self.bytes_left).map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => wrong(format!("with this file the policy is over {MAX_POLICY_BYTES} bytes")),
            _ => wrong(error.to_string()),
        })?;
        self.bytes_left -= text.len() as u64;
        self.text.add(text.as_bytes());
        if self.require_end_marker && text.trim_end().lines().next_back() != Some(END_MARKER) {
            return Err(wrong(format!(
                "the file must end with the line `{END_MARKER}` (limits_require_end_marker); it may be half written"
            )));
        }
        document_of(&text).map_err(|problems| problems.in_file(path))
    }
}

/// The hash of a policy's text.
#[derive(Default)]
pub struct TextHash(blake3::Hasher);

impl TextHash {
    /// Adds the next part, preceded by its length.
    pub fn add(&mut self, text: &[u8]) {
        self.0.update(&(text.len() as u64).to_le_bytes()).update(text);
    }

    /// Returns the first 64 bits in hexadecimal.
    pub fn finish(&self) -> String {
        self.0.finalize().to_hex()[..16].to_owned()
    }
}

/// Returns the entries of a policy directory that [`load`] skips, without hidden ones.
pub fn skipped(path: &Path) -> Vec<PathBuf> {
    files(path).map(|(_, skipped)| skipped).unwrap_or_default()
}

/// Returns the policy files at a path, sorted by name, and the other entries. An entry with the name of a policy file
/// that cannot be read, such as a FIFO or a dangling link, is among the files: skipping it would lift its limits.
pub(super) fn files(path: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    if !fs::metadata(path)?.is_dir() {
        return Ok((vec![path.to_owned()], Vec::new()));
    }
    let entries = fs::read_dir(path)?.take(MAX_ENTRIES + 1).map(|entry| Ok(entry?.path()));
    let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
    if entries.len() > MAX_ENTRIES {
        return Err(io::Error::other(format!("more than {MAX_ENTRIES} entries in this directory")));
    }
    entries.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    entries.sort();
    Ok(entries.into_iter().partition(|path| {
        let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        yaml && !path.is_dir()
    }))
}
