//! Settings from the flags of a command.

use std::path::PathBuf;

use figment::value::{Dict, Value};

use super::source::SettingOrigins;

/// Settings from flags, which take precedence over all others.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--limits`.
    pub limits: Option<PathBuf>,
    /// `--allow-all`.
    pub allow_all: bool,
    /// `--store`.
    pub store: Option<String>,
}

impl Flags {
    pub(super) fn values(&self, origins: &mut SettingOrigins) -> Dict {
        let mut dict = Dict::new();
        // Each of the two overrides the other one in the file and the environment.
        let limits = self.limits.as_ref().map(|limits| limits.to_string_lossy().into_owned());
        if let Some(limits) = limits.or(self.allow_all.then(String::new)) {
            origins.set("limits", if self.allow_all { "--allow-all" } else { "--limits" });
            dict.insert("limits".to_owned(), Value::from(limits));
            dict.insert("allow_all".to_owned(), Value::from(self.allow_all));
        }
        if let Some(store) = &self.store {
            origins.set("store.url", "--store");
            dict.insert("store".to_owned(), Value::from(Dict::from([("url".to_owned(), Value::from(store.clone()))])));
        }
        dict
    }
}
