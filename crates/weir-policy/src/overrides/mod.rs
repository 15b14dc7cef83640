//! Overrides: what an operator puts over the limits of a policy, for one key or all that a pattern matches, for a time.

mod effect;
#[cfg(test)]
mod tests;
mod tree;

use std::{
    fmt::{self, Display, Formatter},
    sync::Arc,
};

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

use crate::limits::{WrittenLimit, read_limits};
pub use effect::{Effect, MAX_EFFECTS, effects};
pub use tree::{Acting, Applied, Overrides};
use weir_settings::{
    document::{self, Node, Value},
    problem::Problems,
};

/// The segment of a pattern that matches any segment.
pub const ANY: &str = "*";
/// What overrides change, as metrics, logs and people name it.
pub const CHANGES: [&str; 5] = ["factor", "limits", "unlimited", "shadow", "ban"];
/// Most bytes of a reason.
pub const MAX_REASON_BYTES: usize = 1_024;
/// Most bytes of the limits that an override changes.
const MAX_LIMITS_BYTES: usize = 16 << 10;
/// Most limits of which an override changes the parameters.
pub const MAX_LIMITS: usize = 16;
/// The factors that an override may have.
pub const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// An override.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// Its id, which no other has had.
    pub id: Box<str>,
    /// The domain.
    pub domain: Box<str>,
    /// The keys: those whose first segments are these, where [`ANY`] matches each. Without any, all of the domain.
    pub pattern: Box<[Box<str>]>,
    /// What it changes, of the limits at the pattern's depth and below.
    pub change: Change,
    /// Why, in the operator's words.
    pub reason: Box<str>,
    /// Who set it.
    pub author: Box<str>,
    /// When, by the store's clock.
    pub set_at: Micros,
    /// From then on, by the store's clock.
    pub start: Micros,
    /// Until then, exclusive; `None`: until it is ended.
    pub end: Option<Micros>,
}

/// What an override changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Divides the limits, with the policy's factor and the request's.
    Factor(f64),
    /// Gives limits other parameters.
    Limits(LimitChanges),
    /// Lifts the limits.
    Unlimited,
    /// The limits are evaluated and counted, and refuse nothing.
    Shadow,
    /// Every request is refused, also one that brings limits of its own.
    Ban,
}

/// Other parameters for limits, as a policy file writes limits.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitChanges {
    text: Box<str>,
    changes: Vec<LimitChange>,
}

/// Other parameters for limits.
#[derive(Clone, Debug, PartialEq)]
struct LimitChange {
    /// The limit's name; `None`: every limit of the same algorithm.
    name: Option<Box<str>>,
    /// Its parameters.
    params: Params,
}

/// What is wrong with an override.
#[derive(Debug, Error)]
pub enum OverrideError {
    /// Too many segments.
    #[error("a pattern has at most {MAX_SEGMENTS} segments, this one has {0}")]
    Depth(usize),
    /// A segment that no key has.
    #[error("a segment has 1 to {MAX_SEGMENT_BYTES} bytes, the one at {0} has {1}")]
    Segment(usize, usize),
    /// The name of the domain is longer than any.
    #[error("the domain has {0} bytes, the most is {MAX_SEGMENT_BYTES}")]
    Domain(usize),
    /// A factor out of bounds.
    #[error("a factor is {least} to {most}, not {0}", least = FACTORS.start(), most = FACTORS.end())]
    Factor(f64),
    /// Limits that cannot be read, or none, or too many.
    #[error("{0}")]
    Limits(String),
    /// No reason, or one that is too long.
    #[error("a reason has 1 to {MAX_REASON_BYTES} bytes, this one has {0}")]
    Reason(usize),
    /// It ends before it starts.
    #[error("it ends before it starts")]
    End,
}

impl OverrideError {
    /// The field of an override that is wrong, as in the API.
    pub fn field(&self) -> String {
        match self {
            Self::Depth(_) => "key".to_owned(),
            Self::Segment(index, _) => format!("key[{index}]"),
            Self::Domain(_) => "domain".to_owned(),
            Self::Factor(_) => "factor".to_owned(),
            Self::Limits(_) => "limits".to_owned(),
            Self::Reason(_) => "reason".to_owned(),
            Self::End => "end".to_owned(),
        }
    }
}

