//! The lines of a trace, as JSON.

use serde::Deserialize;
use weir_core::{
    algorithm::Bounds,
    domain::{Charge, Micros, time::MAX_MOMENT},
};
use weir_policy::{RequestLimits, limits::read_limits};
use weir_settings::{Problems, document::Node};

use crate::limiter::{Invalid, Request};

/// One line of a trace.
#[derive(Debug)]
pub enum Line {
    /// A request to check.
    Check(CheckLine),
    /// A key to reset.
    Reset(ResetLine),
}

/// `{"at_us":0,"key":["user","alex"],…}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckLine {
    pub at_us: Micros,
    #[serde(default)]
    pub domain: String,
    pub key: Vec<String>,
    cost: Option<i64>,
    max_wait_us: Option<Micros>,
    factor: Option<f64>,
    limits: Option<serde_json::Value>,
    charge: Option<ChargeName>,
}

/// `{"at_us":9,"reset":["user","alex"],"subtree":true}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetLine {
    pub at_us: Micros,
    #[serde(default)]
    domain: String,
    reset: Vec<String>,
    #[serde(default)]
    pub subtree: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChargeName {
    AllOrNothing,
    Independent,
}

impl Line {
    /// Parses a line.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Nearly all lines are valid checks, which this parses in half the time.
        match serde_json::from_str(text) {
            Ok(line) => Self::Check(line).within_bounds(),
            Err(_) => Self::parse_any(text),
        }
    }

    fn parse_any(text: &str) -> Result<Self, String> {
        // Parsed as the form that it claims, so that an error is about one form and not both.
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let line = if value.get("reset").is_some() {
            serde_json::from_value(value).map(Self::Reset)
        } else {
            serde_json::from_value(value).map(Self::Check)
        };
        line.map_err(|error| error.to_string())?.within_bounds()
    }

    fn within_bounds(self) -> Result<Self, String> {
        match self.at_us() {
            0..=MAX_MOMENT => Ok(self),
            at => Err(format!("at_us must be 0 to 2^52, not {at}")),
        }
    }

    /// Returns the time of the line.
    pub fn at_us(&self) -> Micros {
        match self {
            Self::Check(line) => line.at_us,
            Self::Reset(line) => line.at_us,
        }
    }
}

impl CheckLine {
    /// Creates a check of `cost` units of a key.
    pub fn new(at_us: Micros, domain: String, key: Vec<String>, cost: Option<i64>) -> Self {
        Self { at_us, domain, key, cost, max_wait_us: None, factor: None, limits: None, charge: None }
    }

    /// Sets the longest wait to accept, and the factor.
    pub fn under(self, max_wait_us: Option<Micros>, factor: Option<f64>) -> Self {
        Self { max_wait_us, factor, ..self }
    }

    /// Returns the request of the line.
    pub fn request(&self, bounds: &Bounds) -> Result<Request<'_>, Invalid> {
        let charge = self.charge.map(|charge| match charge {
            ChargeName::AllOrNothing => Charge::AllOrNothing,
            ChargeName::Independent => Charge::Independent,
        });
        let mut request = Request::new(&self.domain, &self.key)?;
        let named = |error: Invalid| match error.field("").as_str() {
            "max_wait" => Invalid::field_error("max_wait_us", error.to_string()),
            _ => error,
        };
        let (cost, factor) = (self.cost.unwrap_or(1), self.factor.unwrap_or(1.0));
        request.set_terms(cost, self.max_wait_us, factor).map_err(named)?;
        request.charge = charge;
        if let Some(limits) = &self.limits {
            let mut problems = Problems::default();
            let written = read_limits(&Node::from(limits.clone()), "limits", true, bounds, &mut problems);
            if let Some(problem) = problems.0.into_iter().next() {
                return Err(Invalid::field_error(problem.field, problem.message));
            }
            request.spec = Some(RequestLimits::new(written, charge.unwrap_or_default(), &request.key)?.into());
        }
        Ok(request)
    }
}

impl ResetLine {
    /// Creates a reset of a key, and with `subtree` of all keys below it.
    pub fn new(at_us: Micros, domain: String, reset: Vec<String>, subtree: bool) -> Self {
        Self { at_us, domain, reset, subtree }
    }

    /// Returns the request that names the key.
    pub fn request(&self) -> Result<Request<'_>, Invalid> {
        let named = |error: Invalid| Invalid::field_error(error.field("").replace("key", "reset"), error.to_string());
        Request::new(&self.domain, &self.reset).map_err(named)
    }
}
