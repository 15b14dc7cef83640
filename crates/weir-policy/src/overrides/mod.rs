//! Overrides: changes by operators to the limits of a policy, for one key or all that a pattern matches, for a time.

mod effect;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;

use elsa::sync::FrozenMap;
use thiserror::Error;
use weir_core::{
    algorithm::{Bounds, Params},
    domain::{
        Key, Micros,
        key::{MAX_SEGMENT_BYTES, MAX_SEGMENTS},
    },
    plan::Limit,
};

use crate::limits::{ParsedLimit, read_limits};
pub use effect::{Effect, MAX_EFFECTS, effects};
pub use tree::{ActiveOverrides, Applied, Overrides};
use weir_settings::{
    document::{self, DocumentBounds, Node, Value},
    problem::Problems,
};

/// The segment of a pattern that matches any segment.
pub const ANY: &str = "*";
/// The kinds of change, as metrics and logs name them.
pub const CHANGES: [&str; 5] = ["factor", "limits", "unlimited", "shadow", "ban"];
/// Maximum length of a reason, in bytes.
pub const MAX_REASON_BYTES: usize = 1_024;
/// Maximum length of the text of changed limits, in bytes.
const MAX_LIMITS_BYTES: usize = 16 << 10;
/// Bounds on the YAML of changed limits, including the expansion of its aliases: several times what [`MAX_LIMITS`]
/// limits need, and parsed in little time, since the threads that serve checks parse it.
const LIMITS_BOUNDS: DocumentBounds = DocumentBounds { nodes: 2_000, repeated_bytes: 64 << 10 };
/// Maximum number of limits in a change of parameters.
pub const MAX_LIMITS: usize = 16;
/// Valid factors.
pub const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// An override.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The id, which no other override has had.
    pub id: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The pattern of the keys: their first segments, where [`ANY`] matches each segment. Empty: the whole domain.
    pub pattern: Box<[Box<str>]>,
    /// The change, for the limits at the pattern's depth and below.
    pub change: Change,
    /// The reason, in the operator's words.
    pub reason: Box<str>,
    /// The operator who set it.
    pub author: Box<str>,
    /// Time at which it was set, by the store's clock.
    pub set_at: Micros,
    /// Start, by the store's clock.
    pub start: Micros,
    /// End, exclusive, by the store's clock; `None`: until it is removed.
    pub end: Option<Micros>,
}

/// The change of an override.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A divisor of the counts of limits, multiplied with the factors of the policy and the request.
    Factor(f64),
    /// Other parameters for limits.
    Limits(LimitChanges),
    /// No limits.
    Unlimited,
    /// Limits are evaluated and counted, but refuse nothing.
    Shadow,
    /// Every request is refused, including requests with their own limits.
    Ban,
}

/// Other parameters for limits, in the syntax of policy files.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitChanges {
    text: Box<str>,
    changes: Vec<LimitChange>,
}

/// Other parameters for the limits of one name or algorithm.
#[derive(Clone, Debug, PartialEq)]
struct LimitChange {
    /// The name of the limit; `None`: every limit of the same algorithm.
    name: Option<Box<str>>,
    /// The new parameters.
    params: Params,
}

/// The reason why an override is invalid.
#[derive(Debug, Error)]
pub enum OverrideError {
    /// Too many segments.
    #[error("a pattern can have at most {MAX_SEGMENTS} segments, not {0}")]
    Depth(usize),
    /// A segment that is empty or too long.
    #[error("a segment must have 1 to {MAX_SEGMENT_BYTES} bytes; the one at {0} has {1}")]
    Segment(usize, usize),
    /// A domain name that is too long.
    #[error("the domain has {0} bytes, more than {MAX_SEGMENT_BYTES}")]
    Domain(usize),
    /// A factor out of bounds.
    #[error("a factor must be {least} to {most}, not {0}", least = FACTORS.start(), most = FACTORS.end())]
    Factor(f64),
    /// Limits that are invalid, none, or too many.
    #[error("{0}")]
    Limits(String),
    /// A reason that is empty or too long.
    #[error("a reason must have 1 to {MAX_REASON_BYTES} bytes, not {0}")]
    Reason(usize),
    /// An end that is not after the start.
    #[error("the end must be after the start and in the future")]
    End,
    /// An end by its length that no timestamp can have.
    #[error("start and ttl must end by the year 9999")]
    LateEnd,
}

