//! One `rate_limit` of a descriptor: its count, period and algorithm.

use super::{
    file::is_envoy_key,
    yaml::{integer, truth},
};
use crate::limits::{names, read_limits, scalars};
use weir_core::{
    algorithm::{
        self, Bounds, Params,
        fixed_window::FixedWindow,
        params::{MAX_PERIOD, check_period},
    },
    domain::{
        Micros, Unit,
        time::{format_duration, parse_duration},
    },
};
use weir_settings::{
    document::{Entry, Node, Value},
    fields::{read_scalar, scalar},
    problem::{Mark, Problems},
    suggest,
};

/// Maximum length of a name in bytes; envoyproxy/ratelimit has no maximum.
const MAX_NAME_BYTES: usize = 4_096;
/// Keys of a `rate_limit`, in addition to the parameters of a named algorithm.
pub(crate) const KEYS: &[&str] =
    &["unit", "requests_per_unit", "unlimited", "name", "replaces", "unit_multiplier", "period", "algorithm"];

/// A parsed `rate_limit`, before it is assigned to a node.
pub(crate) struct RateLimit {
    pub(crate) mark: Mark,
    pub(crate) name: Option<Box<str>>,
    pub(crate) replaces: Box<[Box<str>]>,
    /// `None`: unlimited.
    pub(crate) params: Option<Params>,
    /// Whether `requests_per_unit` is missing, which means 0.
    pub(crate) lacks_count: bool,
}

/// Reads a `rate_limit`; `None`, with the reason in `problems`, where it is invalid. Without an algorithm it is a
/// fixed window, which charges refused requests too if `charge_denied`.
pub(crate) fn read(node: &Node, charge_denied: bool, bounds: &Bounds, problems: &mut Problems) -> Option<RateLimit> {
    let Value::Map(entries) = &node.value else {
        problems.add(
            node.mark,
            "rate_limit",
            format!("rate_limit must be a map or a list of them, not {}", node.kind()),
        );
        return None;
    };
    let before = problems.0.len();
    let mut reader = Reader { mark: node.mark, entries, charge_denied, bounds, problems };
    reader.keys();
    let (name, replaces) = (reader.name(), reader.replaces());
    let unlimited = reader.entry("unlimited").is_some_and(|entry| flag(entry, reader.problems));
    let params = if unlimited { reader.nothing_else() } else { reader.params() };
    let lacks_count = reader.entry("requests_per_unit").is_none() && matches!(params, Some(Params::FixedWindow(_)));
    let lacks_count = lacks_count && reader.entry("algorithm").is_none();
    (problems.0.len() == before && (unlimited || params.is_some())).then_some(RateLimit {
        mark: node.mark,
        name,
        replaces,
        params,
        lacks_count,
    })
}

/// Reads a boolean in any YAML 1.1 spelling.
pub(crate) fn flag(entry: &Entry, problems: &mut Problems) -> bool {
    let must = format!("{} must be true or false", entry.key);
    !matches!(entry.value.value, Value::Null)
        && read_scalar(&entry.value, &entry.key, &must, problems, truth).unwrap_or_default()
}

struct Reader<'a> {
    mark: Mark,
    entries: &'a [Entry],
    charge_denied: bool,
    bounds: &'a Bounds,
    problems: &'a mut Problems,
}

