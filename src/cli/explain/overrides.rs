//! Overrides, as printed by `weir overrides --json`, that are applied to the explained policy.

use std::{fs, path::Path, sync::Arc};

use weir_core::{algorithm::Bounds, domain::Clock};
use weir_policy::Overrides;
use weir_store::SystemClock;

use super::Failure;
use crate::{dial::cause, overrides};

/// Loads the overrides in a file.
pub(super) fn load(path: &Path, bounds: &Bounds) -> Result<Overrides, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    let mut read = Overrides::new(Arc::new(SystemClock::new()) as Arc<dyn Clock>);
    for (index, line) in text.lines().enumerate() {
        let one = overrides::read(line, bounds);
        read.put(one.map_err(|error| Failure(format!("{}, line {}: {}", path.display(), index + 1, cause(&error))))?);
    }
    Ok(read)
}
