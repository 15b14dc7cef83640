//! YAML (and so JSON) as a tree of nodes with their positions.

use std::collections::{HashMap, hash_map};

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::problem::{Mark, Problems};

/// Bounds on the size of a document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentBounds {
    /// Maximum number of nodes, including those that aliases repeat.
    pub nodes: usize,
    /// Maximum length of the text that aliases repeat, in bytes.
    pub repeated_bytes: usize,
}

/// The bounds of files that operators write.
const FILE_BOUNDS: DocumentBounds = DocumentBounds { nodes: 4_000_000, repeated_bytes: 64 << 20 };
/// Maximum length of a text that an error message quotes, in bytes.
const MAX_SHOWN_BYTES: usize = 64;
/// Maximum nesting depth of a document.
const MAX_DEPTH: usize = 128;

/// A value with its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// The position of its start.
    pub mark: Mark,
    /// Its value.
    pub value: Value,
    /// Whether it is a scalar without quotes, so that its text may be a number or a boolean.
    pub plain: bool,
}

/// The value of a node. Scalars are kept as text; the reader gives them a type.
#[derive(Clone, Debug)]
pub enum Value {
    /// Empty, `~` or `null`.
    Null,
    /// Any other scalar.
    Scalar(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file, without duplicate keys except in [`parse_lenient`].
    Map(Vec<Entry>),
}

/// An entry of a mapping.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The position of the key.
    pub mark: Mark,
    /// The key's text.
    pub key: String,
    /// Its value.
    pub value: Node,
}

impl Node {
    /// Returns the kind of value, for error messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Scalar(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// Returns a short text in backquotes, or else the kind of value, for error messages.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Scalar(text) if text.len() <= MAX_SHOWN_BYTES => format!("`{}`", text.escape_debug()),
            _ => self.kind().to_owned(),
        }
    }
}

/// Parses the only document of a YAML text; `None` if there is none.
///
/// # Errors
/// Invalid YAML, a duplicate key, a second document, and exceeded bounds on size and depth.
pub fn parse(text: &str) -> Result<Option<Node>, Problems> {
    parse_within(text, FILE_BOUNDS)
}

/// Like [`parse`], within other bounds than for operators' files.
///
/// # Errors
/// As for [`parse`].
pub fn parse_within(text: &str, bounds: DocumentBounds) -> Result<Option<Node>, Problems> {
    match read(text, bounds)? {
        Some((_, duplicates)) if !duplicates.0.is_empty() => Err(duplicates),
        document => Ok(document.map(|(root, _)| root)),
    }
}

/// Like [`parse`], but returns duplicate keys, which are also in the document.
///
/// # Errors
/// As for [`parse`], except for duplicate keys.
pub fn parse_lenient(text: &str) -> Result<Option<(Node, Problems)>, Problems> {
    read(text, FILE_BOUNDS)
}

fn read(text: &str, bounds: DocumentBounds) -> Result<Option<(Node, Problems)>, Problems> {
    let mut builder = Builder::new(bounds);
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => builder.event(event, span),
            Err(error) => {
                let at = error.marker();
                let mark = Mark { line: at.line(), column: at.col() + 1 };
                let is_star = text.lines().nth(mark.line.saturating_sub(1)).and_then(|line| line.chars().nth(at.col()));
                let hint = if is_star == Some('*') { "; write a name of `*` in quotes: \"*\"" } else { "" };
                Err((mark, format!("not valid YAML: {}{hint}", error.info())))
            }
        };
        if let Err((mark, message)) = step {
            let mut problems = Problems::default();
            problems.add(mark, "", message);
            return Err(problems);
        }
    }
    let Builder { root, duplicates, .. } = builder;
    Ok(root.map(|root| (root, duplicates)))
}

type Step = Result<(), (Mark, String)>;

struct Builder {
    bounds: DocumentBounds,
    root: Option<Node>,
    duplicates: Problems,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
    repeated_bytes: usize,
}

/// An anchored node. Its size is known without a walk, so that a copy that would be too deep or too large is never
/// made.
struct Anchored {
    node: Node,
    size: Size,
}

