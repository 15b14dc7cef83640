//! The environment variables of envoyproxy/ratelimit and their equivalents, read from the table of `docs/envoy.md`.

use std::sync::LazyLock;

/// The guide with the table, and the table's head.
const GUIDE: &str = include_str!("../../../docs/envoy.md");
const HEAD: &str = "| variable | here |\n|---|---|\n";

/// All variables. A row that is not valid is left out, which a test finds.
static TABLE: LazyLock<Vec<Variable>> = LazyLock::new(|| rows().filter_map(Variable::parse).collect());

fn rows() -> impl Iterator<Item = &'static str> {
    let (_, table) = GUIDE.split_once(HEAD).unwrap_or_default();
    table.lines().take_while(|row| row.starts_with('|'))
}

/// A variable, or several if there is a `*` in the name.
pub(super) struct Variable {
    pub name: &'static str,
    pub equivalent: Equivalent,
    /// A remark: how the setting differs, or why there is none. It contains no value of any variable.
    pub note: &'static str,
}

/// The equivalent of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Equivalent {
    Setting(&'static str),
    /// None, because none is needed.
    NotNeeded,
    /// None, because the feature does not exist.
    Unsupported,
}

use Equivalent::{NotNeeded, Setting, Unsupported};

impl Variable {
    /// Parses a row: "| `HOST` | `http.listen`: with PORT |", with "not needed" or "no equivalent" in place of a setting.
    fn parse(row: &'static str) -> Option<Self> {
        let (name, here) = row.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        let (equivalent, note) = here.split_once(": ").unwrap_or((here, ""));
        let equivalent = match equivalent {
            "not needed" => NotNeeded,
            "no equivalent" => Unsupported,
            setting => Setting(setting.strip_prefix('`')?.strip_suffix('`')?),
        };
        Some(Self { name, equivalent, note })
    }

    /// Whether the name is this variable's, or matches its `*`.
    fn covers(&self, name: &str) -> bool {
        match self.name.split_once('*') {
            Some((head, tail)) => {
                name.len() > head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
            }
            None => self.name == name,
        }
    }
}

/// Returns the variable of this name, if envoyproxy/ratelimit has it.
pub(super) fn find(name: &str) -> Option<&'static Variable> {
    TABLE.iter().find(|variable| variable.covers(name))
}

/// Returns the setting that is the equivalent of a variable.
pub(super) fn setting(name: &str) -> Option<&'static str> {
    match find(name)?.equivalent {
        Setting(key) => Some(key),
        NotNeeded | Unsupported => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    #[test]
    fn each_row_is_read_and_names_a_setting() {
        let settings = serde_json::to_value(Settings::default()).unwrap();
        for row in rows() {
            let variable = Variable::parse(row).expect(row);
            let Setting(key) = variable.equivalent else { continue };
            assert!(settings.pointer(&format!("/{}", key.replace('.', "/"))).is_some(), "{row}");
        }
        assert_eq!(rows().count(), 119);
    }

    #[test]
    fn no_variable_is_listed_twice() {
        for (at, variable) in TABLE.iter().enumerate() {
            let first = TABLE.iter().position(|other| other.covers(variable.name));
            let same = variable.name.contains('*') || first == Some(at);
            assert!(same, "{} is covered before", variable.name);
        }
        assert_eq!(find("DOG_STATSD_MOGRIFIER_1_NAME").map(|found| found.name), Some("DOG_STATSD_MOGRIFIER*"));
        assert!(find("REDIS_PERSECOND_").is_none() && find("PATH").is_none());
    }
}
