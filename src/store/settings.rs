//! Which store, and its bounds.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::memory::{MemorySettings, WhenFull, snapshot::SnapshotSettings};

/// The store's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreSettings {
    /// Where counts live.
    pub url: StoreUrl,
    /// Most states in memory: one for each limit and actual key.
    pub max_keys: usize,
    /// What happens to requests for more.
    pub when_full: WhenFull,
    /// The file that outlives this process.
    pub snapshot: SnapshotSettings,
}

impl StoreSettings {
    /// What the memory store is made of.
    pub fn memory(&self) -> MemorySettings {
        MemorySettings { max_keys: self.max_keys, when_full: self.when_full }
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        let MemorySettings { max_keys, when_full } = MemorySettings::default();
        Self { url: StoreUrl::Memory, max_keys, when_full, snapshot: SnapshotSettings::default() }
    }
}

/// Where counts live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum StoreUrl {
    /// In this process.
    Memory,
}

impl std::str::FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        // A URL may hold a password: only its scheme is told.
        let scheme = text.split(':').next().unwrap_or_default();
        Err(format!("there is no store `{scheme}`; known is `memory`"))
    }
}

impl TryFrom<String> for StoreUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
        }
    }
}

impl From<StoreUrl> for String {
    fn from(url: StoreUrl) -> Self {
        url.to_string()
    }
}
