//! The entry of an algorithm in the list, and the Lua code that they share.

#[cfg(test)]
use super::properties;
use super::{Bounds, FileParams, LIST, ParamError, Parameter, Params};

/// One line of the list.
pub struct Entry {
    /// The name in files, and of the Lua function.
    pub name: &'static str,
    /// The Lua half: a `local function` of that name, and `<name>_charge` and `<name>_next` if the Rust half has the
    /// like.
    pub lua: &'static str,
    /// The names of the parameters in files, in the order of the message's fields.
    pub fields: &'static [&'static str],
    /// Returns the parameters in that order, with their forms.
    pub parameters: fn() -> Vec<Parameter>,
    /// Example parameters, as a file would write them, for the manual, the properties, tests of stores and benches.
    /// The first has a burst of about ten units and one unit a second. The others include the
    /// bounds of exactness, one whose states expire after half a second to two, and two of 100 to
    /// 700 units that refill only after hours (two, as the windows of one may end now).
    pub examples: &'static [&'static [(&'static str, &'static str)]],
    /// Parses the parameters; the error names the first field that is missing, unreadable or out of bounds.
    pub parse: fn(&FileParams<'_>, &Bounds) -> Result<Params, ParamError>,
    /// The spec for the properties.
    #[cfg(test)]
    pub(crate) spec: &'static properties::Spec,
}

/// The Lua code that algorithms share, by file, in the order of its dependencies. Definitions have the name of their
/// file as prefix, except those that all files use.
pub const LUA_PRELUDE: [(&str, &str); 7] = [
    ("numbers.lua", include_str!("numbers.lua")),
    ("accepted_wait.lua", include_str!("accepted_wait.lua")),
    ("span.lua", include_str!("span.lua")),
    ("tat.lua", include_str!("tat.lua")),
    ("aligned.lua", include_str!("aligned.lua")),
    ("runs.lua", include_str!("runs.lua")),
    ("sliding.lua", include_str!("sliding.lua")),
];

/// Returns the algorithms that limit units over time: all but [`concurrency`](super::concurrency).
pub fn rates() -> impl Iterator<Item = &'static Entry> + Clone {
    LIST.iter().filter(|entry| entry.name != "concurrency")
}

/// Returns the algorithm of this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    LIST.iter().find(|entry| entry.name == name)
}

impl Params {
    /// Returns the algorithm's position in [`LIST`].
    pub fn number(&self) -> usize {
        LIST.iter().position(|entry| entry.name == self.name()).unwrap_or_default()
    }
}