/// The size of a node: number of values, depth in levels, and length of its text in bytes.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    depth: usize,
    bytes: usize,
}

/// A list or map that has not ended yet.
struct Open {
    node: Node,
    anchor: usize,
    inside: Size,
    key: Option<(Mark, String)>,
    keys: HashMap<String, Mark>,
}

impl Builder {
    fn new(bounds: DocumentBounds) -> Self {
        let (open, anchors) = (Vec::new(), HashMap::new());
        Self { bounds, root: None, duplicates: Problems::default(), open, anchors, nodes: 0, repeated_bytes: 0 }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Step {
        let mark = Mark { line: span.start.line(), column: span.start.col() + 1 };
        match event {
            Event::DocumentStart(_) if self.root.is_some() => {
                Err((mark, "a second document in one file; write one document per file".to_owned()))
            }
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let null = plain && matches!(&*text, "" | "~" | "null");
                let value = if null { Value::Null } else { Value::Scalar(text.into_owned()) };
                let bytes = if let Value::Scalar(text) = &value { text.len() } else { 0 };
                self.add(Node { mark, value, plain }, anchor, Size { bytes, ..Size::default() })
            }
            Event::SequenceStart(anchor, _) => self.begin(mark, Value::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => self.begin(mark, Value::Map(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.add(open.node, open.anchor, open.inside),
                None => Ok(()),
            },
            Event::Alias(anchor) => self.repeat(mark, anchor),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, mark: Mark, value: Value, anchor: usize) -> Step {
        if self.open.len() >= MAX_DEPTH {
            return Err((mark, format!("nested deeper than {MAX_DEPTH}")));
        }
        self.open.push(Open {
            node: Node { mark, value, plain: false },
            anchor,
            inside: Size::default(),
            key: None,
            keys: HashMap::new(),
        });
        Ok(())
    }

    fn repeat(&mut self, mark: Mark, anchor: usize) -> Step {
        let Some(Anchored { node, size }) = self.anchors.get(&anchor) else {
            return Err((mark, "an alias to a node that is not complete".to_owned()));
        };
        if self.open.len() + size.depth > MAX_DEPTH {
            return Err((mark, format!("nested deeper than {MAX_DEPTH}")));
        }
        self.nodes += size.nodes;
        self.repeated_bytes += size.bytes;
        if self.nodes > self.bounds.nodes || self.repeated_bytes > self.bounds.repeated_bytes {
            return Err((mark, self.bounds.exceeded()));
        }
        let inside = Size { nodes: size.nodes - 1, depth: size.depth - 1, ..*size };
        let node = Node { mark, ..node.clone() };
        self.add(node, 0, inside)
    }

    /// Adds a complete node; `inside` is the size of its content.
    fn add(&mut self, node: Node, anchor: usize, inside: Size) -> Step {
        let size = Size { nodes: inside.nodes + 1, depth: inside.depth + 1, ..inside };
        self.nodes += if anchor > 0 { size.nodes } else { 1 };
        if self.nodes > self.bounds.nodes {
            return Err((node.mark, self.bounds.exceeded()));
        }
        if anchor > 0 {
            self.repeated_bytes += size.bytes;
            self.anchors.insert(anchor, Anchored { node: node.clone(), size });
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.inside.nodes += size.nodes;
        open.inside.bytes += size.bytes;
        open.inside.depth = open.inside.depth.max(size.depth);
        match &mut open.node.value {
            Value::List(items) => items.push(node),
            Value::Map(entries) => match open.key.take() {
                Some((mark, key)) => entries.push(Entry { mark, key, value: node }),
                None => {
                    let key = match node.value {
                        Value::Scalar(text) => text,
                        Value::Null => "null".to_owned(),
                        Value::List(_) | Value::Map(_) => {
                            return Err((node.mark, "a key must be a single value".to_owned()));
                        }
                    };
                    match open.keys.entry(key.clone()) {
                        hash_map::Entry::Vacant(place) => drop(place.insert(node.mark)),
                        hash_map::Entry::Occupied(first) => {
                            let Mark { line, column } = first.get();
                            let message =
                                format!("duplicate key `{key}`; the first one is at line {line}, column {column}");
                            self.duplicates.add(node.mark, "", message);
                        }
                    }
                    open.inside.bytes += key.len();
                    open.key = Some((node.mark, key));
                }
            },
            Value::Null | Value::Scalar(_) => {}
        }
        Ok(())
    }
}

impl DocumentBounds {
    fn exceeded(self) -> String {
        let Self { nodes, repeated_bytes } = self;
        format!("more than {nodes} values in one file, or aliases that repeat more than {repeated_bytes} bytes")
    }
}

impl From<serde_json::Value> for Node {
    /// Converts a JSON value to the node of the same text in YAML, without positions.
    fn from(value: serde_json::Value) -> Self {
        use serde_json::Value as Json;
        let plain = matches!(value, Json::Null | Json::Bool(_) | Json::Number(_));
        let value = match value {
            Json::Null => Value::Null,
            Json::String(text) => Value::Scalar(text),
            Json::Bool(_) | Json::Number(_) => Value::Scalar(value.to_string()),
            Json::Array(items) => Value::List(items.into_iter().map(Self::from).collect()),
            Json::Object(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry { mark: Mark::default(), key, value: Self::from(value) })
                    .collect(),
            ),
        };
        Self { mark: Mark::default(), value, plain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> (usize, usize, String) {
        let problem = parse(text).unwrap_err().0.remove(0);
        (problem.mark.line, problem.mark.column, problem.message)
    }

    #[test]
    fn lines_and_columns_start_at_one() {
        let node = parse("a: 1\nb:\n  - c\n").unwrap().unwrap();
        let Value::Map(entries) = node.value else { panic!() };
        assert_eq!(entries[1].mark, Mark { line: 2, column: 1 });
        let Value::List(items) = &entries[1].value.value else { panic!() };
        assert_eq!(items[0].mark, Mark { line: 3, column: 5 });
    }

    #[test]
    fn invalid_yaml_is_rejected_with_its_position() {
        let twice = "duplicate key `a`; the first one is at line 1, column 3";
        assert_eq!(error("{ a: 1,\n  a: 2 }"), (2, 3, twice.to_owned()));
        assert!(error("*:\n  a: 1").2.ends_with("write a name of `*` in quotes: \"*\""));
        assert!(error("a: [1").2.starts_with("not valid YAML"));
        assert_eq!(error("a: 1\n---\nb: 2").0, 2);
        assert_eq!(error("? [1]\n: 2").2, "a key must be a single value");
        assert!(error(&"[".repeat(200)).2.starts_with("nested deeper"));
    }

    #[test]
    fn aliases_cannot_expand_exponentially() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let before = format!("*a{}, ", level - 1).repeat(10);
            text.push_str(&format!("a{level}: &a{level} [{}]\n", before.trim_end_matches(", ")));
        }
        assert!(error(&text).2.contains("values in one file"));
    }

    #[test]
    fn aliases_cannot_repeat_without_bound() {
        let long = "x".repeat(100_000);
        let times = |count, item: &str| format!("[{}]", vec![item; count].join(", "));
        for text in [
            format!("a: &a {long}\nb: {}\n", times(1_000, "*a")),
            // An alias within an anchor, and a long key.
            format!("a: &a {long}\nb: &b {}\nc: {}\n", times(40, "*a"), times(40, "*b")),
            format!("a: &a\n  ? {long}\n  : 1\nb: {}\n", times(1_000, "*a")),
        ] {
            assert!(error(&text).2.contains("aliases that repeat"));
        }
    }

    #[test]
    fn aliases_cannot_nest_without_bound() {
        let mut text = "a0: &a0 x\n".to_owned();
        for level in 1..200 {
            let (open, close) = ("[".repeat(100), "]".repeat(100));
            text.push_str(&format!("a{level}: &a{level} {open}*a{}{close}\n", level - 1));
        }
        assert!(error(&text).2.starts_with("nested deeper"));
    }

    #[test]
    fn an_empty_document_is_none() {
        assert!(parse("").unwrap().is_none());
        assert!(parse("# only a comment\n").unwrap().is_none());
    }
}
