//! Reading of limits: a map with one algorithm, the positional `[max_burst, count, seconds]`, or a map without an
//! algorithm's name in the format of `legacy` or `o1s`.

use super::{
    lease::{self, Lease},
    legacy, o1s,
};
pub use super::{legacy::KEYS as BUCKET_KEYS, o1s::KEYS as O1S_KEYS};
use weir_core::{
    algorithm::{self, Bounds, Params},
    domain::key::MAX_SEGMENTS,
};
use weir_settings::{
    document::{Entry, Node, Value},
    fields::{read_scalar, scalar},
    problem::{Mark, Problems},
    suggest,
};

/// Maximum length of a limit's name, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;
/// The keys of a limit in addition to its algorithm.
pub const LIMIT_KEYS: &[&str] = &["name", "shadow", "lease"];
/// The suffix of the name of the second limit that a legacy bucket becomes.
const INTERVAL: &str = "-interval";

/// Returns the name of the second limit that a legacy bucket of this name becomes.
///
/// # Errors
/// A message, if the name is too long for the suffix or invalid.
pub fn interval_name(name: &str) -> Result<String, String> {
    let most = MAX_NAME_BYTES - INTERVAL.len();
    let message =
        || format!("with min_interval a name must be at most {most} bytes, since a second limit adds {INTERVAL}");
    Some(format!("{name}{INTERVAL}")).filter(|name| is_name(name)).ok_or_else(message)
}

/// A parsed limit, before it is assigned to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedLimit {
    /// The position in the file; the default for a limit of a message.
    pub mark: Mark,
    /// The name, if it has one.
    pub name: Option<String>,
    /// The number of segments that it covers, 0 for all; set only in requests.
    pub depth: u32,
    /// Whether it only counts, and never refuses.
    pub shadow: bool,
    /// Its `lease`; `None`: the default of its domain.
    pub lease: Option<Lease>,
    /// The algorithm with its parameters.
    pub params: Params,
}

/// Reads `limits`: a list of limit maps or positional triples, or one bare triple. `with_depth`: a map may have a
/// `depth`, as in requests. Invalid limits are reported in `problems` and left out.
///
/// A legacy bucket may become two limits. The second ones come after all others, so that the ordinals of the others
/// follow the order of the file.
pub fn read_limits(
    node: &Node,
    field: &str,
    with_depth: bool,
    bounds: &Bounds,
    problems: &mut Problems,
) -> Vec<ParsedLimit> {
    let items = match &node.value {
        Value::Null => return Vec::new(),
        Value::List(items) => items,
        _ => {
            problems.add(
                node.mark,
                field,
                format!("{field} must be a list of limits, each after a `- `, not {}", node.shown()),
            );
            return Vec::new();
        }
    };
    if items.iter().any(|item| matches!(item.value, Value::Scalar(_))) {
        return read_triple(node, items, field, bounds, problems).into_iter().collect();
    }
    let (mut limits, mut behind) = (Vec::new(), Vec::new());
    for (index, item) in items.iter().enumerate() {
        let field = format!("{field}[{index}]");
        match &item.value {
            Value::Map(entries) => {
                let mut read = read_map(item, entries, &field, with_depth, bounds, problems).into_iter();
                limits.extend(read.next());
                behind.extend(read);
            }
            Value::List(items) => limits.extend(read_triple(item, items, &field, bounds, problems)),
            _ => problems.add(
                item.mark,
                field,
                format!("a limit must be a map or [max_burst, count, seconds], not {}", item.shown()),
            ),
        }
    }
    limits.append(&mut behind);
    limits
}

/// Reads `[max_burst, count, seconds]` as a `gcra`.
fn read_triple(
    node: &Node,
    items: &[Node],
    field: &str,
    bounds: &Bounds,
    problems: &mut Problems,
) -> Option<ParsedLimit> {
    let texts: Vec<_> = items.iter().filter_map(scalar).collect();
    let (&[burst, count, period], 3) = (texts.as_slice(), items.len()) else {
        problems.add(node.mark, field, "a positional limit must be [max_burst, count, seconds]");
        return None;
    };
    let entry = algorithm::find("gcra")?;
    match (entry.parse)(&[("burst", burst), ("count", count), ("period", period)], bounds) {
        Ok(params) => Some(ParsedLimit { mark: node.mark, name: None, depth: 0, shadow: false, lease: None, params }),
        Err(error) => {
            let place = entry.fields.iter().position(|name| *name == error.field).and_then(|index| items.get(index));
            problems.add(place.unwrap_or(node).mark, format!("{field}.{}", error.field), error.reason);
            None
        }
    }
}

