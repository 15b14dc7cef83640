//! A limit as files write it: a map with one algorithm, or the positional `max_burst, count, seconds`.

use super::{
    document::{Entry, Node, Value},
    problem::{Mark, Problems},
    suggest,
};
use crate::algorithm::{self, Bounds, Params, Source};

/// Longest name of a limit, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// A limit as it was written, before it has a place.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenLimit {
    /// Where in the file; nowhere for that of a message.
    pub mark: Mark,
    /// Its name, where it was given one.
    pub name: Option<String>,
    /// How many segments it covers, 0 for all; only in requests.
    pub depth: u32,
    /// Whether it only watches.
    pub shadow: bool,
    /// The rule.
    pub params: Params,
}

/// Reads `limits`: a list of limit maps, of positional triples, or one bare triple. With `with_depth` a map may say its
/// depth, as in a request. What is wrong goes to `problems`, and is left out.
pub fn read_limits(
    node: &Node,
    field: &str,
    with_depth: bool,
    bounds: &Bounds,
    problems: &mut Problems,
) -> Vec<WrittenLimit> {
    let items = match &node.value {
        Value::Null => return Vec::new(),
        Value::List(items) => items,
        _ => {
            problems.add(node.mark, field, format!("{field} is a list of limits, not {}", node.kind()));
            return Vec::new();
        }
    };
    if items.iter().any(|item| matches!(item.value, Value::Scalar(_))) {
        return read_triple(node, items, field, bounds, problems).into_iter().collect();
    }
    let read = |(index, item): (usize, &Node)| {
        let field = format!("{field}[{index}]");
        match &item.value {
            Value::Map(entries) => read_map(item, entries, &field, with_depth, bounds, problems),
            Value::List(items) => read_triple(item, items, &field, bounds, problems),
            _ => {
                problems.add(
                    item.mark,
                    field,
                    format!("a limit is a map or [max_burst, count, seconds], not {}", item.kind()),
                );
                None
            }
        }
    };
    items.iter().enumerate().filter_map(read).collect()
}

/// `[max_burst, count, seconds]`: one `gcra`.
fn read_triple(
    node: &Node,
    items: &[Node],
    field: &str,
    bounds: &Bounds,
    problems: &mut Problems,
) -> Option<WrittenLimit> {
    let texts: Vec<_> = items.iter().filter_map(scalar).collect();
    let (&[burst, count, period], 3) = (texts.as_slice(), items.len()) else {
        problems.add(node.mark, field, "a positional limit is [max_burst, count, seconds]");
        return None;
    };
    let source: &[(&str, &str)] = &[("burst", burst), ("count", count), ("period", period)];
    let entry = algorithm::find("gcra")?;
    match (entry.parse)(&source, bounds) {
        Ok(params) => Some(WrittenLimit { mark: node.mark, name: None, depth: 0, shadow: false, params }),
        Err(error) => {
            let place = entry.fields.iter().position(|name| *name == error.field).and_then(|index| items.get(index));
            problems.add(place.unwrap_or(node).mark, format!("{field}.{}", error.field), error.reason);
            None
        }
    }
}

struct Map<'a>(&'a [Entry]);

impl Source for Map<'_> {
    fn text(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|entry| entry.key == field).and_then(|entry| scalar(&entry.value))
    }
}