impl OverrideError {
    /// Returns the name of the invalid field, as in the API.
    pub fn field(&self) -> String {
        match self {
            Self::Depth(_) => "key".to_owned(),
            Self::Segment(index, _) => format!("key[{index}]"),
            Self::Domain(_) => "domain".to_owned(),
            Self::Factor(_) => "factor".to_owned(),
            Self::Limits(_) => "limits".to_owned(),
            Self::Reason(_) => "reason".to_owned(),
            Self::End | Self::LateEnd => "end".to_owned(),
        }
    }
}

impl Override {
    /// Checks the bounds of its fields.
    ///
    /// # Errors
    /// [`OverrideError`] names the invalid field.
    pub fn check_bounds(&self) -> Result<(), OverrideError> {
        if self.domain.len() > MAX_SEGMENT_BYTES {
            return Err(OverrideError::Domain(self.domain.len()));
        }
        if self.pattern.len() > MAX_SEGMENTS {
            return Err(OverrideError::Depth(self.pattern.len()));
        }
        for (index, segment) in self.pattern.iter().enumerate() {
            if segment.is_empty() || segment.len() > MAX_SEGMENT_BYTES {
                return Err(OverrideError::Segment(index, segment.len()));
            }
        }
        match &self.change {
            Change::Factor(factor) if !FACTORS.contains(factor) => return Err(OverrideError::Factor(*factor)),
            _ => {}
        }
        if self.reason.is_empty() || self.reason.len() > MAX_REASON_BYTES {
            return Err(OverrideError::Reason(self.reason.len()));
        }
        if self.end.is_some_and(|end| end <= self.start) {
            return Err(OverrideError::End);
        }
        Ok(())
    }

    /// Whether it is in force at a time. One that was set without a start is in force until its
    /// end, even if the clock is behind the time at which it was set.
    pub fn is_in_force_at(&self, now: Micros) -> bool {
        (self.start <= now || self.start == self.set_at) && self.end.is_none_or(|end| now < end)
    }

    /// Whether its pattern matches a key of its domain.
    pub fn matches(&self, key: &Key) -> bool {
        let segment_matches = |(segment, of_key): (&str, &[u8])| segment == ANY || segment.as_bytes() == of_key;
        let segments = self.pattern.iter().map(|segment| &**segment);
        key.depth() >= self.pattern.len() && segments.zip(key.segments()).all(segment_matches)
    }
}

impl LimitChanges {
    /// Reads the limits of a new override: a list of limit maps in YAML, or one map. A limit without a name applies to
    /// all limits of its algorithm.
    ///
    /// # Errors
    /// [`OverrideError::Limits`] with the problems.
    pub fn parse(text: &str, bounds: &Bounds) -> Result<Self, OverrideError> {
        let parsed = Self::read(text, bounds)?;
        for (index, limit) in parsed.iter().enumerate() {
            if let Some(first) = parsed[..index].iter().position(|before| is_second_of(before, limit)) {
                return Err(OverrideError::Limits(format!("limits[{first}] {}", two_limits(&parsed[first], limit))));
            }
        }
        Self::checked(text, parsed)
    }

    /// Reads the limits of a stored override, as [`LimitChanges::parse`] does, but accepts a bucket without a name that
    /// becomes two limits: former versions accepted it, and an upgrade does not put it out of force.
    ///
    /// # Errors
    /// As [`LimitChanges::parse`].
    pub fn parse_stored(text: &str, bounds: &Bounds) -> Result<Self, OverrideError> {
        Self::checked(text, Self::read(text, bounds)?)
    }

    fn read(text: &str, bounds: &Bounds) -> Result<Vec<ParsedLimit>, OverrideError> {
        let wrong = |problems: Problems| OverrideError::Limits(problems.to_string());
        if text.len() > MAX_LIMITS_BYTES {
            return Err(OverrideError::Limits(format!("limits can have at most {MAX_LIMITS_BYTES} bytes")));
        }
        let mut problems = Problems::default();
        let mut parsed = Vec::new();
        if let Some(node) = document::parse_within(text, LIMITS_BOUNDS).map_err(wrong)? {
            let node = match &node.value {
                Value::Map(_) => Node { mark: node.mark, plain: false, value: Value::List(vec![node]) },
                _ => node,
            };
            parsed = read_limits(&node, "limits", false, bounds, &mut problems);
        }
        if !problems.0.is_empty() {
            return Err(wrong(problems));
        }
        if !(1..=MAX_LIMITS).contains(&parsed.len()) {
            return Err(OverrideError::Limits(format!(
                "an override can change 1 to {MAX_LIMITS} limits, not {}",
                parsed.len()
            )));
        }
        Ok(parsed)
    }