/// Reads a limit map as one limit; a legacy bucket may become two.
fn read_map(
    node: &Node,
    entries: &[Entry],
    field: &str,
    with_depth: bool,
    bounds: &Bounds,
    problems: &mut Problems,
) -> Vec<ParsedLimit> {
    let before = problems.0.len();
    let (mut name, mut depth, mut shadow, mut leased) = (None, 0, false, None);
    let mut keys = Keys::default();
    for entry in entries {
        let field = format!("{field}.{}", entry.key);
        match entry.key.as_str() {
            "name" => name = read_name(entry, &field, problems),
            "shadow" => shadow = read_flag(&entry.value, &field, problems),
            // A limit of a request applies to one call, a lease to many.
            "lease" if !with_depth => leased = Some(lease::read(&entry.value, &field, problems)),
            "depth" if with_depth => {
                let must = "depth must be a whole number from 0";
                depth = read_scalar(&entry.value, &field, must, problems, |text| text.parse().ok()).unwrap_or_default();
            }
            key => match algorithm::find(key) {
                Some(algorithm) => keys.rules.push((entry, algorithm)),
                None if legacy::known(key).is_some() || o1s::known(key).is_some() => keys.bucket.push(entry),
                None => keys.unknown.push(entry),
            },
        }
    }
    let rules = keys.read(node, field, with_depth, bounds, problems);
    let has_second = rules.as_ref().is_some_and(|(_, second)| second.is_some());
    let second_name = name.as_deref().filter(|_| has_second).map(interval_name).transpose();
    let second_name = second_name.unwrap_or_else(|message| {
        let place = entries.iter().find(|entry| entry.key == "name").map_or(node.mark, |entry| entry.value.mark);
        problems.add(place, format!("{field}.name"), message);
        None
    });
    let Some((first, second)) = rules.filter(|_| problems.0.len() == before) else { return Vec::new() };
    let parsed = |name, params| ParsedLimit { mark: node.mark, name, depth, shadow, lease: leased, params };
    let second = second.map(|params| parsed(second_name, params));
    [parsed(name, first)].into_iter().chain(second).collect()
}

/// The keys of a limit map that determine its algorithm.
#[derive(Default)]
struct Keys<'a> {
    rules: Vec<(&'a Entry, &'static algorithm::Entry)>,
    /// Keys of a format without an algorithm's name.
    bucket: Vec<&'a Entry>,
    unknown: Vec<&'a Entry>,
}

impl Keys<'_> {
    /// Reads the parameters, also of the second limit that a legacy bucket may need.
    fn read(
        &self,
        node: &Node,
        field: &str,
        with_depth: bool,
        bounds: &Bounds,
        problems: &mut Problems,
    ) -> Option<(Params, Option<Params>)> {
        for entry in &self.unknown {
            let message = unknown_key(&entry.key, with_depth, self.rules.first().map(|(_, algorithm)| *algorithm));
            problems.add(entry.mark, format!("{field}.{}", entry.key), message);
        }
        match (self.rules.as_slice(), self.bucket.as_slice()) {
            ([(entry, algorithm)], []) => {
                let field = format!("{field}.{}", entry.key);
                return read_params(entry, algorithm, &field, bounds, problems).map(|params| (params, None));
            }
            ([_, (second, _), ..], _) => {
                problems.add(second.mark, field, "a limit can have only one algorithm; write a limit for each");
            }
            ([(rule, _)], [stray, ..]) => {
                let message = format!("`{}` cannot be combined with `{}`", stray.key, rule.key);
                problems.add(stray.mark, format!("{field}.{}", stray.key), message);
            }
            ([], _) if !self.unknown.is_empty() => {}
            ([], []) => {
                problems.add(node.mark, field, format!("a limit needs an algorithm: {}", names().join(", ")));
            }
            ([], bucket) if bucket.iter().any(|entry| o1s::known(&entry.key).is_some()) => {
                return o1s::read(bucket, field, bounds, problems).map(|params| (params, None));
            }
            ([], bucket) => return legacy::read(bucket, field, bounds, problems),
        }
        None
    }
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
            let what = format!("parameter of {}", algorithm.name);
            let message = legacy::misplaced(algorithm, &parameter.key)
                .or_else(|| o1s::misplaced(algorithm, &parameter.key))
                .unwrap_or_else(|| suggest::unknown(&what, &parameter.key, algorithm.fields));
            problems.add(parameter.mark, field, message);
        } else if scalar(&parameter.value).is_none() {
            let message = format!("{} must be a single value, not {}", parameter.key, parameter.value.kind());
            problems.add(parameter.value.mark, field, message);
        }
    }
    if problems.0.len() > before {
        return None;
    }
    match (algorithm.parse)(&scalars(entries), bounds) {
        Ok(params) => Some(params),
        Err(error) => {
            let place = entries.iter().find(|entry| entry.key == error.field);
            let mark = place.map_or(entry.mark, |place| place.value.mark);
            problems.add(mark, format!("{field}.{}", error.field), format!("{}: {}", algorithm.name, error.reason));
            None
        }
    }
}

