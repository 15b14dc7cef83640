//! The limit format of Sharkey's `SkRateLimiterService`, and of Misskey before it: maps without an algorithm's name,
//! with plain numbers and times in milliseconds.
//!
//! `{ size, drip_size, drip_rate }` is a `leaky_bucket`. `{ max, duration, min_interval }` is
//! translated to one as that service does; if the translation would lose `min_interval`, an
//! additional `gcra` enforces the interval.

use weir_core::algorithm::{self, Bounds, ParamError, Params};
use weir_settings::{
    document::Entry,
    fields::scalar,
    problem::{Mark, Problems},
};

/// The algorithm that a bucket becomes.
const ALGORITHM: &str = "leaky_bucket";
/// Every key, with its canonical spelling.
pub const KEYS: [(&str, &str); 9] = [
    ("max", "max"),
    ("duration", "duration"),
    ("min_interval", "min_interval"),
    ("minInterval", "min_interval"),
    ("size", "size"),
    ("drip_size", "drip_size"),
    ("dripSize", "drip_size"),
    ("drip_rate", "drip_rate"),
    ("dripRate", "drip_rate"),
];
/// The keys of the bucket form; all other keys are of the `max` form.
const BUCKET: [&str; 3] = ["size", "drip_size", "drip_rate"];
/// Both forms, for error messages.
const FORMS: &str = "max, duration and min_interval, or size, drip_size and drip_rate";

/// Maximum of every number.
const LARGEST: f64 = (1u64 << 53) as f64;
const DEFAULT_DRIP_SIZE: f64 = 1.0;
const DEFAULT_DRIP_RATE_MS: f64 = 1_000.0;

/// Returns the canonical spelling of a key; `None`: not a key of this format.
pub(crate) fn known(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|(spelling, _)| *spelling == key).map(|(_, name)| *name)
}

/// Returns the canonical spellings of all keys.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter(|(spelling, name)| spelling == name).map(|(_, name)| *name)
}

/// Returns a hint for a key of this format among the parameters of the algorithm that replaces it.
pub(crate) fn misplaced(algorithm: &algorithm::Entry, key: &str) -> Option<String> {
    let meant = algorithm.name == ALGORITHM && known(key).is_some_and(|name| !is_bucket(name));
    meant.then(|| {
        format!("`{key}` cannot be set within {ALGORITHM}; write it in its place: {{ max: 10, duration: 60000 }}")
    })
}

/// Reads the entries of a limit map. All keys must be [`known`], and there must be at least one; see
/// [`Bucket::limits`].
pub(crate) fn read(
    entries: &[&Entry],
    field: &str,
    bounds: &Bounds,
    problems: &mut Problems,
) -> Option<(Params, Option<Params>)> {
    let before = problems.0.len();
    let mut bucket = Bucket::default();
    for entry in entries {
        if let Err((mark, message)) = bucket.read(entry, entries) {
            problems.add(mark, format!("{field}.{}", entry.key), message);
        }
    }
    if problems.0.len() > before {
        return None;
    }
    let found = |name: &str| entries.iter().find(|entry| known(&entry.key) == Some(name));
    let place = |name: &str| found(name).map(|entry| entry.value.mark).or(entries.first().map(|entry| entry.mark));
    let limits = bucket.limits(bounds);
    limits
        .map_err(|ParamError { field: name, reason }| {
            problems.add(place(&name).unwrap_or_default(), format!("{field}.{name}"), reason);
        })
        .ok()
}

