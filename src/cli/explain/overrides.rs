//! Overrides, as printed by `weir overrides --json`, that are applied to the explained policy.

use std::{fs, path::Path, sync::Arc};

use serde_json::Value;
use weir_core::{algorithm::Bounds, domain::Clock};
use weir_policy::Overrides;
use weir_store::SystemClock;

use super::Failure;
use crate::{cli::out::print_error, dial::cause, overrides};

/// Loads the overrides in a file.
pub(super) fn load(path: &Path, bounds: &Bounds) -> Result<Overrides, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
    let mut read = Overrides::new(Arc::new(SystemClock::new()) as Arc<dyn Clock>);
    for (index, line) in text.lines().enumerate() {
        let is_unreadable = |value: Value| value.get("unreadable") == Some(&Value::Bool(true));
        if serde_json::from_str(line).is_ok_and(is_unreadable) {
            print_error(format_args!(
                "weir: warning: {}, line {}: the replica could not read it",
                path.display(),
                index + 1
            ));
            continue;
        }
        let one = overrides::read(line, bounds);
        read.put(one.map_err(|error| Failure(format!("{}, line {}: {}", path.display(), index + 1, cause(&error))))?);
    }
    Ok(read)
}