impl Override {
    /// Says what is wrong with it.
    ///
    /// # Errors
    /// [`OverrideError`] names the field.
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

    /// Whether it acts at that time. One that was set without a start does until its end, also where the clock is behind the
    /// moment at which it was set.
    pub fn acts_at(&self, now: Micros) -> bool {
        (self.start <= now || self.start == self.set_at) && self.end.is_none_or(|end| now < end)
    }

    /// Whether its pattern matches a key of its domain.
    pub fn concerns(&self, key: &Key) -> bool {
        let matches = |(segment, of_key): (&str, &[u8])| segment == ANY || segment.as_bytes() == of_key;
        let segments = self.pattern.iter().map(|segment| &**segment);
        key.depth() >= self.pattern.len() && segments.zip(key.segments()).all(matches)
    }
}

impl LimitChanges {
    /// Reads a list of limit maps in YAML, or one map. A limit without a name stands for all of its algorithm.
    ///
    /// # Errors
    /// [`OverrideError::Limits`] says what is wrong.
    pub fn parse(text: &str, bounds: &Bounds) -> Result<Self, OverrideError> {
        let wrong = |problems: Problems| OverrideError::Limits(problems.to_string());
        if text.len() > MAX_LIMITS_BYTES {
            return Err(OverrideError::Limits(format!("limits are at most {MAX_LIMITS_BYTES} bytes")));
        }
        let mut problems = Problems::default();
        let mut written = Vec::new();
        if let Some(node) = document::parse(text).map_err(wrong)? {
            let node = match &node.value {
                Value::Map(_) => Node { mark: node.mark, plain: false, value: Value::List(vec![node]) },
                _ => node,
            };
            written = read_limits(&node, "limits", false, bounds, &mut problems);
        }
        if !problems.0.is_empty() {
            return Err(wrong(problems));
        }
        if !(1..=MAX_LIMITS).contains(&written.len()) {
            return Err(OverrideError::Limits(format!(
                "1 to {MAX_LIMITS} limits get other parameters, not {}",
                written.len()
            )));
        }
        let change = |limit: WrittenLimit| LimitChange { name: limit.name.map(Into::into), params: limit.params };
        Ok(Self { text: text.into(), changes: written.into_iter().map(change).collect() })
    }

    /// The limits that get other parameters: the name, or `None` for all of the algorithm, and the algorithm.
    pub fn targets(&self) -> impl Iterator<Item = (Option<&str>, &'static str)> {
        self.changes.iter().map(|change| (change.name.as_deref(), change.params.name()))
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Change {
    /// What it is, of [`CHANGES`].
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

    /// A limit under it; `None` where it stays as it is: another one is changed, or it would leave its bounds.
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

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Factor(factor) => write!(f, "limits divided by {factor}"),
            Self::Limits(limits) => {
                for (index, LimitChange { name, params }) in limits.changes.iter().enumerate() {
                    let name = name.as_ref().map_or(String::new(), |name| format!("{name}: "));
                    let comma = if index > 0 { ", " } else { "" };
                    write!(f, "{comma}{name}{} {}", params.name(), params.describe())?;
                }
                Ok(())
            }
            Self::Unlimited => write!(f, "unlimited"),
            Self::Shadow => write!(f, "shadow"),
            Self::Ban => write!(f, "banned"),
        }
    }
}

/// An override with the limits that it has changed so far.
struct Active {
    what: Arc<Override>,
    /// By the numbers of the policy's limits, and whether they are in shadow, as a rule of descriptors has copies that are not; `None`: as it is. Made when a request first meets them: most overrides meet few.
    limits: FrozenMap<(u32, bool), Box<Option<Limit>>>,
}

impl Active {
    fn new(what: Arc<Override>) -> Self {
        Self { what, limits: FrozenMap::new() }
    }

    /// A limit of the policy under it; `None`: as it is.
    fn changed(&self, limit: &Limit) -> Option<&Limit> {
        let number = (limit.index, limit.shadow);
        let known = self.limits.get(&number);
        known.unwrap_or_else(|| self.limits.insert(number, Box::new(self.what.change.of(limit)))).as_ref()
    }
}
