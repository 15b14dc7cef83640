//! The credentials of connections: from the URL, the settings, or a file that may change.

use std::path::{Path, PathBuf};

use super::settings::{RedisSettings, SentinelSettings};
use crate::url::Credentials;
use weir_settings::{
    Secret,
    file::{self, is_set},
};

/// Longest file of a password in bytes.
const MAX_PASSWORD_BYTES: u64 = 4_096;

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialsSource {
    /// As configured; the password may be in the file instead.
    credentials: Credentials,
    /// Holds the password, if it is not empty.
    file: PathBuf,
}

impl CredentialsSource {
    /// For servers: settings override the URL, part by part.
    pub fn of_servers(url: Option<&Credentials>, settings: &RedisSettings) -> Self {
        let url = url.cloned().unwrap_or_default();
        let or = |set: &String, other: String| if set.is_empty() { other } else { set.clone() };
        let password = if settings.password.is_empty() { url.password } else { settings.password.clone() };
        let credentials = Credentials { user: or(&settings.username, url.user), password };
        Self { credentials, file: settings.password_file.clone() }
    }

    /// For Sentinels.
    pub fn of_sentinels(settings: &SentinelSettings) -> Self {
        let credentials = Credentials { user: settings.username.clone(), password: settings.password.clone() };
        Self { credentials, file: settings.password_file.clone() }
    }

    /// Whether there is a user without any password.
    pub fn lacks_password(&self) -> bool {
        !self.credentials.user.is_empty() && self.credentials.password.is_empty() && !self.reads_file()
    }

    /// Whether the password is in a file.
    pub(super) fn reads_file(&self) -> bool {
        is_set(&self.file)
    }

    /// The credentials as they are now; `None` where there is no password. Blocks while it reads the file.
    ///
    /// # Errors
    /// A sentence with the file's path, when it gives no password.
    pub fn read(&self) -> Result<Option<Credentials>, String> {
        let Credentials { user, password } = &self.credentials;
        let password = if self.reads_file() { read_password(&self.file)? } else { password.clone() };
        Ok((!password.is_empty()).then(|| Credentials { user: user.clone(), password }))
    }
}

/// The password in a file, without the line's end.
fn read_password(path: &Path) -> Result<Secret, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("password file {}: {what}", path.display());
    let text = file::read_text(path, MAX_PASSWORD_BYTES).map_err(|error| wrong(&error))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(wrong(&"empty")),
        text => Ok(text.to_owned().into()),
    }
}
