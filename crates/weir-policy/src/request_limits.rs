//! A request's own limits (`limit_spec`).

use thiserror::Error;

use super::{
    limits::{MAX_NAME_BYTES, ParsedLimit, is_name},
    tree::DEFAULT_ANCHOR,
};
use weir_core::{
    algorithm::ParamError,
    domain::{Charge, Key, key::MAX_SEGMENTS, request::MAX_LEVELS},
    plan::{Level, Levels, Limit, Origin, identify},
};

/// The pattern of a key of maximum depth.
const ANY: &str = "*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*";
const _: () = assert!(ANY.len() == 2 * MAX_SEGMENTS - 1);

/// Returns the pattern that every key of this depth matches.
fn pattern(depth: usize) -> &'static str {
    &ANY[..2 * depth - 1]
}

/// The limits of a request, resolved for its key.
#[derive(Clone, Debug)]
pub struct RequestLimits {
    /// The limits, root first, each with its depth.
    limits: Vec<(u8, Limit)>,
    /// Whether a refusal by one limit keeps the others from being charged.
    pub charge: Charge,
}

/// The reason why the limits of a request are invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestLimitsError {
    /// More than [`MAX_LEVELS`].
    #[error("at most {MAX_LEVELS} limits on one path, not {0}")]
    Count(usize),
    /// A limit covers more segments than the key has.
    #[error("depth {depth} is beyond the key's {segments} segments")]
    Depth {
        /// The index of the limit.
        index: usize,
        /// Its depth.
        depth: u32,
        /// The key's depth.
        segments: usize,
    },
    /// A name has control characters, or is too long or empty.
    #[error("a name must be at most {MAX_NAME_BYTES} bytes without control characters")]
    Name(usize),
    /// Two limits would share a count but differ.
    #[error("two limits of that name at that depth share their count, so they must be the same")]
    Clash(usize),
}

impl RequestLimitsError {
    /// Returns the error with its index replaced by `sources[index]`.
    #[must_use]
    pub fn renumbered(self, sources: &[usize]) -> Self {
        let source = |index: usize| sources.get(index).copied().unwrap_or(index);
        match self {
            Self::Count(count) => Self::Count(count),
            Self::Depth { index, depth, segments } => Self::Depth { index: source(index), depth, segments },
            Self::Name(index) => Self::Name(source(index)),
            Self::Clash(index) => Self::Clash(source(index)),
        }
    }

    /// Returns the invalid field, within the message that holds the limits.
    pub fn field(&self) -> String {
        match self {
            Self::Count(_) => "limits".to_owned(),
            Self::Depth { index, .. } => format!("limits[{index}].depth"),
            Self::Name(index) | Self::Clash(index) => format!("limits[{index}].name"),
        }
    }
}

impl RequestLimits {
    /// Resolves limits for `key`.
    ///
    /// # Errors
    /// [`RequestLimitsError`] for more limits than one path may have, a depth beyond the key, a bad name, or two limits
    /// that share a count and differ.
    pub fn new(parsed: Vec<ParsedLimit>, charge: Charge, key: &Key) -> Result<Self, RequestLimitsError> {
        if parsed.len() > MAX_LEVELS {
            return Err(RequestLimitsError::Count(parsed.len()));
        }
        let mut limits: Vec<(u8, Limit)> = Vec::with_capacity(parsed.len());
        for (index, ParsedLimit { name, depth, shadow, params, .. }) in parsed.into_iter().enumerate() {
            if depth as usize > key.depth() {
                return Err(RequestLimitsError::Depth { index, depth, segments: key.depth() });
            }
            if name.as_deref().is_some_and(|name| !is_name(name)) {
                return Err(RequestLimitsError::Name(index));
            }
            let depth = if depth == 0 { key.depth() } else { depth as usize };
            let is_of_kind = |(at, other): &&(u8, Limit)| *at == depth as u8 && other.params.name() == params.name();
            let ordinal = limits.iter().filter(is_of_kind).count();
            let limit = Limit::new(Origin::Request, name.as_deref(), pattern(depth), ordinal, shadow, params);
            let duplicate = |(at, other): &&(u8, Limit)| *at == depth as u8 && other.ident() == limit.ident();
            if limit.is_named() && limits.iter().find(duplicate).is_some_and(|(_, other)| other != &limit) {
                return Err(RequestLimitsError::Clash(index));
            }
            limits.push((depth as u8, limit));
        }
        limits.sort_by_key(|(depth, _)| *depth);
        for level in limits.chunk_by_mut(|(one, _), (other, _)| one == other) {
            identify(level.iter_mut().map(|(_, limit)| limit));
        }
        Ok(Self { limits, charge })
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Adds the levels of a request with these limits, root first; see [`super::Domain::add_levels`].
    ///
    /// # Errors
    /// [`ParamError`] when `factor` takes a limit beyond its bounds.
    pub fn add_levels<'a>(
        &'a self,
        levels: &mut Levels<'a>,
        key: &'a Key,
        anchor: Option<u8>,
        cost: i64,
        factor: f64,
    ) -> Result<(), ParamError> {
        for (depth, limit) in &self.limits {
            let level = Level::new(key, *depth, anchor.unwrap_or(DEFAULT_ANCHOR), limit, cost);
            levels.extend(level.under_factor(factor)?);
        }
        Ok(())
    }
}
