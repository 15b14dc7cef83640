//! The one script: what the algorithms' Lua halves share, the halves, the driver that runs them, and the tasks.

use std::{borrow::Cow, sync::LazyLock};

use crate::algorithm::{LIST, LUA_PRELUDE};

/// The script's text, the same on every replica of one version.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let halves = LIST.iter().map(|entry| Cow::from(entry.lua));
        let names: Vec<_> = LIST.iter().map(|entry| entry.name).collect();
        let steps = Cow::from(format!("local steps = {{{}}}\n", names.join(", ")));
        let parts = LUA_PRELUDE.iter().map(|(_, part)| Cow::from(*part)).chain(halves);
        let own = [include_str!("driver.lua"), include_str!("tasks.lua")].map(Cow::from);
        parts.chain([steps]).chain(own).collect()
    });
    &TEXT
}

/// What a call of the script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Decides plans.
    Decide = 0,
    /// Forgets states of one anchor.
    Reset = 1,
    /// Shows that the server runs the script and takes writes.
    Probe = 2,
}
