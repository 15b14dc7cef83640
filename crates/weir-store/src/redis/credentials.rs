//! Credentials of connections: from the URL, the settings, or a file that may change.

use std::path::{Path, PathBuf};

use super::settings::{RedisSettings, SentinelSettings};
use crate::url::Credentials;
use weir_settings::{
    Secret,
    file::{self, is_set},
};

/// Largest password file in bytes.
const MAX_PASSWORD_BYTES: u64 = 4_096;

/// The source of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialsSource {
    /// Configured credentials. The password may come from `file` instead.
    credentials: Credentials,
    /// Password file; empty: none.
    file: PathBuf,
}

impl CredentialsSource {
    /// Credentials for servers. Settings override the user and the password of the URL individually.
    pub fn of_servers(url: Option<&Credentials>, settings: &RedisSettings) -> Self {
        let url = url.cloned().unwrap_or_default();
        let or = |set: &String, other: String| if set.is_empty() { other } else { set.clone() };
        let password = if settings.password.is_empty() { url.password } else { settings.password.clone() };
        let credentials = Credentials { user: or(&settings.username, url.user), password };
        Self { credentials, file: settings.password_file.clone() }
    }

    /// Credentials for Sentinels.
    pub fn of_sentinels(settings: &SentinelSettings) -> Self {
        let credentials = Credentials { user: settings.username.clone(), password: settings.password.clone() };
        Self { credentials, file: settings.password_file.clone() }
    }

    /// Whether there is a user name without a password.
    pub fn lacks_password(&self) -> bool {
        !self.credentials.user.is_empty() && self.credentials.password.is_empty() && !self.reads_file()
    }

    /// Whether the password is in a file.
    pub(super) fn reads_file(&self) -> bool {
        is_set(&self.file)
    }

    /// Returns the current credentials; `None` without a password. Blocks while reading the file.
    ///
    /// # Errors
    /// A message with the file's path if the file has no usable password.
    pub fn read(&self) -> Result<Option<Credentials>, String> {
        let Credentials { user, password } = &self.credentials;
        let password = if self.reads_file() { read_password(&self.file)? } else { password.clone() };
        Ok((!password.is_empty()).then(|| Credentials { user: user.clone(), password }))
    }
}

/// Reads a password file, without the line ending.
fn read_password(path: &Path) -> Result<Secret, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("password file {}: {what}", path.display());
    let text = file::read_text(path, MAX_PASSWORD_BYTES).map_err(|error| wrong(&error))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(wrong(&"empty")),
        text => Ok(text.to_owned().into()),
    }
}