/// Reads one of the `known` values by its name; an unknown name is a problem, and gives the first value.
pub(crate) fn read_choice<T: Copy>(entry: &Entry, known: &[(&str, T)], problems: &mut Problems) -> T {
    let text = scalar(&entry.value);
    if let Some((_, value)) = known.iter().find(|(name, _)| Some(*name) == text) {
        return *value;
    }
    let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
    let message = suggest::not_one_of(&entry.key, &names, &entry.value.shown());
    problems.add(entry.value.mark, &entry.key, message);
    known[0].1
}

/// Reads `anchor`, a number of segments; `None`, with a problem, if it is invalid.
pub(crate) fn read_anchor(entry: &Entry, problems: &mut Problems) -> Option<u8> {
    let must = format!("anchor must be a number of segments, 1 to {MAX_SEGMENTS}");
    let parse = |text: &str| text.parse().ok().filter(|anchor| (1..=MAX_SEGMENTS as u8).contains(anchor));
    read_scalar(&entry.value, "anchor", &must, problems, parse)
}

/// Returns the keys and texts of the entries that are scalars.
pub(crate) fn scalars(entries: &[Entry]) -> Vec<(&str, &str)> {
    entries.iter().filter_map(|entry| Some((entry.key.as_str(), scalar(&entry.value)?))).collect()
}

/// Whether a text is valid as a name: 1 to 256 bytes without control characters.
pub fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn read_name(entry: &Entry, field: &str, problems: &mut Problems) -> Option<String> {
    let name = scalar(&entry.value).filter(|text| is_name(text));
    if name.is_none() {
        problems.add(
            entry.value.mark,
            field,
            format!("a name must be 1 to {MAX_NAME_BYTES} bytes without control characters"),
        );
    }
    name.map(str::to_owned)
}

/// Reads `true` or `false`.
pub(crate) fn read_flag(node: &Node, field: &str, problems: &mut Problems) -> bool {
    let must = format!("{field} must be true or false");
    read_scalar(node, field, &must, problems, |text| text.parse().ok()).unwrap_or_default()
}

/// Returns the names of all algorithms.
pub(crate) fn names() -> Vec<&'static str> {
    algorithm::LIST.iter().map(|entry| entry.name).collect()
}

/// Makes the message for an unknown key. `beside` is the algorithm of the same map; without one, algorithms and keys
/// of the formats without an algorithm's name are suggested too.
fn unknown_key(key: &str, with_depth: bool, beside: Option<&algorithm::Entry>) -> String {
    let mut known: Vec<_> = LIMIT_KEYS.iter().copied().filter(|key| !with_depth || *key != "lease").collect();
    known.extend(with_depth.then_some("depth"));
    match beside {
        Some(algorithm) if algorithm.fields.contains(&key) => {
            format!("`{key}` is a parameter of {name}; write it within `{name}: {{ … }}`", name = algorithm.name)
        }
        Some(algorithm) => suggest::unknown(&format!("key next to {}", algorithm.name), key, &known),
        None => suggest::unknown(
            "key",
            key,
            &[names(), known, legacy::names().collect(), o1s::KEYS.map(|(key, _)| key).into()].concat(),
        ),
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use weir_settings::document;

    /// Reads a list of limits.
    pub(crate) fn parse(text: &str) -> Result<Vec<ParsedLimit>, Problems> {
        let (node, mut problems) = (document::parse(text).unwrap().unwrap(), Problems::default());
        let limits = read_limits(&node, "limits", true, &Bounds::default(), &mut problems);
        if problems.0.is_empty() { Ok(limits) } else { Err(problems) }
    }

    /// Returns the limits that a map is translated to, as a file writes them.
    pub(crate) fn translated(map: &str) -> Vec<String> {
        let limits = parse(&format!("[{{ {map} }}]")).unwrap_or_else(|problems| panic!("{map}: {problems}"));
        limits.iter().map(|limit| format!("{} {}", limit.params.name(), limit.params.describe())).collect()
    }

    /// Asserts that a map has one problem: the text at its position, its field, and a part of its message.
    pub(crate) fn assert_problem(map: &str, place: &str, field: &str, message: &str) {
        let problems = parse(&format!("[{{ {map} }}]")).expect_err(map);
        let problem = &problems.0[0];
        let column = "[{ ".len() + map.find(place).unwrap() + 1;
        assert_eq!((problem.mark.line, problem.mark.column), (1, column), "{map}: {problem}");
        assert_eq!(problem.field, format!("limits[0].{field}"), "{map}");
        assert!(problem.message.contains(message), "{map}: {problem}");
        assert_eq!(problems.0.len(), 1, "{problems}");
    }
}
