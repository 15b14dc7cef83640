//! The stored form of overrides: JSON that an operator can read.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_core::{algorithm::Bounds, domain::Micros};
use weir_policy::overrides::{Change, LimitChanges, Override, OverrideError};

/// The stored form of an override, with exactly one of the five changes.
#[derive(Serialize, Deserialize)]
struct Stored {
    id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    domain: String,
    key: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limits: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    unlimited: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    shadow: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    ban: bool,
    reason: String,
    author: String,
    set_at_us: Micros,
    start_us: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_us: Option<Micros>,
}

/// An override in the store.
#[derive(Clone, Debug)]
pub enum StoredOverride {
    /// One that this replica applies.
    Readable(Arc<Override>),
    /// One that it does not: this version does not know its change, or the settings do not allow it.
    Unreadable {
        /// The id; empty if there is none.
        id: String,
        /// The domain.
        domain: Box<str>,
        /// The pattern of the keys.
        pattern: Box<[Box<str>]>,
    },
}

impl StoredOverride {
    /// Returns the domain and the pattern.
    pub fn keys(&self) -> (&str, &[Box<str>]) {
        match self {
            Self::Readable(one) => (&one.domain, &one.pattern),
            Self::Unreadable { domain, pattern, .. } => (domain, pattern),
        }
    }

    /// Parses the document of this name.
    pub fn parse(name: &str, text: &str, bounds: &Bounds) -> Self {
        read(text, bounds).map_or_else(|_| Self::unreadable(name, text), Self::Readable)
    }

    pub(super) fn unreadable(name: &str, text: &str) -> Self {
        let (domain, pattern) = serde_json::from_str(name).unwrap_or_default();
        Self::Unreadable { id: id(text).unwrap_or_default(), domain, pattern }
    }
}

/// Reasons why a stored override is ignored.
#[derive(Debug, Error)]
pub enum StoredOverrideError {
    /// The document is not JSON of this form.
    #[error("it cannot be read")]
    Form(#[from] serde_json::Error),
    /// The override is out of bounds.
    #[error(transparent)]
    Bounds(#[from] OverrideError),
    /// This version does not know its change.
    #[error("it changes nothing that this version knows")]
    Change,
}

/// Returns the name under which an override is stored, which is the same for overrides of the same keys.
pub(super) fn name(domain: &str, pattern: &[Box<str>]) -> String {
    serde_json::json!([domain, pattern]).to_string()
}

/// Serializes an override for the store.
pub(super) fn write(one: &Override) -> String {
    let text = |text: &str| text.to_owned();
    let mut stored = Stored {
        id: text(&one.id),
        domain: text(&one.domain),
        key: one.pattern.iter().map(|segment| text(segment)).collect(),
        factor: None,
        limits: None,
        unlimited: one.change == Change::Unlimited,
        shadow: one.change == Change::Shadow,
        ban: one.change == Change::Ban,
        reason: text(&one.reason),
        author: text(&one.author),
        set_at_us: one.set_at,
        start_us: one.start,
        end_us: one.end,
    };
    match &one.change {
        Change::Factor(factor) => stored.factor = Some(*factor),
        Change::Limits(limits) => stored.limits = Some(text(limits.text())),
        Change::Unlimited | Change::Shadow | Change::Ban => {}
    }
    serde_json::json!(stored).to_string()
}

/// Parses a stored override.
///
/// # Errors
/// [`StoredOverrideError`].
pub fn read(text: &str, bounds: &Bounds) -> Result<Arc<Override>, StoredOverrideError> {
    let stored: Stored = serde_json::from_str(text)?;
    let change = match &stored {
        Stored { ban: true, .. } => Change::Ban,
        Stored { unlimited: true, .. } => Change::Unlimited,
        Stored { shadow: true, .. } => Change::Shadow,
        Stored { factor: Some(factor), .. } => Change::Factor(*factor),
        Stored { limits: Some(limits), .. } => Change::Limits(LimitChanges::parse_stored(limits, bounds)?),
        _ => return Err(StoredOverrideError::Change),
    };
    let one = Override {
        id: stored.id.into(),
        domain: stored.domain.into(),
        pattern: stored.key.into_iter().map(Into::into).collect(),
        change,
        reason: stored.reason.into(),
        author: stored.author.into(),
        set_at: stored.set_at_us,
        start: stored.start_us,
        end: stored.end_us,
    };
    one.check_bounds()?;
    Ok(Arc::new(one))
}

/// Returns the id of a stored override, also of one that cannot be read otherwise.
pub(super) fn id(text: &str) -> Option<String> {
    let stored: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(stored.get("id")?.as_str()?.to_owned())
}

fn is_false(flag: &bool) -> bool {
    !flag
}
