//! Overrides as `weir overrides --json` has printed them, put over a policy that is explained.

use std::{fs, path::Path, sync::Arc};

use prost_types::Timestamp;
use serde::Deserialize;
use weir_core::{
    algorithm::Bounds,
    domain::{Clock, Micros, time::SECOND},
};
use weir_policy::{
    Overrides,
    overrides::{Change, LimitChanges, Override},
};
use weir_store::SystemClock;

use super::Failure;

/// A line of `weir overrides --json`.
#[derive(Deserialize)]
struct Line {
    id: String,
    domain: String,
    key: Vec<String>,
    factor: Option<f64>,
    limits: Option<String>,
    #[serde(default)]
    unlimited: bool,
    #[serde(default)]
    shadow: bool,
    #[serde(default)]
    ban: bool,
    reason: String,
    author: String,
    set_at: String,
    start: String,
    end: Option<String>,
}

/// The overrides in a file.
pub(super) fn load(path: &Path, bounds: &Bounds) -> Result<Overrides, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    let mut overrides = Overrides::new(Arc::new(SystemClock::new()) as Arc<dyn Clock>);
    for (index, line) in text.lines().enumerate() {
        let wrong = |error: String| Failure(format!("{}, line {}: {error}", path.display(), index + 1));
        let line: Line = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        overrides.put(Arc::new(line.read(bounds).map_err(wrong)?));
    }
    Ok(overrides)
}

impl Line {
    fn read(self, bounds: &Bounds) -> Result<Override, String> {
        let change = match &self {
            Self { ban: true, .. } => Change::Ban,
            Self { unlimited: true, .. } => Change::Unlimited,
            Self { shadow: true, .. } => Change::Shadow,
            Self { factor: Some(factor), .. } => Change::Factor(*factor),
            Self { limits: Some(limits), .. } => {
                Change::Limits(LimitChanges::parse(limits, bounds).map_err(|error| error.to_string())?)
            }
            _ => return Err("it changes nothing that this version knows".to_owned()),
        };
        let one = Override {
            id: self.id.into(),
            domain: self.domain.into(),
            pattern: self.key.into_iter().map(Into::into).collect(),
            change,
            reason: self.reason.into(),
            author: self.author.into(),
            set_at: moment(&self.set_at)?,
            start: moment(&self.start)?,
            end: self.end.as_deref().map(moment).transpose()?,
        };
        one.check_bounds().map_err(|error| error.to_string())?;
        Ok(one)
    }
}

fn moment(text: &str) -> Result<Micros, String> {
    let at: Timestamp = text.parse().map_err(|_| format!("`{text}` is not a moment"))?;
    Ok(at.seconds * SECOND + Micros::from(at.nanos / 1_000))
}