impl<'a> Reader<'a> {
    /// Returns the entry of a key, unless it is null.
    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.key == key && !matches!(entry.value.value, Value::Null))
    }

    /// Returns the algorithm that is given by name alone.
    fn named(&self) -> Option<&'static algorithm::Entry> {
        self.entry("algorithm").and_then(|entry| algorithm::find(scalar(&entry.value)?))
    }

    fn keys(&mut self) {
        // `requests_per_unit` is the count.
        let fields = self.named().map_or(&[][..], |named| named.fields).iter().copied();
        let parameters: Vec<_> = fields.filter(|field| *field != "count").collect();
        for entry in self.entries {
            let key = entry.key.as_str();
            if KEYS.contains(&key) || is_envoy_key(key) {
                continue;
            }
            if parameters.contains(&key) {
                if !matches!(entry.value.value, Value::Null) && scalar(&entry.value).is_none() {
                    let message = format!("{key} must be a single value, not {}", entry.value.kind());
                    self.problems.add(entry.value.mark, key, message);
                }
                continue;
            }
            let known = [KEYS, &parameters].concat();
            let is_parameter = algorithm::LIST.iter().any(|algorithm| algorithm.fields.contains(&key));
            let message = match self.entry("algorithm") {
                None if is_parameter => format!("`{key}` is for an algorithm; name it, as in `algorithm: gcra`"),
                _ => suggest::unknown("key", key, &known),
            };
            self.problems.add(entry.mark, key, message);
        }
    }

    fn name(&mut self) -> Option<Box<str>> {
        let entry = self.entry("name")?;
        match scalar(&entry.value) {
            Some("") => None,
            Some(name) if name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control) => Some(name.into()),
            _ => {
                let message = format!("a name must be 1 to {MAX_NAME_BYTES} bytes without control characters");
                self.problems.add(entry.value.mark, "name", message);
                None
            }
        }
    }

    fn replaces(&mut self) -> Box<[Box<str>]> {
        let Some(entry) = self.entry("replaces") else { return Box::default() };
        let Value::List(items) = &entry.value.value else {
            self.problems.add(entry.value.mark, "replaces", "replaces must be a list of maps, each with a name");
            return Box::default();
        };
        let mut names = Vec::new();
        for item in items {
            let Value::Map(entries) = &item.value else {
                self.problems.add(
                    item.mark,
                    "replaces",
                    format!("an entry of replaces must be a map with a name, not {}", item.kind()),
                );
                continue;
            };
            for unknown in entries.iter().filter(|entry| !is_envoy_key(&entry.key)) {
                self.problems.add(unknown.mark, "replaces", suggest::unknown("key", &unknown.key, &["name"]));
            }
            let name = entries.iter().find(|entry| entry.key == "name").and_then(|entry| scalar(&entry.value));
            match name {
                Some(name) if !name.is_empty() => names.push(name.into()),
                _ => self.problems.add(item.mark, "replaces", "an entry of replaces needs a name that is not empty"),
            }
        }
        names.into()
    }

    /// Reports the keys that contradict `unlimited`. An invalid unit is ignored, as in envoyproxy/ratelimit.
    fn nothing_else(&mut self) -> Option<Params> {
        let unit =
            self.entry("unit").filter(|entry| scalar(&entry.value).is_some_and(|name| Unit::named(name).is_some()));
        let others = ["unit_multiplier", "period", "algorithm"].into_iter().filter_map(|key| self.entry(key));
        for entry in unit.into_iter().chain(others).collect::<Vec<_>>() {
            self.problems.add(entry.mark, &entry.key, format!("an unlimited rate_limit has no {}", entry.key));
        }
        None
    }

    fn params(&mut self) -> Option<Params> {
        let Some(entry) = self.entry("algorithm") else {
            let count = self.count()?.unwrap_or(0);
            let (period, _) = self.period()?;
            return Some(Params::FixedWindow(FixedWindow::in_unit(count, period, self.charge_denied)));
        };
        match &entry.value.value {
            Value::Map(inner) => self.in_full(entry, inner),
            _ => self.by_name(entry),
        }
    }

    /// Reads the full form, `algorithm: { gcra: { burst: 5, count: 10, period: 1s } }`.
    fn in_full(&mut self, entry: &Entry, inner: &[Entry]) -> Option<Params> {
        for key in ["unit", "requests_per_unit", "unit_multiplier", "period"] {
            if let Some(other) = self.entry(key) {
                self.problems.add(other.mark, key, format!("the algorithm is written in full; leave {key} out"));
            }
        }
        if inner.len() != 1 || algorithm::find(&inner[0].key).is_none() {
            let name = inner.iter().find(|entry| algorithm::find(&entry.key).is_none()).map_or("", |entry| &entry.key);
            let message = match name {
                "" => "algorithm must be a name, or a map from one name to its parameters".to_owned(),
                name => suggest::unknown("algorithm", name, &names()),
            };
            self.problems.add(entry.value.mark, "algorithm", message);
            return None;
        }
        let list = Node { mark: entry.value.mark, value: Value::List(vec![entry.value.clone()]), plain: false };
        read_limits(&list, "algorithm", false, self.bounds, self.problems).pop().map(|limit| limit.params)
    }

    /// Reads the short form, `algorithm: sliding_log`, whose other parameters are keys of the `rate_limit`.
    fn by_name(&mut self, entry: &Entry) -> Option<Params> {
        let Some(algorithm) = self.named() else {
            let message = suggest::unknown("algorithm", scalar(&entry.value).unwrap_or_default(), &names());
            self.problems.add(entry.value.mark, "algorithm", message);
            return None;
        };
        let name = algorithm.name;
        if !["count", "period"].iter().all(|field| algorithm.fields.contains(field)) {
            let message =
                format!("{name} has no count in a period; write it in full: `algorithm: {{ {name}: {{ … }} }}`");
            self.problems.add(entry.value.mark, "algorithm", message);
            return None;
        }
        let Some(count) = self.count()? else {
            self.problems.add(self.mark, "requests_per_unit", format!("{name} needs requests_per_unit"));
            return None;
        };
        let (period, bounds) = self.period()?;
        let (count, period) = (count.to_string(), format_duration(period));
        // The first of a name applies.
        let parameters = [vec![("count", count.as_str()), ("period", &period)], scalars(self.entries)].concat();
        match (algorithm.parse)(&parameters, &bounds) {
            Ok(params) => Some(params),
            Err(error) => {
                let key = match error.field.as_str() {
                    "count" => "requests_per_unit",
                    "period" if self.entry("period").is_none() => "unit",
                    field => field,
                };
                let mark = self.entry(key).map_or(self.mark, |entry| entry.value.mark);
                self.problems.add(mark, key, format!("{name}: {}", error.reason));
                None
            }
        }
    }

    /// Reads `requests_per_unit`; `Some(None)`: not set, `None`: invalid.
    fn count(&mut self) -> Option<Option<u32>> {
        let Some(entry) = self.entry("requests_per_unit") else { return Some(None) };
        let must = "requests_per_unit must be a whole number from 0 to 4294967295";
        let parse = |text: &str| integer(text).and_then(|count| u32::try_from(count).ok());
        read_scalar(&entry.value, "requests_per_unit", must, self.problems, parse).map(Some)
    }

    /// Reads the period, with the bounds for it: a unit may be longer than the setting `max_period`.
    fn period(&mut self) -> Option<(Micros, Bounds)> {
        if let Some(entry) = self.entry("period") {
            for key in ["unit", "unit_multiplier"] {
                if let Some(other) = self.entry(key) {
                    self.problems.add(other.mark, key, format!("period and {key} exclude each other"));
                    return None;
                }
            }
            let period = parse_duration(scalar(&entry.value).unwrap_or_default());
            let checked = period.and_then(|period| {
                check_period("period", period, self.bounds).map_err(|error| error.reason).map(|()| period)
            });
            return match checked {
                Ok(period) => Some((period, *self.bounds)),
                Err(message) => {
                    self.problems.add(entry.value.mark, "period", message);
                    None
                }
            };
        }
        let unit = self.unit()?;
        let times = self.entry("unit_multiplier");
        let length = match times {
            None => Some(unit.micros()),
            Some(entry) => scalar(&entry.value)
                .and_then(|text| text.parse::<Micros>().ok())
                .filter(|times| *times > 0)
                .and_then(|times| unit.micros().checked_mul(times))
                .filter(|length| *length <= MAX_PERIOD),
        };
        if let (None, Some(entry)) = (length, times) {
            let message = "unit_multiplier must be a whole number from 1, and the time that it makes at most 366d";
            self.problems.add(entry.value.mark, "unit_multiplier", message);
        }
        length.map(|length| (length, Bounds { max_period: MAX_PERIOD }))
    }

    fn unit(&mut self) -> Option<Unit> {
        let entry = self.entry("unit");
        let text = entry.and_then(|entry| scalar(&entry.value)).unwrap_or_default();
        let unit = Unit::named(text);
        if unit.is_none() {
            let names = Unit::ALL.map(Unit::name);
            let message = match entry {
                None => format!("a rate_limit has a unit ({}), a period, or is unlimited", names.join(", ")),
                Some(_) => suggest::unknown("unit", text, &names),
            };
            self.problems.add(entry.map_or(self.mark, |entry| entry.value.mark), "unit", message);
        }
        unit
    }
}