/// The numbers of a bucket that are set.
#[derive(Clone, Debug, Default)]
pub struct Bucket(Vec<(&'static str, f64)>);

/// The parameters of the translated limits, as whole numbers; the conversion saturates, and the bounds reject such
/// values.
#[derive(Debug, PartialEq)]
struct Translated {
    size: u64,
    drip_size: u64,
    drip_rate_ms: u64,
    interval_us: Option<u64>,
}

impl Bucket {
    /// Makes a bucket of these numbers, each with its name.
    ///
    /// # Errors
    /// [`ParamError`] for a number out of range, and for one that does not go with another.
    pub fn new(numbers: impl IntoIterator<Item = (&'static str, Option<f64>)>) -> Result<Self, ParamError> {
        let mut bucket = Self::default();
        for (name, number) in numbers {
            let Some(number) = number else { continue };
            if let Some((other, _)) = bucket.other_form(name) {
                return Err(ParamError::new(name, conflict(name, other)));
            }
            check(name, number)
                .map_err(|range| ParamError::new(name, format!("{name} is {} {range}, not {number}", what(name))))?;
            bucket.0.push((name, number));
        }
        Ok(bucket)
    }

    /// Reads the number of `entry`, which is one of `entries`.
    fn read(&mut self, entry: &Entry, entries: &[&Entry]) -> Result<(), (Mark, String)> {
        let Some(name) = known(&entry.key) else { return Ok(()) };
        let spelling =
            |name: &str| entries.iter().find(|entry| known(&entry.key) == Some(name)).map(|entry| &*entry.key);
        if self.get(name).is_some() {
            let duplicate = spelling(name).unwrap_or(name);
            return Err((entry.mark, format!("`{}` is given twice, also as `{duplicate}`", entry.key)));
        }
        if let Some((other, _)) = self.other_form(name) {
            return Err((entry.mark, conflict(&entry.key, spelling(other).unwrap_or(other))));
        }
        let number = number(entry, name).map_err(|message| (entry.value.mark, message))?;
        self.0.push((name, number));
        Ok(())
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    }

    /// Returns a number of the other form.
    fn other_form(&self, name: &str) -> Option<(&'static str, f64)> {
        self.0.iter().find(|(other, _)| is_bucket(other) != is_bucket(name)).copied()
    }

    /// Translates to a `leaky_bucket`, and to a `gcra` that enforces `min_interval` where the bucket does not.
    ///
    /// # Errors
    /// [`ParamError`] names the number that is invalid or missing.
    pub fn limits(&self, bounds: &Bounds) -> Result<(Params, Option<Params>), ParamError> {
        let translated = self.translate()?;
        let bucket = self.parse(ALGORITHM, &translated.bucket(), bounds)?;
        let interval = translated.interval_us.map(|period| {
            let parameters = [("burst", "0".to_owned()), ("count", "1".to_owned()), ("period", format!("{period}us"))];
            self.parse("gcra", &parameters, bounds)
        });
        Ok((bucket, interval.transpose()?))
    }

    fn translate(&self) -> Result<Translated, ParamError> {
        if let Some(size) = self.get("size") {
            let drip_size = self.get("drip_size").unwrap_or(DEFAULT_DRIP_SIZE);
            return Ok(bucket(size, drip_size, self.get("drip_rate").unwrap_or(DEFAULT_DRIP_RATE_MS)));
        }
        // 0 means not set, as in Sharkey.
        let min_interval = self.get("min_interval").filter(|interval| *interval > 0.0);
        match (self.get("max"), self.get("duration"), min_interval) {
            (Some(max), Some(duration), min_interval) => Ok(translate(max, duration, min_interval)),
            (None, None, Some(min_interval)) => Ok(bucket(1.0, 1.0, min_interval.round().max(1.0))),
            (max, ..) => {
                let missing = match max {
                    _ if self.0.iter().any(|(name, _)| is_bucket(name)) => "size",
                    Some(_) => "duration",
                    None => "max",
                };
                Err(ParamError::new(missing, format!("{missing} is missing; a bucket has {FORMS}")))
            }
        }
    }

    fn parse(&self, name: &str, parameters: &[(&str, String)], bounds: &Bounds) -> Result<Params, ParamError> {
        let parameters: Vec<_> = parameters.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let algorithm = algorithm::find(name).ok_or_else(|| ParamError::new(name, "unknown algorithm"))?;
        (algorithm.parse)(parameters.as_slice(), bounds).map_err(|error| {
            // The possible sources of this parameter.
            let sources: &[&str] = match error.field.as_str() {
                "size" => &["size", "max", "min_interval"],
                "drip_size" => &["drip_size", "max"],
                "drip_rate" => &["drip_rate", "duration", "min_interval"],
                _ => &["min_interval"],
            };
            let source = sources.iter().find(|name| self.get(name).is_some()).copied().unwrap_or_default();
            ParamError::new(source, format!("as a {name}: {}", error.reason))
        })
    }
}

fn is_bucket(name: &str) -> bool {
    BUCKET.contains(&name)
}

fn conflict(name: &str, other: &str) -> String {
    format!("`{name}` cannot be combined with `{other}`; a bucket has {FORMS}")
}

fn is_time(name: &str) -> bool {
    matches!(name, "duration" | "min_interval" | "drip_rate")
}

fn what(name: &str) -> &'static str {
    if is_time(name) { "a number of milliseconds" } else { "a number" }
}

/// Checks the range of a number; the error is the range, in words.
fn check(name: &str, number: f64) -> Result<(), &'static str> {
    let (or_nothing, range) = match name {
        "min_interval" => (true, "from 0 to 2^53"),
        _ => (false, "above 0 and at most 2^53"),
    };
    if number <= LARGEST && (number > 0.0 || number == 0.0 && or_nothing) { Ok(()) } else { Err(range) }
}

fn number(entry: &Entry, name: &str) -> Result<f64, String> {
    let (key, what) = (&entry.key, what(name));
    let Some(text) = scalar(&entry.value) else {
        return Err(format!("{key} must be {what}, not {}", entry.value.kind()));
    };
    let number: f64 = text.parse().map_err(|_| {
        if is_time(name) {
            format!("{key} must be {what} here, not `{text}`; `leaky_bucket: {{ … }}` takes times with a unit")
        } else {
            format!("{key} must be {what}, not `{text}`")
        }
    })?;
    check(name, number).map(|()| number).map_err(|range| format!("{key} must be {what} {range}, not {text}"))
}

/// Makes a bucket. Fractions are rounded up, as in Sharkey.
fn bucket(size: f64, drip_size: f64, drip_rate_ms: f64) -> Translated {
    let [size, drip_size, drip_rate_ms] = [size, drip_size, drip_rate_ms].map(|number| number.ceil() as u64);
    Translated { size, drip_size, drip_rate_ms, interval_us: None }
}

/// Translates `max` per `duration` to a bucket, as closely as whole milliseconds allow. The ticks are `min_interval`
/// apart, unless that is shorter than the time of one unit: then `min_interval` becomes a separate
/// limit.
fn translate(max: f64, duration: f64, min_interval: Option<f64>) -> Translated {
    let tick = min_interval.unwrap_or_else(|| (duration / max).round()).max(1.0);
    let drip_size = (max / (duration / tick)).round().max(1.0);
    let drip_rate = (duration / (max / drip_size)).round().max(1.0);
    let interval = min_interval.filter(|interval| *interval < duration / max);
    Translated { interval_us: interval.map(|ms| (ms * 1_000.0).ceil() as u64), ..bucket(max, drip_size, drip_rate) }
}

impl Translated {
    fn bucket(&self) -> [(&'static str, String); 3] {
        [
            ("size", self.size.to_string()),
            ("drip_size", self.drip_size.to_string()),
            ("drip_rate", format!("{}ms", self.drip_rate_ms)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use crate::limits::testing::{assert_problem, parse, translated};

    #[test]
    fn max_and_duration_become_a_leaky_bucket() {
        for (map, expected) in [
            ("max: 10, duration: 10000", "{ size: 10 }"),
            ("max: 10, duration: 5000, min_interval: 1000", "{ size: 10, drip_size: 2 }"),
            ("max: 10, duration: 5000, minInterval: 1000", "{ size: 10, drip_size: 2 }"),
            ("max: 4096, duration: 2000", "{ size: 4096, drip_size: 2, drip_rate: 1ms }"),
            ("min_interval: 250", "{ size: 1, drip_rate: 250ms }"),
            ("min_interval: 2.5", "{ size: 1, drip_rate: 3ms }"),
            ("min_interval: 0.2", "{ size: 1, drip_rate: 1ms }"),
            ("max: 300, duration: 3600000", "{ size: 300, drip_rate: 12s }"),
            ("max: 3, duration: 1000", "{ size: 3, drip_rate: 333ms }"),
            ("max: 2, duration: 3, min_interval: 0", "{ size: 2, drip_rate: 2ms }"),
            ("max: 2.5, duration: 5000.0", "{ size: 3, drip_rate: 2s }"),
            // `min_interval` is exactly the time of one unit.
            ("max: 10, duration: 10000, min_interval: 1000", "{ size: 10 }"),
        ] {
            assert_eq!(translated(map), [format!("leaky_bucket {expected}")], "{map}");
        }
    }

    #[test]
    fn a_min_interval_lost_by_the_bucket_becomes_a_gcra() {
        assert_eq!(
            translated("max: 10, duration: 10000, min_interval: 500"),
            ["leaky_bucket { size: 10 }", "gcra { burst: 0, count: 1, period: 500ms }"]
        );
        assert_eq!(
            translated("max: 1, duration: 1000, min_interval: 999.9995"),
            ["leaky_bucket { size: 1 }", "gcra { burst: 0, count: 1, period: 1s }"],
            "to the microsecond, rounded up"
        );
    }

    #[test]
    fn bucket_times_are_milliseconds_and_fields_have_defaults() {
        for (map, expected) in [
            ("size: 3", "{ size: 3 }"),
            ("size: 3, dripRate: 1000, dripSize: 1", "{ size: 3 }"),
            ("size: 60, drip_rate: 250.1, drip_size: 1.5", "{ size: 60, drip_size: 2, drip_rate: 251ms }"),
            ("size: 0.1, dripRate: 1e3", "{ size: 1 }"),
        ] {
            assert_eq!(translated(map), [format!("leaky_bucket {expected}")], "{map}");
        }
    }

    #[test]
    fn both_limits_inherit_name_shadow_and_depth() {
        let limits = "[{ max: 9, duration: 9000, min_interval: 5, name: posts, shadow: true, depth: 2 }, [0, 1, 60]]";
        let seen: Vec<_> = parse(limits)
            .unwrap()
            .into_iter()
            .map(|limit| (limit.params.name(), limit.name, limit.shadow, limit.depth))
            .collect();
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(
            seen,
            [
                ("leaky_bucket", named("posts"), true, 2),
                ("gcra", None, false, 0),
                ("gcra", named("posts-interval"), true, 2)
            ]
        );
        assert_eq!(parse("[{ max: 9, duration: 9000, min_interval: 5 }]").unwrap()[1].name, None);
    }

    #[test]
    fn errors_have_their_position_and_field() {
        let too_long = format!("max: 9, duration: 9000, min_interval: 5, name: {}", "n".repeat(248));
        // Columns: the map, the text at the position of the error, the field, the message.
        for (map, place, field, message) in [
            ("max: 0, duration: 1", "0,", "max", "max must be a number above 0 and at most 2^53, not 0"),
            ("max: ten, duration: 1", "ten", "max", "max must be a number, not `ten`"),
            ("max: [1], duration: 1", "[1]", "max", "max must be a number, not a list"),
            ("max: 1, duration: 1s", "1s", "duration", "duration must be a number of milliseconds here, not `1s`"),
            ("max: 1, duration: -1", "-1", "duration", "milliseconds above 0 and at most 2^53, not -1"),
            ("max: 1, duration: NaN", "NaN", "duration", "milliseconds above 0 and at most 2^53, not NaN"),
            ("minInterval: -1", "-1", "minInterval", "milliseconds from 0 to 2^53, not -1"),
            ("minInterval: ~", "~", "minInterval", "minInterval must be a number of milliseconds, not nothing"),
            ("max: 1", "max", "duration", "duration is missing; a bucket has max, duration and min_interval, or size,"),
            ("duration: 1, min_interval: 1", "duration", "max", "max is missing"),
            ("min_interval: 0", "min_interval", "max", "max is missing"),
            ("drip_rate: 1", "drip_rate", "size", "size is missing"),
            ("max: 1, size: 1", "size", "size", "`size` cannot be combined with `max`; a bucket has max, duration"),
            ("drip_size: 1, size: 1, dripSize: 1", "dripSize", "dripSize", "is given twice, also as `drip_size`"),
            ("max: 1, duratoin: 1", "duratoin", "duratoin", "unknown key `duratoin`; did you mean `duration`?"),
            ("siez: 1", "siez", "siez", "unknown key `siez`; did you mean `size`?"),
            ("size: 4294967297", "4294967297", "size", "as a leaky_bucket: size must be 1 to 2^32, not 4294967297"),
            ("max: 1e300, duration: 1", "1e300", "max", "max must be a number above 0 and at most 2^53, not 1e300"),
            ("max: 1e15, duration: 1e6", "1e15", "max", "as a leaky_bucket: size must be 1 to 2^32"),
            ("max: 1, duration: 2678400001", "26784", "duration", "as a leaky_bucket: drip_rate must be 1us to 31d"),
            (
                "min_interval: 1e13",
                "1e13",
                "min_interval",
                "as a leaky_bucket: drip_rate: `10000000000000ms` is too long",
            ),
            (
                "gcra: { burst: 1, count: 1, period: 1s }, size: 1",
                "size",
                "size",
                "`size` cannot be combined with `gcra`",
            ),
            ("leaky_bucket: { max: 9 }", "max", "leaky_bucket.max", "`max` cannot be set within leaky_bucket"),
            ("leaky_bucket: { dripRate: 9 }", "dripRate", "leaky_bucket.dripRate", "did you mean `drip_rate`?"),
            (&too_long, "nnn", "name", "with min_interval a name must be at most 247 bytes"),
        ] {
            assert_problem(map, place, field, message);
        }
    }
}
