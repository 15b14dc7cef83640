//! From a path to a policy: one file, or a directory of them.

use std::{
    collections::HashMap,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use super::{Domain, Policy, descriptors, file, limits::scalar};
use weir_core::{algorithm::Bounds, domain::Charge};
use weir_settings::{
    Problems,
    document::{self, Node, Value},
    file as settings_file,
};

/// Most bytes of the files of a policy together.
const MAX_POLICY_BYTES: u64 = 64 << 20;
/// Most entries of a directory of policy files.
const MAX_ENTRIES: usize = 100_000;
/// The line of YAML that ends a document, for files that must have it.
const END_MARKER: &str = "...";
/// What is wrong with a file that is empty, or has comments only.
pub const HOLDS_NOTHING: &str = "the file holds nothing; to lift all limits write `schema: {}`";

/// The policy at a path.
#[derive(Debug)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Entries of the directory that are not policy files.
    pub skipped: Vec<PathBuf>,
    /// Files that hold nothing, as one does while it is being written, where the rules allow them. They bring no domain.
    pub empty: Vec<PathBuf>,
    /// The tests that stand in its files, in the order of the files.
    pub tests: Vec<Tests>,
    /// 16 hexadecimal digits that tell its text from others: the same wherever the same files are read in the same order.
    pub hash: String,
}

/// The section `tests` of a file, as it is written: what checks must be answered. Only who runs them reads it.
#[derive(Debug)]
pub struct Tests {
    /// The file.
    pub path: PathBuf,
    /// Its domain.
    pub domain: Box<str>,
    /// What the section holds.
    pub node: Node,
}

impl Tests {
    fn of(path: &Path, document: &Node) -> Option<Self> {
        let Value::Map(entries) = &document.value else { return None };
        let find = |key: &str| entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value);
        let domain = find("domain").and_then(scalar).unwrap_or_default();
        let node = find("tests").filter(|_| !descriptors::file::is_one(document))?;
        Some(Self { path: path.to_owned(), domain: domain.into(), node: node.clone() })
    }
}

impl Loaded {
    /// The policy of no files: [`Policy::empty`].
    pub fn nothing(rules: &Rules) -> Self {
        Self::of(Policy::empty().under(rules), TextHash::default())
    }

    /// The policy before the first one has been received: no domain is defined.
    pub fn awaited(rules: &Rules) -> Self {
        Self::of(Policy::new([]).under(rules), TextHash::default())
    }

    /// The policy of documents that stand in no files, each with the name by which problems call it. `text` is the hash of what
    /// they were made of.
    ///
    /// # Errors
    /// All that is wrong in all documents.
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
    /// The bounds on limits.
    pub bounds: Bounds,
    /// Several files of descriptors may be of one domain, to which each adds its own.
    pub merge_domains: bool,
    /// How files of descriptors charge that do not say it; `None`: every descriptor for itself.
    pub descriptors_charge: Option<Charge>,
    /// Each file ends with a line `...`, so that the beginning of a file is never taken for all of it.
    pub require_end_marker: bool,
    /// Requests may not bring limits of their own, where their domain does not say otherwise.
    pub denies_specs: bool,
    /// A directory may have no policy file, and a file may hold nothing: the policy is empty then.
    pub allows_empty: bool,
}

/// Reads a policy: a file, or every `*.yaml` and `*.yml` of a directory. Hidden entries are ignored, anything else
/// is listed in [`Loaded::skipped`]. Blocks meanwhile.
///
/// # Errors
/// All that is wrong in all files.
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
/// All that is wrong with it, each with its place.
pub fn parse(text: &str, bounds: &Bounds) -> Result<Policy, Problems> {
    match document_of(text)? {
        None => Ok(Policy::empty()),
        Some(document) => {
            let rules = Rules { bounds: *bounds, ..Rules::default() };
            Ok(Policy::new([domain_of(&document, &rules)?]))
        }
    }
}

/// The document of a file: strict, but for files of descriptors, which are read as envoyproxy/ratelimit reads them.
pub(crate) fn document_of(text: &str) -> Result<Option<Node>, Problems> {
    let Some((document, duplicates)) = document::parse_lenient(text)? else { return Ok(None) };
    if descriptors::file::is_one(&document) {
        return Ok(Some(descriptors::yaml::as_theirs(document)));
    }
    if duplicates.0.is_empty() { Ok(Some(document)) } else { Err(duplicates) }
}

fn domain_of(document: &Node, rules: &Rules) -> Result<Domain, Problems> {
    if descriptors::file::is_one(document) {
        descriptors::file::read(document, rules)
    } else {
        file::read(document, &rules.bounds)
    }
}

/// The domains of the files read so far, each with the first that defines it.
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
        let is_theirs = descriptors::file::is_one(document);
        let (mut domain, first) = match is_theirs.then(|| self.take_for_merge(document)).flatten() {
            Some((before, first)) => (descriptors::file::add(before, document, &self.rules).map_err(in_file)?, first),
            None => (domain_of(document, &self.rules).map_err(in_file)?, path.clone()),
        };
        if let Some((other, before)) = self.found.get(&domain.name) {
            let name = &domain.name;
            let hint = if is_theirs && other.descriptors.is_some() { " (or set envoy.merge_domains)" } else { "" };
            let message =
                format!("domain `{name}` is also defined in {}; use one file per domain{hint}", before.display());
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
        if self.rules.merge_domains && is_theirs { self.found.remove(name) } else { None }
    }
}

/// Reads the files of a policy one after the other.
struct Reader {
    /// What is left of [`MAX_POLICY_BYTES`].
    bytes_left: u64,
    require_end_marker: bool,
    text: TextHash,
}

impl Reader {
    fn new(require_end_marker: bool) -> Self {
        Self { bytes_left: MAX_POLICY_BYTES, require_end_marker, text: TextHash::default() }
    }

    /// The document of a file; `None` where the file holds nothing.
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

/// Tells the text of a policy from others.
#[derive(Default)]
pub struct TextHash(blake3::Hasher);

impl TextHash {
    /// Adds the next part.
    pub fn add(&mut self, text: &[u8]) {
        self.0.update(&(text.len() as u64).to_le_bytes()).update(text);
    }

    /// The first 64 bits, in hexadecimal.
    pub fn finish(&self) -> String {
        self.0.finalize().to_hex()[..16].to_owned()
    }
}

/// The entries of a directory of policy files that [`load`] skips; hidden ones do not count.
pub fn skipped(path: &Path) -> Vec<PathBuf> {
    files(path).map(|(_, skipped)| skipped).unwrap_or_default()
}

/// The policy files at a path, sorted by name, and the other entries. An entry that is named like a policy file but cannot
/// be read, such as a FIFO or a dangling link, is among the first: ignoring it would lift its limits.
pub(super) fn files(path: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    if !fs::metadata(path)?.is_dir() {
        return Ok((vec![path.to_owned()], Vec::new()));
    }
    let entries = fs::read_dir(path)?.take(MAX_ENTRIES + 1).map(|entry| Ok(entry?.path()));
    let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
    if entries.len() > MAX_ENTRIES {
        return Err(io::Error::other(format!("over {MAX_ENTRIES} entries in this directory")));
    }
    entries.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    entries.sort();
    Ok(entries.into_iter().partition(|path| {
        let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        yaml && !path.is_dir()
    }))
}