fn read_map(
    node: &Node,
    entries: &[Entry],
    field: &str,
    with_depth: bool,
    bounds: &Bounds,
    problems: &mut Problems,
) -> Option<WrittenLimit> {
    let before = problems.0.len();
    let mut limit = (None, 0, false);
    let mut rules = Vec::new();
    for entry in entries {
        let field = format!("{field}.{}", entry.key);
        match entry.key.as_str() {
            "name" => limit.0 = read_name(entry, &field, problems),
            "shadow" => limit.2 = read_flag(&entry.value, &field, problems),
            "depth" if with_depth => limit.1 = read_depth(&entry.value, &field, problems),
            name => match algorithm::find(name) {
                Some(algorithm) => rules.push((entry, algorithm)),
                None => problems.add(entry.mark, field, unknown_key(name, with_depth)),
            },
        }
    }
    let params = match rules.as_slice() {
        [(entry, algorithm)] => read_params(entry, algorithm, &format!("{field}.{}", entry.key), bounds, problems),
        [] if problems.0.len() > before => None,
        [] => {
            problems.add(node.mark, field, format!("a limit needs an algorithm: {}", names().join(", ")));
            None
        }
        [_, (second, _), ..] => {
            problems.add(second.mark, field, "a limit has one algorithm; write a limit for each");
            None
        }
    };
    let (name, depth, shadow) = limit;
    params.filter(|_| problems.0.len() == before).map(|params| WrittenLimit {
        mark: node.mark,
        name,
        depth,
        shadow,
        params,
    })
}

fn read_params(
    entry: &Entry,
    algorithm: &algorithm::Entry,
    field: &str,
    bounds: &Bounds,
    problems: &mut Problems,
) -> Option<Params> {
    let Value::Map(entries) = &entry.value.value else {
        let example: Vec<_> = algorithm.examples[0].iter().map(|(name, text)| format!("{name}: {text}")).collect();
        let message = format!("{} takes a map, such as {{ {} }}", algorithm.name, example.join(", "));
        problems.add(entry.value.mark, field, message);
        return None;
    };
    let before = problems.0.len();
    for parameter in entries {
        let field = format!("{field}.{}", parameter.key);
        if !algorithm.fields.contains(&parameter.key.as_str()) {
            let message =
                suggest::unknown(&format!("parameter of {}", algorithm.name), &parameter.key, algorithm.fields);
            problems.add(parameter.mark, field, message);
        } else if scalar(&parameter.value).is_none() {
            let message = format!("{} is a single value, not {}", parameter.key, parameter.value.kind());
            problems.add(parameter.value.mark, field, message);
        }
    }
    if problems.0.len() > before {
        return None;
    }
    match (algorithm.parse)(&Map(entries), bounds) {
        Ok(params) => Some(params),
        Err(error) => {
            let place = entries.iter().find(|entry| entry.key == error.field);
            let mark = place.map_or(entry.mark, |place| place.value.mark);
            problems.add(mark, format!("{field}.{}", error.field), format!("{}: {}", algorithm.name, error.reason));
            None
        }
    }
}

/// The text of a single value.
pub fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(text) => Some(text),
        _ => None,
    }
}

/// Whether a name may be shown: 1 to 256 bytes, none of them a control character.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn read_name(entry: &Entry, field: &str, problems: &mut Problems) -> Option<String> {
    let name = scalar(&entry.value).filter(|text| is_name(text));
    if name.is_none() {
        problems.add(
            entry.value.mark,
            field,
            format!("a name is 1 to {MAX_NAME_BYTES} bytes without control characters"),
        );
    }
    name.map(str::to_owned)
}

/// Reads `true` or `false`.
fn read_flag(node: &Node, field: &str, problems: &mut Problems) -> bool {
    let flag = scalar(node).and_then(|text| text.parse().ok());
    if flag.is_none() {
        problems.add(node.mark, field, format!("{field} is true or false"));
    }
    flag.unwrap_or_default()
}

fn read_depth(node: &Node, field: &str, problems: &mut Problems) -> u32 {
    let depth = scalar(node).and_then(|text| text.parse().ok());
    if depth.is_none() {
        problems.add(node.mark, field, "depth is a whole number from 0");
    }
    depth.unwrap_or_default()
}

fn names() -> Vec<&'static str> {
    algorithm::LIST.iter().map(|entry| entry.name).collect()
}

fn unknown_key(key: &str, with_depth: bool) -> String {
    let mut known = names();
    known.extend(["name", "shadow"]);
    known.extend(with_depth.then_some("depth"));
    suggest::unknown("key", key, &known)
}