    fn checked(text: &str, parsed: Vec<ParsedLimit>) -> Result<Self, OverrideError> {
        for (index, limit) in parsed.iter().enumerate() {
            let is_for_the_same = |before: &&ParsedLimit| {
                before.params.name() == limit.params.name() && (before.name.is_none() || before.name == limit.name)
            };
            let problem = if limit.shadow || limit.lease.is_some() {
                "changes parameters alone, not `shadow` or `lease`".to_owned()
            } else if let Some(before) = parsed[..index].iter().position(|before| is_for_the_same(&before)) {
                format!("never applies, since limits[{before}] is for the same limits: name them")
            } else {
                continue;
            };
            return Err(OverrideError::Limits(format!("limits[{index}] {problem}")));
        }
        let change = |limit: ParsedLimit| LimitChange { name: limit.name.map(Into::into), params: limit.params };
        Ok(Self { text: text.into(), changes: parsed.into_iter().map(change).collect() })
    }

    /// Returns the limits that get other parameters: the name, or `None` for all of the algorithm, and the algorithm.
    pub fn targets(&self) -> impl Iterator<Item = (Option<&str>, &'static str)> {
        self.changes.iter().map(|change| (change.name.as_deref(), change.params.name()))
    }

    /// Returns the text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Whether a limit is the second one that a legacy bucket without a name becomes. It would change every limit of its
/// algorithm.
fn is_second_of(bucket: &ParsedLimit, limit: &ParsedLimit) -> bool {
    limit.name.is_none() && bucket.mark == limit.mark && bucket.params.name() != limit.params.name()
}

fn two_limits(bucket: &ParsedLimit, interval: &ParsedLimit) -> String {
    let algorithm = interval.params.name();
    let [bucket, interval] =
        [bucket, interval].map(|limit| format!("{}: {}", limit.params.name(), limit.params.describe()));
    format!(
        "is two limits, and the second would change every {algorithm}: add the bucket's `name` in the policy; if it has none, write \
         both with the names that `weir limits explain` prints: [{{ name: …, {bucket} }}, {{ name: …, {interval} }}]"
    )
}

impl Change {
    /// Returns the kind of change, one of [`CHANGES`].
    pub fn name(&self) -> &'static str {
        let [factor, limits, unlimited, shadow, ban] = CHANGES;
        match self {
            Self::Factor(_) => factor,
            Self::Limits(_) => limits,
            Self::Unlimited => unlimited,
            Self::Shadow => shadow,
            Self::Ban => ban,
        }
    }

    /// Returns the changed limit; `None`: no change, since it is not a target or would leave its bounds.
    fn of(&self, limit: &Limit) -> Option<Limit> {
        match self {
            Self::Factor(factor) => limit.under_further_factor(*factor).ok(),
            Self::Limits(LimitChanges { changes, .. }) => {
                let is_its = |change: &&LimitChange| {
                    change.params.name() == limit.params.name()
                        && change.name.as_deref().is_none_or(|name| *name == *limit.name)
                };
                changes.iter().find(is_its).map(|change| limit.with_params(change.params.clone()))
            }
            Self::Shadow => Some(limit.in_shadow()),
            Self::Unlimited | Self::Ban => None,
        }
    }
}

/// An override with its cache of changed limits.
struct CachedOverride {
    what: Arc<Override>,
    /// Changed limits by index and shadow: a rule of descriptors has copies of its limits that differ in shadow.
    /// `None`: no change. Filled when a request first meets a limit, since most overrides meet few.
    limits: FrozenMap<(u32, bool), Box<Option<Limit>>>,
}

impl CachedOverride {
    fn new(what: Arc<Override>) -> Self {
        Self { what, limits: FrozenMap::new() }
    }

    /// Returns a limit of the policy under this override; `None`: no change.
    fn changed(&self, limit: &Limit) -> Option<&Limit> {
        let number = (limit.index, limit.shadow);
        let known = self.limits.get(&number);
        known.unwrap_or_else(|| self.limits.insert(number, Box::new(self.what.change.of(limit)))).as_ref()
    }
}
